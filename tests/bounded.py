"""Runs one command in a process group of its own, within a time bound, and leaves nothing behind.

The process adopts its orphaned descendants (PR_SET_CHILD_SUBREAPER), so that a server that a
test forgot to stop is seen and ended here, and reported, wherever it had hidden itself.
"""

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
TERMINATE_GRACE_S = 10.0
LEFTOVER_GRACE_S = 5.0
WAKE_MAX_S = 0.5


@dataclass(frozen=True)
class Ending:
    """How the command ended. `status` is its exit status, or minus the signal that ended it."""

    status: int
    took_s: float
    timed_out: bool = False
    interrupted: bool = False
    leftovers: list[str] = field(default_factory=list)


class Bounded:
    """One at a time: it owns SIGCHLD and reaps every child of this process."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        self._statuses: dict[int, int] = {}

    def run(self, argv: Sequence[str], *, bound_s: float, env: Mapping[str, str]) -> Ending:
        began = time.monotonic()
        timed_out = interrupted = False
        with _child_wakeups() as wake:
            child = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, process_group=0)
            try:
                timed_out = not self._ended(child.pid, began + bound_s, wake)
            except KeyboardInterrupt:
                interrupted = True
            if timed_out or interrupted:
                self._end_group(child.pid, wake)
            child.returncode = self._statuses.pop(child.pid)
            leftovers = self._end_leftovers(wake, patient=not (timed_out or interrupted))
        took_s = time.monotonic() - began
        return Ending(child.returncode, took_s, timed_out, interrupted, leftovers)

    def _ended(self, pid: int, deadline: float, wake: socket.socket) -> bool:
        """Reap until `pid` is over (true) or the deadline is (false)."""
        while True:
            self._reap()
            if pid in self._statuses:
                return True
            if time.monotonic() >= deadline:
                return False
            _wait(wake, deadline)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0] != 0:
                self._statuses[found[0]] = os.waitstatus_to_exitcode(found[1])

    def _end_group(self, pid: int, wake: socket.socket) -> None:
        for number, grace_s in ((signal.SIGTERM, TERMINATE_GRACE_S), (signal.SIGKILL, 60.0)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, number)
            if self._ended(pid, time.monotonic() + grace_s, wake):
                break

    def _end_leftovers(self, wake: socket.socket, *, patient: bool) -> list[str]:
        """Name, then kill what the command left running; each kill may orphan more to us."""
        deadline = time.monotonic() + (LEFTOVER_GRACE_S if patient else 0.0)
        while self._children() and time.monotonic() < deadline:
            self._reap()
            _wait(wake, deadline)
        named: dict[int, str] = {}
        while children := self._children():
            for pid in children:
                named.setdefault(pid, f"{_command_of(pid)} (pid {pid})")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._reap()
            _wait(wake, time.monotonic() + WAKE_MAX_S)
        self._statuses.clear()
        return list(named.values())

    def _children(self) -> list[int]:
        self._reap()
        return [int(entry.name) for entry in _processes() if _parent_of(entry) == os.getpid()]


@contextlib.contextmanager
def _child_wakeups() -> Iterator[socket.socket]:
    """A socket that becomes readable when a child ends, so that nothing polls in a busy loop."""
    read, write = socket.socketpair()
    for end in (read, write):
        end.setblocking(False)
    handler = signal.signal(signal.SIGCHLD, lambda *_: None)
    old = signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
    try:
        yield read
    finally:
        signal.set_wakeup_fd(old)
        signal.signal(signal.SIGCHLD, handler)
        read.close()
        write.close()


def _wait(wake: socket.socket, deadline: float) -> None:
    select.select([wake], [], [], max(0.0, min(WAKE_MAX_S, deadline - time.monotonic())))
    with contextlib.suppress(BlockingIOError):
        while wake.recv(4096):
            pass


def _processes() -> Iterator[Path]:
    return (entry for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _parent_of(entry: Path) -> int | None:
    """The parent's id; None when the process is gone. The name before it may hold anything."""
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"
