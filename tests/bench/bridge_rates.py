"""Admission: durable events per second, beside what stores nothing and what only inserts."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import asyncpg

from corral.bridge import events, identities
from corral.bridge.incoming import Mention
from corral.bridge.mentions import Ghosts
from corral.core.errors import UnavailableError
from corral.core.sqlfiles import load_sql
from corral.local import wait
from corral.local.synapse import free_port
from corral.local.topology import base_environment
from tests.bench.bridge_stand import (
    AGENT,
    CONCURRENCY,
    HS_TOKEN,
    QUEUE,
    SERVER_NAME,
    SQL,
    START_S,
    BridgeStand,
    Line,
    body,
    event,
)
from tests.bench.process import Process

SIZES = (1, 100)  # events of a transaction
STEP_EVENTS = QUEUE - CONCURRENCY - 40  # admitted before what waits is cleared
FEWER = {1: 1, 100: 10}  # transactions: so many times fewer
BRIDGE, PEER, BARE, ROWS = "bridge", "plain mautrix", "bare insert", "bare, bridge's tables"
ADMIT = load_sql("corral.bridge", "sql/intake.sql")["admit"]
USERS = events.Users(Ghosts.of(SERVER_NAME, {AGENT: AGENT}), frozenset([f"@{AGENT}:{SERVER_NAME}"]))

Progress = Callable[[str], None]
Rounds = list[dict[str, dict[str, dict[str, float]]]]  # contender, size, figure


def summed(took: Sequence[float], size: int, cpu_s: float = 0.0) -> dict[str, float]:
    """Figures of transactions of one size; the first tenth is warm-up."""
    counted = took[len(took) // 10 :]
    cuts = statistics.quantiles(counted, n=100, method="inclusive")
    return {
        "transactions_per_s": len(counted) / sum(counted),
        "events_per_s": len(counted) * size / sum(counted),
        "p50_ms": cuts[49] * 1000,
        "p99_ms": cuts[98] * 1000,
        "max_ms": max(counted) * 1000,
        "cpu_us": cpu_s / len(took) * 1e6,
    }


def batches(name: str, size: int, transactions: int) -> list[list[dict[str, Any]]]:
    return [
        [event(f"{name}/", number * size + place, "hello") for place in range(size)]
        for number in range(transactions)
    ]


class Peer:
    """The appservice that stores nothing."""

    def __init__(self, stand: BridgeStand) -> None:
        self.port = free_port()
        argv = [sys.executable, "-P", "-m", "tests.bench.bridge_peer", str(self.port), HS_TOKEN]
        self.process = Process(argv, base_environment(), stand.base / "peer.log")

    def start(self) -> None:
        self.process.start()

        def answers() -> bool:
            self.process.must_run()
            return listens(self.port)

        wait.until(answers, START_S, "the plain appservice")


def listens(port: int) -> bool:
    try:
        Line(port).close()
    except OSError:
        return False
    return True


async def busy(stand: BridgeStand) -> None:
    """As many jobs in work as may be, for as long as it takes: nobody claims what is measured."""
    given = [event("busy/", number, "hold on") for number in range(CONCURRENCY)]
    line = Line(stand.port)
    line.put("busy", body(given))
    line.close()

    async def at_work() -> bool:
        return (await stand.counts())["leased"] == CONCURRENCY

    await wait.until_async(at_work, START_S, "the jobs that are in work")


async def put_all(
    stand: BridgeStand, process: Process, port: int, name: str, size: int, transactions: int
) -> dict[str, float]:
    """Over one connection, in steps of what a queue holds; between them it is emptied."""
    contents = [body(one) for one in batches(name, size, transactions)]
    step = max(STEP_EVENTS // size, 1)
    line, took = Line(port), list[float]()
    before = process.usage().cpu_s
    for at in range(0, transactions, step):
        numbers = range(at, min(at + step, transactions))
        took += [line.put(f"{name}-{number}", contents[number]) for number in numbers]
        await stand.sql.execute(SQL["clear"])
    spent = process.usage().cpu_s - before
    line.close()
    return summed(took, size, spent)


def rows_of(made: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What the bridge's statement gets for these events."""
    found = []
    for one in events.classify(made, USERS):
        if not isinstance(one, Mention):
            raise UnavailableError("an event of the benchmark is no mention")
        job = identities.job(one.event_id, one.ghost)
        found.append((
            job, one.event_id, one.room_id, one.ghost, one.sender, None, None, one.text,
            identities.message(job), None, identities.seen(one.event_id, one.ghost),
        ))  # fmt: skip
    return found


async def insert_all(
    connection: Any, name: str, size: int, transactions: int, *, ours: bool
) -> dict[str, float]:
    """In a transaction each, on a kept connection: into one plain table, or the bridge's own."""
    given = batches(name, size, transactions)
    columns = [[list(column) for column in zip(*rows_of(one), strict=True)] for one in given]
    digests = [
        (f"{name}-{number}", 0, digested[0].digest, [d.event_id for d in digested],
         [d.digest for d in digested])
        for number, digested in enumerate(map(events.digests, given))
    ]  # fmt: skip
    took, step = [], max(STEP_EVENTS // size, 1)
    before = await connection.fetchval(SQL["admissions"]) if ours else 0
    for number in range(transactions):
        began = time.perf_counter()
        async with connection.transaction():
            if ours:
                known = before + number
                await connection.fetchrow(ADMIT, known, *digests[number], *columns[number])
            elif size == 1:
                await connection.execute(
                    SQL["bare_one"], *(column[0] for column in columns[number])
                )
            else:
                await connection.execute(SQL["bare_many"], *columns[number])
        took.append(time.perf_counter() - began)
        if ours and number % step == step - 1:
            await connection.execute(SQL["clear"])
    return summed(took, size)


async def one_round(
    stand: BridgeStand, peer: Peer, bare: Any, number: int, transactions: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Every contender with every size."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for size in SIZES:
        count = max(transactions // FEWER[size], 20)
        name = f"round{number}size{size}"
        runs = {
            BARE: await insert_all(bare, name, size, count, ours=False),
            ROWS: await insert_all(bare, f"rows{name}", size, count, ours=True),
            PEER: await put_all(stand, peer.process, peer.port, name, size, count),
            BRIDGE: await put_all(stand, stand.bridge, stand.port, name, size, count),
        }
        for contender, run in runs.items():
            found.setdefault(contender, {})[str(size)] = run
    return found


async def throughput(
    stand: BridgeStand, transactions: int, rounds: int, progress: Progress
) -> dict[str, Any]:
    """The middle of the rounds, the ratios within them, and the memory of the bridge then."""
    await stand.make("make_bare_database", stand.bare)
    bare = await asyncpg.connect(stand.bare.dsn)
    await bare.execute(SQL["make_bare"])
    peer, found = Peer(stand), []
    try:
        peer.start()
        await busy(stand)
        before = (await stand.counts())["jobs"]
        for number in range(1, rounds + 1):
            found.append(await one_round(stand, peer, bare, number, transactions))
            progress(f"round {number}: {told(found[-1])}")
    finally:
        peer.process.kill()
        bare.terminate()
    sent = rounds * sum(max(transactions // FEWER[size], 20) * size for size in SIZES)
    counts = await stand.counts()
    if counts["denied"] or counts["jobs"] - before != sent:
        raise UnavailableError(f"{sent} mentions were acknowledged, the ledger has {counts}")
    return {
        "contenders": middle(found),
        "ratios": ratios(found),
        "peak_bytes": stand.bridge.usage().peak_bytes,
    }


def told(found: dict[str, dict[str, dict[str, float]]]) -> str:
    return "; ".join(
        f"{name} " + ", ".join(f"{run['transactions_per_s']:,.0f}" for run in runs.values())
        for name, runs in found.items()
    )


def middle(rounds: Rounds) -> dict[str, dict[str, dict[str, float]]]:
    """Of each figure, by contender and size."""
    return {
        name: {
            size: {
                figure: statistics.median(found[name][size][figure] for found in rounds)
                for figure in run
            }
            for size, run in runs.items()
        }
        for name, runs in rounds[0].items()
    }


def ratios(rounds: Rounds) -> dict[str, float]:
    """The bridge's transactions per second over each other's, the middle of the rounds."""
    return {
        f"{size} of {name}": statistics.median(
            found[BRIDGE][size]["transactions_per_s"] / found[name][size]["transactions_per_s"]
            for found in rounds
        )
        for size in rounds[0][BRIDGE]
        for name in (BARE, ROWS, PEER)
    }
