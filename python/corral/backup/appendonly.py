"""Redis' append-only files, as they are at one moment, while Redis writes.

Its manifest names the files that count: one that Redis made when it rewrote its log, and what was
appended since. Nothing of them changes but the end of the last one, so the moment is their sizes;
the copy of it may be made later. A rewrite removes files, but not from whoever has them open.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from corral.backup import disk
from corral.backup.manifest import now
from corral.core.errors import StorageError

MANIFEST: Final = ".manifest"
UNFINISHED: Final = "temp"
TRIES: Final = 20
COUNTED: Final = {"b", "i"}  # a base, and what was appended; the rest is to be removed


@dataclass(frozen=True)
class Moment:
    """`sizes` by name; equal ones mean that nothing was written between."""

    name: str
    manifest: bytes
    sizes: Mapping[str, int]
    files: Mapping[str, BinaryIO] = field(compare=False)
    at: str = field(compare=False, default_factory=now)


def at_this_moment(folder: Path, held: contextlib.ExitStack) -> Moment:
    """What counts now; its files are open as long as `held` is."""
    for _ in range(TRIES):
        with disk.opened(folder) as place, contextlib.ExitStack() as trying:
            name = _manifest(folder)
            try:
                text = _read(name, place)
                files = {one: trying.enter_context(disk.take(one, place)) for one in counted(text)}
            except FileNotFoundError:
                continue  # a rewrite removed one meanwhile
            sizes = {one: os.fstat(file.fileno()).st_size for one, file in files.items()}
            if text == _read(name, place):
                held.enter_context(trying.pop_all())
                return Moment(name, manifest_of(text), sizes, files)
    raise StorageError(f"{folder}: it changes all the time", hint="try again")


def counted(manifest: bytes) -> list[str]:
    """The names of the files that count, in order. Pure."""
    rows = [_row(line) for line in manifest.decode("utf-8", "replace").splitlines()]
    return [row["file"] for row in rows if row.get("type") in COUNTED and _is_name(row["file"])]


def manifest_of(manifest: bytes) -> bytes:
    """It, without the files that do not count: they are in no copy. Pure."""
    lines = manifest.decode("utf-8", "replace").splitlines(keepends=True)
    return "".join(line for line in lines if _row(line).get("type") in COUNTED).encode()


def _row(line: str) -> dict[str, str]:
    words = line.split()
    return dict(zip(words[::2], words[1::2], strict=False))


def _is_name(text: str) -> bool:
    return "/" not in text and not text.startswith(".")


def _read(name: str, folder: int) -> bytes:
    with disk.take(name, folder) as file:
        return file.read()


def _manifest(folder: Path) -> str:
    found = [one for one in disk.listed(folder) if one.endswith(MANIFEST)]
    found = [one for one in found if not one.startswith(UNFINISHED)]
    if len(found) != 1:
        raise StorageError(
            f"{folder}: Redis has no append-only files there",
            hint="Redis 7 or later with appendonly yes has: is it running?",
        )
    return found[0]
