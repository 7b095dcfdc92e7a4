"""Processes and terminals as /proc shows them. A process is named by pid, start time and boot.

`None` and "" say what was seen. An `OSError` says that nothing could be (no descriptor is left, for
example): the process may well live.
"""

import errno
import fcntl
import functools
import os
import struct
import termios
from typing import NamedTuple

from corral.core.errors import UnavailableError
from corral.tamq.terminal.base import ProcessId

_STAT_MAX_BYTES = 4096
_DEAD_STATES = frozenset({b"Z", b"X", b"x"})
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_NOBODY = frozenset({errno.ENOENT, errno.ESRCH})
_NO_LOOK = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class Stat(NamedTuple):
    """`foreground` is the process group that its terminal's keys go to; -1 without a terminal."""

    pid: int
    ppid: int
    pgid: int
    session: int
    tty: int
    foreground: int
    start_ticks: int
    alive: bool


class LineMode(NamedTuple):
    """How the kernel treats what is typed: line by line, and shown or not."""

    canonical: bool
    echo: bool


def parse_stat(text: bytes) -> Stat:
    """A line of /proc/PID/stat (proc(5)). The command in it may contain anything but its end."""
    fields = text[text.rindex(b")") + 2 :].split(None, 20)
    ppid, pgid, session, tty, foreground = (int(one) for one in fields[1:6])
    alive = fields[0] not in _DEAD_STATES or int(fields[17]) > 1
    pid = int(text[: text.index(b" ")])
    return Stat(pid, ppid, pgid, session, tty, foreground, int(fields[19]), alive)


def read(pid: int) -> Stat | None:
    """The process with this pid now; `None` when there is none, or only its remains. `OSError`."""
    text = _contents(f"/proc/{pid}/stat")
    stat = parse_stat(text) if text else None
    return stat if stat is not None and stat.alive else None


def identify(pid: int) -> ProcessId | None:
    """The full name of the process that has this pid now."""
    stat = read(pid)
    return None if stat is None else ProcessId(pid, stat.start_ticks, boot_id())


def find(process: ProcessId) -> Stat | None:
    """This very process, or `None` when it ended (whoever has its pid now). `OSError`."""
    if process.boot_id != boot_id():
        return None
    stat = read(process.pid)
    return stat if stat is not None and stat.start_ticks == process.start_ticks else None


def command(pid: int) -> str:
    """What the process calls itself (15 bytes at most); empty when there is none."""
    try:
        return _contents(f"/proc/{pid}/comm").decode(errors="replace").removesuffix("\n")
    except OSError:
        return ""


@functools.cache
def boot_id() -> str:
    """Identifies this boot of the machine. `UnavailableError` when /proc hides it; `OSError`."""
    text = _contents(_BOOT_ID).decode("ascii").strip()
    if not text:
        raise UnavailableError(f"{_BOOT_ID}: cannot be read", hint="TAMQ needs the whole of /proc")
    return text


class Tty(NamedTuple):
    """A terminal: its device as `Stat.tty` has it, and how many bytes wait to be read there."""

    device: int
    mode: LineMode
    unread: int


def terminal_at(path: str) -> Tty | None:
    """The terminal at a path; `None` if it is none. `OSError` when it cannot be looked at."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_LOOK:
            raise
        return None
    try:
        unread = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
        return Tty(os.fstat(fd).st_rdev, line_mode(fd), unread)
    except (OSError, termios.error):
        return None
    finally:
        os.close(fd)


def line_mode(fd: int) -> LineMode:
    """Of an open terminal, or the master of a pseudo-terminal. `termios.error` for other files."""
    flags = termios.tcgetattr(fd)[3]
    return LineMode(bool(flags & termios.ICANON), bool(flags & termios.ECHO))


def _contents(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.read(fd, _STAT_MAX_BYTES)
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno in _NOBODY:  # perhaps it ended between the two
            return b""
        raise
