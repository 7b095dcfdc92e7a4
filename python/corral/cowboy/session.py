"""One source's life with Redis: attach, drain, then read and settle side by side until a fault."""

import asyncio
from collections.abc import Callable

from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.crashpoints import crashpoint
from corral.core.errors import CorralError
from corral.cowboy import points
from corral.cowboy.domain import ZERO_ID, Entry
from corral.cowboy.engine import SCAN_INTERVAL_MAX_S, Engine
from corral.cowboy.redisconn import Full, NotNow, RedisFault, Refused, Unreachable, Wire
from corral.cowboy.transport import Attachment, Claimed, Reader, Settler

RETRY_INITIAL_S = 0.05
RETRY_MAX_S = 2.0
BLOCKED_RETRY_S = 2.0
ANSWER_TIMEOUT_S = 5.0
BLOCK_MARGIN_S = 3.0  # the read times out this long after the longest block
NOT_NOW_WAIT_S = 0.5
OFFERED_MAX_BATCHES = 3

_log = logs.get("cowboy.session")


class Blocked(CorralError):
    """The stream's keys belong to another ledger, or to a newer copy of this one."""

    code = "ledger_foreign"
    exit_code = 78


class Session:
    """Runs one engine against Redis, again and again."""

    def __init__(self, engine: Engine, connect: Callable[[float], Wire]) -> None:
        self._engine = engine
        self._connect = connect
        self.state = "disconnected"
        self.fault: CorralError | None = None
        self.last_poll_s: float | None = None  # monotonic
        self.adopt = False  # an operator accepted the consequences
        self._retry = asyncio.Event()
        self._trimmed = ZERO_ID
        self._passed = ZERO_ID  # the last that was put on record as passed over
        self._trim_at_s = 0.0

    def retry_now(self) -> None:
        self._retry.set()

    async def run(self) -> None:
        """Connect, serve, and come back after every fault. Returns only by cancellation."""
        backoff = Backoff(RETRY_INITIAL_S, RETRY_MAX_S)
        while True:
            await self._engine.loaded.wait()
            pause = 0.0
            try:
                # In a task of its own: before Python 3.13 a task group that failed leaves a
                # cancellation counted on its task, and the timeout below would obey it.
                await asyncio.create_task(self._serve(backoff))
            except* Blocked as group:
                self._down("blocked", group)
                pause = BLOCKED_RETRY_S
            except* RedisFault as group:
                full = group.subgroup(Full) is not None
                self._down("redis_full" if full else "disconnected", group)
            except* CorralError as group:
                self._down("disconnected", group)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # A task group that fails while it is cancelled raises its failure alone.
                raise asyncio.CancelledError
            self._retry.clear()
            try:
                async with asyncio.timeout(pause or backoff.next_s()):
                    await self._retry.wait()
            except TimeoutError:
                pass

    def _down(self, state: str, group: BaseExceptionGroup[CorralError]) -> None:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        known = error if isinstance(error, CorralError) else CorralError(str(error))
        if self.state != state or (self.fault and self.fault.message) != known.message:
            _log.warning(
                "source_" + state, source=self._engine.name, stream=self._engine.config.stream,
                code=known.code, error=str(known),
            )  # fmt: skip
        self.state, self.fault = state, known
        self._engine.settled.set()

    async def _serve(self, backoff: Backoff) -> None:
        engine = self._engine
        block_s = engine.config.block_ms / 1000
        read_wire, wire = self._connect(block_s + BLOCK_MARGIN_S), self._connect(ANSWER_TIMEOUT_S)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch_reload())
                await wire.connect()
                settler = Settler(wire, engine.config)
                attachment = await self._attach(settler)
                await read_wire.connect()
                crashpoint(points.ATTACHED)
                engine.out.open(await settler.markers())
                self.state, self.fault = "draining", None
                reader = Reader(read_wire, engine.config, attachment.fence)
                group.create_task(self._settle_loop(settler))
                group.create_task(self._read_loop(reader, backoff))
        finally:
            engine.drained = False
            engine.out.close()
            await read_wire.close()
            await wire.close()

    async def _watch_reload(self) -> None:
        """The engine read its ledger anew: what this session knows is void."""
        await self._engine.out.restart.wait()
        raise Unreachable("the ledger was read again")

    # ------------------------------------------------------------ whose ledger is it

    async def _attach(self, settler: Settler) -> Attachment:
        """Compare the stream's keys with the ledger. Raises `Blocked`; may begin an incarnation."""
        engine, shared = self._engine, self._engine.shared
        found = await settler.attach(shared.uuid, engine.sequence, take_over=self.adopt)
        ours = engine.intake.incarnation
        incarnation = ours
        if found.uuid == shared.uuid and found.sequence <= engine.sequence and ours > 0:
            if found.stream_was_gone and engine.intake.last_taken != ZERO_ID:
                _log.warning("stream_was_deleted", source=engine.name)
                incarnation = ours + 1
            incarnation = max(incarnation, found.incarnation)
        elif not found.uuid:
            incarnation = ours + 1
            if ours > 0:
                _log.warning("redis_was_emptied", source=engine.name, incarnation=incarnation)
        elif not self.adopt:
            engine.verified = False
            raise _blocked(engine.name, found, shared.uuid)
        else:
            await self._adopt(found)
            incarnation = found.incarnation if ours else found.incarnation + 1
        if incarnation != ours:

            def begin() -> None:
                engine.intake.restart_at(incarnation, engine.ledger)
                if ours > 0:
                    engine.machine.batch.note("incarnation_began", None, str(incarnation))

            await engine.command(begin, urgent=True)
        if (found.uuid, found.incarnation) != (shared.uuid, incarnation):
            await settler.claim_ledger(found.uuid, shared.uuid, engine.sequence, incarnation)
        self.adopt = False
        engine.verify()
        return found

    async def _adopt(self, found: Attachment) -> None:
        """Lift this ledger over what Redis has seen, so that the stream is its own from now on."""
        engine = self._engine

        def lift() -> None:
            engine.ledger.raise_sequence(found.sequence + 1)
            engine.machine.batch.note("adopted", None, f"was {found.uuid}")

        await engine.command(lift, urgent=True)
        _log.warning("ledger_adopted", source=engine.name, former=found.uuid)

    # ------------------------------------------------------------ reading

    async def _read_loop(self, reader: Reader, backoff: Backoff) -> None:
        seen = await self._drain(reader)
        self.state = "running"
        self._engine.settled.set()
        idle = False
        blind = False  # the stream has entries above `seen` that the group does not offer
        awaited = await self._next_one(reader, seen)
        scan_at_s = 0.0
        while True:
            count = await self._room()
            woken = False
            if idle and count:
                woken = await reader.wait(None if blind else max(seen, self._last_taken()))
                self._polled()
            claim = reader.cursor != b"0-0" or self._engine.shared.clock.mono_s() >= scan_at_s
            claimed, new = await reader.poll(count, claim=claim)
            self._polled()
            backoff.reset()
            if claim and claimed.cursor == b"0-0":  # once around the pending list
                scan_at_s = self._engine.shared.clock.mono_s() + self._scan_interval_s()
            self._offer(claimed, new)
            if new:
                seen = new[-1].entry
            if woken and not new and not blind:
                awaited = await self._next_one(reader, seen)
            if awaited is not None and count and (not new or seen >= awaited):
                self._compare(awaited, new)
                awaited = None
            blind = not new and (woken or blind)
            idle = not new and claimed.cursor == b"0-0"

    async def _next_one(self, reader: Reader, seen: bytes) -> bytes | None:
        """The first entry that the group must offer; None in a stream that nothing was taken of."""
        taken = self._last_taken()
        return await reader.first_after(max(seen, taken)) if taken != ZERO_ID else None

    def _compare(self, awaited: bytes, new: list[Entry]) -> None:
        """Puts on record that the group does not offer the entry that it must."""
        engine = self._engine
        if awaited != self._passed and awaited not in [item.entry for item in new]:
            self._passed = awaited
            engine.post(lambda: engine.intake.passed_over(awaited, engine.ledger))

    def _last_taken(self) -> bytes:
        return self._engine.intake.last_taken

    def _scan_interval_s(self) -> float:
        return min(max(self._engine.config.reclaim_idle_ms / 10_000, 0.05), SCAN_INTERVAL_MAX_S)

    def _polled(self) -> None:
        self.last_poll_s = self._engine.shared.clock.mono_s()

    def _offer(self, claimed: Claimed, new: list[Entry]) -> None:
        engine = self._engine
        entries = claimed.entries + new
        if claimed.deleted:
            engine.post(lambda: engine.intake.deleted(claimed.deleted, engine.ledger))
        if entries:
            crashpoint(points.READ)
            self._take(entries)

    def _take(self, entries: list[Entry]) -> None:
        engine = self._engine
        engine.offered += len(entries)
        incarnation = engine.intake.incarnation

        def offer() -> None:
            # What was read from a stream that is gone must not count as of the new one.
            if engine.intake.incarnation == incarnation:
                engine.intake.offer(entries, engine.ledger)

        engine.post(offer)

    async def _ticked(self) -> None:
        """Wait while the ticks are behind with what was read."""
        engine = self._engine
        while engine.offered > OFFERED_MAX_BATCHES * engine.config.read_count:
            engine.taken.clear()
            await engine.taken.wait()

    async def _room(self) -> int:
        """How many entries may be read; 0 while the backlog is full (reclaiming goes on slowly)."""
        engine = self._engine
        limit = engine.config.read_count
        await self._ticked()
        room = min(limit, engine.capacity())
        if room > 0:
            return room
        engine.taken.clear()
        try:
            async with asyncio.timeout(1.0):
                while engine.capacity() <= 0:
                    await engine.taken.wait()
                    engine.taken.clear()
        except TimeoutError:
            pass
        return max(min(limit, engine.capacity()), 0)

    async def _drain(self, reader: Reader) -> bytes:
        """Offer the own pending list from its beginning: what a crash or a lost answer left.

        Returns the last id of the list.
        """
        engine = self._engine
        at = ZERO_ID
        while True:
            await self._ticked()
            page = await reader.pending(at)
            self._polled()
            if not page:
                break
            crashpoint(points.DRAIN)
            self._take(page)
            at = page[-1].entry
        engine.offer_done()
        return at

    # ------------------------------------------------------------ settling

    async def _settle_loop(self, settler: Settler) -> None:
        out = self._engine.out
        while True:
            out.wake.clear()
            while out.packets or out.fetches:
                if out.packets:
                    await self._settle(settler)
                if out.fetches:
                    await self._fetch(settler)
            await self._trim(settler)
            try:
                async with asyncio.timeout(self._engine.config.trim_interval_ms / 1000):
                    await out.wake.wait()
            except TimeoutError:
                pass

    async def _settle(self, settler: Settler) -> None:
        out = self._engine.out
        packet = out.packets[0]
        if packet.empty:
            out.packets.popleft()
            return
        try:
            answer = await settler.settle(self._engine.shared.uuid, packet.work)
        except NotNow as fault:
            self._not_now(fault)
            await self._engine.shared.clock.sleep(NOT_NOW_WAIT_S)
            return
        except Refused as fault:
            out.sent(packet)
            out.refused(packet, fault)
            return
        crashpoint(points.SETTLE)
        if packet.effects:
            crashpoint(points.OUTBOX)
        if packet.work.acks:
            crashpoint(points.ACK)
        out.sent(packet)
        later = answer.later()
        if later is not None:
            self._not_now(later)
        elif self.state in ("redis_full", "not_now"):
            self.state, self.fault = "running", None
        out.answered(packet, answer)

    def _not_now(self, fault: NotNow) -> None:
        if self.fault is None:
            _log.warning("redis_not_now", source=self._engine.name, code=fault.code)
        self.state = "redis_full" if isinstance(fault, Full) else "not_now"
        self.fault = fault

    async def _fetch(self, settler: Settler) -> None:
        lane, entries = self._engine.out.fetches[0]
        contents: dict[bytes, bytes | None] | RedisFault
        try:
            contents = await settler.fetch(entries)
        except (NotNow, Refused) as fault:
            contents = fault
            await self._engine.shared.clock.sleep(NOT_NOW_WAIT_S)
        out = self._engine.out
        if out.fetches and out.fetches[0][0] == lane:
            out.fetches.popleft()
        self._engine.fetched(lane, contents)

    async def _trim(self, settler: Settler) -> None:
        """Now and then drop what is below the watermark."""
        now_s = self._engine.shared.clock.mono_s()
        keep_from = self._engine.kept_from
        if now_s < self._trim_at_s or keep_from <= self._trimmed:
            return
        self._trim_at_s = now_s + self._engine.config.trim_interval_ms / 1000
        crashpoint(points.TRIM_BEFORE)
        try:
            await settler.trim(keep_from)
        except (NotNow, Refused) as fault:
            _log.warning("trim_refused", source=self._engine.name, code=fault.code)
            return
        self._trimmed = keep_from
        crashpoint(points.TRIM_DONE)


def _blocked(source: str, found: Attachment, uuid: str) -> Blocked:
    if found.uuid == uuid:
        what = (
            f"source {source}: Redis has seen commit {found.sequence} of this ledger, which is "
            "not in it: it was restored from an older copy"
        )
    else:
        what = f"source {source}: its stream is served by ledger {found.uuid}, this is {uuid}"
    return Blocked(what, hint="'cowboy adopt' explains the consequences and takes the stream over")
