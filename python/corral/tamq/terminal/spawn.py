"""Starts a program on a pseudo-terminal of its own. Called before there is a thread or a loop."""

import errno
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from corral.core.errors import CorralError

ROWS_DEFAULT: Final = 24
COLUMNS_DEFAULT: Final = 80


class NotStartedError(CorralError):
    """The program could not be started; the exit codes are what a shell answers."""

    code = "not_started"
    exit_code = 126


class NotFoundError(NotStartedError):
    """There is no such program."""

    code = "command_not_found"
    exit_code = 127


class Spawned(NamedTuple):
    """`master` is ours, non-blocking, and closed in every program that we start.

    `path` is the program's side of it.
    """

    pid: int
    master: int
    path: str


class Size(NamedTuple):
    columns: int
    rows: int


def size_of(fd: int) -> Size:
    """Of a terminal; the usual one when `fd` is none, or says that it has none."""
    try:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, b"\0" * 8))
    except OSError:
        rows = columns = 0
    return Size(columns or COLUMNS_DEFAULT, rows or ROWS_DEFAULT)


def set_size(fd: int, size: Size) -> None:
    """The kernel tells the program (SIGWINCH)."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.columns, 0, 0))


def spawn(command: Sequence[str], size: Size, settings: list[Any] | None) -> Spawned:
    """The program leads a session with the pseudo-terminal as its controlling terminal.

    `settings` are those of the person's terminal, which a program expects to find. Raises
    `NotStartedError` when the command cannot be executed.
    """
    master, slave = os.openpty()
    failed, report = os.pipe()  # closed by a successful exec
    set_size(slave, size)
    if settings is not None:
        termios.tcsetattr(slave, termios.TCSANOW, settings)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _become(command, slave, report)
    path = os.ttyname(slave)
    os.close(slave)
    os.close(report)
    with os.fdopen(failed, "rb") as pipe:
        problem = pipe.read()
    if problem:
        os.waitpid(pid, 0)
        os.close(master)
        number = errno.ENOENT if _is_nowhere(command[0]) else int(problem)
        kind = NotFoundError if number == errno.ENOENT else NotStartedError
        raise kind(f"{command[0]}: {os.strerror(number)}")
    os.set_blocking(master, False)
    return Spawned(pid, master, path)


def _is_nowhere(name: str) -> bool:
    """A folder of PATH that cannot be read, or is none, has the last word in execvp()."""
    found = (os.access(Path(folder) / name, os.F_OK) for folder in os.get_exec_path())
    return "/" not in name and not any(found)


def _become(command: Sequence[str], slave: int, report: int) -> NoReturn:
    """In the child. Nothing may come back from here."""
    try:
        os.login_tty(slave)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and so would it
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(report, str(error.errno or errno.EIO).encode())
    finally:
        os._exit(127)


def exit_status(status: int) -> int:
    """Of `os.waitpid`, as a shell has it: 128 and more for a signal."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
