"""Records of runs on disk, so that the next runner process can end what this one started.

One JSON file per run in ``runs/``, replaced atomically. Nothing is flushed to the disk: a record
must outlive this process, not the machine. After another boot no run is left, and the boot id in
the record says so. Each operation takes some ten microseconds, so it runs in the event loop.
"""

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from corral.core.errors import StorageError

_TEMPORARY = ".new"
_NUMBERS = ("attempt", "pid", "start_ticks", "pgid")


class RecordPhase(StrEnum):
    """``prepared``: at the barrier, nothing executed. ``went``: it may have been told to go."""

    PREPARED = "prepared"
    WENT = "went"


class RunRecord(NamedTuple):
    """``pid`` 0 means a run without a process. ``cgroup`` is an absolute path."""

    turn: str
    attempt: int
    pid: int
    start_ticks: int
    pgid: int
    token: str
    cgroup: str | None
    boot: str
    phase: RecordPhase

    @property
    def file_name(self) -> str:
        return f"{self.turn}.{self.attempt}.json"

    def at(self, phase: RecordPhase) -> "RunRecord":
        return self._replace(phase=phase)


class RecordStore:
    """The directory of records. One runner process uses it at a time (its lock sees to that)."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self) -> None:
        """Creates the directory, and drops records that were never answered for."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in self._directory.glob(f"*{_TEMPORARY}"):
                left.unlink()
        except OSError as error:
            raise self._failed(error) from error

    def save(self, record: RunRecord) -> None:
        """Replaces the run's record. Raises `OSError`; the former record is then untouched."""
        target = f"{self._directory}/{record.file_name}"
        temporary = target + _TEMPORARY
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o600)
            try:
                _write_all(fd, json.dumps(record._asdict()).encode())
            finally:
                os.close(fd)
            os.replace(temporary, target)  # noqa: PTH105  paths as text: twice per run
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise

    def remove(self, record: RunRecord) -> None:
        (self._directory / record.file_name).unlink(missing_ok=True)

    def load(self) -> list[RunRecord]:
        """Every record. Raises `StorageError` for one that cannot be read.

        An empty file is what a power failure leaves of one: its run is gone with that boot.
        """
        try:
            texts = {path: path.read_bytes() for path in self._directory.glob("*.json")}
        except OSError as error:
            raise self._failed(error) from error
        for path, text in texts.items():
            if not text:
                path.unlink()
        return [_parse(path, text) for path, text in sorted(texts.items()) if text]

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"{self._directory}: {error.strerror}")


def _write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _parse(path: Path, text: bytes) -> RunRecord:
    try:
        loaded = json.loads(text)
        values = {name: loaded[name] for name in RunRecord._fields}
        if any(not isinstance(values[name], int) for name in _NUMBERS):
            raise TypeError("expected numbers")
        return RunRecord(**{**values, "phase": RecordPhase(values["phase"])})
    except (ValueError, TypeError, KeyError) as error:
        raise StorageError(
            f"{path} is not a record of a run",
            hint="remove it after the run's processes are gone (or after a reboot), then start",
        ) from error
