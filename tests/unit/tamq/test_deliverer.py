"""Leases, results, expiry, acknowledgements: a real store, and a clock that the test moves."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from corral.tamq.domain import Times
from corral.tamq.terminal.base import Injection, Outcome, Readiness, Ready
from tests.unit.tamq.queue import DONE, READY, Queue

INJECTED = {"delivery_ack_mode": "injected", "delivery_max_attempts": 3}
ACKED = {"delivery_ack_mode": "acknowledged", "delivery_max_attempts": 2}


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Queue]:
    async with Queue(tmp_path / "queue.db") as made:
        yield made


async def test_a_write_under_the_policy_injected_completes(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    sent = await queue.send()
    done = await queue.until(sent.id, "injected")
    [wake] = queue.terminals["a"].wakes
    assert (wake.message_id, wake.attempt, wake.body) == (str(sent.id), 1, "look at issue 7")
    assert wake.sender.startswith("local (uid ")
    assert "pid 4242" in wake.sender
    assert done.progress.attempt_count == 1
    assert len(queue.deliverer.schedule) == 0


async def test_without_an_acknowledgement_it_is_written_again_and_then_failed(
    queue: Queue,
) -> None:
    await queue.register(policy=ACKED)
    sent = await queue.send()
    await queue.until(sent.id, "awaiting_ack")
    await queue.advance(29.9)
    await queue.settle()
    assert (await queue.get(sent.id)).progress.state == "awaiting_ack"
    await queue.advance(0.1)
    wakes = await queue.until_wakes("a", 2)
    assert [(one.message_id, one.attempt) for one in wakes] == [
        (str(sent.id), 1),
        (str(sent.id), 2),
    ]
    await queue.until(sent.id, "awaiting_ack")
    await queue.advance(30)
    failed = await queue.until(sent.id, "failed")
    assert failed.progress.last_failure_reason == "ack_timeout"
    late = await queue.ack(sent.id)
    assert late.progress.state == "acknowledged"
    await queue.advance(600)
    await queue.settle()
    assert len(queue.terminals["a"].wakes) == 2


async def test_a_late_acknowledgement_cancels_the_retry(queue: Queue) -> None:
    await queue.register(policy={**ACKED, "delivery_max_attempts": 9})
    sent = await queue.send()
    await queue.until(sent.id, "awaiting_ack")
    queue.terminals["a"].looks = Readiness(Ready.BUSY, "busy")
    await queue.advance(30)
    await queue.until(sent.id, "pending")
    await queue.ack(sent.id)
    queue.terminals["a"].looks = READY
    await queue.advance(600)
    await queue.settle()
    assert len(queue.terminals["a"].wakes) == 1
    assert (await queue.get(sent.id)).progress.state == "acknowledged"


async def test_failed_attempts_come_back_after_the_delays_and_end(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    queue.terminals["a"].result = Injection(Outcome.NOT_SUBMITTED, "enter_lost", typed=True)
    sent = await queue.send()
    for attempt, delay_s in ((1, 5), (2, 15)):
        await queue.until_wakes("a", attempt)
        waiting = await queue.until(sent.id, "pending")
        assert waiting.progress.last_failure_reason == "enter_lost"
        await queue.advance(delay_s - 0.001)
        await queue.settle()
        assert len(queue.terminals["a"].wakes) == attempt
        await queue.advance(0.001)
    await queue.until_wakes("a", 3)
    failed = await queue.until(sent.id, "failed")
    assert failed.progress.attempt_count == 3
    assert [wake.earlier_attempts for wake in queue.terminals["a"].wakes] == [(), (1,), (1, 2)]


@pytest.mark.parametrize("state", [one for one in Ready if one not in {Ready.READY, Ready.GONE}])
async def test_what_is_not_ready_spends_no_attempt_and_says_why(queue: Queue, state: Ready) -> None:
    await queue.register(policy=INJECTED)
    terminal = queue.terminals["a"]
    terminal.looks = Readiness(state, f"because_{state}")
    sent = await queue.send()
    await queue.settle()
    began_ms = queue.clock.wall_ms()
    for _ in range(5):
        await queue.advance(1)
        await queue.settle()
    waits = await queue.get(sent.id)
    assert (waits.waiting_reason, waits.waiting_since_ms) == (f"because_{state}", began_ms)
    assert (waits.progress.state, waits.progress.attempt_count) == ("pending", 0)
    assert terminal.looked > 3
    terminal.looks = READY
    await queue.advance(1)
    done = await queue.until(sent.id, "injected")
    assert (done.waiting_reason, done.progress.attempt_count) == (None, 1)


async def test_a_race_after_the_lease_is_a_failed_attempt(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    queue.terminals["a"].result = Injection(Outcome.NOT_READY, "copy_mode")
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    waiting = await queue.until(sent.id, "pending")
    assert waiting.progress.attempt_count == 1
    assert waiting.progress.last_failure_reason == "copy_mode"
    await queue.advance(5)
    assert (await queue.until_wakes("a", 2))[1].earlier_attempts == ()


async def test_a_session_that_is_gone_leaves_its_messages_for_another(queue: Queue) -> None:
    await queue.register("a", policy=INJECTED)
    queue.terminals["a"].looks = Readiness(Ready.GONE, "pane_dead")
    sent = await queue.send()
    await queue.settle()
    assert queue.deliverer.lanes == {}
    assert queue.terminals["a"].closed
    assert (await queue.get(sent.id)).progress.attempt_count == 0
    await queue.register("b", policy=INJECTED)
    again = await queue.send()
    assert again.id == sent.id
    await queue.until(sent.id, "injected")
    assert len(queue.terminals["b"].wakes) == 1


async def test_a_session_that_goes_during_the_write_fails_the_attempt(queue: Queue) -> None:
    await queue.register("a", policy=INJECTED)
    queue.terminals["a"].result = Injection(Outcome.GONE, "pane_dead")
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    waiting = await queue.until(sent.id, "pending")
    assert waiting.progress.last_failure_reason == "endpoint_gone"
    assert (await queue.details(sent.id))["attempts"][0]["outcome"] == "failed"


async def test_an_idle_session_is_looked_at_now_and_then(queue: Queue) -> None:
    await queue.register("a")
    await queue.settle()
    queue.terminals["a"].looks = Readiness(Ready.GONE, "pane_dead")
    await queue.advance(600)
    await queue.settle()
    assert queue.deliverer.lanes == {}


async def test_one_message_at_a_time_and_the_oldest_first(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    terminal = queue.terminals["a"]
    terminal.free.clear()
    sent = [await queue.send(idempotency_key=f"k{number}") for number in range(4)]
    await queue.until_wakes("a", 1)
    await queue.settle()
    assert len(terminal.wakes) == 1
    terminal.free.set()
    await queue.until(sent[-1].id, "injected")
    assert [wake.message_id for wake in terminal.wakes] == [str(one.id) for one in sent]


async def test_a_message_that_waits_for_its_retry_lets_others_pass(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    terminal = queue.terminals["a"]
    terminal.result = Injection(Outcome.UNKNOWN, "unseen", typed=True)
    first = await queue.send(idempotency_key="k1")
    await queue.until_wakes("a", 1)
    await queue.until(first.id, "pending")
    terminal.result = DONE
    second = await queue.send(idempotency_key="k2")
    await queue.until(second.id, "injected")
    await queue.advance(5)
    await queue.until(first.id, "injected")


async def test_an_acknowledgement_that_overtakes_the_result_stands(queue: Queue) -> None:
    await queue.register(policy=ACKED)
    terminal = queue.terminals["a"]
    terminal.free.clear()
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    assert (await queue.ack(sent.id)).progress.state == "acknowledged"
    terminal.free.set()
    await queue.settle()
    details = await queue.details(sent.id)
    assert details["state"] == "acknowledged"
    assert details["attempts"][0]["outcome"] == "superseded"
    other = await queue.send(idempotency_key="k2")
    await queue.until(other.id, "awaiting_ack")


async def test_a_terminal_with_a_fault_is_a_failed_attempt(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    queue.terminals["a"].broken = True
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    waiting = await queue.until(sent.id, "pending")
    assert waiting.progress.last_failure_reason == "fault"
    queue.terminals["a"].broken = False
    await queue.advance(5)
    await queue.until(sent.id, "injected")


async def test_a_lease_that_outlives_its_process_expires_and_counts(queue: Queue) -> None:
    """Killed between the lease and the result: the next daemon waits the lease out."""
    await queue.register(policy=INJECTED)
    queue.terminals["a"].free.clear()
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    await queue.stop()
    queue.terminals.clear()
    await queue.start()
    await queue.settle()
    await queue.advance(29.9)
    await queue.settle()
    assert (await queue.get(sent.id)).progress.leased
    await queue.advance(0.2)
    waiting = await queue.until(sent.id, "pending")
    assert waiting.progress.last_failure_reason == "lease_expired"
    assert waiting.progress.attempt_count == 1
    await queue.advance(5)
    await queue.until(sent.id, "injected")
    [wake] = queue.terminals["a"].wakes
    assert (wake.attempt, wake.earlier_attempts) == (2, (1,))


async def test_the_next_daemon_knows_what_was_not_read(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    queue.terminals["a"].result = Injection(Outcome.UNKNOWN, "not_read", typed=True)
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    await queue.until(sent.id, "pending")
    await queue.stop()
    queue.terminals.clear()
    await queue.start()
    await queue.settle()
    await queue.advance(5)
    await queue.until(sent.id, "injected")
    [wake] = queue.terminals["a"].wakes
    assert (wake.earlier_attempts, wake.unread) == ((1,), True)


@pytest.mark.parametrize(
    "looks", [Readiness(Ready.DRAFT, "draft"), Readiness(Ready.BUSY, "no_composer")]
)
async def test_whose_text_stands_in_the_composer_comes_before_older_ones(
    queue: Queue, looks: Readiness
) -> None:
    """Only its Enter makes room, whether the composer is seen or was scrolled away by the text."""
    await queue.register(policy={**INJECTED, "delivery_max_attempts": 9})
    terminal = queue.terminals["a"]
    terminal.result = Injection(Outcome.NOT_SUBMITTED, "enter_ignored", typed=True)
    older, newer = [(await queue.send(idempotency_key=f"k{n}")).id for n in range(2)]
    await queue.until_wakes("a", 2)
    await queue.until(newer, "pending")
    terminal.looks, terminal.standing = looks, str(newer)
    terminal.result = DONE
    await queue.advance(60)
    await queue.until(newer, "injected")
    assert [wake.message_id for wake in terminal.wakes] == [str(older), str(newer), str(newer)]


async def test_a_redelivery_knows_nothing_of_attempts_before_one_that_was_written(
    queue: Queue,
) -> None:
    """Or a session that remembers such an attempt would take the redelivery for its end."""
    await queue.register(policy={**ACKED, "delivery_max_attempts": 9})
    queue.terminals["a"].free.clear()
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    await queue.advance(30)
    await queue.until(sent.id, "pending")
    queue.terminals["a"].free.set()
    await queue.advance(5)
    await queue.until(sent.id, "awaiting_ack")
    for count in (3, 4):
        await queue.advance(30)
        await queue.until_wakes("a", count)
        await queue.until(sent.id, "awaiting_ack")
    earlier = [wake.earlier_attempts for wake in queue.terminals["a"].wakes]
    assert earlier == [(), (1,), (), ()]


async def test_a_result_after_its_lease_changes_nothing(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    terminal = queue.terminals["a"]
    terminal.free.clear()
    sent = await queue.send()
    await queue.until_wakes("a", 1)
    await queue.advance(30)
    waiting = await queue.until(sent.id, "pending")
    assert waiting.progress.last_failure_reason == "lease_expired"
    await queue.advance(600)
    await queue.settle()
    assert len(terminal.wakes) == 1  # never two at once, whatever the lease says
    terminal.free.set()
    await queue.until(sent.id, "injected")
    assert [wake.attempt for wake in terminal.wakes] == [1, 2]


@pytest.mark.parametrize("jump_s", [-86_400, -3_600, 86_400])
async def test_a_clock_that_jumps_delays_nothing_for_ever(queue: Queue, jump_s: int) -> None:
    await queue.register(policy={**ACKED, "delivery_max_attempts": 9})
    sent = await queue.send()
    await queue.until(sent.id, "awaiting_ack")
    queue.clock.set_wall_ms(queue.clock.wall_ms() + jump_s * 1000)
    await queue.advance(29.9)
    await queue.settle()
    assert len(queue.terminals["a"].wakes) == 1
    await queue.advance(0.1)
    await queue.until_wakes("a", 2)


@pytest.mark.parametrize("jump_s", [-86_400, 86_400])
async def test_a_jump_across_a_restart_costs_at_most_the_interval(
    queue: Queue, jump_s: int
) -> None:
    await queue.register(policy={**ACKED, "delivery_max_attempts": 9})
    sent = await queue.send()
    await queue.until(sent.id, "awaiting_ack")
    await queue.stop()
    queue.clock.set_wall_ms(queue.clock.wall_ms() + jump_s * 1000)
    await queue.start()
    await queue.settle()
    await queue.advance(30)
    await queue.until_wakes("a", 2)


async def test_deadlines_survive_a_restart(queue: Queue) -> None:
    queue.times = replace(Times(), ack_deadline_ms=10_000)
    await queue.stop()
    await queue.start()
    await queue.register(policy={**ACKED, "delivery_max_attempts": 9})
    sent = await queue.send()
    await queue.until(sent.id, "awaiting_ack")
    await queue.advance(6)
    await queue.stop()
    await queue.start()
    await queue.settle()
    await queue.advance(3.9)
    await queue.settle()
    assert len(queue.terminals["a"].wakes) == 1
    await queue.advance(0.2)
    await queue.until_wakes("a", 2)


async def test_open_messages_at_the_limit_and_one_past_it(queue: Queue) -> None:
    await queue.register(policy=INJECTED)
    queue.terminals["a"].looks = Readiness(Ready.BUSY, "busy")
    for number in range(99):
        await queue.send(idempotency_key=f"k{number}")
    assert queue.deliverer.reserve()
    assert not queue.deliverer.reserve()
    queue.deliverer.release()
    queue.deliverer.release()
    assert queue.deliverer.reserve()


async def test_an_endpoint_that_cannot_be_opened_any_more_is_gone(queue: Queue) -> None:
    """Its profile was taken out of the operator's file while TAMQ was down."""
    await queue.register("a", policy=INJECTED)
    queue.terminals["a"].looks = Readiness(Ready.BUSY, "busy")
    sent = await queue.send()
    await queue.stop()
    queue.refused = "a"
    await queue.start()
    assert queue.deliverer.lanes == {}
    assert (await queue.get(sent.id)).progress.state == "pending"
    await queue.register("b", policy=INJECTED)
    assert (await queue.send()).id == sent.id
    await queue.until(sent.id, "injected")
