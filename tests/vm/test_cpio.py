"""The archives are read back by another program."""

import stat
import subprocess
from pathlib import Path

import pytest

from tests.vm.cpio import Archive


def unpacked(packed: bytes, folder: Path) -> Path:
    argv = ["busybox", "cpio", "-i", "-d", "-m"]
    subprocess.run(argv, input=packed, cwd=folder, check=True, capture_output=True)
    return folder


def test_members_come_back(tmp_path: Path) -> None:
    archive = Archive()
    archive.file("a/b/file", b"text\n", mode=0o640)
    archive.file("a/empty", b"")
    archive.directory("a/closed", mode=0o700)
    archive.link("a/link", "b/file")
    root = unpacked(archive.pack(), tmp_path)
    assert (root / "a/link").read_bytes() == b"text\n"
    assert stat.S_IMODE((root / "a/b/file").stat().st_mode) == 0o640
    assert stat.S_IMODE((root / "a/closed").stat().st_mode) == 0o700
    assert (root / "a/empty").read_bytes() == b""


@pytest.mark.parametrize("length", range(5))
def test_any_length_is_padded(tmp_path: Path, length: int) -> None:
    archive = Archive()
    archive.file("one", b"x" * length)
    archive.file("two", b"y")
    root = unpacked(archive.pack(), tmp_path)
    assert ((root / "one").read_bytes(), (root / "two").read_bytes()) == (b"x" * length, b"y")


def test_the_last_of_a_name_counts(tmp_path: Path) -> None:
    archive = Archive()
    archive.file("one", b"old")
    archive.file("one", b"new")
    assert (unpacked(archive.pack(), tmp_path) / "one").read_bytes() == b"new"


@pytest.mark.parametrize("path", ["/etc/passwd", "a/../../b"])
def test_a_path_outside_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="not a path below the root"):
        Archive().file(path, b"")
