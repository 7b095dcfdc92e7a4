"""Files of services, as root takes and puts them: by open folders, and never through a link.

A service's user may put anything into its folder, a link to somebody else's file, too.
"""

import contextlib
import grp
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from corral.backup import manifest
from corral.backup.manifest import CHUNK_BYTES, File, Owner
from corral.core.errors import ConfigError, StorageError

FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
ALL: Final = 1 << 62


@contextlib.contextmanager
def opened(folder: Path, *below: str) -> Iterator[int]:
    """A folder of a service, or one below it."""
    with _faults(folder), contextlib.ExitStack() as stack:
        found = os.open(folder, FOLDER_FLAGS)
        stack.callback(os.close, found)
        for name in below:
            found = os.open(name, FOLDER_FLAGS, dir_fd=found)
            stack.callback(os.close, found)
        yield found


def owner_of(path: Path) -> Owner:
    """Of a file or folder that is there."""
    with _faults(path):
        found = path.lstat()
    try:
        return Owner(
            user=pwd.getpwuid(found.st_uid).pw_name,
            group=grp.getgrgid(found.st_gid).gr_name,
            mode=f"{stat.S_IMODE(found.st_mode):04o}",
        )
    except KeyError:
        raise StorageError(f"{path} belongs to nobody who has a name") from None


def ids_of(owner: Owner) -> tuple[int, int]:
    """`ConfigError` when this host does not have them."""
    try:
        return pwd.getpwnam(owner.user).pw_uid, grp.getgrnam(owner.group).gr_gid
    except KeyError as error:
        raise ConfigError(
            f"this host has no user or group {error.args[0]}",
            hint="is it the configuration of the host that the backup is of?",
        ) from None


def take(name: str, folder: int, uid: int | None = None) -> BinaryIO:
    """A regular file of a folder, to be read; with `uid`, of that user alone."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or uid not in {None, found.st_uid}:
        os.close(descriptor)
        raise StorageError(f"{name} is not what it should be", hint="who put it there?")
    return os.fdopen(descriptor, "rb")


def keep(source: BinaryIO, target: Path, owner: Owner, most: int = ALL) -> File:
    """Writes the first `most` bytes into the backup, durably."""
    digest, size = hashlib.sha256(), 0
    with _faults(target), target.open("xb") as file:
        while chunk := source.read(min(CHUNK_BYTES, most - size)):
            digest.update(chunk)
            size += file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    return File(bytes=size, sha256=digest.hexdigest(), **owner.model_dump())


def put(source: Path, name: str, folder: int, owner: Owner) -> None:
    """Writes a file of the backup into a folder: whole, in place of what has the name."""
    uid, gid = ids_of(owner)
    partial = f".{name}.partial"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(partial, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        _faults(source),
        source.open("rb") as content,
        os.fdopen(os.open(partial, flags, 0o600, dir_fd=folder), "wb") as file,
    ):
        while chunk := content.read(CHUNK_BYTES):
            file.write(chunk)
        file.flush()
        os.fchown(file.fileno(), uid, gid)
        os.fchmod(file.fileno(), int(owner.mode, 8))
        os.fsync(file.fileno())
    os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def made(folder: Path, owner: Owner) -> None:
    """Makes a folder as it was; what is above and missing is root's, as systemd makes it."""
    with _faults(folder):
        folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(folder, FOLDER_FLAGS)
        try:
            os.fchown(descriptor, *ids_of(owner))
            os.fchmod(descriptor, int(owner.mode, 8))
        finally:
            os.close(descriptor)
        manifest.sync(folder.parent)


def listed(folder: Path) -> list[str]:
    """The names in it; none when it is not there."""
    with _faults(folder):
        try:
            return sorted(one.name for one in folder.iterdir())
        except FileNotFoundError:
            return []


def unlink(name: str, folder: int) -> None:
    """Whether it is there or not."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


@contextlib.contextmanager
def _faults(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else path
        text = f"{path}: {error.strerror} ({where})"
        raise StorageError(text, ids={"path": str(path)}) from error
