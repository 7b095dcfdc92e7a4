"""What the intake hands to the ledger: a classified transaction, and the answer to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

# What there is one of for each event is not frozen, though nobody changes it: to make a frozen one
# takes three times as long. Its hash stays that of its values.


@dataclass(slots=True, unsafe_hash=True)
class Mention:
    """A message that asks an agent for something: one for each mentioned ghost.

    `position` counts the events of the transaction from 0, the ghosts of one event follow in the
    order of mention. `thread_root` is the root of the thread that the message is in. A mention in
    the thread of an open question of the same person is the answer to it.
    """

    event_id: str
    room_id: str
    sender: str
    ghost: str
    text: str
    position: int
    reply_to: str | None = None
    thread_root: str | None = None
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """A wish to cancel what `target` (a mention, or an event of ours) belongs to.

    `by_power`: the room's power levels allow it to others than the one who asked.
    """

    event_id: str
    room_id: str
    sender: str
    target: str
    position: int
    by_power: bool = False


@dataclass(frozen=True, slots=True)
class Continuation:
    """A message in a thread, without a mention: an answer, if that thread has an open question."""

    event_id: str
    room_id: str
    sender: str
    thread_root: str
    text: str
    position: int


@dataclass(frozen=True, slots=True)
class Redaction:
    """`target` was redacted: what it asked for is not begun any more."""

    event_id: str
    room_id: str
    sender: str
    target: str
    position: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """A mention that policy refuses (rate limit, allow-list): its sender is told, once."""

    mention: Mention
    reason: str  # of corral.bridge.domain.Reason


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing is done about it. `reason` is a stable word, for metrics."""

    event_id: str
    reason: str
    position: int


Classified = Mention | Refusal | Cancel | Continuation | Redaction | Ignored


@dataclass(slots=True, unsafe_hash=True)
class EventDigest:
    """One event of a transaction: what of it may not change in a retry, as 32 bytes.

    `redacted`: it has come in its redacted form.
    """

    event_id: str
    digest: bytes
    redacted: bool = False


@dataclass(frozen=True, slots=True)
class Incoming:
    """A transaction, classified. `body_digest` is the SHA-256 of the exact bytes."""

    txn_id: str
    body_digest: bytes
    events: tuple[EventDigest, ...]
    classified: tuple[Classified, ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """It is in the ledger. `epoch` is above 0 when the id had been used for other events."""

    accepted: int = 0
    denied: int = 0
    controls: int = 0
    ignored: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Replay:
    """It was in the ledger already. `exact`: the very same bytes."""

    exact: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """The id was used for other events, and the setting is to reject that: HTTP 409."""


Admitted = Committed | Replay | Conflict


class Admission(Protocol):
    """Where a transaction becomes durable."""

    async def admit(self, incoming: Incoming) -> Admitted:
        """Commits, then answers. `StorageError`: nothing was committed, or nobody knows: 5xx."""

    async def fresh(self, mentions: Sequence[Mention]) -> Sequence[Mention]:
        """Those that were never admitted, as far as is known now. `StorageError` as above."""
