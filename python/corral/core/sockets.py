"""Listening at a Unix socket: its path, its lock, its file, and who connects. All of it blocks.

A lock file decides who may serve; the socket's file never does. Who has the lock replaces the
socket of a server that is dead, which is one that refuses a connection, and nothing else.
"""

import fcntl
import os
import socket
import stat
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from corral.core.errors import ConfigError, UnavailableError

PATH_MAX_BYTES: Final = 107  # the kernel keeps 108, a NUL included
LOCK_PAUSE_S: Final = 0.01

_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: pid, uid, gid


class Credentials(NamedTuple):
    """Of the process that connected, as the kernel says. Pid 0: in another pid namespace."""

    pid: int
    uid: int
    gid: int


def credentials(connection: socket.socket) -> Credentials:
    """Who is at the other end. `OSError` when the kernel does not say."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    if len(raw) != _CREDENTIALS.size:
        raise OSError("the kernel does not say who connects")
    return Credentials._make(_CREDENTIALS.unpack(raw))


def check_path(path: Path, setting: str) -> None:
    """`ConfigError`, which begins with the setting, for a path that no socket can have."""
    length = len(os.fsencode(path))
    if length > PATH_MAX_BYTES:
        raise ConfigError(
            f"{setting}: the socket {path} has a path of {length} bytes, "
            f"the system takes {PATH_MAX_BYTES}",
            hint="use a shorter directory",
        )


def lock(path: Path, *, wait_s: float = 0.0) -> int | None:
    """Take a lock file; the descriptor keeps it. `None` when another has it, after `wait_s`.

    It ends with the process and with those it had just forked. `OSError` when there can be none.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    handle = os.open(path, flags, 0o600)
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < deadline_s:
                time.sleep(LOCK_PAUSE_S)
                continue
            os.close(handle)
            return None
        return handle


def private_folder(folder: Path, setting: str) -> None:
    """Make it, or see that it is the user's own and nobody else enters. `ConfigError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ConfigError(f"{setting}: {folder} cannot be used: {error.strerror}") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{setting}: the folder {folder} must be yours and of mode 0700",
            hint=f"chmod 700 {folder}, or use a folder of its own"
            if found.st_uid == os.getuid() and not found.st_mode & stat.S_ISVTX
            else "use a folder of its own below it",
        )


def listen(
    path: Path, setting: str, *, mode: int = 0o600, backlog: int = 128
) -> tuple[socket.socket, int]:
    """A socket at `path`, of `mode` from its first instant and not blocking, and its file's inode.

    Whoever calls has the lock. `ConfigError`, which begins with the setting, for a path that cannot
    be used or is no socket, `UnavailableError` when somebody listens there.
    """
    check_path(path, setting)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path, setting)
        # Linux gives the file the mode of the socket; the umask is for systems that do not.
        os.fchmod(listener.fileno(), mode)
        before = os.umask(0o777 & ~mode)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(before)
        listener.listen(backlog)
        listener.setblocking(False)
        inode = path.lstat().st_ino
    except BaseException as error:
        listener.close()
        if isinstance(error, OSError):
            raise ConfigError(
                f"{setting}: cannot listen at {path}: {error.strerror}", hint="is its folder there?"
            ) from error
        raise
    return listener, inode


def unlink_own(path: Path, inode: int) -> None:
    """Remove the socket's file if it is still the one that we made."""
    with suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _clear(path: Path, setting: str) -> None:
    """Remove the socket of a server that is dead; refuse what is alive or no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"{setting}: {path} is there and is no socket", hint="remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # its queue is full: alive
    raise UnavailableError(
        f"another program listens at {path}, without the lock beside it", hint="stop it first"
    )
