"""A runner process and a daemon's end of its socket, for tests that use real processes."""

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from corral.core.errors import StorageError
from corral.cowboy.runner import cgroup, domain, processes
from corral.cowboy.runner.domain import (
    Event,
    Finished,
    Forget,
    Go,
    Hello,
    Kill,
    Prepared,
    PrepareRequest,
    Query,
    Request,
    RunPhase,
    RunResult,
    RunState,
    Welcome,
)
from corral.cowboy.runner.frames import FrameSplitter
from corral.cowboy.runner.recovery import leftovers
from corral.cowboy.runner.store import RecordStore
from corral.local.wait import until
from tests.unit.runner.launch import Launch, Program

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 30.0
AGENT = "scout"
LEDGER = "6f9b2c54-3f0e-4a1e-9d57-0d8b8f3c9a11"

E = TypeVar("E", bound=Event)


def shell(script: str) -> tuple[str, ...]:
    return ("/bin/sh", "-c", script)


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", script)


def prepare_request(turn: str, attempt: int = 1, **changes: object) -> PrepareRequest:
    request = PrepareRequest(
        turn=turn,
        attempt=attempt,
        source="a2a",
        prompt=b"hello",
        entry="1732935482123-0",
        sender=b"ada",
        channel=b"general",
        session="00ff",
        resumed=False,
        traceparent=None,
    )
    return replace(request, **changes)  # type: ignore[arg-type]


class Daemon:
    """One connection to the runner, driven by the test; blocking."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(WAIT_S)
        try:
            self.socket.connect(os.fspath(path))
        except OSError:
            self.socket.close()
            raise
        self._frames = FrameSplitter(domain.FRAME_MAX_BYTES)
        self._events: list[Event] = []
        self.welcome: Welcome | None = None

    def hello(self, ledger: str = LEDGER) -> "Daemon":
        self.send(Hello(domain.PROTOCOL_VERSION, AGENT, ledger))
        self.welcome = self.expect(Welcome)
        return self

    def send(self, *requests: Request) -> None:
        self.socket.sendall(b"".join(domain.encode_request(request) for request in requests))

    def next(self) -> Event | None:
        """The next event; None when the runner closed the connection."""
        while not self._events:
            try:
                data = self.socket.recv(65_536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._events.extend(domain.decode_event(line) for line in self._frames.feed(data))
        return self._events.pop(0)

    def expect(self, kind: type[E]) -> E:
        event = self.next()
        assert isinstance(event, kind), event
        return event

    def expect_amid(self, kind: type[E]) -> E:
        """The next event of this kind; others before it are passed over."""
        while not isinstance(event := self.next(), kind):
            assert event is not None
        return event

    def prepare(self, turn: str, attempt: int = 1, **changes: object) -> Prepared:
        self.send(prepare_request(turn, attempt, **changes))
        return self.expect(Prepared)

    def state(self, turn: str, attempt: int = 1) -> RunState:
        self.send(Query(((turn, attempt),)))
        return self.expect(RunState)

    def phase(self, turn: str, attempt: int = 1) -> RunPhase:
        return self.state(turn, attempt).state

    def run(self, turn: str, attempt: int = 1, **changes: object) -> RunResult:
        self.prepare(turn, attempt, **changes)
        self.send(Go(turn, attempt))
        return self.expect(Finished).result

    def kill(self, turn: str, attempt: int = 1, reason: str = "cancel") -> RunResult:
        self.send(Kill(turn, attempt, reason))
        return self.expect(Finished).result

    def forget(self, turn: str, attempt: int = 1) -> None:
        self.send(Forget(turn, attempt))

    def close(self) -> None:
        self.socket.close()


class World:
    """Runner processes of one runtime directory, started one after another."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.launch = Launch(
            agent=AGENT,
            socket=str(directory / "runner.sock"),
            runs=str(directory / "runs"),
            programs={"a2a": Program(shell("cat"))},
        )
        self.runners: list[subprocess.Popen[bytes]] = []
        self.daemons: list[Daemon] = []
        self._numbers = itertools.count()

    @property
    def socket(self) -> Path:
        return Path(self.launch.socket)

    @property
    def records(self) -> list[str]:
        return sorted(path.name for path in Path(self.launch.runs).glob("*"))

    @property
    def log(self) -> str:
        return "".join(path.read_text() for path in sorted(self.directory.glob("log.*")))

    def programs(self, commands: dict[str, tuple[str, ...]]) -> None:
        """The sources from the next start on, each with its command."""
        programs = {name: Program(command) for name, command in commands.items()}
        self.launch = replace(self.launch, programs=programs)

    def program(self, *command: str, **rules: object) -> None:
        """What the source ``a2a`` runs from the next start on."""
        program = Program(command, **rules)  # type: ignore[arg-type]
        self.launch = replace(self.launch, programs={"a2a": program})

    def start(self, **changes: object) -> subprocess.Popen[bytes]:
        """Starts a runner process; it may not be listening yet."""
        number = next(self._numbers)
        config = self.directory / f"launch.{number}.json"
        replace(self.launch, **changes).write(config)  # type: ignore[arg-type]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join((str(ROOT / "python"), str(ROOT), *sys.path)),
            "PYTHONWARNINGS": "error",
            "SECRET_OF_THE_RUNNER": "must not be inherited",
        }
        with (self.directory / f"log.{number:03}").open("wb") as log:
            runner = subprocess.Popen(
                [sys.executable, "-m", "tests.unit.runner.launch", str(config)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        self.runners.append(runner)
        return runner

    def connect(self) -> Daemon:
        """Connects to the runner as soon as it listens, without a hello."""

        def tried() -> Daemon | None:
            assert self.runners[-1].poll() is None, self.log
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                daemon = Daemon(self.socket)
                self.daemons.append(daemon)
                return daemon
            return None

        connected = until(tried, WAIT_S, "the runner to listen")
        assert connected is not None
        return connected

    def daemon(self) -> Daemon:
        """A daemon that was greeted. The socket of a killed runner may take a connection still,
        and ends it with the killed one's last child.
        """
        while True:
            daemon = self.connect()
            with contextlib.suppress(ConnectionError):
                daemon.send(Hello(domain.PROTOCOL_VERSION, AGENT, LEDGER))
            welcome = daemon.next()
            if welcome is not None:
                assert isinstance(welcome, Welcome), welcome
                daemon.welcome = welcome
                return daemon

    def up(self, **changes: object) -> Daemon:
        self.start(**changes)
        return self.daemon()

    def kill_runner(self) -> None:
        self.runners[-1].kill()
        self.runners[-1].wait(WAIT_S)

    def wait_killed(self) -> None:
        """Waits until an armed runner has killed itself."""
        assert self.runners[-1].wait(WAIT_S) == -signal.SIGKILL, self.log

    def close(self) -> None:
        """Ends all runners and what they started; a last one finds the leftovers of the killed."""
        for daemon in self.daemons:
            daemon.close()
        for runner in self.runners:
            if runner.poll() is None:
                runner.kill()
                runner.wait(WAIT_S)
        until(lambda: not self._kill_leftovers(), WAIT_S, "what killed runners left to be gone")

    def _kill_leftovers(self) -> bool:
        """As the next runner would, for runs that a killed one left; true when there were any."""
        runs = Path(self.launch.runs)
        if not runs.is_dir():
            return False
        with contextlib.suppress(StorageError):
            records = [record for record in RecordStore(runs).load() if record.pid]
            records = [record for record in records if record.boot == processes.boot_id()]
            left = leftovers(processes.table(), records, os.getpid(), processes.tokens)
            for process in left:
                processes.kill(process)
            groups = [Path(record.cgroup) for record in records if record.cgroup]
            for group in groups:
                cgroup.kill(group)
            return bool(left) or not all(map(cgroup.removed, groups))
        return False


@contextlib.contextmanager
def world(directory: Path) -> Iterator[World]:
    made = World(directory)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def sleeper(
    environment: Mapping[str, str] | None = None, *, session: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process of nobody's run; killed at the end, if it was not before."""
    command = ["/bin/sleep", "1000"]
    with subprocess.Popen(command, env=environment, start_new_session=session) as process:
        try:
            yield process
        finally:
            process.kill()


def alive(pid: int) -> bool:
    process = processes.read(pid)
    return process is not None and process.alive


def gone(*pids: int) -> bool:
    return not any(alive(pid) for pid in pids)


def wait_gone(*pids: int) -> None:
    until(lambda: gone(*pids), WAIT_S, f"processes {pids} to be gone")


def wait_lines(path: Path, count: int) -> list[str]:
    """The first lines that programs have appended to a file, once there are ``count``."""
    until(lambda: path.exists() and path.read_text().count("\n") >= count, WAIT_S, f"{path.name}")
    return path.read_text().splitlines()


def monotonic_ms() -> float:
    return time.monotonic() * 1000
