import asyncio
import contextlib
import sqlite3
import stat
from pathlib import Path

import pytest

from corral.core.database import Schema, examine_database, open_database
from corral.core.errors import ForeignDatabaseError, StorageError
from corral.core.sqlite import SqliteReader
from tests.unit.core import child
from tests.unit.core.databases import (
    APPLICATION_ID,
    MIGRATION,
    count,
    execute,
    insert,
    names,
    writer,
)

MORE = "ALTER TABLE item ADD COLUMN note TEXT NOT NULL DEFAULT '';"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


async def opened_and_closed(path: Path, *migrations: str) -> None:
    async with writer(path, migrations=migrations or (MIGRATION,)) as ledger:
        assert ledger.path == path


async def foreign(path: Path, *migrations: str) -> ForeignDatabaseError:
    before = path.read_bytes()
    with pytest.raises(ForeignDatabaseError) as caught:
        await opened_and_closed(path, *migrations)
    assert path.read_bytes() == before, "a foreign file was changed"
    return caught.value


async def test_the_connection_is_as_durable_and_private_as_promised(path: Path) -> None:
    def pragmas(connection: sqlite3.Connection) -> dict[str, object]:
        wanted = ("journal_mode", "synchronous", "secure_delete", "foreign_keys", "busy_timeout")
        return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in wanted}

    async with writer(path, busy_timeout_ms=1234) as ledger:
        assert await ledger.submit(pragmas) == {
            "journal_mode": "wal",
            "synchronous": 2,
            "secure_delete": 1,
            "foreign_keys": 1,
            "busy_timeout": 1234,
        }


def test_the_files_are_private_from_the_first_moment_whatever_the_umask(path: Path) -> None:
    modes = child.run("open_child", "modes", path).only()
    assert modes == dict.fromkeys(("ledger.db", "ledger.db-wal", "ledger.db-shm"), "0o600")


async def test_files_that_others_could_read_are_made_private(path: Path) -> None:
    child.run("open_child", "killed_after_writing", path, "a")
    files = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
    for file in files:
        file.chmod(0o644)
    async with writer(path) as ledger:
        assert [oct(stat.S_IMODE(file.stat().st_mode)) for file in files] == ["0o600"] * 3
        assert await ledger.submit(count) == 1


async def test_closing_leaves_one_file(path: Path) -> None:
    async with writer(path) as ledger:
        await ledger.submit(insert("a"))
    assert [item.name for item in path.parent.iterdir()] == ["ledger.db"]
    assert names(path) == ["a"]


async def test_new_migrations_are_applied_in_order_and_once(path: Path) -> None:
    await opened_and_closed(path)
    execute(path, "INSERT INTO item (name) VALUES ('old')")
    for _ in range(2):
        await opened_and_closed(path, MIGRATION, MORE)
    async with SqliteReader(path) as reader:
        rows = await reader.fetch("SELECT name, note FROM item")
        assert [tuple(row) for row in rows] == [("old", "")]
        history = await reader.fetch("SELECT number, length(digest) FROM corral_migrations")
        assert [tuple(row) for row in history] == [(1, 32), (2, 32)]
        (version,) = await reader.fetch("PRAGMA user_version")
        assert tuple(version) == (2,)


async def test_another_programs_database_is_refused(path: Path) -> None:
    await opened_and_closed(path)
    execute(path, "PRAGMA application_id = 7")
    error = await foreign(path)
    assert f"application_id is 7, expected {APPLICATION_ID}" in error.message
    assert (error.code, error.exit_code) == ("foreign_database", 74)
    assert error.hint


@pytest.mark.parametrize("command", ["CREATE TABLE theirs (a)", "PRAGMA user_version = 3"])
async def test_a_used_database_without_an_application_id_is_refused(
    path: Path, command: str
) -> None:
    execute(path, command)
    assert "application_id is 0" in (await foreign(path)).message


async def test_a_newer_schema_is_refused_with_what_to_do(path: Path) -> None:
    await opened_and_closed(path, MIGRATION, MORE)
    error = await foreign(path, MIGRATION)
    assert "the schema is version 2, this program knows 1" in error.message
    assert "newer release" in error.hint


async def test_a_newer_schema_that_says_so_is_used_as_it_is(path: Path) -> None:
    later = (MIGRATION, f"-- oldest: 1\n{MORE}", f"-- oldest: 1\n{MORE.replace('note', 'more')}")
    await opened_and_closed(path, *later)
    async with writer(path, migrations=later[:1]) as ledger:
        await ledger.submit(insert("of the release before"))
        assert ledger.version == len(later)
    await asyncio.to_thread(examine_database, path, Schema(APPLICATION_ID, later[:1]))
    await opened_and_closed(path, *later)
    async with SqliteReader(path) as reader:
        rows = await reader.fetch("SELECT name, note, more FROM item")
    assert [tuple(row) for row in rows] == [("of the release before", "", "")]


@pytest.mark.parametrize("oldest", ["2", "3", "", "0", "x"])
async def test_of_several_newer_ones_each_must_leave_the_schema_usable(
    path: Path, oldest: str
) -> None:
    third = f"-- oldest: {oldest}\n{MORE.replace('note', 'more')}"
    await opened_and_closed(path, MIGRATION, f"-- oldest: 1\n{MORE}", third)
    assert "version 3, this program knows 1" in (await foreign(path, MIGRATION)).message


async def test_a_usable_schema_whose_known_part_was_edited_is_refused(path: Path) -> None:
    await opened_and_closed(path, MIGRATION, f"-- oldest: 1\n{MORE}")
    error = await foreign(path, f"{MIGRATION}-- edited")
    assert "migration 1 was applied with another text" in error.message


async def test_a_history_of_before_there_was_a_way_back_is_taken_over(path: Path) -> None:
    await opened_and_closed(path, MIGRATION, MORE)
    execute(path, "ALTER TABLE corral_migrations DROP COLUMN oldest")
    await foreign(path, MIGRATION)
    await opened_and_closed(path, MIGRATION, MORE)
    async with SqliteReader(path) as reader:
        history = await reader.fetch("SELECT number, oldest FROM corral_migrations")
    assert [tuple(row) for row in history] == [(1, 1), (2, 2)]


async def test_an_edited_migration_is_refused(path: Path) -> None:
    await opened_and_closed(path, MIGRATION, MORE)
    error = await foreign(path, MIGRATION, MORE + "-- edited")
    assert "migration 2 was applied with another text" in error.message
    assert "append-only" in error.hint


async def test_a_history_that_does_not_match_its_version_is_refused(path: Path) -> None:
    await opened_and_closed(path, MIGRATION, MORE)
    execute(path, "DELETE FROM corral_migrations WHERE number = 1")
    assert "migration 1 " in (await foreign(path, MIGRATION, MORE)).message


@pytest.mark.parametrize("size_bytes", [3, 5000])
async def test_a_file_that_is_no_database_is_refused(path: Path, size_bytes: int) -> None:
    path.write_bytes(b"x" * size_bytes)
    assert "is not a database" in (await foreign(path)).message


async def test_an_empty_file_is_what_a_kill_during_creation_leaves(path: Path) -> None:
    path.touch()
    await opened_and_closed(path)
    assert names(path) == []


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ("CREATE TABLE extra (a); CREATE TABLE item (a);", "already exists"),
        ("CREATE TABLE extra (a); INSERT INTO item (name, parent) VALUES ('x', 9);", "without"),
        ("CREATE TABLE extra (a); COMMIT;", "no transaction"),
    ],
)
async def test_a_migration_that_fails_leaves_nothing(path: Path, bad: str, problem: str) -> None:
    await opened_and_closed(path)
    ledger = writer(path, migrations=(MIGRATION, bad))
    with pytest.raises(StorageError, match=problem):
        await ledger.open()
    if "COMMIT" not in bad:
        await opened_and_closed(path, MIGRATION, MORE)
        with contextlib.closing(sqlite3.connect(path)) as connection:
            tables = connection.execute("SELECT name FROM sqlite_schema WHERE name = 'extra'")
            assert tables.fetchall() == []


async def test_a_migration_may_rebuild_a_table_that_others_refer_to(path: Path) -> None:
    await opened_and_closed(path)
    execute(
        path, "INSERT INTO parent VALUES (1)", "INSERT INTO item (name, parent) VALUES ('a', 1)"
    )
    rebuild = """
    CREATE TABLE parent_new (id INTEGER PRIMARY KEY, note TEXT) STRICT;
    INSERT INTO parent_new (id) SELECT id FROM parent;
    DROP TABLE parent;
    ALTER TABLE parent_new RENAME TO parent;
    """
    await opened_and_closed(path, MIGRATION, rebuild)
    assert names(path) == ["a"]


async def test_a_directory_that_is_missing_is_an_error_and_the_writer_can_try_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "state" / "ledger.db"
    ledger = writer(path)
    with pytest.raises(StorageError, match="No such file") as caught:
        await ledger.open()
    assert "check that the directory exists" in caught.value.hint
    path.parent.mkdir()
    async with ledger:
        assert await ledger.submit(count) == 0


async def test_a_locked_database_is_an_error_that_names_the_cause(path: Path) -> None:
    await opened_and_closed(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StorageError, match="locked") as caught:
            await writer(path, busy_timeout_ms=20).open()
    assert "another program holds the database" in caught.value.hint
    await opened_and_closed(path)


def test_a_file_system_without_wal_is_refused() -> None:
    class InMemory(sqlite3.Connection):
        def __init__(self, _database: str, **_options: object) -> None:
            super().__init__(":memory:", isolation_level=None)

    with contextlib.closing(InMemory("")) as connection:
        from corral.core.database import _configure

        with pytest.raises(StorageError, match="journal_mode is 'memory' and not 'wal'") as caught:
            _configure(connection, Path("ledger.db"), 1000)
    assert "file system" in caught.value.hint


def test_a_file_that_vanished_is_not_created_again(path: Path) -> None:
    schema = Schema(APPLICATION_ID, (MIGRATION,))
    with pytest.raises(StorageError, match="No such file"):
        open_database(path, schema, busy_timeout_ms=10, journal_size_limit_bytes=1000, create=False)
    assert not path.exists()


@pytest.mark.parametrize("application_id", [0, -1, 2**31])
def test_an_application_id_that_says_nothing_is_refused(path: Path, application_id: int) -> None:
    with pytest.raises(ValueError, match="application_id"):
        writer(path, application_id=application_id)


async def test_the_log_does_not_grow_from_kill_to_kill(path: Path) -> None:
    for number in range(3):
        left = child.run("open_child", "killed_after_writing", path, number)
        assert left.status < 0
    async with writer(path) as ledger:
        assert ledger.wal_bytes() == 0
        assert await ledger.submit(count) == 3
