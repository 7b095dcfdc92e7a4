"""A homeserver that is away, for whatever long, ends no answer; what does is a definite refusal."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from corral.bridge.database import Target, connection
from corral.bridge.errors import LedgerError
from corral.bridge.incoming import Refusal
from corral.bridge.ports import PostAnswer, SendAnswer, Submission, TooLarge, Unreachable
from corral.local.wait import until_async, until_true
from tests.contract.bridge.bridge import PATIENCE_S, Bridge
from tests.contract.bridge.kit import mention
from tests.harness.bridge_world import Contents

LATE = "UPDATE bridge_delegations SET reply_pending_at = reply_pending_at - interval '3 days'"
EARLY = "UPDATE bridge_delegations SET created_at = created_at - interval '3 days'"
AWAY: list[PostAnswer] = [Unreachable("no_answer")]


@pytest.fixture
async def bridge(one_target: Target) -> AsyncIterator[Bridge]:
    async with Bridge(one_target) as made:
        yield made


async def failed(bridge: Bridge, times: int) -> None:
    async def seen() -> bool:
        return max([row["failures"] for row in await bridge.rows()], default=0) >= times

    await until_async(seen, PATIENCE_S, f"{times} failures")


def faulty(monkeypatch: pytest.MonkeyPatch, faults: int) -> None:
    """The first renderings of an answer show a fault of the program."""
    left, real = [None] * faults, Contents.answer

    def answer(contents: Contents, *args: Any, **more: Any) -> Any:
        if left:
            left.pop()
            raise ValueError("rendered")
        return real(contents, *args, **more)

    monkeypatch.setattr(Contents, "answer", answer)


async def test_a_homeserver_that_is_away_for_days_gets_the_answer_in_the_end(
    bridge: Bridge,
) -> None:
    bridge.world.rooms.problems = AWAY * 1_000
    await bridge.receive(mention("a", text="reply hello"))
    await failed(bridge, 2)
    await bridge.pool.execute(LATE)
    await failed(bridge, bridge.policy.attempts_max + 2)
    bridge.world.rooms.problems.clear()
    assert await bridge.quiet() == [("delivered", "answered")]
    assert bridge.world.rooms.said() == ["hello"]


async def test_what_fails_on_the_way_to_the_homeserver_is_as_if_it_were_away(
    bridge: Bridge,
) -> None:
    bridge.world.rooms.faulty = {"scout"}
    await bridge.receive(mention("a", text="reply hello"))
    await failed(bridge, bridge.policy.attempts_max + 2)
    assert (await bridge.rows())[0]["error_code"] == "fault_KeyError"
    bridge.world.rooms.faulty = set()
    assert await bridge.quiet() == [("delivered", "answered")]


async def test_a_fault_at_a_pin_is_no_fault_of_the_answer(
    one_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pins(*_: Any) -> None:
        raise KeyError("pinned")

    async with Bridge(one_target, placeholder_after_s=0.0, pin=True) as bridge:
        monkeypatch.setattr(bridge.world.rooms, "pins", pins)
        await bridge.receive(mention("a", text="task 0.2 x"))
        assert await bridge.quiet() == [("delivered", "answered")]
        assert ("unpin", "dead", "fault_KeyError") in await bridge.controls()


@pytest.mark.parametrize(("text", "said"), [
    ("reply hello", "hello"), ("task 0.1 hello", "hello"), ("ask color", "QUESTION which one?"),
])  # fmt: skip
async def test_an_answer_outlives_an_outage_of_the_database_that_is_longer_than_its_lease(
    one_target: Target, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    """The agent answered once and is not asked again: what it said is in this process only."""
    away = asyncio.Event()
    async with Bridge(one_target, lease_s=1.0) as bridge, connection(one_target) as made:
        agent, real = bridge.world.agent, bridge.world.agent.send

        async def send(submission: Submission) -> SendAnswer:
            answer = await real(submission)
            away.set()
            return answer

        def unless_away(name: str) -> Callable[..., Any]:
            does = getattr(bridge.pool, name)

            async def ask(*args: Any) -> Any:
                if away.is_set():
                    raise LedgerError("away")
                return await does(*args)

            return ask

        monkeypatch.setattr(agent, "send", send)
        for name in ("fetch", "fetchrow"):
            monkeypatch.setattr(bridge.pool, name, unless_away(name))
        await bridge.receive(mention("a", text=text))
        await asyncio.wait_for(away.wait(), PATIENCE_S)
        over = "SELECT lease_expires_at < now() - interval '1 s' FROM bridge_delegations"
        await until_async(lambda: made.fetchval(over), PATIENCE_S, "twice the lease")
        away.clear()
        told = bridge.world.rooms.said
        await until_true(lambda: said in told(), PATIENCE_S, "what came of it")
        assert len(agent.sends) == 1


async def test_a_fault_of_the_program_after_an_outage_has_tries_of_its_own(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms, most = bridge.world.rooms, bridge.policy.attempts_max
    rooms.problems = AWAY * (most + 2)
    faulty(monkeypatch, most - 1)
    await bridge.receive(mention("a", text="reply hello"))
    assert await bridge.quiet() == [("delivered", "answered")]
    assert rooms.said() == ["hello"]


async def test_an_answer_that_cannot_be_shown_ends_with_a_notice(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty(monkeypatch, bridge.policy.attempts_max)
    await bridge.receive(mention("a", text="reply hello"), mention("b", text="reply b"))
    assert await bridge.quiet(2) == [("dead", "retries_exhausted"), ("delivered", "answered")]
    assert bridge.world.rooms.said() == ["NOTICE retries_exhausted", "b"]
    assert (await bridge.rows())[0]["error_code"] == "ValueError"


async def test_a_part_that_is_too_large_is_told_beside_what_the_room_has(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def upload(*_: Any) -> TooLarge:
        return TooLarge()

    monkeypatch.setattr(bridge.world.rooms, "upload", upload)
    await bridge.receive(mention("a", text="artifacts 1 see below"))
    assert await bridge.quiet() == [("dead", "reply_undeliverable")]
    assert bridge.world.rooms.said() == ["see below", "NOTICE reply_undeliverable"]


async def test_a_question_of_which_nobody_knows_is_looked_for_when_ids_are_forgotten(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room had it, the answer was lost, and half a day later the homeserver knows no id."""
    rooms = bridge.world.rooms
    real: Callable[..., Any] = rooms.send
    lost: list[PostAnswer] = []

    async def send(*args: Any) -> PostAnswer:
        answer: PostAnswer = await real(*args)
        if rooms.events[-1].text.startswith("QUESTION") and not lost:
            lost.append(answer)
            rooms.events[:] = [replace(one, txn_id="forgotten") for one in rooms.events]
            await bridge.pool.execute(EARLY)
            return Unreachable("timeout")
        return answer

    monkeypatch.setattr(rooms, "send", send)
    await bridge.receive(mention("a", text="ask color"))

    async def posted() -> bool:
        return ("question", "applied", None) in await bridge.controls()

    await until_async(posted, PATIENCE_S, "the question to be known")
    assert rooms.said() == ["PLACEHOLDER", "QUESTION which one?"]


async def test_what_one_room_alone_does_not_take_for_a_day_is_given_up(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The homeserver serves everybody else meanwhile: that is no outage."""
    rooms = bridge.world.rooms
    real: Callable[..., Any] = rooms.send

    async def send(ghost: str, room_id: str, *more: Any) -> PostAnswer:
        if room_id == "!broken":
            return Unreachable("m_unknown")
        answer: PostAnswer = await real(ghost, room_id, *more)
        return answer

    monkeypatch.setattr(rooms, "send", send)
    await bridge.receive(mention("a", text="reply x", room="!broken"))
    await failed(bridge, bridge.policy.attempts_max + 2)
    await bridge.pool.execute(LATE)
    await failed(bridge, bridge.policy.attempts_max + 4)
    assert await bridge.states() == [("reply_pending", "answered")]  # nobody else was served
    await bridge.receive(mention("b", text="reply b"))
    assert await bridge.quiet(2) == [("dead", "reply_undeliverable"), ("delivered", "answered")]
    assert (await bridge.rows())[0]["error_code"] == "m_unknown"


async def test_a_notice_of_a_denial_waits_for_the_homeserver_as_well(bridge: Bridge) -> None:
    rooms = bridge.world.rooms
    rooms.problems = AWAY * 1_000
    await bridge.receive(Refusal(mention("a"), "sender_not_allowed"))
    await until_true(lambda: len(rooms.problems) < 999, PATIENCE_S, "two tries")
    await bridge.pool.execute(EARLY)
    seen = len(rooms.problems)
    await until_true(lambda: len(rooms.problems) < seen - 1, PATIENCE_S, "two more")
    rooms.problems.clear()
    await bridge.quiet()
    assert rooms.said() == ["NOTICE sender_not_allowed"]
