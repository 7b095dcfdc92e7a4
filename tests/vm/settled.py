"""Machines that have booted already: frozen once everything is up, started again in a second.

A frozen machine is its disk, its memory and what it said so far, for one image, one payload and
one way of running. Most scenarios begin with all services up; waiting for that each time would
take longer than they do.
"""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.vm.cache import locked
from tests.vm.image import HERE
from tests.vm.qemu import Hardware

KEPT_MAX = 4
SOURCES = ("qemu.py", "machine.py", "settled.py")


@dataclass(frozen=True)
class Settled:
    """A frozen machine: its disk (an overlay over the image), memory and serial log."""

    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "disk.qcow2"

    @property
    def memory(self) -> Path:
        return self.folder / "memory"

    @property
    def serial(self) -> Path:
        return self.folder / "serial.log"


def settled(hardware: Hardware, cache: Path, make: Callable[[Path], None]) -> Settled:
    """The frozen machine of this hardware. `make` boots and freezes one into an empty folder."""
    found = Settled(cache / f"settled-{_key(hardware)}")
    with locked(found.folder.with_suffix(".lock")):
        if not found.memory.exists():
            work = found.folder.with_suffix(".new")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            make(work)
            shutil.rmtree(found.folder, ignore_errors=True)
            work.rename(found.folder)
        os.utime(found.folder)
        _forget_old(cache)
    return found


def _key(hardware: Hardware) -> str:
    version = subprocess.run(["qemu-system-x86_64", "--version"], capture_output=True, check=True)
    digest = hashlib.sha256(version.stdout)
    digest.update(f"{hardware.accel} {hardware.image.folder}".encode())
    digest.update(hardware.initrd.read_bytes())
    for name in SOURCES:
        digest.update((HERE / name).read_bytes())
    return digest.hexdigest()[:16]


def _forget_old(cache: Path) -> None:
    """Each takes some hundred megabytes: only the last few are kept."""
    folders = [path for path in cache.glob("settled-*") if path.is_dir() and not path.suffix]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime)[:-KEPT_MAX]:
        shutil.rmtree(folder, ignore_errors=True)
