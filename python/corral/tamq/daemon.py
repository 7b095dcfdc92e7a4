"""`tamq serve`: the queue of one user, from its lock to its last answer."""

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from corral.core import logs, sockets
from corral.core.clock import SystemClock
from corral.core.errors import ConfigError, CorralError, StorageError, UnavailableError
from corral.core.notify import Notifier
from corral.tamq import roster, store, transport
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
GC_AFTER_OBJECTS: Final = 50_000
SOCKET_LOOK_S: Final = 5.0  # between looks whether its file is still there
DESCRIPTORS_OWN: Final = 64  # the queue and its readers, locks, logs
DESCRIPTORS_OF_SESSION: Final = 8  # while it is looked at: a client of tmux and its three pipes

_log = logs.get("tamq.daemon")


def lock(path: Path, what: str) -> int:
    """Take a lock file; the descriptor keeps it. Blocks.

    `UnavailableError` when another has it, `StorageError` when there can be none.
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = sockets.lock(path)
    except (FileExistsError, NotADirectoryError):
        raise StorageError(
            f"{path.parent} is not a folder",
            hint="TAMQ_STATE_DIR and TAMQ_SOCKET need folders: name another, or move the file away",
            ids={"path": str(path.parent)},
        ) from None
    except OSError as error:
        raise StorageError(
            f"{path}: {error.strerror}",
            hint="check that the folder belongs to this user and can be written to",
            ids={"path": str(path)},
        ) from error
    if handle is None:
        with suppress(OSError, ValueError):
            what = f"{what}: process {int(path.read_text(encoding='ascii'))}"
        raise UnavailableError(
            f"another TAMQ serves {what}", hint="stop it first; 'tamq ping' asks it"
        )
    with suppress(OSError):  # a full disk: then it has no number
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def check_state(folder: Path, database: Path) -> None:
    """`ConfigError` when others can write to the folder of the queue. Blocks."""
    found = folder.stat()
    hint = f"chmod 700 {folder}"
    if found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise ConfigError(
            f"state_dir: the folder {folder} must be yours, and nobody else may write to it",
            hint=hint,
        )
    if found.st_mode & 0o055:
        _log.warning("others can look into the state folder", path=str(folder), hint=hint)
    with suppress(FileNotFoundError):
        if database.stat().st_size == 0:
            _log.warning("the file of the queue was empty: a new queue begins", path=str(database))


def allow_connections(wanted: int) -> int:
    """Let us open as many files as connections and sessions need; how many connections that allows.

    With a hard limit below that, connections get half of what is left: who comes then is `busy`,
    and sessions can still be looked at.
    """
    others = DESCRIPTORS_OWN + DESCRIPTORS_OF_SESSION * roster.ENDPOINTS_MAX
    aim = wanted + transport.LINGERING_MAX + others
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < aim:
        with suppress(OSError, ValueError):
            most = aim if hard == resource.RLIM_INFINITY else min(aim, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= aim:
        return wanted
    allowed = max(1, min(wanted, (soft - DESCRIPTORS_OWN) // 2))
    _log.warning("the limit of open files is low", limit=soft, wanted=aim, connections=allowed)
    return allowed


def _inode_of(path: Path) -> int | None:
    try:
        return path.lstat().st_ino
    except OSError:
        return None


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
        self._connections_max = settings.connections_max
        self._inode = 0  # of the socket's file

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT. Every stop is safe: what is open goes on at the start."""
        settings = self.settings
        sockets.check_path(settings.socket, "socket")
        self._connections_max = allow_connections(settings.connections_max)
        locks = [
            await asyncio.to_thread(lock, settings.state_dir / "lock", str(settings.state_dir))
        ]
        try:
            beside = settings.socket.with_name(settings.socket.name + ".lock")
            locks.append(await asyncio.to_thread(lock, beside, str(settings.socket)))
            await asyncio.to_thread(check_state, settings.state_dir, settings.database)
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
        limits = Limits(self._connections_max, self.settings.read_timeout_s)
        quick = None if self.capture.enabled else operations.quick
        server = Server(self._captured(operations), limits, quick)
        path = self.settings.socket
        listener, self._inode = await asyncio.to_thread(transport.listen, path)
        await server.start(listener)
        try:
            await self._work(stop, instance, server)
        finally:
            await server.stop()
            await asyncio.to_thread(sockets.unlink_own, path, self._inode)

    async def _work(self, stop: asyncio.Event, instance: str, server: Server) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self.deliverer.run()),
                group.create_task(self._purge()),
                group.create_task(self._watchdog()),
                group.create_task(self._keep_socket(server)),
            ]
            # What is there now stays: the collector need not look at it again. Open messages are
            # kept, too, and make no cycles: without this, each many thousand would cost a look
            # at all of them, 10 ms and more in which nobody is answered.
            gc.freeze()
            gc.set_threshold(GC_AFTER_OBJECTS, *gc.get_threshold()[1:])
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

    async def _keep_socket(self, server: Server) -> None:
        """Listen again when the socket's file was removed: nobody could reach us any more."""
        path, told = self.settings.socket, ""
        while True:
            await self.clock.sleep(SOCKET_LOOK_S)
            try:
                if await asyncio.to_thread(_inode_of, path) == self._inode:
                    continue
                listener, self._inode = await asyncio.to_thread(transport.listen, path)
            except CorralError as error:
                if told != error.message:
                    told = error.message
                    _log.error("the socket is lost", **error.as_dict())
                continue
            await server.start(listener)
            told = ""
            _log.warning("the socket was removed, listens again", socket=str(path))

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
