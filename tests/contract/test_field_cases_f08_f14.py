"""What breaks in the field, F08 to F14: turns that run twice, for ever, or never."""

from collections.abc import Mapping

import pytest

from corral.local.agent import answer as agent_answer
from corral.local.agent import prompt_for
from corral.local.deployment import DAEMON, RUNNER
from tests.contract.kit import AGENT, PAIRS, Backend, House, each_completed, only_answer
from tests.harness.armed import read_hits

OUTBOX = "scout:a2a:outbox"
ATTEMPTS_MAX = 4
PROMPT = prompt_for(b"while it refuses")


# ------------------------------------------------------------------------------------------ F08


async def refuse(house: House, how: str) -> None:
    """From now on the outbox takes nothing; the dead-letter stream does."""
    if how == "wrong type":
        await house.admin("DEL", OUTBOX)
        await house.admin("SET", OUTBOX, "not a stream")
    else:
        dead = "(~scout:a2a:inbox:dead +xadd)"
        await house.admin("ACL", "SETUSER", "agent-scout", "-xadd", dead)


async def allow(house: House, how: str) -> None:
    if how == "wrong type":
        await house.admin("DEL", OUTBOX)
    else:
        await house.admin("ACL", "SETUSER", "agent-scout", "clearselectors", "+xadd")


async def refusals(house: House) -> int:
    """How many `XADD` the server has refused."""
    facts: Mapping[str, int] = (await house.admin("INFO", "commandstats"))["cmdstat_xadd"]
    return int(facts["failed_calls"]) + int(facts["rejected_calls"])


@pytest.mark.parametrize("how", ["wrong type", "no right"])
async def test_f08_an_outbox_that_always_refuses(backend: Backend, how: str) -> None:
    changes = {"a2a": {"outbox_attempts_max": ATTEMPTS_MAX}}
    async with House(backend, only=("a2a",), changes=changes) as house:
        await house.start(RUNNER)
        async with house.inside():
            first = await house.send("a2a", "while it takes answers")
            await house.until_answered("a2a", [first])
            assert await refusals(house) == 0
            await refuse(house, how)
            second = await house.send("a2a", PROMPT, sender="bob", channel="c")
            await house.until_async(lambda: refused_at_least(house, 2), "two refusals")
        async with house.inside():  # what was counted stays counted
            await given_up(house, how, second)
            third = await house.send("a2a", "afterwards", channel="c")
            found = await house.until_answered("a2a", [third])
            assert only_answer(found, third).outcome == "completed"
            await house.until_quiet("a2a")
            assert (await house.counters("a2a"))["dead"] == 1
            assert len(await house.dead("a2a")) == 1
        assert [turn.rpartition(".")[2] for turn in house.starts()] == [first, second, third]


async def given_up(house: House, how: str, entry: str) -> None:
    """The dead letter, what the operator sees, and what becomes of the notice."""

    async def dead() -> bool:
        return len(await house.dead("a2a")) == 1

    await house.until_async(dead, "a dead letter")
    (letter,) = await house.dead("a2a")
    turn_id = f"{AGENT}.a2a.1.{entry}"
    assert letter[b"content"] == PROMPT
    assert letter[b"reply"] == agent_answer(PROMPT, turn_id)
    assert (letter[b"outcome"], letter[b"turn_id"]) == (b"outbox_refused", turn_id.encode())
    assert (letter[b"sender"], letter[b"channel"]) == (b"bob", b"c")
    state = await house.source("a2a")
    assert "outbox_refused" in [event["kind"] for event in state["events"]]
    assert state["oldest_unanswered"]["turn_id"] == turn_id  # its sender knows nothing yet
    if how == "wrong type":
        await allow(house, how)
        found = await house.until_answered("a2a", [entry])
        assert only_answer(found, entry).outcome == "outbox_refused"
        assert ATTEMPTS_MAX <= await refusals(house) <= 2 * ATTEMPTS_MAX
    else:

        async def undelivered() -> bool:
            return "notice_undelivered" in await house.events("a2a")

        await house.until_async(undelivered, "the notice to be given up")
        # One more where the end fell into an attempt; from the start again it were six more.
        assert 2 * ATTEMPTS_MAX <= await refusals(house) <= 2 * ATTEMPTS_MAX + 1
        await allow(house, how)


async def refused_at_least(house: House, count: int) -> bool:
    return await refusals(house) >= count


# ------------------------------------------------------------------------------------------ F09


async def test_f09_read_and_killed_before_anything_was_recorded(backend: Backend) -> None:
    arms = {DAEMON: {0: ("cowboy.read.done:1",)}}
    async with House(backend, only=("echo",), arms=arms) as house:
        entries = [await house.send("echo", f"{n}", channel=f"c{n}") for n in range(3)]
        await house.start(DAEMON)
        found = await house.until_answered("echo", entries)
        each_completed(found, entries)
        await house.until_quiet("echo")
        passed, kills = read_hits(house.base / "hits")
        assert [point for point, _ in kills] == ["cowboy.read.done"]
        assert "cowboy.drain.page" in passed  # the second process found them pending


# ------------------------------------------------------------------------------------------ F10


async def test_f10_a_claim_time_shorter_than_a_turn_starts_no_second_run(
    backend: Backend,
) -> None:
    changes = {"chat": {"reclaim_idle_ms": 100, "block_ms": 50}}
    async with House(backend, only=("chat",), changes=changes) as house:
        await house.start(RUNNER)

        async def claimed_again() -> bool:
            return max(await house.deliveries("chat"), default=0) >= 4

        async with house.inside():
            await house.until_state("chat", "running")
            slow = await house.send("chat", prompt_for(b"slow", work_s=2.0), channel="c")
            await house.until_async(claimed_again, "the entry to be claimed again and again")
            assert len(house.starts()) == 1
            assert await house.outbox("chat") == []
        async with house.inside():  # another life of the daemon knows it from the ledger
            found = await house.until_answered("chat", [slow])
            assert only_answer(found, slow).outcome == "completed"
            await house.until_quiet("chat")
            quick = await house.send("chat", "quick", channel="c")  # the control: it lives
            await house.until_answered("chat", [quick])
            assert [turn.rpartition(".")[2] for turn in house.starts()] == [slow, quick]
            assert (await house.counters("chat"))["starts"] == 2


# ------------------------------------------------------------------------------------------ F11


async def test_f11_messages_from_before_the_group(backend: Backend) -> None:
    async with House(backend, only=("echo",), changes={"echo": {"read_count": 7}}) as house:
        before = [await house.send("echo", f"{n}") for n in range(25)]
        assert not await house.has_group("echo")
        async with house.inside():
            found = await house.until_answered("echo", before)
            after = await house.send("echo", "after")
            found = await house.until_answered("echo", [*before, after])
            assert [only_answer(found, e).content for e in before] == [b"%d" % n for n in range(25)]
            assert list(found) == [*before, after]  # in their order
            await house.until_quiet("echo")


# ------------------------------------------------------------------------------------------ F12


async def test_f12_a_repeated_message_is_answered_once(backend: Backend) -> None:
    async with House(backend) as house:
        await house.start(RUNNER)

        async def say(source: str, text: str) -> str:
            return await house.send(source, text, channel="c", message_id="m1")

        first = await say("a2a", "hello")
        repeats = [await say("a2a", "hello") for _ in range(4)]  # in one batch with the first
        async with house.inside():
            await house.until_answered("a2a", [first])
            repeats.append(await say("a2a", "hello"))  # after its answer
            await house.until_quiet("a2a")
        repeats.append(await say("a2a", "hello"))
        async with house.inside():  # and after a restart
            await house.until_quiet("a2a")
            # The controls: other words under the same id, and another source's id.
            other = await say("a2a", "other words")
            elsewhere = await say("echo", "hello")
            found = await house.until_answered("a2a", [other])
            only_answer(await house.until_answered("echo", [elsewhere]), elsewhere)
            assert sorted(found) == sorted([first, other])
            assert only_answer(found, first).outcome == "completed"
            assert only_answer(found, other).outcome == "completed"
            counters = await house.counters("a2a")
            assert (counters["duplicate"], counters["conflict"]) == (len(repeats), 1)
            await house.until_quiet("a2a")
            assert [turn.rpartition(".")[2] for turn in house.starts()] == [first, other]


# ------------------------------------------------------------------------------------------ F13


@pytest.mark.parametrize(
    ("backend", "point"),
    list(zip(PAIRS, ("cowboy.received.committed", "cowboy.prepare.sent"), strict=True)),
    ids=str,
    indirect=["backend"],
)
async def test_f13_a_message_that_was_seen_and_not_started_is_not_swallowed(
    backend: Backend, point: str
) -> None:
    async with House(backend, only=("a2a",), arms={DAEMON: {0: (f"{point}:1",)}}) as house:
        await house.start(RUNNER)
        first = await house.send("a2a", "hello", message_id="m1")
        again = await house.send("a2a", "hello", message_id="m1")  # the producer's retry
        await house.start(DAEMON)
        later = await house.send("a2a", "hello", message_id="m1")  # and one more
        found = await house.until_answered("a2a", [first])
        await house.until_quiet("a2a")
        assert house.kills() == [point]
        assert only_answer(found, first).outcome == "completed"
        assert set(await house.by_entry("a2a")) == {first}
        assert (await house.counters("a2a"))["duplicate"] >= len((again, later))
        assert [turn.rpartition(".")[2] for turn in house.starts()] == [first]


# ------------------------------------------------------------------------------------------ F14


async def test_f14_killed_after_the_acknowledgement(backend: Backend) -> None:
    async with House(backend, only=("a2a",)) as house:
        await house.start()
        hanging = await house.send(
            "a2a", prompt_for(b"never ends", action="hang"), sender="bob", channel="c"
        )
        await house.until(lambda: len(house.starts()) == 1, "the agent to start")

        async def acknowledged() -> bool:
            return await house.pending("a2a") == 0

        await house.until_async(acknowledged, "the entry to be acknowledged")
        await house.slay(DAEMON, RUNNER)
        await house.start(DAEMON)  # Redis has nothing pending; the ledger knows
        state = await house.until_state("a2a", "running")
        assert state["acknowledged_unanswered"] == 1
        assert state["oldest_unanswered"]["turn_id"] == f"{AGENT}.a2a.1.{hanging}"
        assert "the runner does not answer" in state["reason"]
        assert await house.outbox("a2a") == []

        await house.start(RUNNER)  # which proves the run over first
        found = await house.until_answered("a2a", [hanging])
        notice = only_answer(found, hanging)
        assert (notice.slot, notice.outcome) == ("notice", "interrupted")
        assert notice.turn_id == f"{AGENT}.a2a.1.{hanging}"
        assert (notice.fields[b"sender"], notice.fields[b"channel"]) == (b"bob", b"c")
        await house.until_quiet("a2a")
        assert (await house.source("a2a"))["acknowledged_unanswered"] == 0
        after = await house.send("a2a", "after", channel="c")
        assert only_answer(await house.until_answered("a2a", [after]), after).slot == "reply"
        assert len(house.starts()) == 2
