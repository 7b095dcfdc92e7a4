"""What one source has open: its turns in memory, the order of its channels, and what must happen.

Pure. The ledger is the truth; this is its open part plus the work that follows from it. When a
commit fails the book is thrown away and read again, as after a crash, so nothing here is undone.
"""

from collections import deque
from dataclasses import dataclass, field

from corral.cowboy.domain import Ack, Kind, State
from corral.cowboy.turn import Guard, Turn

RETRY_MS = (250, 500, 1_000, 2_000, 5_000, 10_000, 30_000)  # the last repeats


def retry_delay_ms(attempts: int) -> int:
    """How long a refused acknowledgement or outbox entry waits before the next attempt."""
    return RETRY_MS[min(max(attempts - 1, 0), len(RETRY_MS) - 1)]


@dataclass(slots=True)
class Batch:
    """What one tick changes in the ledger; `guards` holds each changed row's former state."""

    now_ms: int
    created: list[Turn] = field(default_factory=list)
    fresh: dict[bytes, Turn] = field(default_factory=dict)  # `created` by entry
    said: dict[bytes, set[bytes]] = field(default_factory=dict)  # their identities by message key
    changed: dict[int, Turn] = field(default_factory=dict)
    guards: dict[int, Guard] = field(default_factory=dict)
    notes: list[tuple[str, bytes | None, str]] = field(default_factory=list)
    tallies: dict[str, int] = field(default_factory=dict)
    points: set[str] = field(default_factory=set)  # crash points that follow the commit

    def count(self, name: str, by: int = 1) -> None:
        self.tallies[name] = self.tallies.get(name, 0) + by

    def note(self, kind: str, entry: bytes | None, detail: str = "") -> None:
        """Record something that is not a turn's business: kept, counted and listed."""
        self.notes.append((kind, entry, detail))
        self.count(kind)


@dataclass(slots=True)
class Orders:
    """Messages to the runner that follow from a batch, sent after its commit."""

    prepare: list[Turn] = field(default_factory=list)
    go: list[tuple[str, int]] = field(default_factory=list)
    kill: list[tuple[str, int]] = field(default_factory=list)
    query: list[tuple[str, int]] = field(default_factory=list)
    forget: list[tuple[str, int]] = field(default_factory=list)


class Book:
    """Open turns by row, entry and id; channels with their queues; what is due to Redis.

    A *lane* is a channel: at most one of its turns is with the runner (`busy`), the rest wait in
    the lane's queue in the order of their entries.
    """

    def __init__(self, *, repeats: bool = False) -> None:
        """`repeats`: a start may be repeated without harm, under the same attempt."""
        self.repeats = repeats
        self.open: dict[int, Turn] = {}
        self.by_entry: dict[tuple[int, bytes], Turn] = {}
        self.by_id: dict[str, Turn] = {}
        self.queues: dict[bytes, deque[Turn]] = {}
        self.busy: dict[bytes, Turn] = {}
        self.ready: deque[bytes] = deque()
        self.parked: dict[bytes, int] = {}
        self.cancels: dict[str, list[Turn]] = {}  # target turn id -> cancel turns that wait
        self.acks: dict[int, Turn] = {}  # acknowledgements to send
        self.effects: dict[int, Turn] = {}  # outbox entries to send
        self.loose: dict[bytes, None] = {}  # entries to acknowledge that need no turn
        self.forget: list[str] = []  # outbox markers whose ids are committed
        self.retries: list[tuple[int, Turn]] = []
        self.prepare_again: list[tuple[int, Turn]] = []  # the runner had no room for these
        self.ended_runs: list[tuple[str, int]] = []  # results that a former daemon committed
        self.flying: set[int] = set()  # rows whose acknowledgement or effect is on the wire
        self.repeated: set[int] = set()  # rows whose acknowledgement may have been done already
        self.lost_entries: set[bytes] = set()  # removed from the pending list by Redis itself
        self.batch = Batch(0)
        self.orders = Orders()

    # ------------------------------------------------------------ batches

    def begin(self, now_ms: int) -> Batch:
        """Start a tick; what the last one ordered has been handed on."""
        self.batch = Batch(now_ms)
        self.orders = Orders()
        return self.batch

    def touch(self, turn: Turn) -> None:
        """Call before changing a turn, so that its update is guarded by what it was."""
        row, guards = turn.row, self.batch.guards  # all that is created or changed is guarded
        if row not in guards:
            guards[row] = Guard(turn.state, turn.generation)
            self.batch.changed[row] = turn

    def create(self, turn: Turn) -> None:
        batch = self.batch
        batch.created.append(turn)
        batch.fresh[turn.entry] = turn
        if turn.identity is not None:
            batch.said.setdefault(turn.identity[:16], set()).add(turn.identity)
        # A guard for a row that is not there yet would fail: an empty entry marks it as new.
        batch.guards[turn.row] = Guard(turn.state, turn.generation)
        self.adopt(turn)

    def adopt(self, turn: Turn) -> None:
        """Take an open turn into memory."""
        self.open[turn.row] = turn
        self.by_entry[turn.incarnation, turn.entry] = turn
        self.by_id[turn.id] = turn

    def drop(self, turn: Turn) -> None:
        """A closed turn leaves memory."""
        if self.open.pop(turn.row, None) is not None:
            self.by_entry.pop((turn.incarnation, turn.entry), None)
            self.by_id.pop(turn.id, None)
            self.repeated.discard(turn.row)
            self.lost_entries.discard(turn.entry)

    # ------------------------------------------------------------ lanes

    def lane_size(self, lane: bytes) -> int:
        """Turns of a lane that wait or run, parked ones aside."""
        queue = self.queues.get(lane)
        return (len(queue) if queue else 0) + (lane in self.busy)

    def enqueue(self, turn: Turn, *, front: bool = False) -> None:
        lane = turn.lane
        queue = self.queues.get(lane)
        if queue is None:
            queue = self.queues[lane] = deque()
        if front:
            queue.appendleft(turn)
        else:
            queue.append(turn)
        if lane not in self.busy and len(queue) == 1:
            self.ready.append(lane)

    def unqueue(self, turn: Turn) -> None:
        """Take a waiting turn out of its lane (cancelled before it started)."""
        queue = self.queues.get(turn.lane)
        if queue is None or turn not in queue:
            return
        queue.remove(turn)
        if not queue:
            del self.queues[turn.lane]

    def occupy(self, turn: Turn) -> None:
        self.busy[turn.lane] = turn

    def vacate(self, turn: Turn) -> None:
        """The lane's turn is no longer with the runner; the next one may go."""
        if self.busy.get(turn.lane) is turn:
            del self.busy[turn.lane]
            if self.queues.get(turn.lane):
                self.ready.append(turn.lane)

    def next_waiting(self) -> Turn | None:
        """The first turn of the next idle lane, taken from its queue; None when none can go."""
        while self.ready:
            lane = self.ready.popleft()
            queue = self.queues.get(lane)
            if not queue or lane in self.busy:
                continue
            turn = queue.popleft()
            if not queue:
                del self.queues[lane]
            return turn
        return None

    # ------------------------------------------------------------ after a (re)connection

    def resend_all(self) -> None:
        """Nothing is on the wire any more: all that is unconfirmed is due again (idempotent).

        Forgotten acknowledgements too: their entries may not be pending any more, and then nobody
        would offer them again.
        """
        self.repeated |= self.flying
        self.flying.clear()
        self.retries.clear()
        self.acks = {
            row: turn
            for row, turn in self.open.items()
            if turn.ack is not Ack.ACKED and turn.ack_attempts > 0
        }
        self.repeated.update(row for row, turn in self.acks.items() if turn.ack is Ack.FORGOTTEN)
        self.effects = {}
        for row, turn in self.open.items():
            if turn.state is not State.REPLYING:
                continue
            if turn.effect_attempts:  # a reconnection must not hurry a refusing outbox
                self.retries.append(
                    (self.batch.now_ms + retry_delay_ms(turn.effect_attempts), turn)
                )
            else:
                self.effects[row] = turn

    def due(self, now_ms: int) -> None:
        """Move retries whose time has come back to the work that is due."""
        later: list[tuple[int, Turn]] = []
        for at_ms, turn in self.retries:
            if at_ms > now_ms:
                later.append((at_ms, turn))
            elif turn.row in self.open:
                if turn.state is State.REPLYING:
                    self.effects[turn.row] = turn
                if turn.ack is Ack.UNACKED and turn.ack_attempts > 0:
                    self.acks[turn.row] = turn
        self.retries = later
        waiting, self.prepare_again = self.prepare_again, []
        for at_ms, turn in waiting:
            if at_ms > now_ms:
                self.prepare_again.append((at_ms, turn))
            elif turn.state is State.DISPATCHED and (self.repeats or turn.started_at_ms is None):
                self.orders.prepare.append(turn)

    def next_due_ms(self) -> int | None:
        """When the first retry is due; None without one."""
        return min((at_ms for at_ms, _ in [*self.retries, *self.prepare_again]), default=None)

    def states(self) -> dict[str, int]:
        """Open turns by state, parked ones among the received."""
        counts: dict[str, int] = {}
        for turn in list(self.open.values()):
            counts[turn.state] = counts.get(turn.state, 0) + 1
        parked = sum(self.parked.values())
        if parked:
            counts[State.RECEIVED] = counts.get(State.RECEIVED, 0) + parked
        return counts

    def oldest_unanswered(self) -> Turn | None:
        """The open message turn that was received first and has no confirmed answer."""
        waiting = [t for t in list(self.open.values()) if not t.terminal and t.kind is Kind.MESSAGE]
        return min(waiting, key=lambda turn: turn.received_at_ms, default=None)
