"""What must hold after every commit, while nothing is under way, and in the end."""

import dataclasses
from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

from corral.cowboy.config import OnInterrupt
from corral.cowboy.domain import (
    TERMINAL,
    TRANSITIONS,
    ZERO_ID,
    Ack,
    Kind,
    Outcome,
    Slot,
    State,
    parse,
    unpack_id,
)
from corral.cowboy.store import turns_of
from corral.cowboy.turn import Turn
from tests.unit.cowboy.samples import LIMITS

if TYPE_CHECKING:
    from tests.unit.cowboy.world import World

BINDING = attrgetter(
    "id", "incarnation", "entry", "kind", "received_at_ms", "identity", "cancels", "sender",
    "channel", "thread", "message_id", "traceparent",
)  # fmt: skip
FATE = attrgetter(
    "state", "intent", "outcome", "slot", "outbox_id", "dead_id", "terminal_at_ms", "attempt",
    "starts", "effect", "content", "body",
)  # fmt: skip
WHOLE = attrgetter(*(field.name for field in dataclasses.fields(Turn)))


def _distances() -> dict[tuple[State, State], int]:
    """The least number of moves from one state to another."""
    found = {(state, state): 0 for state in State}
    edges = [(start, to) for start, nexts in TRANSITIONS.items() for to in nexts]
    for length in range(1, len(State) + 1):
        for (start, middle), so_far in list(found.items()):
            if so_far == length - 1:
                for to in (to for edge, to in edges if edge is middle):
                    found.setdefault((start, to), length)
    return found


DISTANCES = _distances()


class Checks:
    """Remembers what was committed, to compare it with what comes next."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.rows: dict[int, Turn] = {}
        self.ever: dict[int, Turn] = {}  # the last of each row, purged ones too
        self.releases: Counter[str] = Counter()
        self._raw: dict[int, tuple[object, ...]] = {}
        self._open: set[int] = set()
        self._position = (0, ZERO_ID)

    # ------------------------------------------------------------ after every commit

    def committed(self) -> None:
        former = dict(self.rows)
        changed = self._read()
        for row in changed:
            self._moved(former.get(row), self.rows[row])
        for row in changed | self._open:
            self._sound(self.rows[row])
        self._open = {row for row, turn in self.rows.items() if not turn.closed}
        for row in former.keys() - self.rows.keys():
            assert former[row].closed, f"{former[row].id} is gone and was not closed"
        self._kept_order(former)
        self._watermark()

    def _read(self) -> set[int]:
        """Read the ledger; the rows that are not as they were."""
        raw = {row[0]: row for row in self._world.conn.execute("SELECT * FROM turns ORDER BY id")}
        changed = {number for number, row in raw.items() if self._raw.get(number) != row}
        turns = turns_of(raw[number] for number in sorted(changed))
        self.rows = {n: turn for n, turn in self.rows.items() if n in raw}
        self.rows |= {turn.row: turn for turn in turns}
        self.ever |= {turn.row: turn for turn in turns}
        self._raw = raw
        return changed

    def _moved(self, old: Turn | None, new: Turn) -> None:
        """Rows change along the table only; several moves may share a tick, each counts one."""
        if old is None:
            start, moves = State.RECEIVED, new.generation
        else:
            start, moves = old.state, new.generation - old.generation
            assert BINDING(old) == BINDING(new)
            assert new.attempt >= old.attempt
            assert new.effect >= old.effect
            if old.terminal:
                assert FATE(old) == FATE(new), f"{new.id} changed after its end"
            if old.ack is Ack.ACKED:
                assert new.ack is Ack.ACKED
        least = DISTANCES.get((start, new.state))
        assert least is not None, f"{new.id}: {start} -> {new.state}"
        assert least <= moves, f"{new.id}: {start} -> {new.state} in {moves} moves"

    def _sound(self, turn: Turn) -> None:
        world = self._world
        if turn.terminal:
            assert turn.content is None
            assert turn.body is None
            assert turn.outcome is not None
        if turn.state is State.DISPATCHED:
            assert turn.content is not None, f"{turn.id} runs without its prompt"
        if turn.parked:
            assert turn.state is State.RECEIVED
            assert turn.content is None
        if turn.started_at_ms is not None:
            assert turn.starts >= 1
        most = 1 + self.releases[turn.id]
        if world.config.on_interrupt is OnInterrupt.RESUME:
            most = world.config.dispatch_attempts_max
        assert 0 <= turn.starts <= most, f"{turn.id}: {turn.starts} starts"
        assert world.runner.went[turn.id] <= most, f"{turn.id} ran {world.runner.went[turn.id]} x"

    def _kept_order(self, former: dict[int, Turn]) -> None:
        """A turn that is handed over for the first time leaves no older one of its channel."""
        waiting: dict[bytes, tuple[int, bytes]] = {}
        for turn in self.rows.values():
            if turn.state is State.RECEIVED and turn.kind is Kind.MESSAGE:
                at = (turn.incarnation, turn.entry)
                waiting[turn.lane] = min(at, waiting.get(turn.lane, at))
        for row, turn in self.rows.items():
            first = turn.attempt > 0 and (row not in former or former[row].attempt == 0)
            if first and turn.lane in waiting:
                at = (turn.incarnation, turn.entry)
                assert at < waiting[turn.lane], f"{turn.id} overtook one of its channel"

    def _watermark(self) -> None:
        intake, redis = self._world.driver.intake, self._world.redis
        incarnation, former = self._position
        mark = intake.watermark
        self._position = (intake.incarnation, mark)
        assert intake.incarnation >= incarnation
        assert mark <= intake.last_taken
        if intake.incarnation == incarnation:
            assert mark >= former, "the watermark went back"
        closed = {
            turn.entry: turn.closed
            for turn in self.ever.values()
            if turn.incarnation == intake.incarnation
        }
        assert all(done or entry > mark for entry, done in closed.items())
        if intake.incarnation == redis.incarnation:
            for entry in redis.log:
                if entry <= mark and entry not in closed:
                    self._needs_no_turn(entry)

    def _needs_no_turn(self, entry: bytes) -> None:
        """An entry without a turn repeats what has one, or was gone before it was taken in."""
        redis = self._world.redis
        identity = parse(redis.log[entry], LIMITS).identity
        known = {turn.identity for turn in self.ever.values()} - {None}
        assert entry in redis.deleted or identity in known, f"{unpack_id(entry)!r} is lost"

    # ------------------------------------------------------------ before a run may go

    def may_go(self, turn_id: str, attempt: int) -> None:
        (turn,) = (turn for turn in self.rows.values() if turn.id == turn_id)
        if turn.state is State.REPLYING:  # a session's answer came meanwhile: a kill follows
            assert self._world.runner.repeats
        else:
            assert turn.state is State.DISPATCHED
        assert turn.attempt == attempt
        assert turn.started_at_ms is not None, f"{turn_id}: go before the start was committed"

    # ------------------------------------------------------------ after every tick

    def at_rest(self) -> None:
        """Memory is what the ledger says, and everything that is due is on its way."""
        book = self._world.driver.machine.book
        expected = {t.row: WHOLE(t) for t in self.rows.values() if not (t.closed or t.parked)}
        assert {row: WHOLE(turn) for row, turn in book.open.items()} == expected
        assert {(t.incarnation, t.entry): t for t in book.open.values()} == book.by_entry
        assert {turn.id: turn for turn in book.open.values()} == book.by_id
        parked = Counter(turn.lane for turn in self.rows.values() if turn.parked)
        assert book.parked == dict(parked)
        self._lanes()
        if self._world.attached:
            self._due()

    def _lanes(self) -> None:
        book = self._world.driver.machine.book
        queued = [turn for queue in book.queues.values() for turn in queue]
        waits = [
            turn
            for turn in book.open.values()
            if (turn.state is State.RECEIVED and turn.kind is Kind.MESSAGE) or turn.release
        ]
        assert Counter(turn.row for turn in queued) == Counter(turn.row for turn in waits)
        for lane, queue in book.queues.items():
            assert queue
            assert all(turn.lane == lane for turn in queue)
            fresh = [(t.incarnation, t.entry) for t in queue if t.state is State.RECEIVED]
            assert fresh == sorted(fresh)
            assert lane in book.busy or lane in book.ready, f"channel {lane!r} is forgotten"
        busy = [turn for turn in book.open.values() if turn.state is State.DISPATCHED]
        assert book.busy == {turn.lane: turn for turn in busy}
        assert len(book.busy) == len(busy)
        assert len(busy) <= self._world.config.turns_concurrent_max
        orders = [order for orders in book.cancels.values() for order in orders]
        open_orders = {
            turn.row
            for turn in book.open.values()
            if turn.kind is Kind.CANCEL and turn.state is State.RECEIVED
        }
        if self._world.driver.verified:  # else they did not look at their targets yet
            assert {order.row for order in orders} == open_orders
            assert len(orders) == len(open_orders)
        assert all(turn_id in book.by_id for turn_id in book.cancels)

    def _due(self) -> None:
        driver = self._world.driver
        book = driver.machine.book
        retried = {turn.row for _, turn in book.retries}
        effects = {turn.row for packet in driver.out.packets for turn, _, _ in packet.effects}
        acks = {turn.row for packet in driver.out.packets for turn in packet.acks}
        for turn in book.open.values():
            if turn.state is State.REPLYING:
                assert turn.row in effects | retried, f"{turn.id}: nobody sends its answer"
            if turn.ack is Ack.UNACKED and turn.ack_attempts:
                sent = acks | retried | effects | book.flying
                assert turn.row in sent, f"{turn.id}: nobody acknowledges"

    # ------------------------------------------------------------ in the end

    def verdict(self) -> None:
        """Everything has ended well, or is held."""
        world, redis = self._world, self._world.redis
        assert not redis.unread
        for entry in redis.log:
            if all((t.incarnation, t.entry) != (redis.incarnation, entry)
                   for t in self.ever.values()):  # fmt: skip
                self._needs_no_turn(entry)
        for turn in self.rows.values():
            if turn.state is State.HELD:
                assert not turn.release, f"{turn.id} was released and waits for ever"
            else:
                assert turn.closed, f"{turn.id} ended {turn.state}, {turn.ack}"
            self._answered(turn)
        open_entries = {turn.entry for turn in self.rows.values() if not turn.closed}
        assert redis.pending <= open_entries
        intake = world.driver.intake
        if not open_entries:
            assert intake.watermark == intake.last_taken
        self._nothing_is_left()

    def _answered(self, turn: Turn) -> None:
        """One entry with the last word in the outbox; before it only word of being held."""
        redis = self._world.redis
        sent = [added for added in redis.outbox if added.turn_id == turn.id]
        replies = Counter(one.life for one in sent if one["slot"] == Slot.REPLY)
        assert all(count == 1 for count in replies.values()), f"{turn.id} was answered twice"
        if turn.outcome is Outcome.EMPTY:
            assert not sent
            return
        if turn.outbox_id is not None:
            (last,) = (one for one in sent if one.id == turn.outbox_id)
            assert (last["outcome"], last["slot"]) == (turn.outcome, turn.slot)
            assert last["in_reply_to"] == unpack_id(turn.entry).decode()
        else:
            assert turn.state is State.DEAD, f"{turn.id}: {turn.outcome} was never told"
        superseded = {Outcome.HELD.value, str(turn.outcome)}
        if turn.outcome is not Outcome.OUTBOX_REFUSED:
            assert {one["outcome"] for one in sent} <= superseded
        letters = [added for added in redis.dead if added.turn_id == turn.id]
        assert (turn.state is State.DEAD) == (turn.dead_id is not None) == bool(letters)
        per_life = Counter(one.life for one in letters)
        assert all(count == 1 for count in per_life.values())

    def _nothing_is_left(self) -> None:
        world = self._world
        book, runner = world.driver.machine.book, world.runner
        for things in (book.busy, book.queues, book.parked, book.cancels, book.acks, book.effects,
                       book.loose, book.forget, book.retries, book.prepare_again,
                       book.flying):  # fmt: skip
            assert not things
        assert set(book.open) == {row for row, turn in self.rows.items() if not turn.closed}
        assert not [run for run in runner.runs.values() if not run.over]
        terminal = {turn.state for turn in self.rows.values()} - {State.HELD}
        assert terminal <= TERMINAL
