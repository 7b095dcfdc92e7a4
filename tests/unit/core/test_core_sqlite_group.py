"""Group commit: who shares a COMMIT, and who answers for whom."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corral.core.errors import GuardError, StorageError
from corral.core.sqlite import SqliteWriter
from tests.unit.core.databases import count, failing, held, insert, names, outcome, writer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


@pytest.fixture
async def ledger(path: Path) -> AsyncIterator[SqliteWriter]:
    async with writer(path) as opened:
        yield opened


def numbered(begin: int, end: int) -> list[Callable[[sqlite3.Connection], str]]:
    return [insert(f"{number}") for number in range(begin, end)]


async def test_sixty_four_requests_that_wait_share_one_commit(
    ledger: SqliteWriter, path: Path
) -> None:
    async with held(ledger) as group:
        group.submit(*numbered(0, 64))
    assert await group.outcomes() == [f"{number}" for number in range(64)]
    assert ledger.commits == 2  # the one that held the thread, and the sixty-four
    assert names(path) == [f"{number}" for number in range(64)]


@pytest.mark.parametrize(("requests", "commits"), [(1, 1), (4, 1), (5, 2)])
async def test_a_group_has_at_most_group_max_requests(
    path: Path, requests: int, commits: int
) -> None:
    async with writer(path, group_max=4) as ledger:
        async with held(ledger) as group:
            group.submit(*numbered(0, requests))
        await group.outcomes()
        assert ledger.commits == 1 + commits
        assert len(names(path)) == requests


def test_a_group_of_nobody_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="group_max"):
        writer(path, group_max=0)


async def test_concurrent_callers_need_far_fewer_commits_than_calls(
    ledger: SqliteWriter, path: Path
) -> None:
    async def caller(name: int) -> None:
        for number in range(20):
            await ledger.submit(insert(f"{name}.{number}"))

    async with asyncio.TaskGroup() as tasks:
        for name in range(64):
            tasks.create_task(caller(name))
    assert len(names(path)) == 64 * 20
    assert ledger.commits < 64 * 20 / 4


async def test_no_answer_before_the_commit(ledger: SqliteWriter, path: Path) -> None:
    for number in range(20):
        await ledger.submit(insert(f"{number}"))
        assert len(names(path)) == number + 1


ERRORS = [
    ValueError("no"),
    GuardError("turn t is not in state received"),
    asyncio.CancelledError(),
    SystemExit(3),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_failing_request_among_others_undoes_only_its_own_work(
    ledger: SqliteWriter, path: Path, error: BaseException
) -> None:
    async with held(ledger) as group:
        group.submit(*numbered(0, 32), failing("bad", error), *numbered(32, 63))
    outcomes = await group.outcomes()
    assert outcomes.pop(32) is error
    assert outcomes == names(path) == [f"{number}" for number in range(63)]
    assert ledger.commits == 2


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_a_failing_request_alone_undoes_its_work(
    ledger: SqliteWriter, path: Path, error: BaseException
) -> None:
    assert await outcome(ledger, failing("bad", error)) is error
    assert names(path) == []
    assert ledger.commits == 0
    assert await ledger.submit(insert("next")) == "next"


@pytest.mark.parametrize("alone", [True, False])
async def test_an_error_of_sqlite_becomes_a_storage_error(
    ledger: SqliteWriter, path: Path, alone: bool
) -> None:
    await ledger.submit(insert("a"))
    async with held(ledger) as group:
        group.submit(insert("a"), *([] if alone else [insert("b")]))
    error, *others = await group.outcomes()
    assert type(error) is StorageError
    assert "UNIQUE constraint failed: item.name [SQLITE_CONSTRAINT_PRIMARYKEY]" in error.message
    assert isinstance(error.__cause__, sqlite3.IntegrityError)
    assert names(path) == ["a", *others]


async def test_stop_iteration_reaches_its_caller_as_an_error(ledger: SqliteWriter) -> None:
    def empty(_connection: sqlite3.Connection) -> str:
        return next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await ledger.submit(empty)


def committing(connection: sqlite3.Connection) -> None:
    insert("bad")(connection)
    connection.commit()


def scripting(connection: sqlite3.Connection) -> None:
    insert("bad")(connection)
    connection.executescript("SELECT 1")


def rolling_back(connection: sqlite3.Connection) -> None:
    connection.rollback()


def in_a_with(connection: sqlite3.Connection) -> None:
    with connection:
        insert("bad")(connection)


@pytest.mark.parametrize("request_", [committing, scripting, rolling_back, in_a_with])
@pytest.mark.parametrize("alone", [True, False])
async def test_a_request_cannot_end_the_groups_transaction_by_a_method(
    ledger: SqliteWriter, path: Path, request_: Callable[[sqlite3.Connection], None], alone: bool
) -> None:
    async with held(ledger) as group:
        group.submit(*([] if alone else numbered(0, 2)), request_)
    *others, error = await group.outcomes()
    assert isinstance(error, StorageError)
    assert isinstance(error.__cause__, sqlite3.ProgrammingError)
    assert names(path) == others


@pytest.mark.parametrize("command", ["ROLLBACK", "COMMIT"])
async def test_a_request_that_ends_the_transaction_by_sql_gives_nobody_an_answer(
    ledger: SqliteWriter, path: Path, command: str
) -> None:
    ran_after: list[str] = []

    def ending(connection: sqlite3.Connection) -> None:
        connection.execute(command)

    def after(connection: sqlite3.Connection) -> None:
        ran_after.append(insert("after")(connection))

    async with held(ledger) as group:
        group.submit(insert("before"), ending, after)
    for error in await group.outcomes():
        assert isinstance(error, StorageError)
        assert "a request ended the transaction" in error.message
    assert ran_after == []
    assert names(path) == (["before"] if command == "COMMIT" else [])
    assert await ledger.submit(insert("next")) == "next"


async def test_a_commit_that_fails_fails_every_caller_even_one_that_only_read(
    ledger: SqliteWriter, path: Path
) -> None:
    def orphan(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO item (name, parent) VALUES ('orphan', 404)")

    async with held(ledger) as group:
        group.submit(insert("a"), count, orphan, failing("b", ValueError("own")))
    errors = await group.outcomes()
    assert len(errors) == len({id(error) for error in errors}) == 4
    for error in errors:
        assert isinstance(error, StorageError)
        assert "FOREIGN KEY constraint failed" in error.message
    assert names(path) == []
    assert ledger.commits == 1
    assert await ledger.submit(insert("next")) == "next"


async def test_a_value_that_belongs_to_the_thread_is_refused(
    ledger: SqliteWriter, path: Path
) -> None:
    async def asynchronous(connection: sqlite3.Connection) -> None:
        insert("never")(connection)

    def generating(connection: sqlite3.Connection) -> object:
        return (insert(name)(connection) for name in ("never",))

    def cursor(connection: sqlite3.Connection) -> object:
        return connection.execute("SELECT 1")

    async with held(ledger) as group:
        group.submit(cursor, asynchronous, generating, insert("a"))
    *errors, value = await group.outcomes()
    for error, kind in zip(errors, ("Cursor", "coroutine", "generator"), strict=True):
        assert str(error) == f"a request must return values, not a {kind}"
    assert value == "a"
    assert names(path) == ["a"]


@pytest.mark.parametrize("deep", [True, False])
async def test_a_failing_request_with_an_open_cursor_does_not_block_the_commit(
    ledger: SqliteWriter, path: Path, deep: bool
) -> None:
    def half_read(connection: sqlite3.Connection) -> None:
        sql = "INSERT INTO item (name) VALUES ('x'), ('y'), ('z') RETURNING name"
        rows = connection.execute(sql)
        raise ValueError(next(rows)[0])

    def wrapped(connection: sqlite3.Connection) -> None:
        try:
            half_read(connection)
        except ValueError:
            raise GuardError("not x") from None

    async with held(ledger) as group:
        group.submit(insert("a"), wrapped if deep else half_read, insert("b"))
    first, error, second = await group.outcomes()
    assert (first, second) == ("a", "b")
    assert isinstance(error, GuardError if deep else ValueError)
    assert names(path) == ["a", "b"]


async def test_a_cancelled_caller_withdraws_nothing(ledger: SqliteWriter, path: Path) -> None:
    async with held(ledger) as group:
        waiting = [asyncio.create_task(ledger.submit(insert(name))) for name in ("a", "b")]
        failed = asyncio.create_task(ledger.submit(failing("c", ValueError("no"))))
        await asyncio.sleep(0)
        group.submit(insert("d"))
        waiting[0].cancel()
        failed.cancel()
        await asyncio.wait([waiting[0], failed])
    assert await group.outcomes() == ["d"]
    assert await waiting[1] == "b"
    assert names(path) == ["a", "b", "d"]


async def test_another_writer_is_waited_for_and_then_an_error(path: Path) -> None:
    async with writer(path, busy_timeout_ms=20) as ledger:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            errors = [await outcome(ledger, insert(name)) for name in "ab"]
            other.execute("COMMIT")
        for error in errors:
            assert isinstance(error, StorageError)
            assert "another program holds the database" in error.hint
        assert await ledger.submit(insert("next")) == "next"
    assert names(path) == ["next"]


kinds = st.lists(st.sampled_from(["insert", "repeat", "fail", "guarded", "read"]), max_size=24)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kinds, st.integers(1, 8))
def test_a_group_ends_as_its_requests_would_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], group_max: int
) -> None:
    path = tmp_path_factory.mktemp("group") / "ledger.db"
    error = ValueError("no")
    requests: dict[str, Callable[[str], Callable[[sqlite3.Connection], Any]]] = {
        "insert": insert,
        "repeat": lambda _name: insert("same"),
        "fail": lambda name: failing(name, error),
        "guarded": lambda name: failing(name, GuardError(name)),
        "read": lambda _name: count,
    }

    async def run() -> list[Any]:
        async with writer(path, group_max=group_max) as ledger:
            async with held(ledger) as group:
                group.submit(*(requests[kind](f"{n}") for n, kind in enumerate(kinds)))
            return await group.outcomes()

    refused = {"repeat": StorageError, "fail": ValueError, "guarded": GuardError}
    rows: list[str] = []
    for number, (kind, found) in enumerate(zip(kinds, asyncio.run(run()), strict=True)):
        name = "same" if kind == "repeat" else f"{number}"
        if kind == "read":
            assert found == len(rows)
        elif kind == "insert" or (kind == "repeat" and name not in rows):
            assert found == name
            rows.append(name)
        else:
            assert isinstance(found, refused[kind])
    assert names(path) == rows
