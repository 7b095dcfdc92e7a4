"""The rules of a turn: states, transitions, outcomes, and what an inbox entry is.

Pure: no I/O, no clock. `machine` moves turns by these rules, `store` writes what moved.

The state table (a test compares it with `TRANSITIONS`):

| state | meaning | goes to |
| --- | --- | --- |
| `received` | the row is committed, nothing has started | `dispatched`, `empty`, `replying` |
| `dispatched` | committed before the hand-over to the runner | `replying`, `interrupted` |
| `interrupted` | its run is certainly over, its outcome unknown | `dispatched`, `replying` |
| `replying` | answer or notice persisted, not confirmed | `replying`, and the four intents below |
| `held` | waits for the operator; the sender was told | `dispatched`, `replying` |
| `done` | answered, or the sender was told why not | |
| `empty` | no usable content: acknowledged, counted, nothing sent | |
| `dead` | given up: a copy is in the dead-letter stream | |
| `cancelled` | cancelled by its sender, who was told | |

A `replying` turn carries its intent, the state it enters once the outbox has confirmed: `done`,
`held`, `dead` or `cancelled`. It may exchange one answer for another first (`replying` itself).

One edge is not in the table because it leaves the state alone: a dispatched turn whose run
provably never went is handed over again under the next attempt number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct
from typing import NamedTuple

from corral.core.ids import digest, hex_id


class State(StrEnum):
    """State of a turn; see the module's table."""

    RECEIVED = "received"
    DISPATCHED = "dispatched"
    INTERRUPTED = "interrupted"
    REPLYING = "replying"
    HELD = "held"
    DONE = "done"
    EMPTY = "empty"
    DEAD = "dead"
    CANCELLED = "cancelled"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.RECEIVED: frozenset({State.DISPATCHED, State.EMPTY, State.REPLYING}),
    State.DISPATCHED: frozenset({State.REPLYING, State.INTERRUPTED}),
    State.INTERRUPTED: frozenset({State.DISPATCHED, State.REPLYING}),
    State.REPLYING: frozenset(
        {State.REPLYING, State.DONE, State.HELD, State.DEAD, State.CANCELLED}
    ),
    State.HELD: frozenset({State.DISPATCHED, State.REPLYING}),
    State.DONE: frozenset(),
    State.EMPTY: frozenset(),
    State.DEAD: frozenset(),
    State.CANCELLED: frozenset(),
}
TERMINAL = frozenset(state for state, nexts in TRANSITIONS.items() if not nexts)


class Ack(StrEnum):
    """Acknowledgement of an inbox entry, apart from its turn's state."""

    UNACKED = "unacked"
    ACKED = "acked"
    FORGOTTEN = "forgotten"  # the retry budget is spent; the next re-offer tries again


class Kind(StrEnum):
    """What an inbox entry asks for."""

    MESSAGE = "message"
    CANCEL = "cancel"


class Slot(StrEnum):
    """Whether an outbox entry carries the agent's answer or cowboy's own word."""

    REPLY = "reply"
    NOTICE = "notice"


class Outcome(StrEnum):
    """Why a turn ended as it did; stable API, in every outbox entry."""

    COMPLETED = "completed"
    INPUT_REQUIRED = "input_required"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    EXIT_NONZERO = "exit_nonzero"
    TIMEOUT = "timeout"
    OUTPUT_INVALID = "output_invalid"
    REPLY_TOO_LARGE = "reply_too_large"
    START_FAILED = "start_failed"
    CONTENT_TOO_LARGE = "content_too_large"
    METADATA_INVALID = "metadata_invalid"
    KIND_UNKNOWN = "kind_unknown"
    CANCELLED = "cancelled"
    POISONED = "poisoned"
    OUTBOX_REFUSED = "outbox_refused"
    HELD = "held"
    ABANDONED = "abandoned"
    PAYLOAD_LOST = "payload_lost"
    CANCEL_APPLIED = "cancel_applied"
    CANCEL_TOO_LATE = "cancel_too_late"
    CANCEL_UNKNOWN = "cancel_unknown"
    EMPTY = "empty"


REPLY_OUTCOMES = frozenset({Outcome.COMPLETED, Outcome.INPUT_REQUIRED, Outcome.FAILED})

NOTICES: Mapping[Outcome, str] = {
    Outcome.INTERRUPTED: "The agent was interrupted while it worked on this; whether it took "
    "effect is uncertain.",
    Outcome.EXIT_NONZERO: "The agent ended with an error.",
    Outcome.TIMEOUT: "The agent ran out of time and was stopped.",
    Outcome.OUTPUT_INVALID: "The agent's output could not be used.",
    Outcome.REPLY_TOO_LARGE: "The agent's answer was larger than allowed.",
    Outcome.START_FAILED: "The agent could not be started.",
    Outcome.CONTENT_TOO_LARGE: "The message is larger than this agent accepts.",
    Outcome.METADATA_INVALID: "A field of the message is too long or not valid text.",
    Outcome.KIND_UNKNOWN: "This kind of message is not known here.",
    Outcome.CANCELLED: "Cancelled.",
    Outcome.POISONED: "The agent was interrupted on every attempt; an operator was told.",
    Outcome.OUTBOX_REFUSED: "The answer could not be delivered; an operator was told.",
    Outcome.HELD: "The agent was interrupted; an operator will decide how this goes on.",
    Outcome.ABANDONED: "An operator ended this request.",
    Outcome.PAYLOAD_LOST: "The message was removed before it was read.",
    Outcome.CANCEL_APPLIED: "The request was cancelled.",
    Outcome.CANCEL_TOO_LATE: "Too late to cancel: the request has already ended.",
    Outcome.CANCEL_UNKNOWN: "No such request to cancel.",
}

# ---------------------------------------------------------------- entries

ZERO_ID = b"\0" * 16
_PACKED = Struct(">QQ")
METADATA_FIELDS = ("sender", "channel", "thread", "message_id", "traceparent")
_METADATA_KEYS = tuple(name.encode() for name in METADATA_FIELDS)


def pack_id(text: bytes) -> bytes:
    """`b"<ms>-<seq>"` as 16 sortable bytes (SQLite's integers are too small for a sequence)."""
    ms, _, seq = text.partition(b"-")
    return int(ms).to_bytes(8, "big") + int(seq or 0).to_bytes(8, "big")


def unpack_id(packed: bytes) -> bytes:
    """The inverse of `pack_id`."""
    return b"%d-%d" % _PACKED.unpack(packed)


def before(packed: bytes) -> bytes:
    """The largest id below this one; the zero id stays."""
    value = int.from_bytes(packed, "big")
    return max(value - 1, 0).to_bytes(16, "big")


def after(packed: bytes) -> bytes:
    """The smallest id above this one."""
    value = int.from_bytes(packed, "big")
    return min(value + 1, (1 << 128) - 1).to_bytes(16, "big")


class Entry(NamedTuple):  # one per message: a frozen dataclass takes five times as long to make
    """An inbox entry as Redis gave it; `fields` is None for an id whose entry was trimmed."""

    entry: bytes  # packed id
    fields: Mapping[bytes, bytes] | None


@dataclass(frozen=True, slots=True)
class Limits:
    """What an entry may carry: bytes of content, bytes of one metadata field."""

    content_max_bytes: int
    metadata_max_bytes: int


class Parsed(NamedTuple):
    """An entry after `parse`: what it asks for, or why it is refused (`refusal`)."""

    kind: Kind
    content: bytes | None
    identity: bytes | None  # digest of message_id, then digest of what was said; None without id
    cancels: bytes | None
    refusal: Outcome | None
    sender: bytes | None
    channel: bytes | None
    thread: bytes | None
    message_id: bytes | None
    traceparent: bytes | None


def _metadata(value: bytes, limit: int) -> tuple[bytes | None, bool]:
    """A field to keep and give back, and whether it is acceptable (text, no NUL, not too long)."""
    if len(value) > limit:
        return None, False
    try:
        value.decode()
    except UnicodeDecodeError:
        return value, False
    return value, b"\0" not in value


def message_key(message_id: bytes) -> bytes:
    """The first half of an identity: 16 bytes that stand for the producer's own id."""
    return digest("cowboy/message-id/1", message_id)[:16]


def parse(fields: Mapping[bytes, bytes], limits: Limits) -> Parsed:
    """What an entry says. Never raises: what cannot be used becomes `empty` or a refusal."""
    get = fields.get
    content = get(b"content", b"")
    acceptable = True
    kept: list[bytes | None] = []
    for name in _METADATA_KEYS:
        value = get(name)
        if value is not None:
            value, fine = _metadata(value, limits.metadata_max_bytes)
            acceptable = acceptable and fine
        kept.append(value)
    sender, channel, thread, message_id, traceparent = kept
    cancels = get(b"cancels")
    if cancels is not None:
        cancels, fine = _metadata(cancels, limits.metadata_max_bytes)
        acceptable = acceptable and fine
    kind_text = get(b"kind", b"message")
    refusal: Outcome | None = None
    kind = Kind.MESSAGE
    if kind_text == b"cancel":
        kind = Kind.CANCEL
        content = b""
    elif kind_text != b"message":
        refusal = Outcome.KIND_UNKNOWN
    if not acceptable:
        refusal = Outcome.METADATA_INVALID
    elif len(content) > limits.content_max_bytes:
        refusal = Outcome.CONTENT_TOO_LARGE
    identity = None
    if message_id:  # an empty one is as none: else all that say the same would be duplicates
        said = (kind_text, content, sender or b"", channel or b"", thread or b"", cancels or b"")
        identity = message_key(message_id) + digest("cowboy/message/1", *said)[:16]
    return Parsed(
        kind,
        content if refusal is None and content.strip() else None,
        identity,
        cancels,
        refusal,
        sender,
        channel,
        thread,
        message_id,
        traceparent,
    )


# ---------------------------------------------------------------- names


def turn_id(agent: str, source: str, incarnation: int, entry: bytes) -> str:
    """`<agent>.<source>.<incarnation>.<entry id>`: deterministic, and readable to an operator."""
    return f"{agent}.{source}.{incarnation}.{unpack_id(entry).decode()}"


def parse_turn_id(text: str) -> tuple[str, str, int, bytes]:
    """Agent, source, incarnation and packed entry id; ValueError when it is not a turn id."""
    agent, source, incarnation, entry = text.split(".")
    return agent, source, int(incarnation), pack_id(entry.encode())


def session_id(agent: str, source: str, channel: bytes) -> str:
    """Stable per source and channel, so that an agent can reopen its session."""
    return hex_id("cowboy/session/1", agent, source, channel)
