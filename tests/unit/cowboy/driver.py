"""One source at work in one thread: the machine, the intake, the packets and the real ledger.

It does what `engine.Engine` does, in the same order, without an event loop: a test decides when a
tick runs, whether its commit succeeds, and whether the process lives on after it. The ledger is
SQLite with the real schema and statements in a private temporary database; `synchronous = OFF`,
because these tests end processes only in play (tests/contract/test_ledger.py kills real ones).
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import cast

from corral.core.clock import ManualClock
from corral.core.sqlfiles import statements
from corral.core.sqlite import migrations
from corral.cowboy.book import Orders
from corral.cowboy.config import SourceConfig
from corral.cowboy.domain import State, before
from corral.cowboy.engine import Engine
from corral.cowboy.intake import Intake
from corral.cowboy.machine import Machine
from corral.cowboy.outgoing import Outgoing
from corral.cowboy.redisconn import RedisFault
from corral.cowboy.store import Rows, SourceLedger, open_ledger
from corral.cowboy.turn import Turn
from tests.unit.cowboy.samples import AGENT, SOURCE
from tests.unit.later import later

Event = Callable[[], None]


class CommitFailedError(Exception):
    """The disk refused: nothing of the tick is in the ledger."""


def open_database() -> sqlite3.Connection:
    """A ledger of its own, gone with its connection."""
    conn = sqlite3.connect("", isolation_level=None)
    conn.execute("PRAGMA synchronous = OFF")
    conn.execute("PRAGMA foreign_keys = ON")
    for text in later(migrations("corral.cowboy")):
        for statement in statements(text):
            conn.execute(statement)
    open_ledger(conn, AGENT, 1)
    return conn


class Driver:
    """One process of the daemon: from its loading of the ledger to its end."""

    name = SOURCE

    def __init__(self, conn: sqlite3.Connection, config: SourceConfig, clock: ManualClock) -> None:
        self.conn = conn
        self.config = config
        self.clock = clock
        self.sequence = 0
        self.ledger = SourceLedger(SOURCE, Rows())
        self.events: list[Event] = []
        self.urgent: list[Event] = []  # run before the source is verified, too
        self.verified = False  # nothing moves until Redis has confirmed whose ledger this is
        self.drained = False
        self._fetch: dict[bytes, list[bytes]] = {}
        self.out = Outgoing(cast(Engine, self))
        self.machine: Machine
        self.intake: Intake
        self.load()

    def post(self, event: Event) -> None:
        self.events.append(event)

    @contextmanager
    def transaction(self, *, fail: bool = False) -> Iterator[None]:
        self.conn.execute("BEGIN IMMEDIATE")
        self.ledger.use(self.conn)
        try:
            yield
            if fail:
                raise CommitFailedError
        except BaseException:
            self.conn.execute("ROLLBACK")
            raise
        self.conn.execute("COMMIT")

    # ------------------------------------------------------------ as the engine

    def load(self) -> None:
        """Read the ledger, as after a crash."""
        self.machine = Machine(AGENT, SOURCE, self.config)
        self.intake = Intake(self.machine)
        self.events.clear()
        self.urgent.clear()
        self.verified = self.drained = False
        self.out.reset()
        with self.transaction():
            position = self.ledger.attach()
            waiting = self.intake.restore(self.ledger.open_turns(), self.ledger.parked_counts())
        self.sequence = position.sequence
        self.intake.incarnation = position.incarnation
        self.intake.watermark = position.watermark
        self.intake.last_taken = position.last_taken
        for order in waiting:
            self.post(lambda order=order: self.intake.resume_cancel(order, self.ledger))  # type: ignore[misc]

    def commit(self, *, fail: bool = False) -> None:
        """The first half of a tick: all events so far, in one transaction."""
        events, self.urgent = self.urgent, []
        if self.verified:
            events += self.events
            self.events = []
        with self.transaction(fail=fail):
            self._transact(events)

    def _transact(self, events: list[Event]) -> None:
        machine, book, intake, ledger = self.machine, self.machine.book, self.intake, self.ledger
        start = (intake.incarnation, intake.watermark, intake.last_taken)
        batch = book.begin(self.clock.wall_ms())
        book.due(batch.now_ms)
        for event in events:
            event()
        if self.verified:
            machine.dispatch_waiting()
        if batch.created or batch.changed or batch.notes or batch.tallies:
            ledger.write(batch)
            self.sequence = ledger.raise_sequence()
        if self.drained:
            first = ledger.first_open(intake.incarnation)
            mark = before(first) if first is not None else intake.last_taken
            intake.watermark = max(intake.watermark, mark)
        if start != (intake.incarnation, intake.watermark, intake.last_taken):
            ledger.move(intake.incarnation, intake.watermark, intake.last_taken, start[0])
        self._fetch = {
            lane: [turn.entry for turn in ledger.parked(lane, intake.room(lane))]
            for lane in book.parked
            if lane not in self.out.fetching and intake.room(lane)
        }

    def follow_up(self, send: Callable[[Orders], None]) -> None:
        """The second half: what leaves the process after the commit."""
        send(self.machine.book.orders)
        self.out.take(self._fetch)

    def open(self, markers: Iterable[str]) -> None:
        """A session has attached."""
        self.verified = True
        self.out.open(markers)

    def fetched(self, lane: bytes, contents: dict[bytes, bytes | None] | RedisFault) -> None:
        self.out.fetching.discard(lane)
        if not isinstance(contents, RedisFault):
            self.post(lambda: self.intake.fetched(contents, self.ledger))

    # ------------------------------------------------------------ for tests

    def held(self, turn_id: str) -> Turn | None:
        """The turn when an operator may release or abandon it."""
        turn = self.machine.book.by_id.get(turn_id)
        return turn if turn is not None and turn.state is State.HELD else None
