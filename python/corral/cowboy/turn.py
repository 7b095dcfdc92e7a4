"""One turn, as it is kept in memory and in the ledger. Pure: only `move` changes its state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from corral.core.errors import CorralError
from corral.cowboy.domain import TERMINAL, TRANSITIONS, Ack, Kind, Outcome, Slot, State

# To format a member of an enum takes longer than all the rest of the field.
_SLOT_PARTS: Mapping[Slot | None, str] = {slot: f":{slot}:" for slot in (None, *Slot)}


class TransitionError(CorralError):
    """A move that the state table does not have: a fault in this program, never in its input."""

    code = "transition_invalid"
    exit_code = 70


@dataclass(slots=True, eq=False)
class Turn:
    """A row of the ledger. Times are wall-clock milliseconds; ids are packed (see `domain`)."""

    row: int
    id: str
    incarnation: int
    entry: bytes
    kind: Kind
    received_at_ms: int
    state: State = State.RECEIVED
    intent: State | None = None  # where `replying` leads once the outbox has confirmed
    generation: int = 0
    ack: Ack = Ack.UNACKED
    ack_attempts: int = 0
    attempt: int = 0  # hand-overs to the runner
    starts: int = 0  # committed starts: the number that poison counts
    started_at_ms: int | None = None  # of the current attempt
    release: bool = False  # an operator let a held turn go on; it waits for its channel
    parked: bool = False  # received, but its content is still in Redis only
    identity: bytes | None = None
    cancels: bytes | None = None
    sender: bytes | None = None
    channel: bytes | None = None
    thread: bytes | None = None
    message_id: bytes | None = None
    traceparent: bytes | None = None
    content: bytes | None = None
    outcome: Outcome | None = None
    slot: Slot | None = None
    detail: str | None = None  # of a notice: "exit status 3"; never content
    body: bytes | None = None  # the agent's answer, until the outbox has it
    dead_copy: bool = False
    effect: int = 0  # numbers the outbox entries of this turn, so that each has its own marker
    effect_attempts: int = 0
    outbox_id: bytes | None = None
    dead_id: bytes | None = None
    terminal_at_ms: int | None = None

    @property
    def lane(self) -> bytes:
        """The channel whose order this turn keeps; entries without a channel share one."""
        return self.channel or b""

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def closed(self) -> bool:
        """Terminal and acknowledged: the watermark may pass it."""
        return self.ack is Ack.ACKED and self.state in TERMINAL

    @property
    def effect_field(self) -> str:
        """The outbox marker of the current effect: the key of its idempotency."""
        return f"{self.id}{_SLOT_PARTS[self.slot]}{self.effect}"

    @property
    def entry_text(self) -> str:
        """The entry's id as Redis writes it: the last part of the turn's."""
        return self.id[self.id.rindex(".") + 1 :]

    def move(self, to: State) -> None:
        """Go to another state. Raises `TransitionError` when the table has no such edge."""
        if to not in TRANSITIONS[self.state]:
            raise TransitionError(
                f"turn {self.id}: no transition {self.state} -> {to}", ids={"turn_id": self.id}
            )
        self.state = to
        self.generation += 1


class Guard(NamedTuple):
    """What a row must still be for an update of it to be allowed."""

    state: State
    generation: int
