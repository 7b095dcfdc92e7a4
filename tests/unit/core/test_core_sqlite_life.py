"""From open to close: draining, lost loops, lost files, the log's size."""

import asyncio
import contextlib
import gc
import os
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.core.errors import StorageError
from corral.core.sqlite import SqliteWriter
from corral.local.wait import until
from tests.unit.core.databases import count, held, insert, names, outcome, writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteWriter]:
    async with writer(path) as opened:
        yield opened


def threads(path: Path) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == f"sqlite {path.name}"]


async def test_a_writer_that_is_not_open_refuses_everything(path: Path) -> None:
    ledger = writer(path)
    await ledger.close()
    for attempt in (ledger.submit(count), ledger.integrity(), ledger.backup(path)):
        with pytest.raises(StorageError, match="is not open"):
            await attempt
    async with ledger:
        with pytest.raises(StorageError, match="is open already"):
            await ledger.open()
    with pytest.raises(StorageError, match="is not open"):
        await ledger.submit(count)


async def test_closing_does_what_was_submitted_and_nothing_later(path: Path) -> None:
    ledger = writer(path, group_max=2)
    await ledger.open()
    async with held(ledger) as group:
        group.submit(*(insert(name) for name in "abcde"))
        await asyncio.sleep(0)
        closers = [asyncio.create_task(ledger.close()) for _ in range(2)]
        await asyncio.sleep(0)
        late = await outcome(ledger, insert("late"))
    await asyncio.gather(*closers)
    assert isinstance(late, StorageError)
    assert await group.outcomes() == list("abcde")
    assert names(path) == list("abcde")
    await ledger.close()
    until(lambda: not threads(path), 10, "the thread to end")
    assert not Path(f"{path}-wal").exists()


async def test_a_closed_writer_can_be_opened_again(path: Path) -> None:
    ledger = writer(path)
    for name in ("a", "b"):
        async with ledger:
            await ledger.submit(insert(name))
    assert names(path) == ["a", "b"]


async def test_a_cancelled_close_still_closes(path: Path) -> None:
    ledger = writer(path)
    await ledger.open()
    async with held(ledger):
        closing = asyncio.create_task(ledger.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
    await ledger.close()
    until(lambda: not threads(path), 10, "the thread to end")


async def test_a_cancelled_open_can_be_closed(path: Path) -> None:
    ledger = writer(path)
    opening = asyncio.create_task(ledger.open())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled()
    await ledger.close()
    until(lambda: not threads(path), 10, "the thread to end")
    async with ledger:
        assert await ledger.submit(count) == 0


async def test_an_open_that_fails_after_it_was_cancelled_is_no_ones_error(tmp_path: Path) -> None:
    ledger = writer(tmp_path / "absent" / "ledger.db")
    opening = asyncio.create_task(ledger.open())
    await asyncio.sleep(0)
    opening.cancel()
    await asyncio.wait([opening])
    await ledger.close()
    with pytest.raises(StorageError, match="No such file"):
        await ledger.open()


def test_a_loop_that_ends_without_closing_loses_nothing_that_was_submitted(path: Path) -> None:
    release = threading.Event()

    async def abandon() -> None:
        ledger = writer(path)
        await ledger.open()
        waiting = [
            asyncio.ensure_future(ledger.submit(fn))
            for fn in (lambda _connection: release.wait(30), insert("a"), insert("b"))
        ]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)

    asyncio.run(abandon())  # cancels the callers and closes the loop
    release.set()
    until(lambda: not threads(path), 10, "the thread to end")
    assert names(path) == ["a", "b"]
    assert not Path(f"{path}-wal").exists()


async def test_the_values_and_callers_of_a_group_are_let_go(ledger: SqliteWriter) -> None:
    class Value:
        pass

    class OwnError(Exception):
        pass

    def fail(_connection: sqlite3.Connection) -> None:
        raise OwnError

    errors: list[weakref.ref[OwnError]] = []
    gc.disable()
    try:
        value = await ledger.submit(lambda _connection: Value())
        seen = weakref.ref(value)
        try:
            await ledger.submit(fail)
        except OwnError as error:
            errors.append(weakref.ref(error))
        del value
        await ledger.submit(count)
        assert seen() is None
        assert errors[0]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", ["removed", "replaced", "log removed"])
async def test_a_file_taken_away_while_in_use_is_never_called_durable(path: Path, how: str) -> None:
    ledger = writer(path)
    await ledger.open()
    await ledger.submit(insert("a"))
    await ledger.backup(path.with_name("copy.db"))
    if how == "replaced":
        path.with_name("copy.db").replace(path)
    else:
        os.unlink(path if how == "removed" else f"{path}-wal")  # noqa: PTH108
    for name in ("b", "c"):
        error = await outcome(ledger, insert(name))
        if how == "log removed" and name == "c":
            break  # with a new connection and log the file is whole again
        assert isinstance(error, StorageError)
        assert "was removed, replaced or truncated while in use" in error.message
        assert "stop the service" in error.hint
    await ledger.close()
    assert path.exists() == (how != "removed")
    if how == "replaced":
        assert names(path) == ["a"]


async def test_the_log_stays_bounded_once_readers_let_go(path: Path) -> None:
    limit_bytes = 64 * 1024
    async with writer(path, journal_size_limit_bytes=limit_bytes) as ledger:
        await ledger.submit(insert("first"))
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM item").fetchone()
            for number in range(40):
                await ledger.submit(insert(f"{number}", 8_000))
            assert ledger.wal_bytes() > 3 * limit_bytes
            reader.execute("COMMIT")
        for number in range(40, 60):
            await ledger.submit(insert(f"{number}", 8_000))
        await ledger.submit(count)
        assert ledger.wal_bytes() <= limit_bytes + 16_000
        assert Path(f"{path}-wal").stat().st_size <= limit_bytes + 16_000


async def test_integrity_is_silent_about_a_good_file(ledger: SqliteWriter) -> None:
    await ledger.submit(insert("a"))
    assert await ledger.integrity() == []


async def test_integrity_names_damage_and_orphans(path: Path) -> None:
    async with writer(path) as ledger:
        for number in range(400):
            await ledger.submit(insert(f"a much longer name, {number}"))
    damage(path)
    async with writer(path) as ledger:
        found = await ledger.integrity()
    assert any("item" in line for line in found), found
    assert "row 1 of item refers to a missing parent" in found


def damage(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("UPDATE item SET parent = 404 WHERE rowid = 1")
        connection.execute("DELETE FROM item WHERE rowid > 390")
        index = "sqlite_autoindex_item_1"
        root = connection.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = ?", (index,)
        ).fetchone()[0]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * size + size - 200)
        file.write(b"\x01" * 100)
