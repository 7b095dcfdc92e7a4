"""A whole deployment of one source in one thread: producer, Redis, daemon, runner, operator.

Everything happens when a test says so, and after every commit `checks` looks at the ledger.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from corral.core.clock import ManualClock
from corral.cowboy.book import Orders
from corral.cowboy.domain import State, after, unpack_id
from corral.cowboy.redisconn import NotNow, RedisFault
from corral.cowboy.runner.domain import Finished, Prepared, Refused, RunnerEvent, RunState
from corral.cowboy.store import Note, turns_of
from corral.cowboy.turn import Turn
from tests.unit.cowboy.checks import Checks
from tests.unit.cowboy.driver import CommitFailedError, Driver, Event, open_database
from tests.unit.cowboy.model_redis import NO_FAULTS, Faults, ModelRedis
from tests.unit.cowboy.model_runner import ModelRunner
from tests.unit.cowboy.samples import source_config


class World:
    """Starts with Redis attached and a runner connected; `changes` are settings of the source."""

    open_ones: ClassVar[list["World"]] = []  # `conftest` closes what a test leaves

    def __init__(self, *, started: bool = True, **changes: Any) -> None:
        self.config = source_config(**changes)
        self.clock = ManualClock()
        self.conn = open_database()
        self.redis = ModelRedis()
        self.runner = ModelRunner(repeats=self.config.runner.kind == "tamq")
        self.driver = Driver(self.conn, self.config, self.clock)
        self.checks = Checks(self)
        self.open_ones.append(self)
        if started:
            self.attach()
            self.connect_runner()
            self.tick()

    def close(self) -> None:
        self.conn.close()
        self.open_ones.remove(self)

    # ------------------------------------------------------------ looking

    def turns(self) -> list[Turn]:
        """Every row of the ledger."""
        rows = self.conn.execute("SELECT * FROM turns ORDER BY id")
        return turns_of(rows.fetchall())

    def turn(self, entry: bytes) -> Turn:
        """The row of an entry, of the newest incarnation that has one."""
        return [turn for turn in self.turns() if turn.entry == entry][-1]

    def state(self, entry: bytes) -> State:
        return self.turn(entry).state

    def notes(self, kind: str) -> list[Note]:
        with self.driver.transaction():
            return [note for note in self.driver.ledger.notes(1_000) if note.kind == kind]

    def answers(self, entry: bytes) -> list[tuple[str, str]]:
        """Outcome and content of every outbox entry for an inbox entry, in this life of Redis."""
        return [
            (added["outcome"], added["content"])
            for added in self.redis.outbox
            if added.life == self.redis.life and added["in_reply_to"] == unpack_id(entry).decode()
        ]

    def outcomes(self, entry: bytes) -> list[str]:
        return [outcome for outcome, _ in self.answers(entry)]

    # ------------------------------------------------------------ ticks

    def post(self, event: Event) -> None:
        self.driver.post(event)

    def tick(self, *, fail: bool = False, die: bool = False) -> None:
        """One tick. `fail`: its commit is refused. `die`: the process ends right after it."""
        driver = self.driver
        driver.ledger.use(self.conn)
        try:
            driver.commit(fail=fail)
        except CommitFailedError:
            self.detach()
            driver.load()
            if self.runner.connected:
                self.connect_runner()  # the engine must ask its runner again
            return
        self.checks.committed()
        if die:
            self.crash()
            return
        driver.follow_up(self._send)
        self.checks.at_rest()

    def _send(self, orders: Orders) -> None:
        if not self.runner.connected:
            return
        for turn_id, attempt in orders.query:
            self.runner.query(turn_id, attempt)
        for turn in orders.prepare:
            self.runner.prepare(turn.id, turn.attempt, turn.lane, resumed=turn.starts > 0)
        for turn_id, attempt in orders.go:
            self.checks.may_go(turn_id, attempt)
            self.runner.go(turn_id, attempt)
        for turn_id, attempt in orders.kill:
            self.runner.kill(turn_id, attempt)
        for turn_id, attempt in orders.forget:
            self.runner.forget(turn_id, attempt)

    # ------------------------------------------------------------ producer and inbox

    def add(self, content: bytes | None = b"do it", **fields: bytes | None) -> bytes:
        """XADD of an entry; fields that are None are left out. The packed id."""
        given = {"content": content, **fields}
        return self.redis.add({k.encode(): v for k, v in given.items() if v is not None})

    def read(self, count: int = 1_000) -> None:
        entries = self.redis.read(count)
        if entries:
            driver = self.driver
            self.post(lambda: driver.intake.offer(entries, driver.ledger))

    def deliver(self, content: bytes | None = b"do it", **fields: bytes | None) -> bytes:
        """Add, read and take in."""
        entry = self.add(content, **fields)
        self.read()
        self.tick()
        return entry

    def cancel(self, named: bytes, **fields: bytes | None) -> bytes:
        return self.deliver(None, kind=b"cancel", cancels=named, **fields)

    def reclaim(self, wanted: Iterable[bytes] | None = None) -> None:
        """XAUTOCLAIM of these pending entries, or of all."""
        entries, gone = self.redis.claim(self.redis.pending if wanted is None else wanted)
        driver = self.driver
        if gone:
            self.post(lambda: driver.intake.deleted(gone, driver.ledger))
        if entries:
            self.post(lambda: driver.intake.offer(entries, driver.ledger))

    def trim(self) -> None:
        self.redis.trim(after(self.driver.intake.watermark))

    # ------------------------------------------------------------ the session with Redis

    def attach(self, *, page: int = 100, die_before_claim: bool = False) -> None:
        """As `session.Session`: whose ledger, then everything unconfirmed, then the drain."""
        driver, redis = self.driver, self.redis
        ours = driver.intake.incarnation
        incarnation = ours + 1 if redis.incarnation is None else max(ours, redis.incarnation)
        if incarnation != ours:
            driver.urgent.append(lambda: driver.intake.restart_at(incarnation, driver.ledger))
            self.tick()
        if die_before_claim:
            self.crash()
            return
        redis.incarnation = incarnation
        driver.open(list(redis.markers))
        history = redis.history()
        for at in range(0, len(history), page):
            entries = history[at : at + page]
            self.post(lambda entries=entries: driver.intake.offer(entries, driver.ledger))  # type: ignore[misc]

        def drained() -> None:
            driver.drained = True

        self.post(drained)

    @property
    def attached(self) -> bool:
        return self.driver.out.attached

    def detach(self) -> None:
        """The connections are lost; what was on the wire was not done."""
        self.driver.drained = False
        self.driver.out.close()

    def settle(self, faults: Faults = NO_FAULTS) -> None:
        """Redis does the next packet and answers, part by part refused as `faults` say."""
        out = self.driver.out
        packet = out.packets[0]
        if packet.empty:
            out.packets.popleft()
            return
        answer = self.redis.settle(packet.work, faults)
        out.sent(packet)
        out.answered(packet, answer)

    def refuse(self, fault: RedisFault) -> None:
        """Redis refuses the next packet as a whole; one that is refused for now is kept."""
        out = self.driver.out
        packet = out.packets[0]
        if not isinstance(fault, NotNow):
            out.sent(packet)
            out.refused(packet, fault)

    def settle_round(self, faults: Faults = NO_FAULTS) -> None:
        """The packets there are, in one tick; what follows from their answers stays."""
        for _ in range(len(self.driver.out.packets)):
            self.settle(faults)
        self.tick()

    def lose_answer(self, packets: int = 1_000) -> None:
        """Redis does so many packets, and the connection is lost before its answers."""
        for packet in list(self.driver.out.packets)[:packets]:
            self.redis.settle(packet.work)
        self.detach()

    def settle_all(self, faults: Faults = NO_FAULTS) -> None:
        """Every packet there is, and those that follow from their answers."""
        while self.driver.out.packets or self.driver.events:
            while self.driver.out.packets:
                self.settle(faults)
            self.tick()

    def fetch(self) -> None:
        """Redis answers the next fetch of parked contents."""
        lane, entries = self.driver.out.fetches.popleft()
        self.driver.fetched(lane, self.redis.fetch(entries))

    def fetch_all(self) -> None:
        while self.driver.out.fetches:
            self.fetch()
            self.tick()

    def empty_redis(self) -> None:
        """FLUSHALL. What was read before it is taken in before it: ids begin anew here."""
        if self.driver.events:
            self.tick()
        self.detach()
        self.redis.empty()

    # ------------------------------------------------------------ the runner

    def connect_runner(self) -> None:
        """A connection is made, as the first or anew: events of the former one are gone."""
        driver = self.driver
        self.runner.events.clear()
        self.runner.connected = True

        def connected() -> None:
            driver.machine.runner_up = True
            for turn in driver.machine.book.busy.values():
                driver.machine.book.orders.query.append((turn.id, turn.attempt))
            driver.machine.end_runs()

        self.post(connected)

    def lose_runner(self, *, dead: bool = False) -> None:
        """The connection is lost; `dead`: because the runner was killed."""
        driver = self.driver
        if dead:
            self.runner.die()
        else:
            self.runner.disconnect()

        def lost() -> None:
            driver.machine.runner_up = driver.machine.instant

        self.post(lost)

    def hear(self, count: int = 1_000) -> None:
        """Deliver up to so many of the runner's events."""
        for _ in range(min(count, len(self.runner.events))):
            self._heard(self.runner.events.popleft())

    def _heard(self, event: RunnerEvent) -> None:
        machine = self.driver.machine
        match event:
            case Prepared(turn, attempt, _):
                self.post(lambda: machine.prepared(turn, attempt))
            case Refused(turn, attempt, reason):
                self.post(lambda: machine.refused(turn, attempt, reason))
            case Finished(turn, attempt, result):
                self.post(lambda: machine.finished(turn, attempt, result))
            case RunState(turn, attempt, phase, outcome):
                self.post(lambda: machine.run_state(turn, attempt, phase, outcome))

    def talk(self) -> None:
        """Let the runner's events and the daemon's orders go to and fro until both are silent."""
        while self.runner.events or self.driver.events:
            self.hear()
            self.tick()

    def end_run(self, entry: bytes, outcome: str = "completed", reply: bytes = b"done") -> None:
        """The agent that works on an entry ends; the daemon hears of it."""
        self.runner.end(self.turn(entry).id, outcome, reply)
        self.talk()

    # ------------------------------------------------------------ process and operator

    def crash(self) -> None:
        """SIGKILL of the daemon and a new start: only the ledger, Redis and the runner remain."""
        self.runner.disconnect()
        self.driver = Driver(self.conn, self.config, self.clock)

    def restart(self) -> None:
        """Crash, and everything is connected again."""
        self.crash()
        self.attach()
        self.connect_runner()
        self.tick()

    def release(self, entry: bytes) -> None:
        """The operator's command; nothing when the turn is not held by then."""
        driver, turn_id = self.driver, self.turn(entry).id

        def event() -> None:
            turn = driver.held(turn_id)
            if turn is not None:
                driver.machine.release(turn)
                self.checks.releases[turn_id] += 1

        self.post(event)

    def abandon(self, entry: bytes) -> None:
        driver, turn_id = self.driver, self.turn(entry).id

        def event() -> None:
            turn = driver.held(turn_id)
            if turn is not None:
                driver.machine.abandon(turn)

        self.post(event)

    def later(self, ms: int) -> None:
        self.clock.advance(ms / 1000)

    # ------------------------------------------------------------ to the end

    def quiesce(self) -> None:
        """Everything works again, every run ends, every answer arrives: until nothing changes."""
        self.runner.refusing = ""
        if not self.attached:
            self.attach()
        if not self.runner.connected:
            self.connect_runner()
        former: object = None
        quiet = 0
        for _ in range(600):
            self.read()
            self.reclaim()
            self.tick()
            self.hear()
            for turn_id in self.runner.running:
                killed = self.runner.runs[turn_id].ending
                self.runner.end(turn_id, "killed" if killed else "completed", b"done")
            self.settle_all()
            self.fetch_all()
            self.later(60_000)
            rows = self.checks.rows.values()
            now = {(turn.id, turn.state, turn.generation, turn.ack) for turn in rows}
            quiet = quiet + 1 if now == former else 0
            if quiet == 3:  # a turn that goes on moves within three rounds
                self.trim()
                return
            former = now
        raise AssertionError(f"no rest after 600 rounds: {former}")

    def finish(self) -> None:
        """Drive to the end, and judge all that happened."""
        self.quiesce()
        self.checks.verdict()
        self.detach()
        self.attach()  # a new session sweeps what lost packets left
        self.tick()
        self.settle_all()
        assert not self.redis.markers
