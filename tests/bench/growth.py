"""Whether a message costs more in a large ledger than in a small one."""

import asyncio
import sqlite3
import statistics
import time
from collections.abc import Callable

from corral.core.sqlfiles import load_sql
from corral.core.sqlite import SqliteWriter, migrations
from corral.cowboy.store import APPLICATION_ID, Rows, SourceLedger, open_ledger
from tests.bench.contenders import COWBOY
from tests.bench.figures import Run, backlog
from tests.bench.stand import AGENT, SOURCE, Stand, message

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


async def _make(stand: Stand, count: int) -> str:
    path = stand.topology.ledger(AGENT)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    writer = SqliteWriter(
        path, application_id=APPLICATION_ID, migrations=migrations("corral.cowboy")
    )
    async with writer:
        return await writer.submit(lambda conn: _grow(conn, count))


def run(turns: int, messages: int) -> Run:
    """A backlog through a ledger that has so many finished turns. Producers' ids in all."""
    with Stand() as stand:
        uuid = asyncio.run(_make(stand, turns))
        source = f"{AGENT}:{SOURCE}"
        stand.client.hset(
            f"{source}:ledger", mapping={"uuid": uuid, "sequence": 1, "incarnation": 1}
        )
        stand.client.xgroup_create(stand.inbox, "cowboy", "0", mkstream=True)
        stand.fill([message(number, named=True) for number in range(messages)])
        return backlog(COWBOY, stand, messages)


def compare(
    turns: int, messages: int, rounds: int, progress: Callable[[str], None]
) -> dict[str, float]:
    """CPU time per message in both, and the middle of the ratios within rounds."""
    small, large = [], []
    for number in range(1, rounds + 1):
        small.append(run(SMALL, messages))
        large.append(run(turns, messages))
        progress(f"round {number}: {small[-1].cpu_us:.1f} and {large[-1].cpu_us:.1f} µs a message")
    pairs = list(zip(small, large, strict=True))
    return {
        "turns": turns,
        "small_cpu_us": statistics.median(one.cpu_us for one in small),
        "large_cpu_us": statistics.median(one.cpu_us for one in large),
        "ratio": statistics.median(b.cpu_us / a.cpu_us for a, b in pairs),
        "ratio_of_time": statistics.median(a.per_s / b.per_s for a, b in pairs),
    }
