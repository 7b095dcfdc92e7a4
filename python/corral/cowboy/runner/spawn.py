"""Starts a run up to its barrier: fork, wait for one byte, then execute the program.

The child closes every descriptor but its own before it waits, so nobody but the runner holds the
write end of a barrier: a dead runner is end of file, and the child exits having executed nothing.
The runner has one thread, which makes fork without exec sound.
"""

import contextlib
import errno
import fcntl
import functools
import os
import resource
import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from corral.cowboy.runner import cgroup as cgroups
from corral.cowboy.runner import processes

GO = b"g"
_BARRIER_FD = 3
_FAILURE_FD = 4
_FIRST_FREE_FD = 5
_FAILURE = struct.Struct("!i")
# Statuses of a child that executed nothing; the failure pipe says more.
_NEVER_WENT_STATUS = 0
_START_FAILED_STATUS = 127


@dataclass(slots=True)
class Child:
    """A run's leader as its parent sees it. The descriptors are the runner's own, non-blocking.

    The leader's pid is its process group and its session. It is not reaped before its group is
    gone, so the kernel gives the number to nobody else.
    """

    pid: int
    start_ticks: int
    pidfd: int
    stdin: int
    stdout: int
    stderr: int
    barrier: int
    failure: int

    def close(self, name: str) -> None:
        """Closes one descriptor by its field's name, once."""
        fd: int = getattr(self, name)
        if fd >= 0:
            setattr(self, name, -1)
            os.close(fd)

    def close_all(self) -> None:
        for name in ("stdin", "stdout", "stderr", "barrier", "failure", "pidfd"):
            self.close(name)

    def start_error(self) -> str | None:
        """Why the program could not be executed; None when it was. Asked after the leader ended."""
        with contextlib.suppress(BlockingIOError):
            report = os.read(self.failure, _FAILURE.size)
            if len(report) == _FAILURE.size:
                return os.strerror(_FAILURE.unpack(report)[0])
        return None


def spawn(
    command: Sequence[str],
    environment: Mapping[bytes, bytes],
    cgroup: Path | None,
    nofile_soft: int,
) -> Child:
    """Forks a child that waits at the barrier. Raises `OSError`; nothing is left then.

    ``nofile_soft`` is the soft limit of open descriptors that the program gets.
    """
    with contextlib.ExitStack() as undo:
        pipes = [_pipe(undo) for _ in range(5)]
        (stdin_r, stdin_w), (stdout_r, stdout_w), (stderr_r, stderr_w), barrier, failure = pipes
        theirs = [stdin_r, stdout_w, stderr_w, barrier[0], failure[1]]
        place = None if cgroup is None else os.fsencode(cgroup)
        # No handler of ours may run in the child.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, _signals_not_default())
        try:
            pid = os.fork()
            if pid == 0:
                _child(theirs, command, environment, place, nofile_soft)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)
        child = _parent(pid, [stdin_w, stdout_r, stderr_r, barrier[1], failure[0]])
        undo.pop_all()
    for fd in theirs:
        os.close(fd)
    return child


def reap(child: Child) -> tuple[int | None, int | None]:
    """Exit status and signal of the leader, one of them None. It must have ended."""
    _, status = os.waitpid(child.pid, 0)
    if os.WIFSIGNALED(status):
        return None, os.WTERMSIG(status)
    return os.WEXITSTATUS(status), None


def abandon(child: Child) -> None:
    """Ends a child that still waits at its barrier, and reaps it. It has executed nothing."""
    os.kill(child.pid, signal.SIGKILL)
    reap(child)
    child.close_all()


def ended(child: Child) -> bool:
    """Whether the leader has ended. It is not reaped by this."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, child.pid, options) is not None


def raise_nofile_limit() -> tuple[int, int]:
    """Raises the soft limit of descriptors to the hard one; gives the former soft, and the hard."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def _pipe(undo: contextlib.ExitStack) -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        undo.callback(os.close, fd)
    return ends


def _parent(pid: int, ours: list[int]) -> Child:
    try:
        pidfd = os.pidfd_open(pid)
        leader = processes.read(pid)
        if leader is None:
            raise OSError(errno.EIO, "/proc does not show a child")
        for fd in ours:
            os.set_blocking(fd, False)
    except OSError:
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
        os.waitpid(pid, 0)
        raise
    stdin, stdout, stderr, barrier, failure = ours
    return Child(pid, leader.start_ticks, pidfd, stdin, stdout, stderr, barrier, failure)


def _child(
    theirs: list[int],
    command: Sequence[str],
    environment: Mapping[bytes, bytes],
    cgroup: bytes | None,
    nofile_soft: int,
) -> NoReturn:
    error_number = errno.EINVAL
    failure = theirs[-1]
    try:
        os.setsid()
        _reset_signals()
        processes.die_with_parent()  # the next runner finds the rest; this only makes it sooner
        failure = _keep_only(theirs)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (nofile_soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )
        if cgroup is not None:
            cgroups.join(cgroup)
        if os.read(_BARRIER_FD, 1) != GO:
            os._exit(_NEVER_WENT_STATUS)
        os.execvpe(command[0], list(command), environment)
    except OSError as error:
        error_number = error.errno or errno.EINVAL
    finally:
        with contextlib.suppress(OSError):
            os.write(failure, _FAILURE.pack(error_number))
        os._exit(_START_FAILED_STATUS)


@functools.cache
def _signals_not_default() -> tuple[int, ...]:
    """Signals that this process handles or ignores. All handlers are there before a first run."""
    default = {signal.SIG_DFL, None}
    return tuple(n for n in signal.valid_signals() if signal.getsignal(n) not in default)


def _reset_signals() -> None:
    # They stay blocked until the handlers are gone; ignored ones would survive the exec.
    signal.set_wakeup_fd(-1)
    for number in _signals_not_default():
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _keep_only(theirs: list[int]) -> int:
    """Moves the child's ends to 0..4 and closes everything else; gives the failure pipe's end."""
    # Out of the way first: an end may have one of the numbers that it must not end up with.
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in theirs]
    for target, fd in enumerate(high):
        os.dup2(fd, target, inheritable=target < _BARRIER_FD)
    # Not closerange: where the system call is missing it tries every number up to its end.
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208
        if fd >= _FIRST_FREE_FD:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(fd)
    return _FAILURE_FD
