import asyncio
import contextlib
import sqlite3
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.core.database import back_up
from corral.core.errors import StorageError
from corral.core.sqlite import SqliteWriter
from tests.unit.core.databases import insert, names, writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    directory = tmp_path / "backups"
    directory.mkdir()
    return directory / "copy.db"


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteWriter]:
    path.parent.mkdir()
    async with writer(path) as opened:
        await opened.submit(insert("a"))
        yield opened


async def test_a_backup_is_one_private_file_that_opens_as_a_ledger(
    ledger: SqliteWriter, dest: Path
) -> None:
    await ledger.backup(dest)
    assert [item.name for item in dest.parent.iterdir()] == ["copy.db"]
    assert stat.S_IMODE(dest.stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(f"file:{dest}?immutable=1", uri=True)) as copy:
        assert copy.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert copy.execute("SELECT name FROM item").fetchall() == [("a",)]
    async with writer(dest) as restored:
        assert await restored.submit(insert("b")) == "b"
        assert await restored.integrity() == []
    assert names(dest) == ["a", "b"]


async def test_a_backup_is_one_moment_while_others_write(ledger: SqliteWriter, dest: Path) -> None:
    await ledger.submit(insert("big", 3_000_000))
    stop = asyncio.Event()

    async def write_pairs() -> int:
        number = 0
        while not stop.is_set():

            def two(connection: sqlite3.Connection, number: int = number) -> None:
                insert(f"left {number}")(connection)
                insert(f"right {number}")(connection)

            await ledger.submit(two)
            number += 1
        return number

    writing = asyncio.create_task(write_pairs())
    for _ in range(5):
        await ledger.backup(dest)
        found = names(dest)[2:]
        assert len(found) % 2 == 0
        assert found[-1:] in ([], [f"right {len(found) // 2 - 1}"])
    stop.set()
    pairs = await writing
    assert len(names(ledger.path)) == 2 + 2 * pairs


async def test_a_backup_replaces_an_older_one_and_the_rest_of_a_killed_one(
    ledger: SqliteWriter, dest: Path
) -> None:
    dest.write_text("older")
    for name in (".copy.db.partial", ".copy.db.partial-journal"):
        dest.with_name(name).write_text("half")
    await ledger.backup(dest)
    assert names(dest) == ["a"]
    assert [item.name for item in dest.parent.iterdir()] == ["copy.db"]


async def test_backups_to_one_place_at_the_same_time_are_made_one_after_the_other(
    ledger: SqliteWriter, dest: Path
) -> None:
    await asyncio.gather(*(ledger.backup(dest) for _ in range(4)))
    assert names(dest) == ["a"]


async def test_a_backup_that_fails_leaves_the_older_one(ledger: SqliteWriter, dest: Path) -> None:
    dest.mkdir()  # cannot be replaced by a file
    with pytest.raises(StorageError, match=r"copy\.db"):
        await ledger.backup(dest)
    assert [item.name for item in dest.parent.iterdir()] == ["copy.db"]
    with pytest.raises(StorageError, match="No such file") as caught:
        await ledger.backup(dest.parent / "absent" / "copy.db")
    assert "check that the directory exists" in caught.value.hint


@pytest.mark.parametrize("linked", [True, False])
async def test_the_database_is_not_replaced_by_its_own_copy(
    ledger: SqliteWriter, path: Path, dest: Path, linked: bool
) -> None:
    if linked:
        dest.symlink_to(path)
    with pytest.raises(StorageError, match="is the database itself"):
        await ledger.backup(dest if linked else path)
    assert await ledger.submit(insert("b")) == "b"


async def test_a_damaged_database_gives_no_backup(path: Path, dest: Path) -> None:
    path.parent.mkdir()
    async with writer(path) as ledger:
        for number in range(50):
            await ledger.submit(insert(f"{number}", 3_000))
    with path.open("r+b") as file:
        file.seek(4096 * 12)
        file.write(b"\xff" * 4096)
    async with writer(path) as ledger:
        with pytest.raises(StorageError, match="damaged"):
            await ledger.backup(dest)
    assert list(dest.parent.iterdir()) == []


async def test_copies_beside_the_database_are_private_and_each_its_own(
    ledger: SqliteWriter, path: Path
) -> None:
    first = await asyncio.to_thread(back_up, path)
    await ledger.submit(insert("b"))
    second = await asyncio.to_thread(back_up, path)
    assert first.parent == second.parent == path.parent / "backups"
    assert stat.S_IMODE(first.parent.stat().st_mode) == 0o700
    assert [stat.S_IMODE(one.stat().st_mode) for one in (first, second)] == [0o600, 0o600]
    assert (names(first), names(second)) == (["a"], ["a", "b"])


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "backups").write_text("no folder")
    with pytest.raises(StorageError, match="backups"):
        back_up(tmp_path / "ledger.db")
