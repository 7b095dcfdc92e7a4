"""What TAMQ decides about a message: its states, its attempts, its deadlines. Pure: no I/O.

| state | meaning | goes to |
| --- | --- | --- |
| `pending` | accepted; eligible now or after `next_attempt_at`, or held by a lease | `pending`, `awaiting_ack`, `injected`, `acknowledged`, `failed` |
| `awaiting_ack` | written under the policy `acknowledged`; comprehension is unproven | `awaiting_ack` (rebound), `pending`, `acknowledged`, `failed` |
| `injected` | written under the policy `injected`: transport is complete | `acknowledged` |
| `acknowledged` | an explicit acknowledgement was received: the strongest receipt | |
| `failed` | attempts are exhausted, until a retry or a late acknowledgement | `pending`, `acknowledged` |

Every lease is an attempt. `attempt_count` counts them since admission or the last retry and is
bounded by the endpoint's policy; `serial` counts them for ever and fences their results: what an
attempt reports is heard only while its own lease is open. `generation` grows with every change.

Deadlines are stored in wall time (milliseconds since 1970). What is left of one is never more than
the interval it was made with (`left_ms`), so a clock that was set back delays nothing for ever.
"""  # noqa: E501  a table row is one line

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

ATTEMPTS_MIN: Final = 1
ATTEMPTS_MAX: Final = 9
ATTEMPTS_DEFAULT: Final = 5
RETRY_DELAYS_MS: Final = (5_000, 15_000, 60_000, 300_000)
ACK_DEADLINE_MS: Final = 30_000
LEASE_MS: Final = 30_000

LEASE_EXPIRED: Final = "lease_expired"
ENDPOINT_GONE: Final = "endpoint_gone"
ACK_TIMEOUT: Final = "ack_timeout"
ATTEMPTS_EXHAUSTED: Final = "attempts_exhausted"


class State(StrEnum):
    PENDING = "pending"
    AWAITING_ACK = "awaiting_ack"
    INJECTED = "injected"
    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset(State),
    State.AWAITING_ACK: frozenset(State) - {State.INJECTED},
    State.INJECTED: frozenset({State.ACKNOWLEDGED}),
    State.ACKNOWLEDGED: frozenset(),
    State.FAILED: frozenset({State.PENDING, State.ACKNOWLEDGED}),
}
OPEN: Final = frozenset({State.PENDING, State.AWAITING_ACK})


class AckMode(StrEnum):
    """What completes a message: the write itself, or an explicit acknowledgement."""

    INJECTED = "injected"
    ACKNOWLEDGED = "acknowledged"


class AttemptOutcome(StrEnum):
    """How an attempt stands. `superseded`: acknowledged while its lease was open."""

    OPEN = "open"
    WRITTEN = "written"
    FAILED = "failed"
    SUPERSEDED = "superseded"


class Due(StrEnum):
    """What a message waits for."""

    ATTEMPT = "attempt"
    LEASE = "lease"
    ACK = "ack"


class TransitionError(Exception):
    """Asked for what the state does not allow. Holds the state."""

    def __init__(self, state: State) -> None:
        super().__init__(state.value)
        self.state = state


class StaleError(Exception):
    """The result of an attempt whose lease is not open any more: it changes nothing."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Of an endpoint. `ValueError` for attempts outside of 1 to 9."""

    max_attempts: int = ATTEMPTS_DEFAULT
    ack_mode: AckMode = AckMode.ACKNOWLEDGED

    def __post_init__(self) -> None:
        if not ATTEMPTS_MIN <= self.max_attempts <= ATTEMPTS_MAX:
            raise ValueError(f"delivery_max_attempts is {ATTEMPTS_MIN} to {ATTEMPTS_MAX}")


@dataclass(frozen=True, slots=True)
class Times:
    """The intervals of delivery, in milliseconds. `ValueError` for one that is not positive."""

    retry_delays_ms: tuple[int, ...] = RETRY_DELAYS_MS
    ack_deadline_ms: int = ACK_DEADLINE_MS
    lease_ms: int = LEASE_MS

    def __post_init__(self) -> None:
        if not self.retry_delays_ms:
            raise ValueError("retry_delays_ms must not be empty")
        if min(*self.retry_delays_ms, self.ack_deadline_ms, self.lease_ms) <= 0:
            raise ValueError("an interval must be longer than 0 ms")

    def retry_delay_ms(self, attempts: int) -> int:
        """The pause after the `attempts`-th failed attempt (from 1); the last value repeats."""
        return self.retry_delays_ms[min(attempts, len(self.retry_delays_ms)) - 1]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a message is. At most one of the three deadlines is set; all are wall time in ms."""

    state: State
    generation: int
    policy: Policy
    attempt_count: int = 0
    serial: int = 0
    next_attempt_at_ms: int | None = None
    lease_until_ms: int | None = None
    ack_deadline_at_ms: int | None = None
    last_failure_reason: str | None = None
    acknowledged_at_ms: int | None = None
    terminal_at_ms: int | None = None

    @property
    def leased(self) -> bool:
        return self.lease_until_ms is not None

    @property
    def is_open(self) -> bool:
        """Whether delivery still has something to do."""
        return self.state in OPEN


def admitted(policy: Policy, now_ms: int) -> Progress:
    """A new message: eligible at once."""
    return Progress(State.PENDING, 1, policy, next_attempt_at_ms=now_ms)


def lease(was: Progress, times: Times, now_ms: int) -> Progress:
    """Begin an attempt. `TransitionError` unless it is pending, without lease, attempts left.

    Whether its time has come is the caller's to know: it waits on a clock that does not jump.
    """
    if was.state is not State.PENDING or was.leased:
        raise TransitionError(was.state)
    if was.attempt_count >= was.policy.max_attempts:
        raise TransitionError(was.state)
    return _to(
        was, State.PENDING,
        attempt_count=was.attempt_count + 1,
        serial=was.serial + 1,
        lease_until_ms=now_ms + times.lease_ms,
    )  # fmt: skip


def written(was: Progress, serial: int, times: Times, now_ms: int) -> Progress:
    """The attempt's text is in the terminal, with evidence. `StaleError` if its lease is over."""
    _fence(was, serial)
    if was.policy.ack_mode is AckMode.INJECTED:
        return _to(was, State.INJECTED, terminal_at_ms=now_ms)
    deadline_ms = now_ms + times.ack_deadline_ms
    return _to(was, State.AWAITING_ACK, ack_deadline_at_ms=deadline_ms)


def attempt_failed(was: Progress, serial: int, reason: str, times: Times, now_ms: int) -> Progress:
    """The attempt failed (or its lease expired): again later, or the end. `StaleError` as above."""
    _fence(was, serial)
    delay_ms = times.retry_delay_ms(was.attempt_count)
    return _again(was, reason, now_ms + delay_ms, now_ms)


def ack_timed_out(was: Progress, serial: int, now_ms: int) -> Progress:
    """Nobody acknowledged in time: again at once, or the end. `StaleError` when that is over."""
    if was.state is not State.AWAITING_ACK or was.serial != serial:
        raise StaleError
    return _again(was, ACK_TIMEOUT, now_ms, now_ms)


def acknowledged(was: Progress, now_ms: int) -> Progress:
    """An explicit acknowledgement, late ones included: it wins in every state."""
    if was.state is State.ACKNOWLEDGED:
        return was
    return _to(was, State.ACKNOWLEDGED, acknowledged_at_ms=now_ms, terminal_at_ms=now_ms)


def retried(was: Progress, now_ms: int) -> Progress:
    """An operator's decision. `TransitionError` unless it is failed."""
    if was.state is not State.FAILED:
        raise TransitionError(was.state)
    return _to(was, State.PENDING, attempt_count=0, next_attempt_at_ms=now_ms)


def rebound(was: Progress, policy: Policy, times: Times, now_ms: int) -> Progress:
    """To another endpoint with its policy; attempts are kept. `TransitionError` when terminal.

    An open lease ends as a failed attempt. What waits for an acknowledgement goes on waiting.
    """
    if not was.is_open:
        raise TransitionError(was.state)
    now = was
    if was.leased:
        now = attempt_failed(was, was.serial, ENDPOINT_GONE, times, now_ms)
    now = replace(now, policy=policy, generation=was.generation + 1)
    if now.state is State.PENDING and now.attempt_count >= policy.max_attempts:
        reason = now.last_failure_reason or ATTEMPTS_EXHAUSTED
        now = replace(_again(now, reason, now_ms, now_ms), generation=was.generation + 1)
    return now


def due(progress: Progress, times: Times) -> tuple[Due, int, int] | None:
    """What comes next without anybody's doing: kind, wall time, the longest it may be away (ms)."""
    if progress.lease_until_ms is not None:
        return Due.LEASE, progress.lease_until_ms, times.lease_ms
    if progress.ack_deadline_at_ms is not None:
        return Due.ACK, progress.ack_deadline_at_ms, times.ack_deadline_ms
    if progress.next_attempt_at_ms is not None:
        return Due.ATTEMPT, progress.next_attempt_at_ms, _pause_ms(progress, times)
    return None


def _pause_ms(was: Progress, times: Times) -> int:
    """How long the pause before the next attempt was when it began; some begin at once."""
    at_once = was.attempt_count == 0 or was.last_failure_reason == ACK_TIMEOUT
    return 0 if at_once else times.retry_delay_ms(was.attempt_count)


def left_ms(at_ms: int, longest_ms: int, now_ms: int) -> int:
    """How long until `at_ms`: never negative, never more than it could have been at first."""
    return max(0, min(at_ms - now_ms, longest_ms))


def _fence(was: Progress, serial: int) -> None:
    if was.state is not State.PENDING or not was.leased or was.serial != serial:
        raise StaleError


def _again(was: Progress, reason: str, at_ms: int, now_ms: int) -> Progress:
    if was.attempt_count >= was.policy.max_attempts:
        return _to(was, State.FAILED, last_failure_reason=reason, terminal_at_ms=now_ms)
    return _to(was, State.PENDING, last_failure_reason=reason, next_attempt_at_ms=at_ms)


def _to(was: Progress, state: State, **changes: object) -> Progress:
    """The next generation. Deadlines and ends that are not given are cleared."""
    if state not in TRANSITIONS[was.state]:
        raise TransitionError(was.state)
    cleared: dict[str, object] = {
        "next_attempt_at_ms": None,
        "lease_until_ms": None,
        "ack_deadline_at_ms": None,
        "acknowledged_at_ms": None,
        "terminal_at_ms": None,
    }
    now: Progress = replace(
        was,
        state=state,
        generation=was.generation + 1,
        **(cleared | changes),  # type: ignore[arg-type]
    )
    return now
