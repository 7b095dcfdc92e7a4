"""The rules of a message's progress: the table of the docstring, limits, properties."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.tamq import domain
from corral.tamq.domain import (
    ACK_TIMEOUT,
    ENDPOINT_GONE,
    LEASE_EXPIRED,
    OPEN,
    TRANSITIONS,
    AckMode,
    Due,
    Policy,
    Progress,
    StaleError,
    State,
    Times,
    TransitionError,
)

NOW = 1_700_000_000_000
TIMES = Times()
INJECTED = Policy(3, AckMode.INJECTED)
ACKED = Policy(3, AckMode.ACKNOWLEDGED)


def leased(policy: Policy = ACKED) -> Progress:
    return domain.lease(domain.admitted(policy, NOW), TIMES, NOW)


def awaiting() -> Progress:
    return domain.written(leased(), 1, TIMES, NOW)


def failed() -> Progress:
    return domain.attempt_failed(leased(Policy(1)), 1, "busy", TIMES, NOW)


def test_the_table_is_the_code() -> None:
    table: dict[State, frozenset[State]] = {}
    for line in (domain.__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `"):
            targets = frozenset(State(name) for name in re.findall(r"`(\w+)`", cells[2]))
            table[State(cells[0].strip("`"))] = targets
    assert table == TRANSITIONS
    assert set(table) == set(State)
    assert {state for state, nexts in TRANSITIONS.items() if nexts & OPEN} | OPEN == OPEN | {
        State.FAILED
    }


def test_a_write_completes_or_awaits_as_the_policy_says() -> None:
    done = domain.written(leased(INJECTED), 1, TIMES, NOW + 7)
    assert (done.state, done.terminal_at_ms) == (State.INJECTED, NOW + 7)
    waits = domain.written(leased(ACKED), 1, TIMES, NOW)
    assert (waits.state, waits.ack_deadline_at_ms) == (State.AWAITING_ACK, NOW + 30_000)
    assert not waits.leased


def test_the_delays_are_5_15_60_300_and_the_last_repeats() -> None:
    progress, delays = domain.admitted(Policy(9), NOW), []
    for serial in range(1, 10):
        progress = domain.lease(progress, TIMES, NOW)
        progress = domain.attempt_failed(progress, serial, "busy", TIMES, NOW)
        if progress.next_attempt_at_ms is not None:
            delays.append((progress.next_attempt_at_ms - NOW) // 1000)
    assert delays == [5, 15, 60, 300, 300, 300, 300, 300]
    assert (progress.state, progress.attempt_count) == (State.FAILED, 9)


@pytest.mark.parametrize("attempts", [1, 9])
def test_attempts_at_the_limit(attempts: int) -> None:
    assert Policy(attempts).max_attempts == attempts


@pytest.mark.parametrize("attempts", [0, 10])
def test_attempts_one_past_the_limit(attempts: int) -> None:
    with pytest.raises(ValueError, match="1 to 9"):
        Policy(attempts)


@pytest.mark.parametrize("times", [((), 1, 1), ((0,), 1, 1), ((1,), 0, 1), ((1,), 1, 0)])
def test_an_interval_must_be_positive(times: tuple[tuple[int, ...], int, int]) -> None:
    with pytest.raises(ValueError, match=r"interval|retry_delays_ms"):
        Times(*times)


def test_nobody_acknowledged_in_time() -> None:
    """The same message again at once; after the last attempt it is failed."""
    again = domain.ack_timed_out(awaiting(), 1, NOW + 30_000)
    assert (again.state, again.next_attempt_at_ms) == (State.PENDING, NOW + 30_000)
    assert again.last_failure_reason == ACK_TIMEOUT
    last = replace(awaiting(), policy=Policy(1))
    end = domain.ack_timed_out(last, 1, NOW)
    assert (end.state, end.last_failure_reason) == (State.FAILED, ACK_TIMEOUT)


@pytest.mark.parametrize(
    "progress",
    [domain.admitted(ACKED, NOW), leased(), awaiting(), failed(),
     domain.written(leased(INJECTED), 1, TIMES, NOW)],
    ids=["pending", "leased", "awaiting_ack", "failed", "injected"],
)  # fmt: skip
def test_an_acknowledgement_wins_in_every_state(progress: Progress) -> None:
    done = domain.acknowledged(progress, NOW + 9)
    assert (done.state, done.acknowledged_at_ms) == (State.ACKNOWLEDGED, NOW + 9)
    assert domain.due(done, TIMES) is None
    assert domain.acknowledged(done, NOW + 10) is done
    with pytest.raises(StaleError):
        domain.written(done, done.serial, TIMES, NOW)
    with pytest.raises(StaleError):
        domain.attempt_failed(done, done.serial, "x", TIMES, NOW)
    with pytest.raises(StaleError):
        domain.ack_timed_out(done, done.serial, NOW)


def test_only_a_failed_message_is_retried_and_its_attempts_begin_again() -> None:
    again = domain.retried(failed(), NOW + 5)
    assert (again.state, again.attempt_count, again.serial) == (State.PENDING, 0, 1)
    assert (again.next_attempt_at_ms, again.terminal_at_ms) == (NOW + 5, None)
    for other in (domain.admitted(ACKED, NOW), leased(), awaiting(),
                  domain.acknowledged(failed(), NOW)):  # fmt: skip
        with pytest.raises(TransitionError):
            domain.retried(other, NOW)


def test_a_result_is_heard_only_while_its_own_lease_is_open() -> None:
    expired = domain.attempt_failed(leased(), 1, LEASE_EXPIRED, TIMES, NOW)
    second = domain.lease(expired, TIMES, NOW + 5_000)
    assert second.serial == 2
    for stale in (expired, second):
        with pytest.raises(StaleError):
            domain.written(stale, 1, TIMES, NOW)
        with pytest.raises(StaleError):
            domain.attempt_failed(stale, 1, "late", TIMES, NOW)
    with pytest.raises(StaleError):
        domain.ack_timed_out(replace(awaiting(), serial=2), 1, NOW)


def test_a_lease_needs_a_pending_message_without_one() -> None:
    for progress in (leased(), awaiting(), failed()):
        with pytest.raises(TransitionError):
            domain.lease(progress, TIMES, NOW)
    with pytest.raises(TransitionError):
        domain.lease(replace(domain.admitted(ACKED, NOW), attempt_count=3), TIMES, NOW)


def test_rebinding_keeps_attempts_ends_the_lease_and_takes_the_policy() -> None:
    moved = domain.rebound(leased(), Policy(7), TIMES, NOW)
    assert (moved.state, moved.attempt_count) == (State.PENDING, 1)
    assert (moved.leased, moved.last_failure_reason) == (False, ENDPOINT_GONE)
    assert moved.policy == Policy(7)
    assert moved.generation == leased().generation + 1
    waits = domain.rebound(awaiting(), Policy(7), TIMES, NOW)
    assert (waits.state, waits.ack_deadline_at_ms) == (State.AWAITING_ACK, NOW + 30_000)


def test_rebinding_to_a_policy_whose_attempts_are_used_up_ends_it() -> None:
    used = domain.attempt_failed(leased(), 1, "busy", TIMES, NOW)
    assert domain.rebound(used, Policy(1), TIMES, NOW).state is State.FAILED
    assert domain.rebound(used, Policy(2), TIMES, NOW).state is State.PENDING
    with pytest.raises(TransitionError):
        domain.rebound(failed(), Policy(5), TIMES, NOW)


@given(at=st.integers(0, 2**45), now=st.integers(0, 2**45), longest=st.integers(1, 10**9))
def test_no_clock_makes_a_deadline_longer_than_it_was_or_negative(
    at: int, now: int, longest: int
) -> None:
    left = domain.left_ms(at, longest, now)
    assert 0 <= left <= longest
    if 0 <= at - now <= longest:
        assert left == at - now


STEPS = st.lists(
    st.sampled_from(
        ["lease", "written", "failed", "stale", "ack", "ack_timeout", "retry", "rebind"]
    ),
    max_size=30,
)


@given(steps=STEPS, attempts=st.integers(1, 9), mode=st.sampled_from(AckMode))
def test_whatever_happens_the_rules_hold(steps: list[str], attempts: int, mode: AckMode) -> None:
    progress = domain.admitted(Policy(attempts, mode), NOW)
    for step in steps:
        was = progress
        try:
            progress = take(step, was)
        except (StaleError, TransitionError):
            continue
        assert progress.state in TRANSITIONS[was.state] or progress is was
        assert progress is was or progress.generation == was.generation + 1
        assert progress.serial >= was.serial
        assert 0 <= progress.attempt_count <= progress.policy.max_attempts
        kinds = (progress.next_attempt_at_ms, progress.lease_until_ms, progress.ack_deadline_at_ms)
        assert sum(one is not None for one in kinds) == progress.is_open
        assert (progress.terminal_at_ms is None) == progress.is_open
        coming = domain.due(progress, TIMES)
        assert (coming is None) == (not progress.is_open)
        if coming is not None:
            assert 0 <= domain.left_ms(coming[1], coming[2], NOW) <= 300_000


def take(step: str, was: Progress) -> Progress:
    match step:
        case "lease":
            return domain.lease(was, TIMES, NOW)
        case "written":
            return domain.written(was, was.serial, TIMES, NOW)
        case "failed":
            return domain.attempt_failed(was, was.serial, "busy", TIMES, NOW)
        case "stale":
            return domain.written(was, was.serial - 1, TIMES, NOW)
        case "ack":
            return domain.acknowledged(was, NOW)
        case "ack_timeout":
            return domain.ack_timed_out(was, was.serial, NOW)
        case "retry":
            return domain.retried(was, NOW)
    return domain.rebound(was, Policy(2), TIMES, NOW)


def test_what_a_message_waits_for() -> None:
    assert domain.due(domain.admitted(ACKED, NOW), TIMES) == (Due.ATTEMPT, NOW, 0)
    assert domain.due(leased(), TIMES) == (Due.LEASE, NOW + 30_000, 30_000)
    assert domain.due(awaiting(), TIMES) == (Due.ACK, NOW + 30_000, 30_000)
    assert domain.due(failed(), TIMES) is None
