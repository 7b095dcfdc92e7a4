"""Whether a message costs more in a large ledger than in a small one."""

import asyncio
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from corral.core.sqlfiles import load_sql
from corral.core.sqlite import SqliteWriter, migrations
from corral.cowboy.store import APPLICATION_ID, Rows, SourceLedger, open_ledger
from tests.bench.contenders import COWBOY
from tests.bench.figures import Run, backlog
from tests.bench.loops import GROUP
from tests.bench.stand import AGENT, SOURCE, Stand, message

Progress = Callable[[str], None]

SMALL = 1_000
SQL = load_sql("tests.bench", "growth.sql")
AGE_MS = 3_600_000  # an hour: younger than any retention


def _grow(conn: sqlite3.Connection, count: int) -> str:
    """Fill the ledger with finished turns; its uuid."""
    now_ms = time.time_ns() // 1_000_000
    first_ms = now_ms - AGE_MS - count
    identity = open_ledger(conn, AGENT, now_ms)
    ledger = SourceLedger(SOURCE, Rows())
    ledger.use(conn)
    source = ledger.attach().source_id
    conn.create_function("unhex_ms", 1, lambda ms: int(ms).to_bytes(8, "big") + bytes(8))
    values = {"count": count, "source": source, "first_ms": first_ms, "now_ms": now_ms}
    conn.execute(SQL["grow"], values)
    last = (first_ms + count).to_bytes(8, "big") + bytes(8)
    conn.execute(SQL["stand_behind"], {"source": source, "last": last})
    return identity.uuid


async def _fill(writer: SqliteWriter, count: int) -> str:
    async with writer:
        return await writer.submit(lambda conn: _grow(conn, count))


@dataclass(frozen=True)
class Grown:
    """A ledger that was filled once; each run works on a copy."""

    path: Path
    uuid: str

    @classmethod
    def make(cls, folder: Path, turns: int) -> Self:
        path = folder / f"{turns}.db"
        writer = SqliteWriter(
            path, application_id=APPLICATION_ID, migrations=migrations("corral.cowboy")
        )
        return cls(path, asyncio.run(_fill(writer, turns)))

    def run(self, messages: int, *, named: bool) -> Run:
        """A backlog through the copy; `named` messages have a producer's id to look up."""
        with Stand() as stand:
            ledger = stand.topology.ledger(AGENT)
            ledger.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            shutil.copyfile(self.path, ledger)
            ledger.chmod(0o600)
            stand.client.hset(
                f"{AGENT}:{SOURCE}:ledger",
                mapping={"uuid": self.uuid, "sequence": 1, "incarnation": 1},
            )
            stand.client.xgroup_create(stand.inbox, GROUP, "0", mkstream=True)
            stand.fill([message(number, named=named) for number in range(messages)])
            return backlog(COWBOY, stand, messages)


def compare(turns: int, messages: int, rounds: int, progress: Progress) -> dict[str, Any]:
    """CPU time per message in both, for messages without and with a producer's id."""
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as folder:
        small, large = (Grown.make(Path(folder), count) for count in (SMALL, turns))
        progress(f"ledgers of {SMALL:,} and {turns:,} turns are made")
        found: dict[str, Any] = {
            "turns": turns,
            "file_mib": large.path.stat().st_size / 1024**2,
        }
        for kind, named in (("plain", False), ("named", True)):
            pairs: list[tuple[Run, Run]] = []
            for number in range(1, rounds + 1):
                pairs.append((small.run(messages, named=named), large.run(messages, named=named)))
                us = [round(one.cpu_us, 1) for one in pairs[-1]]
                progress(f"round {number}, {kind}: {us[0]} and {us[1]} µs a message")
            found[kind] = _summary(pairs)
    return found


def _summary(pairs: Sequence[tuple[Run, Run]]) -> dict[str, float]:
    """The middle of the ratios within rounds."""
    return {
        "small_cpu_us": statistics.median(one.cpu_us for one, _ in pairs),
        "large_cpu_us": statistics.median(one.cpu_us for _, one in pairs),
        "ratio": statistics.median(b.cpu_us / a.cpu_us for a, b in pairs),
        "ratio_of_time": statistics.median(a.per_s / b.per_s for a, b in pairs),
    }
