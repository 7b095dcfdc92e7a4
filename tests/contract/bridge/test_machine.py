"""From a mention to its end, in a real ledger: every way that an agent and a room can answer."""

from collections.abc import AsyncIterator

import pytest

from corral.bridge.database import Target
from corral.bridge.domain import Limits
from corral.bridge.incoming import Cancel, Committed, Continuation, Refusal
from corral.bridge.machine import AgentPolicy, Pauses
from corral.bridge.ports import (
    AuthFailed,
    Card,
    Forbidden,
    GetAnswer,
    Limited,
    NeverLeft,
    TaskGone,
    TooLarge,
    Unreachable,
)
from corral.local.wait import until_async, until_true
from tests.contract.bridge.bridge import PATIENCE_S, Bridge
from tests.contract.bridge.kit import ALICE, ROOM, mention


@pytest.fixture
async def bridge(one_target: Target) -> AsyncIterator[Bridge]:
    async with Bridge(one_target) as made:
        yield made


async def test_a_mention_is_answered(target: Target) -> None:
    async with Bridge(target) as bridge:
        await bridge.receive(mention("a", text="reply hello"))
        assert await bridge.quiet() == [("delivered", "answered")]
        assert bridge.world.rooms.said() == ["hello"]
        [row] = await bridge.rows()
        assert row["primary_event_id"] == bridge.world.rooms.events[0].event_id
        assert (row["prompt"], row["result"], row["artifacts"]) == (None, None, None)
        assert row["attempts"] == 1


@pytest.mark.parametrize(("text", "end", "said"), [
    ("task 0.2 done", ("delivered", "answered"), "done"),
    ("fail", ("delivered", "task_failed"), "NOTICE task_failed"),
    ("reject", ("denied", "task_rejected"), "NOTICE task_rejected"),
    ("auth", ("denied", "auth_required"), "NOTICE auth_required"),
    ("refuse", ("denied", "agent_refused"), "NOTICE agent_refused"),
    ("lost x", ("ambiguous", "call_uncertain"), "NOTICE call_uncertain"),
    ("down 2 up", ("delivered", "answered"), "up"),
    ("unauthorized 7 up", ("delivered", "answered"), "up"),
    ("down 5 up", ("dead", "agent_unreachable"), "NOTICE agent_unreachable"),
    ("reply a|b|c", ("delivered", "answered"), "a"),
])  # fmt: skip
async def test_every_answer_has_its_end(
    bridge: Bridge, text: str, end: tuple[str, str], said: str
) -> None:
    await bridge.receive(mention("a", text=text))
    assert await bridge.quiet() == [end]
    assert bridge.world.rooms.said()[0] == said
    assert len(bridge.world.agent.sends) <= 1


async def test_an_unknown_ghost_is_denied(bridge: Bridge) -> None:
    await bridge.receive(mention("a", ghost="nobody"))
    assert await bridge.quiet() == [("denied", "agent_unknown")]


async def test_an_unreachable_card_is_tried_again_before_any_attempt(bridge: Bridge) -> None:
    bridge.world.agent.card_answer = Unreachable("timeout")
    await bridge.receive(mention("a", text="reply x"))
    await until_failures(bridge, 2)
    bridge.world.agent.card_answer = Card("agent", "1.0")
    assert await bridge.quiet() == [("delivered", "answered")]
    assert (await bridge.rows())[0]["never_left"] == 0


async def until_failures(bridge: Bridge, count: int) -> None:
    async def seen() -> bool:
        return int((await bridge.rows())[0]["failures"]) >= count

    await until_async(seen, PATIENCE_S, "failures")


async def test_a_long_task_has_placeholder_progress_and_edit(one_target: Target) -> None:
    async with Bridge(one_target, placeholder_after_s=0.0) as bridge:
        await bridge.receive(mention("a", text="progress 1.5 the end"))
        assert await bridge.quiet() == [("delivered", "answered")]
        said = bridge.world.rooms.said()
        assert said[0] == "the end"
        assert 1 <= len(said[1:]) <= bridge.policy.limits.progress_posts_max
        assert all(one.startswith("PROGRESS ") for one in said[1:])
        assert len(set(said)) == len(said)
        [row] = await bridge.rows()
        assert row["edit_event_id"]
        assert {state for _, state, _ in await bridge.controls()} == {"applied"}


async def test_artifacts_follow_the_primary_event_each_with_its_id(bridge: Bridge) -> None:
    await bridge.receive(mention("a", text="artifacts 3 see|below"))
    await bridge.quiet()
    assert bridge.world.rooms.said() == [
        "see", "below", "ARTIFACT file-0", "ARTIFACT file-1", "ARTIFACT file-2",
    ]  # fmt: skip
    [row] = await bridge.rows()
    ids = [event.event_id for event in bridge.world.rooms.events]
    assert [row["primary_event_id"], *row["part_event_ids"]] == ids


async def test_a_question_is_asked_and_answered_in_its_thread(bridge: Bridge) -> None:
    await bridge.receive(mention("a", text="ask color"))
    await bridge.reaches("awaiting_input")
    rooms = bridge.world.rooms
    await until_true(lambda: len(rooms.said()) == 2, PATIENCE_S, "placeholder and question")
    assert rooms.said() == ["PLACEHOLDER", "QUESTION which one?"]
    root = rooms.events[0].event_id
    done = await bridge.receive(Continuation("$yes", ROOM, ALICE, root, "blue", 0))
    assert done == Committed(controls=1)
    assert await bridge.quiet() == [("delivered", "answered")]
    assert rooms.said()[0] == "color: blue"
    assert [one.text for one in bridge.world.agent.begun] == ["ask color", "blue"]
    rows = await bridge.pool.fetch("SELECT * FROM bridge_delegation_controls")
    assert [row["payload"] for row in rows] == [None, None]
    assert {row["state"] for row in rows} == {"applied"}


async def test_readiness_comes_back_with_any_answer_that_is_no_refusal_of_us(
    bridge: Bridge,
) -> None:
    await bridge.receive(mention("a", text="task 600 x"))
    await bridge.reaches("awaiting_task")
    agent, pauses = bridge.world.agent, bridge.coordinator.pauses
    agent.get_answers = [AuthFailed("http_401"), TaskGone()]
    await until_true(lambda: pauses.failing == ["scout"], PATIENCE_S, "the refusal")
    assert await bridge.quiet() == [("ambiguous", "task_lost")]
    assert pauses.failing == []
    # And in a room, that will not have what we say.
    rooms = bridge.world.rooms
    rooms.problems = [AuthFailed("http_401"), TooLarge(), TooLarge()]
    await bridge.receive(mention("b", text="reply x"))
    assert (await bridge.quiet(2))[1] == ("dead", "reply_undeliverable")
    assert pauses.failing == []


async def test_a_refusal_of_us_is_forgotten_when_nobody_asks_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = Pauses()
    pauses.pause("scout", -1.0)
    assert pauses.failing == ["scout"]  # the next try may be refused, too
    monkeypatch.setattr("corral.bridge.machine.REFUSAL_FORGOTTEN_S", 0.5)
    assert pauses.failing == []


UNSENT: list[NeverLeft | AuthFailed] = [NeverLeft("refused")] * 7 + [AuthFailed("http_401")] * 2


async def test_an_answer_that_never_left_is_sent_when_the_agent_is_back(bridge: Bridge) -> None:
    await bridge.receive(mention("a", text="ask color"))
    await bridge.reaches("awaiting_input")
    agent, rooms = bridge.world.agent, bridge.world.rooms
    await until_true(lambda: len(rooms.said()) == 2, PATIENCE_S, "placeholder and question")
    agent.unsent = [*UNSENT]
    root = rooms.events[0].event_id
    await bridge.receive(Continuation("$yes", ROOM, ALICE, root, "blue", 0))
    assert await bridge.quiet() == [("delivered", "answered")]
    assert rooms.said()[0] == "color: blue"
    assert ("continuation", "applied", None) in await bridge.controls()


async def test_a_cancel_that_never_left_is_sent_when_the_agent_is_back(bridge: Bridge) -> None:
    await bridge.receive(mention("a", text="task 600 x"))
    await bridge.reaches("awaiting_task")
    bridge.world.agent.unsent = [*UNSENT]
    await bridge.receive(Cancel("$x", ROOM, ALICE, "$a", 0))
    assert await bridge.quiet() == [("denied", "task_canceled")]
    assert await bridge.controls() == [("cancel", "applied", None)]


@pytest.mark.parametrize("word", ["ask", "task 600"])
async def test_a_control_that_never_leaves_ends_with_the_time_of_its_job(
    one_target: Target, word: str
) -> None:
    policy = AgentPolicy(task_timeout_s=1.5)
    async with Bridge(one_target, agent=policy, input_wait_timeout_s=1.5) as bridge:
        await bridge.receive(mention("a", text=f"{word} x"))
        await bridge.reaches("awaiting_input" if word == "ask" else "awaiting_task")
        bridge.world.agent.unsent = [NeverLeft("refused")] * 10_000
        await bridge.receive(Cancel("$x", ROOM, ALICE, "$a", 0))
        end = ("denied", "input_timeout") if word == "ask" else ("ambiguous", "task_timeout")
        assert await bridge.quiet() == [end]
        assert ("cancel", "dead", "refused") in await bridge.controls()


async def test_nobody_answers_the_question(one_target: Target) -> None:
    async with Bridge(one_target, input_wait_timeout_s=0.5) as bridge:
        await bridge.receive(mention("a", text="ask color"))
        assert await bridge.quiet() == [("denied", "input_timeout")]
        assert len(bridge.world.agent.cancels) == 1


async def test_the_tasks_deadline_ends_it(one_target: Target) -> None:
    async with Bridge(one_target, agent=AgentPolicy(task_timeout_s=0.3)) as bridge:
        await bridge.receive(mention("a", text="task 600 x"))
        assert await bridge.quiet() == [("ambiguous", "task_timeout")]
        # Its place at the agent is given back: nobody waits for the answer.
        assert len(bridge.world.agent.cancels) == 1


async def test_a_refused_credential_makes_no_task_immortal(one_target: Target) -> None:
    async with Bridge(one_target, agent=AgentPolicy(task_timeout_s=0.5)) as bridge:
        bridge.world.agent.get_answers = [AuthFailed("http_401")] * 10_000
        await bridge.receive(mention("a", text="task 600 x"))
        assert await bridge.quiet() == [("ambiguous", "task_timeout")]
        assert (await bridge.rows())[0]["error_code"] == "http_401"


async def test_a_refused_credential_blocks_a_room_for_an_hour_at_most(bridge: Bridge) -> None:
    bridge.world.agent.card_answer = AuthFailed("http_401")
    await bridge.receive(mention("a", text="reply x"))
    pauses = bridge.coordinator.pauses
    await until_true(lambda: pauses.failing == ["scout"], PATIENCE_S, "the refusal")
    assert await bridge.states() == [("pending", None)]
    await bridge.pool.execute("UPDATE bridge_delegations SET created_at = now() - interval '2 h'")
    assert await bridge.quiet() == [("dead", "agent_unreachable")]


async def test_a_task_is_cancelled_while_it_runs(bridge: Bridge) -> None:
    await bridge.receive(mention("a", text="task 600 x"))
    await bridge.reaches("awaiting_task")
    await bridge.receive(Cancel("$x", ROOM, ALICE, "$a", 0))
    assert await bridge.quiet() == [("denied", "task_canceled")]
    assert len(bridge.world.agent.cancels) == 1
    assert await bridge.controls() == [("cancel", "applied", None)]


async def test_a_cancel_that_comes_while_the_agent_is_asked_waits_for_no_pause(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, real = bridge.world.agent, bridge.world.agent.get
    monkeypatch.setattr("corral.bridge.domain.poll_pause_s", lambda *_: 3_600.0)

    async def get(name: str, task_id: str) -> GetAnswer:
        if not agent.gets:
            await bridge.receive(Cancel("$x", ROOM, ALICE, "$a", 0))
            [running] = bridge.coordinator._running.values()
            await until_true(running.held.wake.is_set, PATIENCE_S, "the cancel to be heard")
        return await real(name, task_id)

    monkeypatch.setattr(agent, "get", get)
    await bridge.receive(mention("a", text="task 600 x"))
    assert await bridge.quiet() == [("denied", "task_canceled")]


async def test_the_room_keeps_its_order_and_others_go_on(bridge: Bridge) -> None:
    await bridge.receive(
        mention("a", text="task 0.5 first"),
        mention("b", text="reply second"),
        mention("c", text="reply third", room="!b"),
    )
    await bridge.quiet(3)
    assert bridge.world.rooms.said(ROOM) == ["first", "second"]
    assert bridge.world.rooms.said()[0] == "third"


async def test_f55_a_head_that_fails_does_not_starve_other_rooms(bridge: Bridge) -> None:
    await bridge.receive(mention("a", text="down 4 up"), mention("b", text="reply b", room="!b"))
    await bridge.quiet(2)
    assert bridge.world.rooms.said() == ["b", "up"]


async def test_f49_limits_are_obeyed_rooms_joined_and_outages_waited_for(bridge: Bridge) -> None:
    rooms = bridge.world.rooms
    rooms.must_join = True
    rooms.problems = [Limited(20), Unreachable("down"), AuthFailed("http_401")]
    await bridge.receive(mention("a", text="reply hello"))
    assert await bridge.quiet() == [("delivered", "answered")]
    assert rooms.said() == ["hello"]


@pytest.mark.parametrize(("problem", "reason"), [
    (TooLarge(), "reply_undeliverable"),
    (Forbidden("m_forbidden"), "room_refused"),
])  # fmt: skip
async def test_f49_what_the_room_never_takes_ends_dead_with_a_reason(
    bridge: Bridge, problem: TooLarge | Forbidden, reason: str
) -> None:
    bridge.world.rooms.problems = [problem] * 2
    await bridge.receive(mention("a", text="reply hello"))
    assert await bridge.quiet() == [("dead", reason)]


async def test_denied_mentions_are_told_once(one_target: Target) -> None:
    async with Bridge(one_target, limits=Limits(room_queue_capacity=1)) as bridge:
        await bridge.receive(mention("a", text="task 0.3 x"), mention("b"))
        assert await bridge.quiet(2) == [
            ("delivered", "answered"),
            ("denied", "queue_room_capacity_rejected"),
        ]
        assert bridge.world.rooms.said() == ["NOTICE queue_room_capacity_rejected", "x"]
        assert (await bridge.rows())[1]["notice_event_id"]


async def test_a_notice_at_which_a_fault_shows_holds_up_no_other_and_ends(
    one_target: Target,
) -> None:
    async with Bridge(one_target) as bridge:
        bridge.world.rooms.faulty, told = {"gone"}, ["NOTICE sender_not_allowed"]
        refused = (
            Refusal(mention(ghost, ghost=ghost), "sender_not_allowed")
            for ghost in ("gone", "scout")
        )
        await bridge.receive(*refused)
        await until_true(lambda: bridge.world.rooms.said() == told, PATIENCE_S, "the other")
        await bridge.pool.execute(
            "UPDATE bridge_delegations SET created_at = now() - interval '25 h'"
        )
        await bridge.quiet(2)
        assert [row["error_code"] for row in await bridge.rows()] == ["budget", None]


async def test_a_placeholder_is_pinned_and_unpinned(one_target: Target) -> None:
    async with Bridge(one_target, placeholder_after_s=0.0, pin=True) as bridge:
        rooms = bridge.world.rooms
        rooms.pinned[ROOM] = ("$other",)
        await bridge.receive(mention("a", text="task 0.5 x"))
        await until_true(lambda: len(rooms.pinned[ROOM]) == 2, PATIENCE_S, "the pin")
        await bridge.quiet()
        assert rooms.pinned[ROOM] == ("$other",)
        assert await bridge.controls() == [("pin", "applied", None), ("unpin", "applied", None)]


async def test_pins_that_fail_are_evidence_and_nothing_more(one_target: Target) -> None:
    async with Bridge(one_target, placeholder_after_s=0.0, pin=True) as bridge:
        bridge.world.rooms.pins_forbidden = True
        await bridge.receive(mention("a", text="task 0.3 x"))
        assert await bridge.quiet() == [("delivered", "answered")]
        assert ("pin", "dead", "m_forbidden") in await bridge.controls()


async def test_a_lost_answer_is_reconciled_where_that_is_enabled(one_target: Target) -> None:
    async with Bridge(one_target, agent=AgentPolicy(reconcile=True)) as bridge:
        await bridge.receive(mention("a", text="lost found again"))
        assert await bridge.quiet() == [("delivered", "answered")]
        assert bridge.world.rooms.said() == ["found again"]
        assert len(bridge.world.agent.sends) == 1


@pytest.mark.parametrize("declared", [True, False])
async def test_only_a_declared_and_enabled_target_is_sent_the_message_again(
    one_target: Target, declared: bool
) -> None:
    async with Bridge(one_target, agent=AgentPolicy(idempotent=True)) as bridge:
        agent = bridge.world.agent
        agent.idempotent = True
        agent.card_answer = Card("agent", "1.0", idempotent_for_s=3600 if declared else None)
        await bridge.receive(mention("a", text="lost found"))
        end = ("delivered", "answered") if declared else ("ambiguous", "call_uncertain")
        assert await bridge.quiet() == [end]
        assert len(agent.sends) == 1 + declared
        assert len({one.message_id for one in agent.sends}) == 1
        assert len(agent.begun) == 1


async def test_the_conversation_is_kept_for_each_room_and_ghost(bridge: Bridge) -> None:
    for name in ("a", "b"):
        await bridge.receive(mention(name, text="reply x"))
    await bridge.receive(mention("c", text="reply x", ghost="other"))
    await bridge.quiet(3)
    first, second, other = (one.context_id for one in bridge.world.agent.sends)
    assert first == second
    assert other != first


async def test_a_healthy_poll_resets_the_count_of_failures(bridge: Bridge) -> None:
    bridge.world.agent.get_answers = [Unreachable("x")] * 3
    await bridge.receive(mention("a", text="task 1.5 x"))
    await until_failures(bridge, 2)

    async def reset() -> bool:
        return int((await bridge.rows())[0]["failures"]) == 0

    await until_async(reset, PATIENCE_S, "the count to be reset")
    assert await bridge.quiet() == [("delivered", "answered")]
