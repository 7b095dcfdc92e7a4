"""Whether a claim and an admission cost more beside a million jobs that have ended."""

import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import asyncpg

from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Target
from corral.bridge.domain import Limits
from corral.core.sqlfiles import load_sql
from tests.bench.bridge_stand import AGENT, CONCURRENCY, QUEUE, SQL, BridgeStand
from tests.bench.bridge_work import admit
from tests.contract.bridge.kit import incoming, mention

Progress = Callable[[str], None]

WORK = load_sql("corral.bridge", "sql/work.sql")
SMALL = 100
FILL_TIMEOUT_S = 1_200.0
WARM_UP = 20


class Grown:
    """A ledger with `count` ended jobs and a full queue."""

    def __init__(self, target: Target, count: int) -> None:
        self.target = target
        self.count = count
        self.claims: list[float] = []
        self.admissions: list[float] = []
        self.admission = LedgerAdmission(target, Limits(1_000_000, 1_000_000))
        self.sql: Any = None

    async def fill(self) -> None:
        self.sql = await asyncpg.connect(self.target.dsn, server_settings={"jit": "off"})
        for name in ("grow_transactions", "grow_seen", "grow_jobs"):
            await self.sql.execute(SQL[name], self.count, timeout=FILL_TIMEOUT_S)
        await admit(self.target, "open", QUEUE)
        await self.sql.execute(SQL["settle"], timeout=FILL_TIMEOUT_S)

    async def claim(self) -> None:
        """As the coordinator does it: the lock, the statement, the commit."""
        began = time.perf_counter()
        await self.sql.execute(WORK["begin_claim"])
        rows = await self.sql.fetch(
            WORK["claim"], "worker", timedelta(seconds=30), CONCURRENCY, CONCURRENCY, [], []
        )
        await self.sql.execute(WORK["commit"])
        self.claims.append(time.perf_counter() - began)
        assert len(rows) == CONCURRENCY
        await self.sql.execute(SQL["give_back"])

    async def admit_one(self, number: int) -> None:
        """A transaction of one mention; it has ended before the next."""
        given = incoming(f"one-{number}", mention(f"one-{number}", room="!one", ghost=AGENT))
        began = time.perf_counter()
        await self.admission.admit(given)
        self.admissions.append(time.perf_counter() - began)
        await self.sql.execute(SQL["clear_one"])

    async def close(self) -> None:
        await self.admission.close()
        if self.sql is not None:
            self.sql.terminate()


async def compare(
    rows: int, claims: int, progress: Progress, *, small: int = SMALL
) -> dict[str, Any]:
    """The middle of many, one after the other in turn; and their ratios."""
    async with BridgeStand() as stand:
        await stand.make("make_large", stand.large)
        both = [Grown(stand.target, small), Grown(stand.large, rows)]
        try:
            for one in both:
                await one.fill()
            progress(f"ledgers of {small:,} and {rows:,} ended jobs are made")
            for number in range(claims + WARM_UP):
                for one in both:
                    await one.claim()
                    await one.admit_one(number)
            mib = await both[1].sql.fetchval(SQL["size"]) / 1024**2
        finally:
            for one in both:
                await one.close()
    found: dict[str, Any] = {"jobs": rows, "database_mib": mib}
    for name in ("claim", "admission"):
        values = [statistics.median(getattr(one, f"{name}s")[WARM_UP:]) for one in both]
        found |= {f"{name}_ms": values[1] * 1000, f"{name}_ratio": values[1] / values[0]}
    return found
