"""A cgroup of its own for each run, where the machine lets us (cgroup v2, delegated).

A run's cgroup is a child of the runner's own. No controller is enabled in it, so the rule that
inner cgroups hold no processes does not apply and the runner stays where it is.
"""

import contextlib
import errno
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

_GONE = frozenset({errno.ENOENT, errno.ENODEV})  # ENODEV: removed while the file was open
NAME_PREFIX = "corral-"
SWEEP_AGE_S = 60.0
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class CgroupMount:
    """Where the cgroup v2 hierarchy is mounted, and which part of it (``root``)."""

    root: str
    point: str


def mounts(mountinfo: str) -> list[CgroupMount]:
    """The cgroup v2 mounts in the text of /proc/self/mountinfo (proc(5))."""
    found = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right.split(" ")[0] == "cgroup2":
            fields = left.split(" ")
            found.append(CgroupMount(_unescaped(fields[3]), _unescaped(fields[4])))
    return found


def own_directory(self_cgroup: str, mountinfo: str) -> Path | None:
    """This process's directory, from the texts of /proc/self/cgroup and /proc/self/mountinfo.

    None when there is no cgroup v2, or when its own cgroup is outside of what is mounted.
    """
    paths = [line.removeprefix("0::") for line in self_cgroup.splitlines() if line[:3] == "0::"]
    for mount in mounts(mountinfo):
        for path in paths:
            base = mount.root.rstrip("/")
            if ".." not in path.split("/") and f"{path}/".startswith(f"{base}/"):
                return Path(mount.point + path.removeprefix(base).rstrip("/"))
    return None


class CgroupRoot:
    """The runner's own cgroup directory, in which runs get theirs.

    Names begin with ``prefix``, which must be of this deployment only: everything under it is
    killed when a runner starts.
    """

    def __init__(self, directory: Path, prefix: str) -> None:
        self._directory = directory
        self._prefix = prefix

    @property
    def directory(self) -> Path:
        return self._directory

    def create(self, token: str) -> Path:
        """A new empty cgroup. Raises `OSError`."""
        path = self._directory / f"{self._prefix}{token}"
        path.mkdir()
        return path

    def existing(self) -> list[Path]:
        return sorted(self._directory.glob(f"{self._prefix}*"))

    def sweep(self) -> None:
        """Removes empty cgroups that any deployment left behind (its directory is gone, say).

        A cgroup is empty for a moment when it is new, so only old ones are removed.
        """
        oldest_s = time.time() - SWEEP_AGE_S
        for path in self._directory.glob(f"{NAME_PREFIX}*"):
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < oldest_s and not populated(path):
                    removed(path)

    def probe(self) -> str | None:
        """Why runs cannot have cgroups here; None when they can. Takes a few milliseconds."""
        try:
            path = self.create("probe")
        except FileExistsError:
            path = self._directory / f"{self._prefix}probe"
        except OSError as error:
            return f"{self._directory}: {error.strerror}"
        try:
            if not (path / "cgroup.kill").exists():
                return "the kernel has no cgroup.kill (Linux 5.14)"
            if not _can_join(path):
                return f"{path}: a process cannot be moved into it"
        finally:
            with contextlib.suppress(OSError):
                removed(path)
        return None


def choose(runs: Path) -> tuple[CgroupRoot | None, str]:
    """The cgroup in which runs get theirs, or None; and the reason, for the log."""
    try:
        self_cgroup = Path("/proc/self/cgroup").read_text("utf-8", "surrogateescape")
        mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    except OSError as error:  # a kernel without cgroups
        return None, f"{error.filename}: {error.strerror}"
    directory = own_directory(self_cgroup, mountinfo)
    if directory is None:
        return None, "no cgroup v2 hierarchy is mounted"
    # No two directories that exist at one time share device and inode.
    place = runs.stat()
    root = CgroupRoot(directory, f"{NAME_PREFIX}{place.st_dev:x}-{place.st_ino:x}-")
    refusal = root.probe()
    return (root, str(directory)) if refusal is None else (None, refusal)


def join(path: bytes) -> None:
    """Moves the calling process into the cgroup. Raises `OSError`. Used between fork and exec."""
    fd = os.open(path + b"/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, b"0")
    finally:
        os.close(fd)


def kill(path: Path) -> None:
    """SIGKILLs every process in the cgroup, those forked meanwhile included."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)


def populated(path: Path) -> bool:
    """Whether a living process is in the cgroup or below. One that was removed has none."""
    try:
        events = (path / "cgroup.events").read_text("ascii")
    except OSError as error:
        if error.errno in _GONE:
            return False
        raise
    return "populated 0" not in events.splitlines()


def names_of(pid: int) -> frozenset[str]:
    """The names of the v2 cgroup that a process is in and of those above; empty when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text("utf-8", "surrogateescape").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return frozenset()
    return frozenset(name for line in lines if line[:3] == "0::" for name in line[3:].split("/"))


def removed(path: Path) -> bool:
    """Removes an empty cgroup and those that its run made below; false when one is in use."""
    try:
        for directory, _, _ in os.walk(path, topdown=False):
            os.rmdir(directory)  # noqa: PTH106
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno == errno.EBUSY:
            return False
        raise
    return True


def _can_join(path: Path) -> bool:
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(BaseException):
            join(os.fsencode(path))
            status = 0
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)
