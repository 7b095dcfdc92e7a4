"""What the gateway decides about tasks. Pure: no I/O.

| state | goes to |
| --- | --- |
| `submitted` | `working`, `input-required`, `completed`, `failed`, `canceled`, `rejected` |
| `working` | `input-required`, `completed`, `failed`, `canceled`, `rejected` |
| `input-required` | `submitted`, `canceled` |
| `completed` | |
| `failed` | |
| `canceled` | |
| `rejected` | |

A task is `submitted` from its message's commit on, and `working` once the message was passed on. An
answer to a question makes it `submitted` again. What comes after an end is recorded, not shown.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.core.ids import digest, hex_id

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
DAY_S: Final = 86_400


class State(StrEnum):
    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"


_ANSWERS: Final = frozenset({
    State.INPUT_REQUIRED, State.COMPLETED, State.FAILED, State.CANCELED, State.REJECTED,
})  # fmt: skip
TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.SUBMITTED: _ANSWERS | {State.WORKING},
    State.WORKING: _ANSWERS,
    State.INPUT_REQUIRED: frozenset({State.SUBMITTED, State.CANCELED}),
    State.COMPLETED: frozenset(),
    State.FAILED: frozenset(),
    State.CANCELED: frozenset(),
    State.REJECTED: frozenset(),
}
ENDED: Final = frozenset(state for state, following in TRANSITIONS.items() if not following)
RESTING: Final = ENDED | {State.INPUT_REQUIRED}  # nothing follows without the client


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of what one client may ask, and how long tasks are open and known."""

    body_max_bytes: int = 1024 * 1024
    parts_max: int = 64
    id_max_chars: int = 256
    open_tasks_max: int = 256  # of one client, not ended
    tasks_max: int = 1_000_000  # of all clients, ended ones too
    task_timeout_s: float = DAY_S  # since it last moved; then it has failed
    input_timeout_s: float = DAY_S  # for the answer to a question
    content_kept_s: float = DAY_S  # after the client first got the end
    retention_s: int = 30 * DAY_S  # after the end: so long a message id is known
    wait_max_s: float = 600.0  # of a call that waits for the task's end
    page_max: int = 100
    history_max: int = 1000


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a task, by the client (`user`) or the agent."""

    message_id: str
    role: str
    text: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Task:
    """A task as its client may see it. `text` goes with the state; times are wall milliseconds."""

    task_id: str
    agent: str
    client: str
    context_id: str
    state: State
    generation: int
    text: str
    created_at_ms: int
    changed_at_ms: int
    messages: tuple[Message, ...] = ()
    read: bool = False  # its client got its end before


@dataclass(frozen=True, slots=True)
class Send:
    """A message to an agent. `task_id`: it answers the question of that task."""

    message_id: str
    text: str
    context_id: str | None = None
    task_id: str | None = None
    user: str = ""  # as the client asserts
    traceparent: str = ""


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the agent has yet to get: a message, or that a task is canceled."""

    key: int
    task: Task
    kind: str  # "message" or "cancel"
    entry_key: str  # of the entry itself
    message_key: str  # of the entry of the task's newest message
    text: str
    user: str
    traceparent: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the agent's outbox says of one entry. `entry_key`: of the entry that it answers."""

    agent: str
    outbox_id: str
    entry_key: str
    task_id: str
    state: State
    text: str


def task_id(client: str, message_id: str) -> str:
    """The id of the task that a client's message begins: the same for the same message, always."""
    return hex_id("corral.gateway.task/1", client, message_id)


def context_id(client: str, message_id: str) -> str:
    """The conversation of a message whose client names none."""
    return hex_id("corral.gateway.context/1", client, message_id)


def entry_key(client: str, message_id: str) -> str:
    """The producer's id of the inbox entry that carries a message."""
    return hex_id("corral.gateway.entry/1", client, message_id)


def cancel_key(task_id: str) -> str:
    """The producer's id of the inbox entry that cancels a task."""
    return hex_id("corral.gateway.cancel/1", task_id)


def fingerprint(agent: str, send: Send) -> bytes:
    """What must be the same when a message id comes again (32 bytes)."""
    return digest(
        "corral.gateway.message/1",
        agent,
        send.text,
        _optional(send.context_id),
        _optional(send.task_id),
    )


def _optional(text: str | None) -> str:
    return "-" if text is None else f"+{text}"


def storable(text: str) -> str:
    """The text with U+FFFD for what JSON clients and databases choke on: NUL, lone surrogates."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


# Outcomes of the stream's contract; a task of any other one has failed.
_OUTCOMES: Final[Mapping[str, State | None]] = {
    "completed": State.COMPLETED,
    "input_required": State.INPUT_REQUIRED,
    "cancelled": State.CANCELED,
    # Nothing ran.
    "content_too_large": State.REJECTED,
    "metadata_invalid": State.REJECTED,
    "kind_unknown": State.REJECTED,
    # Says nothing of the task itself, or is not the end of it.
    "held": None,
    "cancel_applied": None,
    "cancel_too_late": None,
    "cancel_unknown": None,
}


def state_of(outcome: str) -> State | None:
    """What an outcome of an outbox entry makes of its task; None: nothing."""
    return _OUTCOMES.get(outcome, State.FAILED)


def may(state: State, target: State) -> bool:
    return target in TRANSITIONS[state]
