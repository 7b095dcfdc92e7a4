"""One source at work: ticks.

A tick takes the events that have come in (entries read, runs finished, Redis' answers, an
operator's command), applies them to the turns, and commits what changed, all in one transaction.
Only after the commit does anything leave the process. Whatever fails inside a tick throws the
book away and reads the ledger again, as a restart would: recovery has one path.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Sequence

from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.crashpoints import crashpoint
from corral.core.errors import CorralError, StorageError, UnavailableError, UsageError
from corral.cowboy import points
from corral.cowboy.config import EchoRunner, SourceConfig
from corral.cowboy.domain import ZERO_ID, State, after, before
from corral.cowboy.intake import Intake
from corral.cowboy.machine import Machine
from corral.cowboy.outgoing import Outgoing
from corral.cowboy.redisconn import RedisFault
from corral.cowboy.runner.domain import Finished, Prepared, Refused, RunnerEvent, RunState
from corral.cowboy.store import Note, Position, SourceLedger
from corral.cowboy.tick import Command, Event, Shared, Tick
from corral.cowboy.turn import Turn

PURGE_ROWS = 1_000  # looked at per purge
PURGE_INTERVAL_MS = 1_000
NOTES_SHOWN = 20
SCAN_INTERVAL_MAX_S = 5.0  # between two walks through the pending list
TRIM_MARKS = 64  # how finely the watermark of the past is remembered
STORAGE_RETRY_INITIAL_S = 0.2
STORAGE_RETRY_MAX_S = 5.0

_log = logs.get("cowboy.engine")


class Engine:
    """The turns of one source. `run` is its life; everything else only posts events."""

    def __init__(self, shared: Shared, name: str, config: SourceConfig) -> None:
        self.shared = shared
        self.name = name
        self.config = config
        self.ledger = SourceLedger(name, shared.rows)
        self.out = Outgoing(self)
        self.tallies: dict[str, int] = {}
        self.storage_error: CorralError | None = None
        self.loaded = asyncio.Event()
        self.settled = asyncio.Event()  # at work, or it is known why not: the start is over
        self._marks: deque[tuple[float, bytes]] = deque()  # committed watermarks and when (s)
        self.sequence = 0  # of the last commit that changed a turn of this source
        # Redis has confirmed that the streams belong to this ledger, and that it is no older copy.
        # Until then no turn moves: what an old copy thinks may be wrong.
        self.verified = False
        self.drained = False  # the own pending list is known whole: the watermark may move
        self.offered = 0  # entries read and not yet taken in
        self.taken = asyncio.Event()  # set after each tick: there may be room to read again
        self._events: list[Event] = []
        self._urgent: list[Event] = []  # run even before the source is verified
        self._posted = asyncio.Event()
        self._purge_at_ms = 0
        self._purge_row = 0
        self._timer: asyncio.TimerHandle | None = None
        self._commands: list[Command] = []  # not answered yet
        self._runner_there = False
        self._fresh()

    def _fresh(self) -> None:
        self.machine = Machine(
            self.shared.agent, self.name, self.config, slots_left=self._slots_left
        )
        self.intake = Intake(self.machine)

    def _slots_left(self) -> int:
        """Slots that the agent's limit leaves to this source.

        A source that others wait for gives up what exceeds its share as its runs end.
        """
        shared, mine = self.shared, self.machine
        others = shared.busy() - len(mine.book.busy)
        waiting = sum(m is not mine and m.runner_up and bool(m.book.ready) for m in shared.machines)
        share = max(shared.turns_concurrent_max // (waiting + 1), 1)
        left = shared.turns_concurrent_max - others
        return min(left, share) if waiting else left

    @property
    def needs_runner(self) -> bool:
        return not isinstance(self.config.runner, EchoRunner)

    # ------------------------------------------------------------ posting

    def post(self, event: Event) -> None:
        self._events.append(event)
        self._posted.set()

    def poke(self) -> None:
        """Have a tick soon even though nothing came in (a slot elsewhere, a retry that is due)."""
        self._posted.set()

    def runner_connected(self) -> None:
        """A runner answers: ask it for every dispatched turn, and hand waiting ones over."""
        self._runner_there = True
        self.post(self._query_runner)

    def _query_runner(self) -> None:
        self.machine.runner_up = True
        book = self.machine.book
        for turn in book.busy.values():
            book.orders.query.append((turn.id, turn.attempt))
        ended = (t for t in book.open.values() if t.attempt and t.state is not State.DISPATCHED)
        book.ended_runs += ((turn.id, turn.attempt) for turn in ended)
        self.machine.end_runs()

    def runner_lost(self) -> None:
        self._runner_there = False

        def lost() -> None:
            self.machine.runner_up = self.machine.instant

        self.post(lost)

    def runner_event(self, event: RunnerEvent) -> None:
        match event:
            case Prepared(turn, attempt, _):
                crashpoint(points.PREPARED)
                self.post(lambda: self.machine.prepared(turn, attempt))
            case Refused(turn, attempt, reason):
                self.post(lambda: self.machine.refused(turn, attempt, reason))
            case Finished(turn, attempt, result):
                crashpoint(points.RESULT)
                self.post(lambda: self.machine.finished(turn, attempt, result))
            case RunState(turn, attempt, phase, outcome):
                self.post(lambda: self.machine.run_state(turn, attempt, phase, outcome))

    async def command(self, action: Event, *, urgent: bool = False) -> None:
        """Run a command in a tick; returns after its commit. Raises what it raises.

        Before the source is verified only an `urgent` one runs (what verifies it); others raise.
        """
        if not (urgent or self.verified):
            raise UnavailableError(
                f"source {self.name} is not at work yet", hint="cowboy status says why"
            )
        command = Command(action, asyncio.get_running_loop().create_future())
        (self._urgent if urgent else self._events).append(command)
        self._commands.append(command)
        self._posted.set()
        await command.done
        if command.failure is not None:
            raise command.failure

    def _answer(self, error: CorralError | None = None) -> None:
        """Answer the commands that ran in a committed tick; with an error, all of them."""
        commands, self._commands = self._commands, []
        for command in commands:
            if error is None and not command.ran:
                self._commands.append(command)
            else:
                command.end(error)

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Load, tick, and start over after a fault. Returns only by cancellation."""
        backoff = Backoff(STORAGE_RETRY_INITIAL_S, STORAGE_RETRY_MAX_S)
        while True:
            try:
                await self._load()
                self.storage_error = None
                self.loaded.set()
                while True:
                    await self._posted.wait()
                    await self._tick()
                    backoff.reset()
            except CorralError as error:
                self._failed(error)
            except Exception as error:  # a fault in this program: no turn may be lost by it
                _log.exception("tick_failed", source=self.name)
                self._failed(CorralError(f"a tick failed: {type(error).__name__}"))
            await self.shared.clock.sleep(backoff.next_s())

    def _failed(self, error: CorralError) -> None:
        self.storage_error = error
        self.loaded.clear()
        self.drained = False
        self.verified = False
        self.settled.set()
        self.out.reset()
        self._answer(error)
        _log.error(
            "ledger_unusable" if isinstance(error, StorageError) else "tick_failed",
            source=self.name, code=error.code, error=str(error),
        )  # fmt: skip

    async def _load(self) -> None:
        """Read the open part of the ledger, as after a crash. Proves that a commit is possible."""
        self._fresh()
        self._events.clear()
        self._urgent.clear()
        self._marks.clear()
        self._answer(UnavailableError("the ledger was read again", hint="ask again"))
        self.offered = 0
        self.out.restart.clear()
        position, waiting, tallies = await self.shared.writer.submit(self._read)
        self.intake.incarnation = position.incarnation
        self.intake.watermark = position.watermark
        self.intake.last_taken = position.last_taken
        self.tallies = tallies
        self.sequence = position.sequence
        machines = self.shared.machines
        machines[:] = [m for m in machines if m.source != self.name] + [self.machine]
        for order in waiting:
            self.post(lambda order=order: self.intake.resume_cancel(order, self.ledger))  # type: ignore[misc]
        if self._runner_there:  # what it said meanwhile is lost: ask again
            self.post(self._query_runner)
        self.poke()

    def _read(self, conn: sqlite3.Connection) -> tuple[Position, list[Turn], dict[str, int]]:
        ledger = self.ledger
        ledger.use(conn)
        position = ledger.attach()
        # The position is written back so that a full disk shows here, not at the first tick.
        here = (position.incarnation, position.watermark, position.last_taken)
        ledger.move(*here, position.incarnation)
        waiting = self.intake.restore(ledger.open_turns(), ledger.parked_counts())
        return position, waiting, ledger.tallies()

    # ------------------------------------------------------------ the tick

    async def _tick(self) -> None:
        self._posted.clear()
        events, self._urgent = self._urgent, []
        if self.verified:
            events += self._events
            self._events = []
        offered = self.offered
        tick = await self.shared.writer.submit(lambda conn: self._transact(conn, events))
        self.offered -= offered
        self._follow_up(tick)
        self._answer()

    def _transact(self, conn: sqlite3.Connection, events: Sequence[Event]) -> Tick:
        """In the writer's thread, inside the transaction; the event loop does not touch the book
        meanwhile."""
        machine, book, intake, ledger = self.machine, self.machine.book, self.intake, self.ledger
        ledger.use(conn)
        start = (intake.incarnation, intake.watermark, intake.last_taken)
        busy = len(book.busy)
        batch = book.begin(self.shared.clock.wall_ms())
        book.due(batch.now_ms)
        for event in events:
            event()
        if self.verified:
            machine.dispatch_waiting()
            self._purge(batch.now_ms)
        sequence = 0
        if batch.created or batch.changed or batch.notes or batch.tallies:
            ledger.write(batch)
            sequence = ledger.raise_sequence()
        if self.drained:
            first = ledger.first_open(intake.incarnation)
            mark = before(first) if first is not None else intake.last_taken
            intake.watermark = max(intake.watermark, mark)
        if start != (intake.incarnation, intake.watermark, intake.last_taken):
            ledger.move(intake.incarnation, intake.watermark, intake.last_taken, start[0])
        fetch = {
            lane: [turn.entry for turn in ledger.parked(lane, intake.room(lane))]
            for lane in book.parked
            if lane not in self.out.fetching and intake.room(lane)
        }
        return Tick(sequence, book.orders, batch.points, fetch, len(book.busy) < busy)

    def _purge(self, now_ms: int) -> None:
        """Now and then delete tombstones that are old enough, a bounded number at a time."""
        if now_ms < self._purge_at_ms:
            return
        position = Position(
            self.ledger.source_id, self.intake.incarnation, self.intake.watermark, ZERO_ID, 0
        )
        cutoff = now_ms - self.config.retention_h * 3_600_000
        upto = self._purge_row + PURGE_ROWS
        gone = self.ledger.purge(position, self._purge_row, upto, cutoff)
        past_end = upto >= self.ledger.last_row()
        self._purge_row = 0 if past_end else upto
        if not gone:
            self._purge_at_ms = now_ms + PURGE_INTERVAL_MS * (60 if past_end else 1)
        if gone:
            self.machine.batch.count("purged", gone)

    def _follow_up(self, tick: Tick) -> None:
        """After the commit, in the event loop: everything that leaves the process."""
        shared, batch = self.shared, self.machine.batch
        crashpoint(points.TICK)
        for point in points.COMMITTED:
            if point in tick.points:
                crashpoint(point)
        self.sequence = max(self.sequence, tick.sequence)
        for name, count in batch.tallies.items():
            self.tallies[name] = self.tallies.get(name, 0) + count
        for kind, entry, detail in batch.notes:
            self.out.log_note(kind, entry, detail)
        self._mark(self.intake.watermark)
        shared.send(self.machine, tick.orders)
        self.out.take(tick.fetch)
        self.taken.set()
        if tick.freed:
            shared.slot_freed()
        self._arm_timer()

    def _mark(self, watermark: bytes) -> None:
        """Note the watermark of a committed tick, coarsely: `kept_from` looks back at it."""
        now_s, marks = self.shared.clock.mono_s(), self._marks
        step_s = self.trim_delay_s / TRIM_MARKS
        if len(marks) > 1 and now_s - marks[-2][0] < step_s:
            marks[-1] = (now_s, watermark)
        elif not marks or marks[-1][1] != watermark:
            marks.append((now_s, watermark))

    @property
    def trim_delay_s(self) -> float:
        """Time enough to reclaim what another consumer of the group had pending."""
        idle_s = self.config.reclaim_idle_ms / 1000
        return idle_s * 1.2 + min(idle_s, SCAN_INTERVAL_MAX_S) + self.config.block_ms / 1000

    @property
    def kept_from(self) -> bytes:
        """The inbox may be trimmed below this id: after the watermark of `trim_delay_s` ago."""
        until_s, marks = self.shared.clock.mono_s() - self.trim_delay_s, self._marks
        while len(marks) > 1 and marks[1][0] <= until_s:
            marks.popleft()
        return after(marks[0][1]) if marks and marks[0][0] <= until_s else ZERO_ID

    def _arm_timer(self) -> None:
        """A tick when the first retry is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.machine.book.next_due_ms()
        if due_ms is not None:
            wait_ms = due_ms - self.shared.clock.wall_ms()
            loop = asyncio.get_running_loop()
            # A clock that jumped back must not delay a retry for ever.
            self._timer = loop.call_later(min(max(wait_ms, 10), 30_000) / 1000, self.poke)

    # ------------------------------------------------------------ what the session asks

    def capacity(self) -> int:
        """How many entries may be read now."""
        return self.config.backlog_max - len(self.machine.book.open) - self.offered

    def offer_done(self) -> None:
        """The own pending list has been read to its end."""

        def drained() -> None:
            self.drained = True

        self.post(drained)

    def fetched(self, lane: bytes, contents: dict[bytes, bytes | None] | RedisFault) -> None:
        """The contents of parked turns (or not): the lane may be asked for again."""
        self.out.fetching.discard(lane)
        if isinstance(contents, RedisFault):
            self.poke()
            return
        self.post(lambda: self.intake.fetched(contents, self.ledger))

    def verify(self) -> None:
        """Redis has confirmed the ledger: turns may move."""
        self.verified = True
        self.poke()

    def read_notes(self, conn: sqlite3.Connection) -> list[Note]:
        """The last anomalies, newest first (for `status`)."""
        self.ledger.use(conn)
        return self.ledger.notes(NOTES_SHOWN)

    def read_turn(self, conn: sqlite3.Connection, incarnation: int, entry: bytes) -> Turn | None:
        """A turn that is not in memory any more."""
        self.ledger.use(conn)
        return self.ledger.by_entries(incarnation, [entry]).get(entry)

    def held_turn(self, turn: Turn | None) -> Turn:
        """The turn when it is held. Raises when it is not: release and abandon need that."""
        if turn is not None and turn.state is State.REPLYING and turn.intent is State.HELD:
            raise UnavailableError(
                "this turn is about to be held: its notice is on the way", hint="try again"
            )
        if turn is None or turn.state is not State.HELD:
            raise UsageError(
                "this turn is not held", hint="cowboy turns list AGENT --state held lists them"
            )
        return turn
