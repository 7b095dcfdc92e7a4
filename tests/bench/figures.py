"""What is measured: a run of messages, a pace, a disk; and how numbers are summed up."""

import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.contenders import Contender
from tests.bench.stand import CHANNELS, Stand, milliseconds, usage

RUN_TIMEOUT_S = 180
WARM_UP_SHARE = 10  # the first tenth of the answers is not counted
DISK_PROBE_S = 0.5
SQL = Path(__file__).with_name("disk.sql")


@dataclass(frozen=True)
class Run:
    """One contender's way through a backlog, by the answers after the warm-up."""

    per_s: float
    cpu_us: float  # user and system, per message
    server_cpu_us: float
    resident_bytes: int
    peak_bytes: int


def backlog(contender: Contender, stand: Stand, count: int) -> Run:
    """Let a contender answer what is in the inbox. UnavailableError when it does not."""
    warm = count // WARM_UP_SHARE
    with contender.running(stand) as process:
        stand.await_length(warm, RUN_TIMEOUT_S)
        length, own, server = stand.length(), usage(process.pid), usage(stand.server.pid)
        stand.await_length(count, RUN_TIMEOUT_S)
        own_end, server_end = usage(process.pid), usage(stand.server.pid)
        times = [milliseconds(entry) for entry, _ in stand.answers()]
    measured = max(count - length, 1)
    return Run(
        per_s=(count - warm) * 1000 / max(times[count - 1] - times[warm], 1),
        cpu_us=(own_end.cpu_s - own.cpu_s) / measured * 1e6,
        server_cpu_us=(server_end.cpu_s - server.cpu_s) / measured * 1e6,
        resident_bytes=own_end.resident_bytes,
        peak_bytes=own_end.peak_bytes,
    )


def fresh_backlog(contender: Contender, count: int, *, channels: int = CHANNELS) -> Run:
    """The same on a server and a ledger of its own."""
    with Stand() as stand:
        contender.fill(stand, count, channels=channels)
        return backlog(contender, stand, count)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The middle, the tail and the worst. ValueError when there are fewer than two values."""
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(values)}


def disk() -> dict[str, float]:
    """What the disk of the temporary directory gives: flushes and SQLite commits per second."""
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as folder:
        file = os.open(Path(folder) / "flushed", os.O_WRONLY | os.O_CREAT, 0o600)
        try:

            def flush() -> None:
                os.write(file, b"x" * 512)
                os.fsync(file)

            flushes = _per_s(flush)
        finally:
            os.close(file)
        conn = sqlite3.connect(Path(folder) / "committed", isolation_level=None)
        try:
            *setup, insert = SQL.read_text().strip().split(";\n")
            for statement in setup:
                conn.execute(statement)
            commits = _per_s(lambda: conn.execute(insert))
        finally:
            conn.close()
    return {"append_and_fsync_per_s": flushes, "sqlite_full_commits_per_s": commits}


def _per_s(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    count = 0
    while (took := time.perf_counter() - began) < DISK_PROBE_S:
        action()
        count += 1
    return count / took
