"""Processes as /proc shows them. A process is named by pid and start time, never by pid alone."""

import contextlib
import ctypes
import os
import re
import signal
from pathlib import Path
from typing import NamedTuple

from corral.core.errors import UnavailableError
from corral.cowboy.runner.plan import TOKEN_VARIABLE

_READ_BYTES = 128 * 1024
_STAT_MAX_BYTES = 4096  # the kernel gives the line at once; it has some fifty numbers
_PF_KTHREAD = 0x00200000  # include/linux/sched.h; /proc shows it as a bit of "flags"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)
_TOKEN = re.compile(rb"(?:^|\0)" + TOKEN_VARIABLE + rb"=([0-9a-f]+)(?=\0|$)")
# State letters of a process that executes nothing any more.
_DEAD_STATES = frozenset({b"Z", b"X", b"x"})


class Process(NamedTuple):
    """One process; ``start_ticks`` is in clock ticks since boot. Not ``alive``: only to be reaped.

    A leader thread that ended while other threads go on looks like a zombie, and is alive.
    ``session`` is 0 when its leader is outside this PID namespace, as in a container.
    """

    pid: int
    ppid: int
    pgid: int
    session: int
    start_ticks: int
    alive: bool
    of_kernel: bool = False


def parse_stat(text: bytes) -> Process:
    """A line of /proc/PID/stat (proc(5)). The command in it may contain anything but its end."""
    fields = text[text.rindex(b")") + 2 :].split(None, 20)
    return Process(
        int(text[: text.index(b" ")]),
        int(fields[1]),
        int(fields[2]),
        int(fields[3]),
        int(fields[19]),
        fields[0] not in _DEAD_STATES or int(fields[17]) > 1,
        bool(int(fields[6]) & _PF_KTHREAD),
    )


def read(pid: int) -> Process | None:
    """The process with this pid now, or None."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return parse_stat(os.read(fd, _STAT_MAX_BYTES))
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)


def table() -> dict[int, Process]:
    """Every process that can be seen, by pid. Raises `OSError` when /proc cannot be read."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdecimal())  # noqa: PTH208
    return {process.pid: process for process in found if process is not None}


def tokens(pid: int) -> frozenset[str]:
    """Run tokens in the environment the process was started with; empty when it is not ours."""
    environment = _environment(f"/proc/{pid}") or _environment_of_threads(pid)
    return frozenset(match.decode() for match in _TOKEN.findall(environment))


def in_exec(process: Process) -> bool:
    """Whether the process may be inside execve, where its environment cannot be seen yet.

    A program that was started without any environment looks the same, for as long as it lives.
    """
    if not process.alive or process.of_kernel:
        return False
    try:
        return not _contents(f"/proc/{process.pid}/environ")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False


def kill(process: Process) -> bool:
    """SIGKILLs exactly this process; false when it is not ours to kill.

    A pid that was given to another process in the meantime is left alone.
    """
    try:
        pidfd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        now = read(process.pid)
        if now is not None and now.start_ticks == process.start_ticks:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        return False
    finally:
        os.close(pidfd)
    return True


def children() -> list[int]:
    """Pids of this process's children, zombies included."""
    own = os.getpid()
    try:
        listed = _contents(f"/proc/self/task/{own}/children")
    except FileNotFoundError:  # a kernel built without it
        return [process.pid for process in table().values() if process.ppid == own]
    return [int(pid) for pid in listed.split()]


def adopt_orphans() -> None:
    """Makes descendants whose parent died children of this process, instead of init's."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Asks for SIGKILL when the parent dies. Lost by a program that changes its uid (setuid)."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def boot_id() -> str:
    """Identifies this boot of the machine. Raises `UnavailableError` when /proc hides it."""
    path = Path("/proc/sys/kernel/random/boot_id")
    try:
        return path.read_text("ascii").strip()
    except OSError as error:
        raise UnavailableError(
            f"{path}: {error.strerror}", hint="the runner needs the whole of /proc"
        ) from error


def _prctl(option: int, value: int) -> None:
    if _LIBC.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl: {os.strerror(number)}")


def _environment(task: str) -> bytes:
    """Empty for a kernel thread, for what has ended, and for what is not ours to see."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return _contents(f"{task}/environ")
    return b""


def _environment_of_threads(pid: int) -> bytes:
    """When the leader thread has ended, only the others still have the environment."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        others = (f"/proc/{pid}/task/{name}" for name in threads if int(name) != pid)
        return b"\0".join(_environment(task) for task in others)
    return b""


def _contents(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(fd, _READ_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(fd)
