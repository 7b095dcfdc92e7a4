"""Network namespaces by name: which one a process is in, and how a command enters one."""

import ctypes
import os
from pathlib import Path
from typing import ClassVar, Final

from corral.core.errors import UnavailableError

NAMESPACES: Final = Path("/run/netns")
_CLONE_NEWNET: Final = 0x40000000


class NamespaceError(UnavailableError):
    """The network namespace in which Redis listens cannot be entered."""

    code: ClassVar[str] = "namespace"


def identity_of(path: Path) -> tuple[int, int]:
    """What tells a namespace from every other: device and inode of its file. Raises OSError."""
    found = path.stat()
    return found.st_dev, found.st_ino


def of_process(pid: int) -> tuple[int, int]:
    """The namespace of a process. Raises OSError; another user's process needs root."""
    return identity_of(Path(f"/proc/{pid}/ns/net"))


def enter(name: str, folder: Path = NAMESPACES) -> None:
    """Moves this thread, and the threads it starts later, into the namespace. Only root can.

    Does nothing when it is there already. Raises NamespaceError with the reason.
    """
    path = folder / name
    try:
        if identity_of(path) == of_process(os.getpid()):
            return
    except FileNotFoundError:
        raise NamespaceError(
            f"there is no network namespace {name}: {path} is missing",
            hint="is its unit running? COWBOY_REDIS_NETNS names it",
        ) from None
    except OSError as error:
        raise NamespaceError(f"{path}: {error.strerror}", hint="run this as root") from error
    if os.geteuid() != 0:
        raise NamespaceError(
            f"Redis is in the network namespace {name}, which only root can enter",
            hint="run this as root",
        )
    try:
        _set(path)
    except OSError as error:
        raise NamespaceError(
            f"the network namespace {name} cannot be entered: {error.strerror}",
            hint="this root lacks CAP_SYS_ADMIN: run it outside the container",
        ) from error


def _set(path: Path) -> None:
    library = ctypes.CDLL(None, use_errno=True)  # os.setns exists from Python 3.12 on
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if library.setns(handle, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    finally:
        os.close(handle)
