"""Starts services fast: a process that has imported them once, and forks one for each start.

Most of a restart is the import of libraries. A trial restarts services many times, so each worker
process has a zygote: single-threaded, without an event loop, it imports what the services import,
then forks a child for each request, which becomes the armed launcher with its own session, log,
environment and parent-death signal. What a user starts is started from nothing in the demo and in
the tests of disasters.
"""

import asyncio
import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from corral.local.tether import PR_SET_PDEATHSIG, tethered
from corral.local.topology import base_environment

LAUNCHER = ("-m", "tests.harness.armed")
PRELOADED = ("corral.cowboy.daemon", "corral.cowboy.runner.main", "corral.cowboy.main")
LINE_MAX_BYTES = 1 << 20


# ------------------------------------------------------------ the zygote's own side


@dataclass
class Order:
    """What a child becomes: the launcher with these arguments."""

    argv: list[str]
    environment: dict[str, str]
    directory: str
    log: str


def serve(channel: socket.socket) -> Order | None:
    """Forks for each order. Returns in the child with its order, in the zygote at its end."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    pending = b""
    while True:
        sources = [channel.fileno(), wake_read]
        readable, _, _ = select.select(sources, [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            _reap(channel)
        if channel.fileno() not in readable:
            continue
        data = channel.recv(LINE_MAX_BYTES)
        if not data:
            return None
        pending += data
        *lines, pending = pending.split(b"\n")
        for line in lines:
            order = Order(**json.loads(line))
            pid = os.fork()
            if pid == 0:
                return order
            channel.sendall(b'{"born": %d}\n' % pid)


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = os.waitstatus_to_exitcode(status)
        channel.sendall(b'{"over": %d, "code": %d}\n' % (pid, code))


def become(order: Order, parent: int) -> None:
    """In the child: what `exec` would have given it, then the launcher."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    null, log = os.open(os.devnull, os.O_RDONLY), os.open(order.log, flags, 0o600)
    for fd, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, target)
    os.closerange(3, 1 << 16)
    os.chdir(order.directory)
    os.environ.clear()
    os.environ.update(order.environment)
    from tests.harness import armed

    armed.main(order.argv)


def main() -> None:
    import importlib

    for module in sys.argv[2:]:
        importlib.import_module(module)
    parent = os.getpid()
    channel = socket.socket(fileno=int(sys.argv[1]))
    order = serve(channel)
    if order is not None:
        channel.detach()
        become(order, parent)


# ------------------------------------------------------------ the worker's side


@dataclass
class Child:
    """A process that a zygote forked: like `asyncio.subprocess.Process`, as far as needed."""

    pid: int
    returncode: int | None = None
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    def end(self, code: int) -> None:
        self.returncode = code
        self._over.set()

    async def wait(self) -> int:
        await self._over.wait()
        return self.returncode if self.returncode is not None else 0


class Zygote:
    """The handle of a worker process on its zygote. It outlives the event loops of the trials.

    `modules`: what it imports before the first start.
    """

    def __init__(self, modules: Sequence[str] = PRELOADED) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "tests.harness.zygote", str(theirs.fileno()), *modules]
        self._process = subprocess.Popen(
            tethered(command), pass_fds=[theirs.fileno()], env=base_environment()
        )
        theirs.close()
        ours.setblocking(False)
        self._channel = ours
        self._pending = b""
        self._children: dict[int, Child] = {}
        self._births: list[asyncio.Future[int]] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        """Ends the zygote, and with it what it forked."""
        self._channel.close()
        self._process.wait()

    def attach(self) -> None:
        """Listens in the running event loop; forgets the children of an earlier one."""
        self._children.clear()
        asyncio.get_running_loop().add_reader(self._channel, self._read)

    def detach(self) -> None:
        asyncio.get_running_loop().remove_reader(self._channel)

    async def spawn(
        self, argv: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path
    ) -> Child | None:
        """Starts the armed launcher; None for any other program."""
        if tuple(argv[1:3]) != LAUNCHER:
            return None
        order = {
            "argv": list(argv[3:]),
            "environment": dict(environment),
            "directory": str(directory),
            "log": str(log),
        }
        loop = asyncio.get_running_loop()
        born: asyncio.Future[int] = loop.create_future()
        self._births.append(born)
        await loop.sock_sendall(self._channel, json.dumps(order).encode() + b"\n")
        return self._children[await born]

    def _read(self) -> None:
        data = self._channel.recv(LINE_MAX_BYTES)
        self._pending += data
        *lines, self._pending = self._pending.split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "born" in told:
                self._children[told["born"]] = Child(told["born"])
                born = self._births.pop(0)
                if not born.done():
                    born.set_result(told["born"])
            elif told["over"] in self._children:
                self._children.pop(told["over"]).end(told["code"])
        if not data:
            raise ConnectionResetError("the zygote is gone")


_zygote: Zygote | None = None


def zygote() -> Zygote:
    """The zygote of this process; started at the first call."""
    global _zygote  # noqa: PLW0603 - one for each worker process, whatever its event loops
    if _zygote is None:
        _zygote = Zygote()
    return _zygote


if __name__ == "__main__":
    main()
