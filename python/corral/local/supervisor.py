"""Starts the processes of a deployment, restarts what dies, and kills, pauses and resumes them.

Every process is tied to the supervisor's life (see `tether`), writes to its own log file, and has
its pid in `pids/<name>`. What happens is recorded as a timeline of `Event`s; a kill also records
whether work was in flight when it fell.
"""

import asyncio
import errno
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from corral.core.errors import UnavailableError
from corral.local import wait
from corral.local.tether import tethered

RESTART_FIRST_S = 0.02
RESTART_MAX_S = 0.5
QUICK_DEATH_S = 1.0
# What passes: a full disk, or no more descriptors, processes or memory just now.
PASSING_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)
STOP_TIMEOUT_S = 15.0
LAST_WORDS_S = 1.0


class Child(Protocol):
    """A running program, as `asyncio.subprocess.Process` is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


# Starts a command line with environment, directory and log file; None to have it started as usual.
Spawner = Callable[
    [Sequence[str], Mapping[str, str], Path, Path], Coroutine[None, None, Child | None]
]
CommandLine = Callable[[int], Sequence[str]]  # by the number of the start, from 0


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True)
class Event:
    """One thing that happened to a process.

    `what` is started, not started (`cause` says why), killed (by us), ended (by itself), paused,
    resumed or overdue (it did not end when asked). `code` is the exit status, negative for a
    signal. `in_flight` counts the acknowledged messages that still waited for their answer.
    """

    at_ms: int
    process: str
    what: str
    cause: str = ""
    pid: int = 0
    code: int | None = None
    in_flight: int = 0

    @property
    def lethal(self) -> bool:
        """Whether a process was killed outright, by us or by itself at a crash point."""
        return self.what == "killed" or (self.what == "ended" and self.code == -signal.SIGKILL)


@dataclass
class Service:
    """A process to keep running: its name, command line by start, environment and readiness."""

    name: str
    command: CommandLine
    environment: Mapping[str, str]
    directory: Path
    ready: Callable[[], Awaitable[bool]] | None = None
    process: Child | None = None
    pidfd: int = -1
    keeper: asyncio.Task[None] | None = None
    starts: int = 0
    wanted: bool = False
    paused: bool = False
    killed_pids: set[int] = field(default_factory=set)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.returncode is None


class Supervisor:
    """Keeps services running; one event loop, no threads."""

    def __init__(self, base: Path, *, in_flight: Callable[[], int] = lambda: 0) -> None:
        self.logs = base / "logs"
        self.pids = base / "pids"
        for directory in (self.logs, self.pids):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.services: dict[str, Service] = {}
        self.timeline: list[Event] = []
        self.in_flight = in_flight
        self.spawner: Spawner | None = None

    def add(self, service: Service) -> None:
        """Makes a service known; `start` runs it."""
        self.services[service.name] = service

    def log_file(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def record(self, name: str, what: str, **more: object) -> None:
        event = Event(wall_ms(), name, what, in_flight=self.in_flight(), **more)  # type: ignore[arg-type]
        self.timeline.append(event)

    # ------------------------------------------------------------ running

    async def start(self, *names: str, timeout_s: float = 30.0) -> None:
        """Starts services and waits until each that can tell says that it is ready."""
        for name in names:
            service = self.services[name]
            if service.keeper is None or service.keeper.done():
                service.wanted = True
                service.keeper = asyncio.create_task(self._keep(service), name=f"keep {name}")
        for name in names:
            await self.ready(name, timeout_s)

    async def ready(self, name: str, timeout_s: float = 30.0) -> None:
        """Waits until a service runs and, where it can tell, says that it is ready."""
        service = self.services[name]

        async def check() -> bool:
            if service.keeper is not None and service.keeper.done():
                await service.keeper  # raises what ended it
            return service.running and (service.ready is None or await service.ready())

        await wait.until_async(check, timeout_s, f"{name} to be ready")

    def let_end(self, name: str) -> None:
        """The process that runs is the last one until `start`, however it ends."""
        self.services[name].wanted = False

    async def ended(self, name: str, timeout_s: float) -> int:
        """Waits until the last process of a service has ended: its exit status. TimeoutError."""
        service = self.services[name]
        if service.process is None or service.keeper is None:
            raise UnavailableError(f"{name} was never started")
        async with asyncio.timeout(timeout_s):
            await service.keeper
            return await service.process.wait()

    async def failure(self) -> None:
        """Waits until a service can be kept no longer, and raises why."""
        keepers = [service.keeper for service in self.services.values() if service.keeper]
        done, _ = await asyncio.wait(keepers, return_when=asyncio.FIRST_EXCEPTION)
        for keeper in done:
            await keeper

    async def _keep(self, service: Service) -> None:
        pause_s = RESTART_FIRST_S
        while service.wanted:
            born = time.monotonic()
            try:
                process = await self._spawn(service)
            except OSError as error:
                if error.errno not in PASSING_ERRORS:
                    raise
                self.record(service.name, "not started", cause=error.strerror or "")
                await wait.at(time.monotonic() + RESTART_MAX_S)
                continue
            self._kill_unwanted(service)
            code = await process.wait()
            self._close_pidfd(service)
            if process.pid not in service.killed_pids:
                self.record(service.name, "ended", pid=process.pid, code=code)
            quick = time.monotonic() - born < QUICK_DEATH_S
            pause_s = min(pause_s * 2, RESTART_MAX_S) if quick else RESTART_FIRST_S
            if service.wanted:
                await wait.at(time.monotonic() + pause_s)

    async def _spawn(self, service: Service) -> Child:
        argv = list(service.command(service.starts))
        service.starts += 1
        service.paused = False
        process: Child | None = None
        if self.spawner is not None:
            log_file = self.log_file(service.name)
            process = await self.spawner(argv, service.environment, service.directory, log_file)
        if process is None:
            process = await self._execute(argv, service)
        service.process = process
        with suppress(ProcessLookupError):
            service.pidfd = os.pidfd_open(process.pid)
        self._note_pid(service.name, process.pid)
        self.record(service.name, "started", pid=process.pid)
        return process

    def _note_pid(self, name: str, pid: int) -> None:
        """Into `pids/<name>`; on a full disk there is no such file, rather than an old one."""
        pid_file = self.pids / name
        scratch = pid_file.with_suffix(".new")
        try:
            scratch.write_text(str(pid), encoding="ascii")
            scratch.replace(pid_file)
        except OSError:
            for path in (scratch, pid_file):
                with suppress(OSError):
                    path.unlink(missing_ok=True)

    async def _execute(self, argv: Sequence[str], service: Service) -> Child:
        with self.log_file(service.name).open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *tethered(list(argv)),
                cwd=service.directory,
                env=dict(service.environment),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    # ------------------------------------------------------------ faults

    def kill(self, name: str, cause: str = "random") -> bool:
        """SIGKILL. False when the service is not running just now, or was killed already."""
        service = self.services[name]
        process = service.process
        if process is None or process.returncode is not None:
            return False
        if process.pid in service.killed_pids:
            return False
        service.killed_pids.add(process.pid)
        self.record(name, "killed", pid=process.pid, cause=cause)
        self._send(service, signal.SIGKILL)
        return True

    def pause(self, name: str, cause: str = "random") -> bool:
        """SIGSTOP: the process stays, and does nothing."""
        return self._signal(name, signal.SIGSTOP, "paused", cause)

    def resume(self, name: str) -> bool:
        """SIGCONT after `pause`."""
        return self._signal(name, signal.SIGCONT, "resumed", "")

    def _signal(self, name: str, number: signal.Signals, what: str, cause: str) -> bool:
        service = self.services[name]
        if not service.running or service.process is None:
            return False
        self._send(service, number)
        service.paused = number is signal.SIGSTOP
        self.record(name, what, pid=service.process.pid, cause=cause)
        return True

    # ------------------------------------------------------------ ending

    async def stop(self, *names: str, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Ends services in the given order with SIGTERM; one that stays is killed and recorded."""
        for name in names:
            service = self.services[name]
            service.wanted = False
            if service.running and service.process is not None:
                if service.paused:
                    self.resume(name)
                self._send(service, signal.SIGTERM)
            if service.keeper is None:
                continue
            try:
                await asyncio.wait_for(asyncio.shield(service.keeper), timeout_s)
            except TimeoutError:
                self.record(name, "overdue")
                if service.process is not None:
                    service.killed_pids.add(service.process.pid)
                    self._send(service, signal.SIGUSR1)  # a test launcher says where it hangs
                await asyncio.wait({service.keeper}, timeout=LAST_WORDS_S)
                self._kill_quietly(service)
                await service.keeper

    async def abandon(self) -> None:
        """Kills everything at once: the way out of a failed or interrupted run."""
        for service in self.services.values():
            service.wanted = False
            self._kill_quietly(service)
        for service in self.services.values():
            if service.keeper is not None:
                with suppress(asyncio.CancelledError, OSError, UnavailableError):
                    await service.keeper

    @classmethod
    def _kill_unwanted(cls, service: Service) -> None:
        """A stop that came while the process was being started could not reach it."""
        if not service.wanted:
            cls._kill_quietly(service)

    @classmethod
    def _kill_quietly(cls, service: Service) -> None:
        """No event stands for it: it is no fault of the run."""
        if service.running and service.process is not None:
            service.killed_pids.add(service.process.pid)
            cls._send(service, signal.SIGKILL)

    @staticmethod
    def _send(service: Service, number: signal.Signals) -> None:
        """By pidfd: it can hit nobody else, and takes no exit status from whoever waits for it."""
        if service.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(service.pidfd, number)

    @staticmethod
    def _close_pidfd(service: Service) -> None:
        if service.pidfd >= 0:
            os.close(service.pidfd)
            service.pidfd = -1


def left_behind(marker: str) -> dict[int, str]:
    """Processes whose environment carries `marker` (a private path): pid to command line.

    For the end of a run, when none must be left. The calling process is not counted.
    """
    found: dict[int, str] = {}
    needle = os.fsencode(marker)
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if needle in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").strip()
                found[int(entry.name)] = os.fsdecode(command)
    return found
