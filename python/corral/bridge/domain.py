"""What the bridge decides about jobs and controls. Pure: no I/O.

| state | goes to |
| --- | --- |
| `pending` | `a2a_prepared`, `reply_pending`, `denied` |
| `a2a_prepared` | `a2a_prepared`, `awaiting_task`, `awaiting_input`, `reply_pending` |
| `awaiting_task` | `awaiting_input`, `reply_pending` |
| `awaiting_input` | `awaiting_task`, `reply_pending` |
| `reply_pending` | `delivered`, `denied`, `ambiguous`, `dead` |
| `delivered` | |
| `denied` | |
| `ambiguous` | |
| `dead` | |

A job is `pending` from admission on. `a2a_prepared` is committed before the agent is called; from
then on a call may be on its way, until `never_left(n)` says of attempt n that it never was. However
a job ends, the room is told: it passes `reply_pending`, which holds the intended end. The last four
are terminal: their content is cleared in the same transaction. (`pending` to `denied` at once is
the denial at admission, told by a notice of its own.)

| control | goes to |
| --- | --- |
| `pending` | `prepared`, `denied`, `dead` |
| `prepared` | `pending`, `applied`, `ambiguous`, `denied`, `dead` |
| `applied` | |
| `ambiguous` | |
| `denied` | |
| `dead` | |

A control is `pending` again only once its call is proven not to have left.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NUL_REPLACEMENT: Final = "�"
POLL_FIRST_S: Final = 0.05
POLL_SHARE: Final = 0.1  # of the time elapsed since the agent took the task
POLL_MAX_S: Final = 15.0
POLL_JITTER: Final = 0.1  # at most that share is taken away
# From its mention on, a job waits so long for an agent that refuses our credentials.
REFUSED_BUDGET_S: Final = 3600.0
# So long a room may take nothing while the homeserver serves others; while it is away, any time.
PROJECTION_BUDGET_S: Final = 24 * 3600.0
SEARCH_AFTER_S: Final = 12 * 3600.0  # older sends are looked for in the room before they repeat
LIMITED_MAX_S: Final = 3600.0  # a homeserver that asks for a longer pause gets this one
ERROR_CODE_MAX_CHARS: Final = 64


class State(StrEnum):
    PENDING = "pending"
    A2A_PREPARED = "a2a_prepared"
    AWAITING_TASK = "awaiting_task"
    AWAITING_INPUT = "awaiting_input"
    REPLY_PENDING = "reply_pending"
    DELIVERED = "delivered"
    DENIED = "denied"
    AMBIGUOUS = "ambiguous"
    DEAD = "dead"


TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.PENDING: frozenset({State.A2A_PREPARED, State.REPLY_PENDING, State.DENIED}),
    State.A2A_PREPARED: frozenset({
        State.A2A_PREPARED, State.AWAITING_TASK, State.AWAITING_INPUT, State.REPLY_PENDING,
    }),
    State.AWAITING_TASK: frozenset({State.AWAITING_INPUT, State.REPLY_PENDING}),
    State.AWAITING_INPUT: frozenset({State.AWAITING_TASK, State.REPLY_PENDING}),
    State.REPLY_PENDING: frozenset({State.DELIVERED, State.DENIED, State.AMBIGUOUS, State.DEAD}),
    State.DELIVERED: frozenset(),
    State.DENIED: frozenset(),
    State.AMBIGUOUS: frozenset(),
    State.DEAD: frozenset(),
}  # fmt: skip
TERMINAL: Final = frozenset({State.DELIVERED, State.DENIED, State.AMBIGUOUS, State.DEAD})
OPEN: Final = frozenset(State) - TERMINAL


class ControlKind(StrEnum):
    CANCEL = "cancel"
    CONTINUATION = "continuation"
    QUESTION = "question"
    PROGRESS = "progress"
    PIN = "pin"
    UNPIN = "unpin"


# Their call to the agent leaves at most once; the others are Matrix events that may be repeated.
CALLS: Final = frozenset({ControlKind.CANCEL, ControlKind.CONTINUATION})
# They never fail the job that they belong to.
OPTIONAL: Final = frozenset({ControlKind.PROGRESS, ControlKind.PIN, ControlKind.UNPIN})


class ControlState(StrEnum):
    PENDING = "pending"
    PREPARED = "prepared"
    APPLIED = "applied"
    AMBIGUOUS = "ambiguous"
    DENIED = "denied"
    DEAD = "dead"


CONTROL_TRANSITIONS: Final[Mapping[ControlState, frozenset[ControlState]]] = {
    ControlState.PENDING: frozenset({
        ControlState.PREPARED, ControlState.DENIED, ControlState.DEAD,
    }),
    ControlState.PREPARED: frozenset({
        ControlState.PENDING, ControlState.APPLIED, ControlState.AMBIGUOUS, ControlState.DENIED,
        ControlState.DEAD,
    }),
    ControlState.APPLIED: frozenset(),
    ControlState.AMBIGUOUS: frozenset(),
    ControlState.DENIED: frozenset(),
    ControlState.DEAD: frozenset(),
}  # fmt: skip
CONTROL_TERMINAL: Final = frozenset(
    state for state, following in CONTROL_TRANSITIONS.items() if not following
)


class Reason(StrEnum):
    """Why a job ended as it did: stable words, each with a generic text for the room."""

    ANSWERED = "answered"
    TASK_FAILED = "task_failed"
    TASK_REJECTED = "task_rejected"
    TASK_CANCELED = "task_canceled"
    CANCELED = "canceled"
    REDACTED = "redacted"
    AGENT_REFUSED = "agent_refused"
    AUTH_REQUIRED = "auth_required"
    INPUT_TIMEOUT = "input_timeout"
    TASK_TIMEOUT = "task_timeout"
    TASK_LOST = "task_lost"
    CALL_UNCERTAIN = "call_uncertain"
    AGENT_UNREACHABLE = "agent_unreachable"
    AGENT_UNKNOWN = "agent_unknown"
    ROOM_REFUSED = "room_refused"
    REPLY_UNDELIVERABLE = "reply_undeliverable"
    RETRIES_EXHAUSTED = "retries_exhausted"
    CONTROLS_EXHAUSTED = "controls_exhausted"
    ROOM_QUEUE_FULL = "queue_room_capacity_rejected"
    GLOBAL_QUEUE_FULL = "queue_global_capacity_rejected"
    SENDER_RATE_LIMITED = "sender_rate_limited"
    ROOM_RATE_LIMITED = "room_rate_limited"
    SENDER_NOT_ALLOWED = "sender_not_allowed"


# The terminal state that each reason leads to.
ENDS: Final[Mapping[Reason, State]] = {
    Reason.ANSWERED: State.DELIVERED,
    Reason.TASK_FAILED: State.DELIVERED,
    Reason.TASK_REJECTED: State.DENIED,
    Reason.TASK_CANCELED: State.DENIED,
    Reason.CANCELED: State.DENIED,
    Reason.REDACTED: State.DENIED,
    Reason.AGENT_REFUSED: State.DENIED,
    Reason.AUTH_REQUIRED: State.DENIED,
    Reason.INPUT_TIMEOUT: State.DENIED,
    Reason.TASK_TIMEOUT: State.AMBIGUOUS,
    Reason.TASK_LOST: State.AMBIGUOUS,
    Reason.CALL_UNCERTAIN: State.AMBIGUOUS,
    Reason.AGENT_UNREACHABLE: State.DEAD,
    Reason.AGENT_UNKNOWN: State.DENIED,
    Reason.ROOM_REFUSED: State.DEAD,
    Reason.REPLY_UNDELIVERABLE: State.DEAD,
    Reason.RETRIES_EXHAUSTED: State.DEAD,
    Reason.CONTROLS_EXHAUSTED: State.DEAD,
    Reason.ROOM_QUEUE_FULL: State.DENIED,
    Reason.GLOBAL_QUEUE_FULL: State.DENIED,
    Reason.SENDER_RATE_LIMITED: State.DENIED,
    Reason.ROOM_RATE_LIMITED: State.DENIED,
    Reason.SENDER_NOT_ALLOWED: State.DENIED,
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the queue, in non-terminal jobs, and of a job's controls."""

    room_queue_capacity: int = 32
    global_queue_capacity: int = 256
    control_capacity_per_job: int = 16
    progress_posts_max: int = 3


class Queue:
    """How full the queue is while the mentions of one transaction are admitted, in order."""

    def __init__(self, limits: Limits, rooms: Mapping[str, int], total: int) -> None:
        self._limits = limits
        self._rooms = dict(rooms)
        self._total = total

    def admit(self, room_id: str) -> Reason | None:
        """None: there is room, and it is taken. The room's own bound is looked at first."""
        in_room = self._rooms.get(room_id, 0)
        if in_room >= self._limits.room_queue_capacity:
            return Reason.ROOM_QUEUE_FULL
        if self._total >= self._limits.global_queue_capacity:
            return Reason.GLOBAL_QUEUE_FULL
        self._rooms[room_id] = in_room + 1
        self._total += 1
        return None


def control_fits(kind: ControlKind, existing: int, limits: Limits) -> bool:
    """Whether a job that has `existing` controls may have one more; one slot is for `unpin`."""
    reserve = 0 if kind is ControlKind.UNPIN else 1
    return existing + reserve < limits.control_capacity_per_job


def may(state: State, target: State) -> bool:
    return target in TRANSITIONS[state]


def poll_pause_s(elapsed_s: float, rng: random.Random) -> float:
    """The pause before the next `GetTask`, `elapsed_s` after the agent took the task."""
    pause_s = min(max(POLL_FIRST_S, elapsed_s * POLL_SHARE), POLL_MAX_S)
    return pause_s * (1 - POLL_JITTER * rng.random())


def retry_pause_s(failures: int, initial_s: float, max_s: float, rng: random.Random) -> float:
    """The pause after the `failures`-th failure in a row (from 1): doubled each time, capped."""
    doubled = initial_s * 2.0 ** min(failures - 1, 62)
    return min(doubled, max_s) * (1 - POLL_JITTER * rng.random())


def storable(text: str) -> str:
    """`text` as PostgreSQL can store it: NUL and lone surrogates are replaced."""
    if "\0" not in text and text.isascii():
        return text
    clean = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return clean.replace("\0", NUL_REPLACEMENT)


def error_code(text: str) -> str:
    """A code as the ledger stores it: short, of one word, without what is not a word's."""
    kept = "".join(ch if ch.isascii() and (ch.isalnum() or ch in "._-") else "_" for ch in text)
    return kept[:ERROR_CODE_MAX_CHARS] or "unknown"
