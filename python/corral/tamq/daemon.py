"""`tamq serve`: the queue of one user, from its lock to its last answer."""

import asyncio
import fcntl
import os
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from corral.core import logs
from corral.core.clock import SystemClock
from corral.core.errors import StorageError, UnavailableError
from corral.core.notify import Notifier
from corral.tamq import store, transport
from corral.tamq.capture import Capture
from corral.tamq.deliverer import Deliverer
from corral.tamq.lane import Opener, Pace
from corral.tamq.operations import Operations
from corral.tamq.registry import Registry
from corral.tamq.settings import TamqSettings
from corral.tamq.store import Peer
from corral.tamq.transport import Limits, Server

PURGE_INTERVAL_S: Final = 600.0
PURGE_BATCH_ROWS: Final = 200
MS_PER_DAY: Final = 86_400_000
DESCRIPTORS_SPARE: Final = 256  # besides one for each connection

_log = logs.get("tamq.daemon")


def lock(path: Path, what: str) -> int:
    """Take a lock file; the descriptor keeps it. Blocks.

    `UnavailableError` when another has it, `StorageError` when there can be none.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StorageError(
            f"{path}: {error.strerror}",
            hint="check that the folder belongs to this user and can be written to",
            ids={"path": str(path)},
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UnavailableError(
            f"another TAMQ serves {what}", hint="stop it first; 'tamq ping' asks it"
        ) from None
    return handle


def allow_descriptors(wanted: int) -> None:
    """As many open files as the connections need, if the hard limit lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    aim = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < aim:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (aim, hard))


class Daemon:
    """One TAMQ. `open_terminal` finds a session by what `register` said of it."""

    def __init__(
        self,
        settings: TamqSettings,
        open_terminal: Opener,
        check_terminal: Callable[[Mapping[str, Any], str], None],
    ) -> None:
        self.settings = settings
        self.clock = SystemClock()
        self.notifier = Notifier.from_environment()
        self.writer = store.open_writer(settings.database)
        self.capture = Capture.from_settings(settings)
        self.registry = Registry(settings.gita_repos)
        self.deliverer = Deliverer(
            self.writer,
            self.clock,
            open_terminal,
            times=settings.times,
            pace=Pace(idle_look_s=settings.idle_look_s),
            open_messages_max=settings.open_messages_max,
            observe=self.capture.note,
        )
        self._check_terminal = check_terminal

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Every stop is safe: what is open goes on at the start."""
        settings = self.settings
        transport.check_path(settings.socket)
        allow_descriptors(settings.connections_max + DESCRIPTORS_SPARE)
        locks = [
            await asyncio.to_thread(lock, settings.state_dir / "lock", str(settings.state_dir))
        ]
        try:
            beside = settings.socket.with_name(settings.socket.name + ".lock")
            locks.append(await asyncio.to_thread(lock, beside, str(settings.socket)))
            async with self.writer, self.capture:
                await self._serve()
        finally:
            for handle in locks:
                os.close(handle)

    async def _serve(self) -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        now_ms = self.clock.wall_ms()
        instance = await self.writer.submit(lambda conn: store.instance(conn, now_ms))
        await self.deliverer.load()
        operations = Operations(
            self.writer, self.deliverer, self.registry, self.clock, self._check_terminal, instance
        )
        limits = Limits(self.settings.connections_max, self.settings.read_timeout_s)
        server = Server(self._captured(operations), limits)
        path = self.settings.socket
        listener, inode = await asyncio.to_thread(transport.listen, path)
        await server.start(listener)
        try:
            await self._work(stop, instance)
        finally:
            await server.stop()
            await asyncio.to_thread(transport.unlink_own, path, inode)

    async def _work(self, stop: asyncio.Event, instance: str) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.deliverer.run()),
                group.create_task(self._purge()),
                group.create_task(self._watchdog()),
            ]
            self.notifier.ready(f"{len(self.deliverer.schedule)} open messages")
            _log.info("ready", socket=str(self.settings.socket), instance=instance)
            await stop.wait()
            self.notifier.stopping()
            for task in tasks:
                task.cancel()

    def _captured(self, operations: Operations) -> transport.Handler:
        if not self.capture.enabled:
            return operations.handle

        async def handle(fields: dict[str, Any], peer: Peer) -> Mapping[str, object]:
            return await self.capture.around(operations.handle, fields, peer)

        return handle

    async def _watchdog(self) -> None:
        interval_s = self.notifier.watchdog_interval_s
        while interval_s is not None:
            self.notifier.watchdog()
            await self.clock.sleep(interval_s)

    async def _purge(self) -> None:
        """In small batches, so that nobody waits for it."""
        keep_ms = int(self.settings.retention_days * MS_PER_DAY)
        while True:
            before_ms = self.clock.wall_ms() - keep_ms
            try:
                purged = await self.writer.submit(
                    lambda conn, before_ms=before_ms: store.purge(  # type: ignore[misc]
                        conn, before_ms, PURGE_BATCH_ROWS
                    )
                )
            except StorageError as error:
                _log.warning("not purged", **error.as_dict())
                purged = 0
            if purged < PURGE_BATCH_ROWS:
                await self.clock.sleep(PURGE_INTERVAL_S)
