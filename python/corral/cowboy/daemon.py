"""`cowboy run AGENT`: all sources of one agent in one process, around one ledger."""

import asyncio
import gc
import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path

from corral.core import logs, sockets
from corral.core.clock import SystemClock
from corral.core.crashpoints import crashpoint
from corral.core.errors import UnavailableError
from corral.core.notify import Notifier
from corral.core.sqlite import SqliteWriter, migrations
from corral.cowboy import points
from corral.cowboy.book import Orders
from corral.cowboy.control import ControlServer
from corral.cowboy.domain import session_id, unpack_id
from corral.cowboy.engine import Engine
from corral.cowboy.inquiry import Inquiry
from corral.cowboy.machine import Machine
from corral.cowboy.operations import Operations
from corral.cowboy.redisconn import Wire, connection_to
from corral.cowboy.replying import Replying
from corral.cowboy.runner.domain import PrepareRequest, RunnerEvent
from corral.cowboy.runner_client import RunnerClient
from corral.cowboy.session import Session
from corral.cowboy.settings import CowboySettings, agent_username
from corral.cowboy.store import APPLICATION_ID, Rows, open_ledger
from corral.cowboy.tick import Shared
from corral.cowboy.turn import Turn

_log = logs.get("cowboy.daemon")


def clock_offset_s() -> float:
    """Wall clock less the time since boot: it changes only when somebody sets the clock."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


def only_one(path: Path) -> int:
    """Take the agent's lock: one daemon per ledger. Blocks; answers the handle that keeps it.

    `UnavailableError` when another daemon has it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = sockets.lock(path)
    if handle is None:
        raise UnavailableError(f"{path}: another daemon serves this agent", hint="stop it first")
    return handle


class Daemon:
    """The engines of one agent, the runner's client and the control socket around one ledger."""

    def __init__(self, settings: CowboySettings, agent: str) -> None:
        self.settings = settings
        self.agent = agent
        self.sources = settings.load_sources(agent)
        self.runner_uid = settings.runner_uid()
        self.endpoint = settings.redis_endpoint(agent_username(agent))
        self.clock = SystemClock()
        self.notifier = Notifier.from_environment()
        self.writer = SqliteWriter(
            settings.ledger_path(agent),
            application_id=APPLICATION_ID,
            migrations=migrations("corral.cowboy"),
        )
        self.engines: dict[str, Engine] = {}
        self.sessions: dict[str, Session] = {}
        self.runner: RunnerClient | None = None
        self.uuid = ""  # of the ledger, once it is open
        self.started_at = clock_offset_s()

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Every stop is safe: what is open goes on at the start."""
        lock = await asyncio.to_thread(only_one, self.settings.lock_path(self.agent))
        try:
            await self.writer.open()
            try:
                await self._serve()
            finally:
                await self.writer.close()
        finally:
            os.close(lock)

    async def _serve(self) -> None:
        identity = await self.writer.submit(
            lambda conn: open_ledger(conn, self.agent, self.clock.wall_ms())
        )
        self.uuid = identity.uuid
        shared = Shared(
            self.agent, identity.uuid, self.writer, Rows(), self.clock,
            self.sources.limits.turns_concurrent_max,
            send=self._send, slot_freed=self._slot_freed,
        )  # fmt: skip
        for name, config in self.sources.sources.items():
            engine = self.engines[name] = Engine(shared, name, config)
            self.sessions[name] = Session(engine, self._wire)
        self._make_runner(identity.uuid)
        operations = Operations(self)
        handlers = operations.table() | Inquiry(self, operations).table()
        control = ControlServer(self.settings.control_socket(self.agent), handlers)
        replies = self._replies(operations)
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with control, replies or nullcontext():
            await self._work(operations, stop)

    def _replies(self, operations: Operations) -> ControlServer | None:
        """Where live sessions answer, if any source has one."""
        if not any(engine.machine.wakes for engine in self.engines.values()):
            return None
        socket = self.settings.reply_socket(self.agent)
        return ControlServer(socket, Replying(self, operations).table(), also=self.runner_uid)

    async def _work(self, operations: Operations, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(engine.run()) for engine in self.engines.values()]
            tasks += [group.create_task(session.run()) for session in self.sessions.values()]
            if self.runner is not None:
                tasks.append(group.create_task(self.runner.run()))
            tasks.append(group.create_task(operations.heartbeat()))
            tasks.append(group.create_task(self._announce(operations)))
            await stop.wait()
            self.notifier.stopping()
            for task in tasks:
                task.cancel()

    def clock_step_s(self) -> float:
        """By how much the wall clock was set since the start of this daemon."""
        return round(clock_offset_s() - self.started_at, 1)

    async def _announce(self, operations: Operations) -> None:
        """Ready: each source is at work, or it is known why it is not."""
        for engine in self.engines.values():
            await engine.settled.wait()
        # What is here now stays: the collector need not look at it again and again.
        gc.freeze()
        self.notifier.ready(operations.summary())
        _log.info("ready", agent=self.agent, sources=len(self.engines))

    def _wire(self, timeout_s: float) -> Wire:
        return Wire(connection_to(self.endpoint, timeout_s))

    # ------------------------------------------------------------ the runner

    def _make_runner(self, uuid: str) -> None:
        if not any(engine.needs_runner for engine in self.engines.values()):
            return
        self.runner = RunnerClient(
            self.settings.runner_socket(self.agent), self.agent, uuid,
            self._runner_event, self._runner_connected, self._runner_lost,
        )  # fmt: skip

    def _runner_event(self, event: RunnerEvent) -> None:
        """To the source that the event's turn belongs to; `<agent>.<source>.…`."""
        engine = self.engines.get(event.turn.split(".")[1])
        if engine is not None:
            engine.runner_event(event)

    def _runner_connected(self) -> None:
        for engine in self.engines.values():
            if engine.needs_runner:
                engine.runner_connected()

    def _runner_lost(self) -> None:
        for engine in self.engines.values():
            if engine.needs_runner:
                engine.runner_lost()

    def _slot_freed(self) -> None:
        for engine in self.engines.values():
            engine.poke()

    def _send(self, machine: Machine, orders: Orders) -> None:
        """A committed tick's orders to the runner. What does not arrive is asked for again by the
        query that follows the next connection."""
        runner = self.runner
        if runner is None:
            return
        if orders.query:
            runner.query(orders.query)
        for turn in orders.prepare:
            if runner.prepare(self._request(machine, turn)):
                crashpoint(points.PREPARE)
        for turn_id, attempt in orders.go:
            if runner.go(turn_id, attempt):
                crashpoint(points.GO)
        for turn_id, attempt in orders.kill:
            if runner.kill(turn_id, attempt, "cancel"):
                crashpoint(points.CANCEL)
        for turn_id, attempt in orders.forget:
            if runner.forget(turn_id, attempt):
                crashpoint(points.FORGET)

    def _request(self, machine: Machine, turn: Turn) -> PrepareRequest:
        started_ms = turn.started_at_ms  # set only when the wake of a live session is repeated
        return PrepareRequest(
            turn.id,
            turn.attempt,
            machine.source,
            turn.content or b"",
            unpack_id(turn.entry).decode(),
            turn.sender,
            turn.channel,
            session_id(machine.agent, machine.source, turn.lane),
            turn.starts > (0 if started_ms is None else 1),
            turn.traceparent,
            0 if started_ms is None else max(self.clock.wall_ms() - started_ms, 1),
        )


async def run_daemon(settings: CowboySettings, agent: str) -> None:
    """Run the daemon of one agent until it is told to stop."""
    await (await asyncio.to_thread(Daemon, settings, agent)).run()
