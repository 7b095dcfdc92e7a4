"""`cowboy runner AGENT`: the process that starts an agent's runs and outlives the daemon.

One thread only, and no executor: it forks (see `spawn`). It listens after every run of an earlier
runner process is proven gone. On SIGTERM it takes no more runs, kills those there are, gives the
daemon a moment to commit results it has, and ends; the killed runs are interrupted.
"""

import asyncio
import contextlib
import gc
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.core import logs, sockets
from corral.core.ids import new_uuid
from corral.core.notify import Notifier
from corral.cowboy.runner import cgroup as cgroups
from corral.cowboy.runner import domain, processes, transport
from corral.cowboy.runner.book import RunBook
from corral.cowboy.runner.cgroup import CgroupRoot
from corral.cowboy.runner.domain import Welcome
from corral.cowboy.runner.plan import Plan
from corral.cowboy.runner.recovery import recover
from corral.cowboy.runner.starter import Starter
from corral.cowboy.runner.store import RecordStore
from corral.cowboy.runner.transport import RunnerServer

EXIT_OK = 0
EXIT_INTERNAL = 70
# How long a stopping runner waits for the daemon to commit results that it was given.
STOP_LINGER_S = 2.0
REAP_PAUSE_S = 0.05

_log = logs.get("cowboy.runner")


@dataclass(frozen=True, slots=True)
class RunnerOptions:
    """``socket`` is ``runner.sock``, ``runs`` the folder of records beside it.

    ``daemon_uid`` is the daemon's uid when it is not the runner's own. The socket's mode is then
    open and the peer's uid decides: the daemon's or root's, not the own one, which runs have too.
    ``use_cgroups`` false never makes cgroups, even where the machine allows it.
    """

    agent: str
    plans: Mapping[str, Plan]
    socket: Path
    runs: Path
    daemon_uid: int | None = None
    use_cgroups: bool = True


def main(options: RunnerOptions) -> int:
    """Runs until SIGTERM or SIGINT; the exit status. Raises `CorralError` when it cannot start."""
    _open_standard_streams()
    sockets.check_path(options.socket, "runtime_dir")
    store = RecordStore(options.runs)
    store.open()
    lock_fd = transport.lock(options.socket.with_name("runner.lock"))
    try:
        processes.adopt_orphans()
        return asyncio.run(_Runner(options, store).serve())
    finally:
        os.close(lock_fd)


class _Runner:
    def __init__(self, options: RunnerOptions, store: RecordStore) -> None:
        self._options = options
        self._store = store
        self._notifier = Notifier.from_environment()
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()
        self._failed = False
        self._reaping = False

    async def serve(self) -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._fail)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        boot = processes.boot_id()
        cgroup_root = self._choose_cgroup()
        never_went = await recover(self._store, boot, cgroup_root)
        starter = Starter(self._options.agent, self._options.plans, self._store, boot, cgroup_root)
        server = self._server(boot)
        book = RunBook(starter, self._store, never_went, server.send, self._changed.set)
        loop.add_signal_handler(signal.SIGCHLD, self._reap_soon, book)
        gc.freeze()  # what is loaded stays; a forked child then copies fewer pages
        await server.start(book.handle)
        self._notifier.ready(f"serves {self._options.agent}")
        _log.info("runner_ready", agent=self._options.agent, runner=server.welcome.runner)
        self._watchdog(loop)
        await self._stop.wait()
        if not self._failed:
            await self._end(book, server)
        return EXIT_INTERNAL if self._failed else EXIT_OK

    def _choose_cgroup(self) -> CgroupRoot | None:
        if not self._options.use_cgroups:
            root, why = None, "switched off"
        else:
            root, why = cgroups.choose(self._options.runs)
        _log.info("runs_contained", by="group" if root is None else "cgroup", why=why)
        return root

    def _server(self, boot: str) -> RunnerServer:
        served, mode = access(self._options.daemon_uid, os.getuid())
        listener, _ = sockets.listen(self._options.socket, "runtime_dir", mode=mode)
        return RunnerServer(
            listener,
            self._options.agent,
            Welcome(domain.PROTOCOL_VERSION, new_uuid(), boot),
            served,
            self._changed.set,
        )

    async def _end(self, book: RunBook, server: RunnerServer) -> None:
        self._notifier.stopping()
        _log.info("runner_stopping", runs=book.unfinished, results_held=book.held)
        server.refuse_more()
        book.stop()
        await self._until(lambda: book.unfinished == 0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_LINGER_S):
                await self._until(lambda: book.held == 0 or not server.connected)
        server.close()
        with contextlib.suppress(FileNotFoundError):
            self._options.socket.unlink()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not (condition() or self._failed):
            self._changed.clear()
            await self._changed.wait()

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """An unexpected error: end at once. The next runner proves all runs gone."""
        error = context.get("exception")
        exception = error if isinstance(error, BaseException) else None
        if isinstance(error, OSError) and "socket" in context:
            _log.warning("accept_failed", error=error.strerror)  # asyncio tries again
            return
        _log.error("runner_failed", why=context.get("message"), exc_info=exception)
        self._failed = True
        self._stop.set()
        self._changed.set()

    def _reap_soon(self, book: RunBook) -> None:
        if not self._reaping:
            self._reaping = True
            asyncio.get_running_loop().call_later(REAP_PAUSE_S, self._reap, book)

    def _reap(self, book: RunBook) -> None:
        """Reaps orphans that were adopted. Leaders are reaped by their run, after its proof."""
        self._reaping = False
        leaders = book.leaders
        for pid in processes.children():
            if pid not in leaders:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)

    def _watchdog(self, loop: asyncio.AbstractEventLoop) -> None:
        interval_s = self._notifier.watchdog_interval_s
        if interval_s is not None:
            self._notifier.watchdog()
            loop.call_later(interval_s, self._watchdog, loop)


def access(daemon_uid: int | None, own_uid: int) -> tuple[frozenset[int], int]:
    """The uids that are served, and the mode of the socket that lets them in."""
    if daemon_uid is None or daemon_uid == own_uid:
        return frozenset({own_uid, 0}), 0o600
    return frozenset({daemon_uid, 0}), 0o666


def _open_standard_streams() -> None:
    """A pipe must not get the number of a standard stream that we were started without."""
    while True:
        fd = os.open(os.devnull, os.O_RDWR)
        if fd > 2:
            os.close(fd)
            return
