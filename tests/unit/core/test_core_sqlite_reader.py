import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.core.errors import StorageError
from corral.core.sqlite import SqliteReader, SqliteWriter
from corral.local.wait import until
from tests.unit.core import child
from tests.unit.core.databases import insert, names, writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteWriter]:
    async with writer(path) as opened:
        await opened.submit(insert("a"))
        yield opened


def threads() -> int:
    """How many threads there are, without those that to_thread() keeps."""
    return sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate())


async def test_rows_by_name_and_by_position_with_both_kinds_of_parameters(
    ledger: SqliteWriter, path: Path
) -> None:
    async with SqliteReader(path) as reader:
        (row,) = await reader.fetch("SELECT name, length(body) AS size FROM item")
        assert (row["name"], row["size"], row[0]) == ("a", 0, "a")
        for params in (("a",), {"name": "a"}):
            marker = "?" if isinstance(params, tuple) else ":name"
            assert len(await reader.fetch(f"SELECT * FROM item WHERE name = {marker}", params)) == 1
        assert await reader.fetch("SELECT * FROM item WHERE name = ?", ["b"]) == []


async def test_a_reader_sees_what_was_answered(ledger: SqliteWriter, path: Path) -> None:
    async with SqliteReader(path) as reader:
        for number in range(10):
            await ledger.submit(insert(f"{number}"))
            (row,) = await reader.fetch("SELECT count(*) FROM item")
            assert row[0] == number + 2


@pytest.mark.parametrize("sql", ["DELETE FROM item", "CREATE TABLE t (a)", "PRAGMA user_version=9"])
async def test_a_reader_cannot_write(ledger: SqliteWriter, path: Path, sql: str) -> None:
    async with SqliteReader(path) as reader:
        with pytest.raises(StorageError, match="readonly"):
            await reader.fetch(sql)
    assert names(path) == ["a"]


async def test_a_missing_file_is_an_error_and_is_not_created(path: Path) -> None:
    with pytest.raises(StorageError, match="unable to open") as caught:
        async with SqliteReader(path):
            pass
    assert "check that the directory exists" in caught.value.hint
    assert not path.exists()


async def test_a_file_that_is_no_database_is_an_error(path: Path) -> None:
    path.write_bytes(b"x" * 5000)
    async with SqliteReader(path) as reader:
        with pytest.raises(StorageError, match="not a database"):
            await reader.fetch("SELECT * FROM item")


async def test_outside_of_its_with_a_reader_is_closed(ledger: SqliteWriter, path: Path) -> None:
    before = threads()
    reader = SqliteReader(path)
    with pytest.raises(StorageError, match="is not open"):
        await reader.fetch("SELECT 1")
    async with reader:
        await reader.fetch("SELECT 1")
    with pytest.raises(StorageError, match="is not open"):
        await reader.fetch("SELECT 1")
    until(lambda: threads() <= before, 10, "the reader's thread to end")


async def test_a_reader_is_closed_when_its_task_is_cancelled(
    ledger: SqliteWriter, path: Path
) -> None:
    before = threads()
    reading = asyncio.Event()

    async def read_for_ever() -> None:
        async with SqliteReader(path):
            reading.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(read_for_ever())
    await reading.wait()
    task.cancel()
    await asyncio.wait([task])
    until(lambda: threads() <= before, 10, "the reader's thread to end")


@pytest.mark.parametrize("missing", [True, False])
async def test_an_opening_that_is_cancelled_leaves_nothing_open(path: Path, missing: bool) -> None:
    if not missing:
        async with writer(path):
            pass
    before = threads()
    for steps in range(6):
        opening = asyncio.create_task(SqliteReader(path).__aenter__())
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        assert opening.cancelled() or steps > 2
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().__aexit__(None, None, None)
    until(lambda: threads() <= before, 10, "the readers' threads to end")


def test_a_process_with_an_open_reader_and_writer_ends(tmp_path: Path) -> None:
    assert child.run("left_open_child", tmp_path / "ledger.db").only() == "left open"
