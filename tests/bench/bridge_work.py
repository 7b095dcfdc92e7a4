"""What is done with jobs: memory while a queue is full, its drain, and the time after a kill."""

import statistics
import time
from typing import Any

from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Target
from corral.bridge.domain import Limits
from corral.bridge.incoming import Mention
from corral.local import wait
from corral.local.wait import at
from tests.bench.bridge_stand import (
    AGENT,
    CONCURRENCY,
    QUEUE,
    ROOMS,
    SERVER_NAME,
    SQL,
    START_S,
    BridgeStand,
    Line,
    body,
    event,
)
from tests.contract.bridge.kit import incoming, mention

WORK_S = 300.0
LOOK_EVERY_S = 0.005
TRANSACTION = 64
KILL_AFTER = 0.15  # of the queue is done when the kill comes


async def resident_when_full() -> dict[str, float]:
    """Bytes of the bridge with as many open jobs as it takes, of which the most are in work."""
    async with BridgeStand() as stand:
        stand.start()
        idle = stand.bridge.usage().resident_bytes
        line = Line(stand.port)
        for first in range(0, QUEUE, TRANSACTION):
            numbers = range(first, first + TRANSACTION)
            given = [event("full/", number, "slow 86400 done") for number in numbers]
            line.put(f"full-{first}", body(given))
        line.close()

        async def at_work() -> bool:
            counts = await stand.counts()
            return (counts["open"], counts["leased"]) == (QUEUE, CONCURRENCY)

        await wait.until_async(at_work, START_S, f"{QUEUE} open jobs")
        await at(time.monotonic() + 2.0)  # a few polls
        usage = stand.bridge.usage()
    return {"idle": idle, "resident": usage.resident_bytes, "peak": usage.peak_bytes}


def queued(name: str, count: int) -> list[Mention]:
    return [
        mention(
            f"{name}-{number}", room=f"!room{number % ROOMS}:{SERVER_NAME}", ghost=AGENT,
            text=f"answer {number}",
        )
        for number in range(count)
    ]  # fmt: skip


async def admit(target: Target, name: str, count: int) -> list[str]:
    """Jobs for a bridge that is not running; their events."""
    admission = LedgerAdmission(target, Limits())
    jobs = queued(name, count)
    try:
        for first in range(0, count, TRANSACTION):
            part = jobs[first : first + TRANSACTION]
            await admission.admit(incoming(f"{name}-{first}", *part))
    finally:
        await admission.close()
    return [one.event_id for one in jobs]


async def drain(rounds: int, *, jobs: int = QUEUE) -> dict[str, float]:
    """Jobs per second through a full queue, by the database's clock, without the first tenth."""
    rates, spent = [], []
    async with BridgeStand() as stand:
        for number in range(rounds):
            events = await admit(stand.target, f"drain{number}", jobs)
            stand.bridge.start()
            await _nothing_open(stand)
            times = [row["at"] for row in await stand.sql.fetch(SQL["end_times"], events)]
            spent.append(stand.bridge.usage().cpu_s)
            stand.bridge.kill()
            rates.append(rate(times))
    return {
        "jobs_per_s": statistics.median(rates),
        "worst": min(rates),
        "cpu_ms_per_job": statistics.median(spent) / jobs * 1000,  # the start is in it
    }


def rate(times: list[float]) -> float:
    """Of events at these seconds, in order; the first tenth is warm-up."""
    first = len(times) // 10
    return (len(times) - first - 1) / max(times[-1] - times[first], 1e-6)


async def _nothing_open(stand: BridgeStand) -> None:
    async def over() -> bool:
        stand.bridge.must_run()
        return (await stand.counts())["open"] == 0

    await wait.until_async(over, WORK_S, "every job to end")


async def after_a_kill(kills: int, *, jobs: int = QUEUE) -> dict[str, float]:
    """Seconds from SIGKILL in the midst of a queue to the next job that ends, and to when the new
    process has every job that the old one held. Restarted at once."""
    took, taken, spent = [], [], []
    async with BridgeStand() as stand:
        for number in range(kills):
            await stand.sql.execute(SQL["forget"])
            await admit(stand.target, f"kill{number}", jobs)
            stand.bridge.start()
            await _ended(stand, int(jobs * KILL_AFTER))
            stand.bridge.kill()
            began = time.perf_counter()
            before = await stand.sql.fetchval(SQL["ended"])
            owners = [row["lease_owner"] for row in await stand.sql.fetch(SQL["owners"])]
            stand.bridge.start()
            next_s, all_s = await _resumed(stand, before, owners, began)
            took.append(next_s)
            taken.append(all_s)
            spent.append(stand.bridge.usage().cpu_s)
            await _nothing_open(stand)
            stand.bridge.kill()
    return {
        "median": statistics.median(took),
        "max": max(took),
        "all_taken_median": statistics.median(taken),
        "all_taken_max": max(taken),
        "cpu_median": statistics.median(spent),
    }


async def _ended(stand: BridgeStand, count: int) -> None:
    async def enough() -> bool:
        stand.bridge.must_run()
        return bool(await stand.sql.fetchval(SQL["ended"]) >= count)

    await wait.until_async(enough, WORK_S, f"{count} jobs to end")


async def _resumed(
    stand: BridgeStand, before: int, owners: list[str], began: float
) -> tuple[float, float]:
    next_s = all_s = 0.0
    while not (next_s and all_s):
        stand.bridge.must_run()
        ended: Any = await stand.sql.fetchval(SQL["ended"])
        owned: Any = await stand.sql.fetchval(SQL["still_owned"], owners)
        now = time.perf_counter() - began
        next_s = next_s or (now if ended > before else 0.0)
        all_s = all_s or (now if owned == 0 else 0.0)
        await at(time.monotonic() + LOOK_EVERY_S)
    return next_s, all_s
