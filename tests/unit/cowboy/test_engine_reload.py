"""The engine itself, around a reload of its ledger and the loss of a session with Redis.

The other tests here drive the same machine without it; these are about what only it knows.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

import pytest

from corral.core.clock import SystemClock
from corral.core.errors import StorageError
from corral.core.sqlite import SqliteWriter, migrations
from corral.cowboy.book import Orders
from corral.cowboy.domain import Entry, State
from corral.cowboy.engine import Engine
from corral.cowboy.machine import Machine
from corral.cowboy.runner.domain import Finished, RunResult
from corral.cowboy.store import APPLICATION_ID, Rows, open_ledger
from corral.cowboy.tick import Shared
from corral.local.wait import until_true
from tests.unit.cowboy.samples import AGENT, SOURCE, entry_id, source_config

T = TypeVar("T")

MIGRATIONS = migrations("corral.cowboy")
SOON_S = 3.0
ANSWER = RunResult("completed", b"done", "", went=True)


@dataclass
class FailingWriter:
    """A writer whose disk refuses as long as `full` says so."""

    writer: SqliteWriter
    full: bool = False

    async def submit(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        if self.full:
            raise StorageError("the disk is full")
        return await self.writer.submit(fn)


@dataclass
class Bench:
    """An engine at work, and what it told the runner."""

    engine: Engine
    writer: FailingWriter
    prepared: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def heard(self, _: Machine, orders: Orders) -> None:
        self.prepared += [turn.id for turn in orders.prepare]
        self.asked += [turn_id for turn_id, _ in orders.query]

    def offer(self, number: int, channel: bytes) -> str:
        fields = {b"content": b"do it", b"channel": channel}
        entries = [Entry(entry_id(number), fields)]
        self.engine.post(lambda: self.engine.intake.offer(entries, self.engine.ledger))
        return f"{AGENT}.{SOURCE}.0.{number}-0"

    async def until(self, condition: Callable[[], object], what: str) -> None:
        await until_true(lambda: bool(condition()), SOON_S, what)

    async def reload(self) -> None:
        """The disk is full for a moment."""
        self.writer.full = True
        self.engine.poke()
        await self.until(lambda: not self.engine.loaded.is_set(), "the failure")
        self.writer.full = False
        await self.until(self.engine.loaded.is_set, "the ledger")
        self.engine.verify()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    path = tmp_path / "ledger.db"
    async with SqliteWriter(path, application_id=APPLICATION_ID, migrations=MIGRATIONS) as writer:
        identity = await writer.submit(lambda conn: open_ledger(conn, AGENT, 1))
        failing = FailingWriter(writer)
        shared = Shared(
            AGENT, identity.uuid, cast(SqliteWriter, failing), Rows(), SystemClock(), 16
        )
        engine = Engine(shared, SOURCE, source_config(channel_backlog_max=1))
        bench = Bench(engine, failing)
        shared.send = bench.heard
        task = asyncio.create_task(engine.run())
        await bench.until(engine.loaded.is_set, "the ledger")
        engine.verify()
        engine.runner_connected()
        yield bench
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_full_disk_for_a_moment_and_the_runner_is_still_there(bench: Bench) -> None:
    """The connection to the runner lives on, so nobody says again that it is there."""
    first = bench.offer(1, b"red")
    await bench.until(lambda: bench.prepared == [first], "the first hand-over")
    await bench.reload()
    second = bench.offer(2, b"blue")
    await bench.until(lambda: second in bench.prepared, "a hand-over after the reload")


async def test_what_runs_is_asked_for_after_a_full_disk(bench: Bench) -> None:
    """The runner may have said how a run ended while nothing could be recorded."""
    first = bench.offer(1, b"red")
    await bench.until(lambda: bench.prepared == [first], "the first hand-over")
    await bench.reload()
    await bench.until(lambda: first in bench.asked, "a query for the open turn")


async def test_a_fetch_that_its_session_lost_is_made_by_the_next_one(bench: Bench) -> None:
    """A parked turn must not wait for a restart of the daemon."""
    engine = bench.engine
    first, _ = bench.offer(1, b"red"), bench.offer(2, b"red")
    await bench.until(lambda: bench.prepared == [first], "the first hand-over")
    assert engine.machine.book.parked == {b"red": 1}
    engine.out.open([])
    engine.runner_event(Finished(first, 1, ANSWER))
    await bench.until(lambda: engine.out.fetches, "a fetch")
    engine.out.close()
    engine.out.open([])
    await bench.until(lambda: engine.out.fetches, "the fetch of the next session")


async def test_a_fetch_that_is_due_while_no_session_is_there_is_made_by_the_next_one(
    bench: Bench,
) -> None:
    engine = bench.engine
    first, _ = bench.offer(1, b"red"), bench.offer(2, b"red")
    await bench.until(lambda: bench.prepared == [first], "the first hand-over")
    engine.runner_event(Finished(first, 1, ANSWER))
    await engine.command(lambda: None)  # a whole tick later
    assert engine.machine.book.by_id[first].state is State.REPLYING
    engine.out.open([])
    await bench.until(lambda: engine.out.fetches, "a fetch")
