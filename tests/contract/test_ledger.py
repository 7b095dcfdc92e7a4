"""The turn ledger on real files, through the real writer: kept, guarded, checked, purged."""

import asyncio
import dataclasses
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from corral.core import crashpoints
from corral.core.errors import ForeignDatabaseError, GuardError, StorageError
from corral.core.sqlite import COMMIT_AFTER, COMMIT_BEFORE, SqliteWriter, migrations
from corral.cowboy.book import Batch
from corral.cowboy.domain import (
    Ack,
    Kind,
    State,
    pack_id,
    turn_id,
)
from corral.cowboy.store import APPLICATION_ID, Position, Rows, SourceLedger, open_ledger, turns_of
from corral.cowboy.turn import Guard, Turn

T = TypeVar("T")

AGENT = "scout"
NOW_MS = 1_700_000_000_000
MIGRATIONS = migrations("corral.cowboy")
REPOSITORY = Path(__file__).resolve().parents[2]
COLUMNS = [field.name for field in dataclasses.fields(Turn)]


def as_row(turn: Turn) -> dict[str, Any]:
    return {name: getattr(turn, name) for name in COLUMNS}


def ledger_writer(path: Path) -> SqliteWriter:
    return SqliteWriter(path, application_id=APPLICATION_ID, migrations=MIGRATIONS)


@dataclass
class Bench:
    """An open ledger with one source attached."""

    writer: SqliteWriter
    rows: Rows
    source: SourceLedger

    async def do(
        self, action: Callable[[SourceLedger], T], source: SourceLedger | None = None
    ) -> T:
        """In a transaction of its own."""
        ledger = source or self.source

        def run(conn: sqlite3.Connection) -> T:
            ledger.use(conn)
            return action(ledger)

        return await self.writer.submit(run)

    async def keep(self, *turns: Turn, source: SourceLedger | None = None) -> None:
        await self.do(lambda ledger: ledger.write(created(*turns)), source)

    async def stored(self) -> dict[int, Turn]:
        def run(conn: sqlite3.Connection) -> list[Turn]:
            return turns_of(conn.execute("SELECT * FROM turns ORDER BY id").fetchall())

        return {turn.row: turn for turn in await self.writer.submit(run)}


async def attach(writer: SqliteWriter, name: str = "a2a", rows: Rows | None = None) -> Bench:
    await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS))
    rows = rows or Rows()
    bench = Bench(writer, rows, SourceLedger(name, rows))
    await bench.do(lambda ledger: ledger.attach())
    return bench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def bench(path: Path) -> AsyncIterator[Bench]:
    async with ledger_writer(path) as writer:
        yield await attach(writer)


def entry_id(ms: int) -> bytes:
    return pack_id(b"%d-0" % ms)


def received(row: int, **changes: Any) -> Turn:
    entry = entry_id(row)
    turn = Turn(row, turn_id(AGENT, "a2a", 1, entry), 1, entry, Kind.MESSAGE, NOW_MS, content=b"x")
    return replace(turn, **changes)


def ended(row: int, **changes: Any) -> Turn:
    """A closed turn: its tombstone."""
    return received(
        row, state=State.DONE, ack=Ack.ACKED, terminal_at_ms=NOW_MS, content=None, **changes
    )


def created(*turns: Turn) -> Batch:
    return Batch(NOW_MS, created=list(turns))


def changed(turn: Turn, guard: Guard) -> Batch:
    return Batch(NOW_MS, changed={turn.row: turn}, guards={turn.row: guard})


# ---------------------------------------------------------------- whose ledger


async def test_a_ledger_keeps_its_identity(path: Path) -> None:
    async with ledger_writer(path) as writer:
        first = await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS))
        again = await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS + 1))
    async with ledger_writer(path) as writer:
        later = await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS + 2))
    assert first == again == later
    assert (len(first.uuid), first.agent) == (36, AGENT)


async def test_two_ledgers_have_two_identities(tmp_path: Path) -> None:
    uuids = set()
    for name in ("one.db", "two.db"):
        async with ledger_writer(tmp_path / name) as writer:
            uuids.add((await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS))).uuid)
    assert len(uuids) == 2


async def test_a_ledger_of_another_agent_is_refused(path: Path) -> None:
    async with ledger_writer(path) as writer:
        mine = await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS))
        with pytest.raises(GuardError, match="belongs to agent scout, not other") as error:
            await writer.submit(lambda conn: open_ledger(conn, "other", NOW_MS))
        assert error.value.hint
        assert await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS)) == mine


@pytest.mark.parametrize("sql", ["PRAGMA application_id = 7", "PRAGMA user_version = 99"])
async def test_another_programs_and_a_newer_releases_file_are_refused(path: Path, sql: str) -> None:
    async with ledger_writer(path) as writer:
        await attach(writer)
    conn = sqlite3.connect(path, isolation_level=None)
    conn.execute(sql)
    conn.close()
    with pytest.raises(ForeignDatabaseError):
        await ledger_writer(path).open()


async def test_a_backup_is_the_same_ledger(bench: Bench, tmp_path: Path) -> None:
    await bench.keep(received(1))
    mine = await bench.writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS))
    await bench.writer.backup(tmp_path / "copy.db")
    async with ledger_writer(tmp_path / "copy.db") as writer:
        assert await writer.submit(lambda conn: open_ledger(conn, AGENT, NOW_MS)) == mine
        assert list(await (await attach(writer)).stored()) == [1]


# ---------------------------------------------------------------- sources and rows


async def test_two_sources_of_one_ledger_do_not_see_each_other(bench: Bench) -> None:
    other = SourceLedger("mail", bench.rows)
    await bench.do(lambda ledger: ledger.attach(), other)
    same: dict[str, Any] = {"identity": b"i" * 32, "channel": b"red", "entry": entry_id(5)}
    await bench.keep(received(1, **same))
    await bench.keep(received(2, **same), source=other)
    for row, source in ((1, bench.source), (2, other)):
        found = await bench.do(lambda ledger: ledger.open_turns(), source)
        assert [turn.row for turn in found] == [row]
        by_entry = await bench.do(lambda ledger: ledger.by_entries(1, [entry_id(5)]), source)
        assert by_entry[entry_id(5)].row == row
    await bench.do(lambda ledger: ledger.raise_sequence(), other)
    position = await bench.do(lambda ledger: ledger.attach())
    assert (position.sequence, position.source_id) == (0, bench.source.source_id)
    assert other.source_id != bench.source.source_id


async def test_row_numbers_go_on_after_a_restart_and_serve_all_sources(path: Path) -> None:
    async with ledger_writer(path) as writer:
        bench = await attach(writer)
        other = SourceLedger("mail", bench.rows)
        first = await bench.do(lambda ledger: ledger.next_row())
        second = await bench.do(lambda ledger: ledger.next_row(), other)
        await bench.keep(received(second))
    async with ledger_writer(path) as writer:
        bench = await attach(writer)
        assert [first, second] == [1, 2]
        assert await bench.do(lambda ledger: ledger.next_row()) == 3
        assert await bench.do(lambda ledger: ledger.last_row()) == 3


# ---------------------------------------------------------------- guards


STALE = [Guard(State.RECEIVED, 1), Guard(State.DISPATCHED, 0), Guard(State.HELD, 7)]


@pytest.mark.parametrize("guard", STALE, ids=lambda guard: f"{guard.state}-{guard.generation}")
async def test_a_row_that_is_not_what_the_tick_thought_undoes_the_tick(
    bench: Bench, guard: Guard
) -> None:
    await bench.keep(received(1), received(2))
    good = received(2, state=State.DISPATCHED, generation=1)
    bad = received(1, state=State.DISPATCHED, generation=2)
    batch = created(received(3))
    batch.changed = {2: good, 1: bad}
    batch.guards = {2: Guard(State.RECEIVED, 0), 1: guard}
    batch.note("odd", None)
    before = await bench.stored()
    with pytest.raises(GuardError, match="touched 1 rows of 2"):
        await bench.do(lambda ledger: ledger.write(batch))
    after = await bench.stored()
    assert {row: as_row(turn) for row, turn in after.items()} == {
        row: as_row(turn) for row, turn in before.items()
    }
    assert await bench.do(lambda ledger: ledger.tallies()) == {}
    assert await bench.do(lambda ledger: ledger.notes(9)) == []


async def test_the_end_of_a_turn_is_guarded_too(bench: Bench) -> None:
    await bench.keep(received(1, state=State.REPLYING, intent=State.DONE, generation=3))
    for row, generation in ((1, 2), (1, 4), (9, 3)):
        batch = changed(ended(row, generation=5), Guard(State.REPLYING, generation))
        with pytest.raises(GuardError, match="finish_turn touched 0 rows of 1"):
            await bench.do(lambda ledger, batch=batch: ledger.write(batch))  # type: ignore[misc]
    assert (await bench.stored())[1].state is State.REPLYING


async def test_a_failed_tick_takes_no_other_of_its_group_with_it(bench: Bench) -> None:
    await bench.keep(received(1))
    bad = changed(received(1, state=State.DISPATCHED), Guard(State.HELD, 0))
    outcomes = await asyncio.gather(
        bench.keep(received(2)),
        bench.do(lambda ledger: ledger.write(bad)),
        bench.keep(received(3)),
        return_exceptions=True,
    )
    assert [type(outcome) for outcome in outcomes] == [type(None), GuardError, type(None)]
    assert list(await bench.stored()) == [1, 2, 3]


# ---------------------------------------------------------------- purging

CUTOFF_MS = NOW_MS - 24 * 3_600_000
MARK = 50  # the watermark


async def purged(bench: Bench, *turns: Turn, first: int = 0, last: int = 1_000) -> set[int]:
    """Which rows a purge takes, with the watermark at `MARK` in incarnation 2."""
    await bench.keep(*turns)
    position = Position(bench.source.source_id, 2, entry_id(MARK), entry_id(99), 0)
    count = await bench.do(lambda ledger: ledger.purge(position, first, last, CUTOFF_MS))
    gone = {turn.row for turn in turns} - set(await bench.stored())
    assert count == len(gone)
    return gone


def tombstone(row: int, **changes: Any) -> Turn:
    """Old enough, acknowledged, below the watermark: it may go."""
    fate: dict[str, Any] = {"incarnation": 2, "terminal_at_ms": CUTOFF_MS - 1}
    return replace(ended(row), **(fate | changes))


async def test_a_tombstone_is_kept_to_the_end_of_its_time(bench: Bench) -> None:
    at_limit = tombstone(1, terminal_at_ms=CUTOFF_MS)
    assert await purged(bench, at_limit, tombstone(2)) == {2}


async def test_a_tombstone_goes_at_the_watermark_and_not_one_above_it(bench: Bench) -> None:
    assert await purged(bench, tombstone(MARK), tombstone(MARK + 1)) == {MARK}


async def test_what_an_earlier_incarnation_left_goes_whatever_its_id(bench: Bench) -> None:
    former, later = tombstone(70, incarnation=1), tombstone(71, incarnation=3)
    assert await purged(bench, former, later) == {70}


@pytest.mark.parametrize("ack", [Ack.UNACKED, Ack.FORGOTTEN])
async def test_what_is_not_acknowledged_stays(bench: Bench, ack: Ack) -> None:
    assert await purged(bench, tombstone(1, ack=ack)) == set()


@pytest.mark.parametrize("state", [State.RECEIVED, State.DISPATCHED, State.HELD])
async def test_what_is_open_stays_however_old_it_is(bench: Bench, state: State) -> None:
    turn = received(1, state=state, incarnation=1, received_at_ms=0, ack=Ack.ACKED)
    assert await purged(bench, turn) == set()


async def test_a_purge_looks_at_a_range_of_rows(bench: Bench) -> None:
    turns = [tombstone(row) for row in range(1, 6)]
    assert await purged(bench, *turns, first=1, last=4) == {2, 3, 4}


async def test_a_purge_of_one_source_leaves_the_others_alone(bench: Bench) -> None:
    other = SourceLedger("mail", bench.rows)
    await bench.do(lambda ledger: ledger.attach(), other)
    await bench.keep(tombstone(1), source=other)
    assert await purged(bench, tombstone(2)) == {2}
    assert list(await bench.stored()) == [1]


async def test_old_notes_go_with_a_purge_and_tallies_stay(bench: Bench) -> None:
    for at_ms in (CUTOFF_MS - 1, CUTOFF_MS):
        batch = Batch(at_ms)
        batch.note("empty", None)
        await bench.do(lambda ledger, batch=batch: ledger.write(batch))  # type: ignore[misc]
    await purged(bench)
    notes = await bench.do(lambda ledger: ledger.notes(9))
    assert [note.at_ms for note in notes] == [CUTOFF_MS]
    assert await bench.do(lambda ledger: ledger.tallies()) == {"empty": 2}


# ---------------------------------------------------------------- what the schema refuses


async def test_an_impossible_row_undoes_its_tick(bench: Bench) -> None:
    """Which rows are impossible: tests/unit/cowboy/test_store_schema.py."""
    bad = received(2, terminal_at_ms=NOW_MS)
    with pytest.raises(StorageError, match="CHECK constraint failed") as error:
        await bench.keep(received(1), bad)
    assert isinstance(error.value.__cause__, sqlite3.IntegrityError)
    assert await bench.stored() == {}


# ---------------------------------------------------------------- killed


async def write_until_killed(path: Path, point: str, nth: int) -> None:
    """The child: ticks that make a turn and end the former one; each is told once committed."""
    async with ledger_writer(path) as writer:
        bench = await attach(writer)
        if point:
            crashpoints.arm(point, nth)
        for row in itertools.count(1):
            batch = created(received(row, state=State.REPLYING, intent=State.DONE))
            if row > 1:
                batch.changed = {row - 1: ended(row - 1, generation=1)}
                batch.guards = {row - 1: Guard(State.REPLYING, 0)}
            batch.note("odd", entry_id(row))
            await bench.do(tick(batch))
            os.write(1, b"%d\n" % row)


def tick(batch: Batch) -> Callable[[SourceLedger], None]:
    def run(ledger: SourceLedger) -> None:
        ledger.write(batch)
        ledger.raise_sequence()

    return run


def child(path: Path, point: str = "", nth: int = 0) -> "subprocess.Popen[bytes]":
    search = os.pathsep.join([str(REPOSITORY / "python"), str(REPOSITORY)])
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", __name__, str(path), point, str(nth)],
        env={**os.environ, "PYTHONPATH": search},
        stdout=subprocess.PIPE,
    )


async def judge(path: Path, told: list[bytes]) -> None:
    """All that was told is there, whole ticks only, and at most one that was not told."""
    async with ledger_writer(path) as writer:
        bench = await attach(writer)
        assert await writer.integrity() == []
        rows = await bench.stored()
        assert list(rows) == list(range(1, len(rows) + 1))
        assert len(told) <= len(rows) <= len(told) + 1
        assert [turn.state for turn in rows.values()] == [State.DONE] * (len(rows) - 1) + [
            State.REPLYING
        ] * bool(rows)
        assert len(await bench.do(lambda ledger: ledger.notes(100_000))) == len(rows)
        assert (await bench.do(lambda ledger: ledger.attach())).sequence == len(rows)
        assert await bench.do(lambda ledger: ledger.next_row()) == len(rows) + 1


@pytest.mark.parametrize("point", [COMMIT_BEFORE, COMMIT_AFTER])
@pytest.mark.parametrize("nth", [1, 2, 7])
async def test_killed_around_a_commit(path: Path, point: str, nth: int) -> None:
    with child(path, point, nth) as process:
        told = (await asyncio.to_thread(process.communicate))[0].split()
    assert process.returncode == -signal.SIGKILL
    assert len(told) == nth - 1
    await judge(path, told)


@pytest.mark.parametrize("round_", range(3))
async def test_killed_at_any_moment_and_opened_again(
    path: Path, rng: random.Random, round_: int
) -> None:
    answers = rng.randint(1, 300)
    with child(path) as process:
        assert process.stdout is not None
        told = [await asyncio.to_thread(process.stdout.readline) for _ in range(answers)]
        process.kill()
        told += (await asyncio.to_thread(process.stdout.read)).split()
    assert process.returncode == -signal.SIGKILL
    await judge(path, told)


if __name__ == "__main__":
    asyncio.run(write_until_killed(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
