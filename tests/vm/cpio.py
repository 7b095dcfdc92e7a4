"""Writes cpio archives in the `newc` format, which the kernel unpacks as initial file system.

Several archives may follow one another, so the part that never changes is made once, and the
project's own files are appended to it.
"""

import stat
from dataclasses import dataclass, field

MAGIC = b"070701"
TRAILER = "TRAILER!!!"
ALIGN_BYTES = 4


@dataclass
class Archive:
    """Directories, files and symbolic links; everything belongs to root unless told otherwise."""

    _members: dict[str, bytes] = field(default_factory=dict)

    def directory(self, path: str, mode: int = 0o755, uid: int = 0, gid: int = 0) -> None:
        self._parents(path)
        self._add(path, stat.S_IFDIR | mode, b"", uid, gid)

    def file(self, path: str, data: bytes, mode: int = 0o644, uid: int = 0, gid: int = 0) -> None:
        self._parents(path)
        self._add(path, stat.S_IFREG | mode, data, uid, gid)

    def link(self, path: str, target: str) -> None:
        self._parents(path)
        self._add(path, stat.S_IFLNK | 0o777, target.encode())

    def pack(self) -> bytes:
        """The archive; what was added twice is there once, as it was added last."""
        last = _member(TRAILER, 0, 0, b"", 0, 0)
        return b"".join([*self._members.values(), last])

    def _parents(self, path: str) -> None:
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            parent = "/".join(parts[:depth])
            if parent and parent not in self._members:
                self._add(parent, stat.S_IFDIR | 0o755, b"")

    def _add(self, path: str, mode: int, data: bytes, uid: int = 0, gid: int = 0) -> None:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a path below the root")
        self._members[path] = _member(path, len(self._members) + 1, mode, data, uid, gid)


def _member(path: str, inode: int, mode: int, data: bytes, uid: int, gid: int) -> bytes:
    name = path.encode() + b"\0"
    links, mtime, device = 1, 0, 0
    fields = (
        *(inode, mode, uid, gid, links, mtime, len(data)),
        *(device, device, device, device, len(name), 0),
    )
    header = MAGIC + b"".join(b"%08x" % value for value in fields)
    return _padded(header + name) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % ALIGN_BYTES)
