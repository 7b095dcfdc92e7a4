"""What the tests of the writer share: a schema, a way to hold its thread, a look from outside."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from corral.core.sqlite import SqliteWriter
from corral.local.wait import until_true

T = TypeVar("T")

APPLICATION_ID = 0x436F7272
MIGRATION = """
CREATE TABLE parent (id INTEGER PRIMARY KEY) STRICT;
CREATE TABLE item (
    name   TEXT PRIMARY KEY,
    body   BLOB,
    parent INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED
) STRICT;
"""
HELD_S = 30.0


def writer(
    path: Path,
    *,
    migrations: tuple[str, ...] = (MIGRATION,),
    application_id: int = APPLICATION_ID,
    **options: int,
) -> SqliteWriter:
    return SqliteWriter(path, application_id=application_id, migrations=migrations, **options)


def insert(name: str, size_bytes: int = 0) -> Callable[[sqlite3.Connection], str]:
    """A request that adds a row and answers its name."""

    def request(connection: sqlite3.Connection) -> str:
        connection.execute(
            "INSERT INTO item (name, body) VALUES (?, zeroblob(?))", (name, size_bytes)
        )
        return name

    return request


def count(connection: sqlite3.Connection) -> int:
    """A request that only reads."""
    return int(connection.execute("SELECT count(*) FROM item").fetchone()[0])


def failing(name: str, error: BaseException) -> Callable[[sqlite3.Connection], str]:
    """A request that adds a row and then fails."""

    def request(connection: sqlite3.Connection) -> str:
        insert(name)(connection)
        raise error

    return request


async def outcome(target: SqliteWriter, fn: Callable[[sqlite3.Connection], T]) -> Any:
    """The value of a request or the exception, of any kind, that it ended with."""
    try:
        return await target.submit(fn)
    except BaseException as error:
        return error


class Group:
    """Requests that are submitted in order while the thread is held: one group, if they fit."""

    def __init__(self, target: SqliteWriter) -> None:
        self._target = target
        self.tasks: list[asyncio.Task[Any]] = []

    def submit(self, *requests: Callable[[sqlite3.Connection], Any]) -> None:
        for fn in requests:
            self.tasks.append(asyncio.create_task(outcome(self._target, fn)))

    async def outcomes(self) -> list[Any]:
        """The value or the exception of each request, in order."""
        return [await task for task in self.tasks]


@contextlib.asynccontextmanager
async def held(target: SqliteWriter) -> AsyncIterator[Group]:
    """Hold the writer's thread in a request of its own; what is submitted inside waits together."""
    begun, release = threading.Event(), threading.Event()

    def hold(_connection: sqlite3.Connection) -> None:
        begun.set()
        assert release.wait(HELD_S)

    holder = asyncio.create_task(target.submit(hold))
    try:
        await until_true(begun.is_set, HELD_S, "the thread to be held")
        group = Group(target)
        yield group
        # Each task has put its request once it has run up to its first await.
        await asyncio.sleep(0)
    finally:
        release.set()
    await holder


def names(path: Path) -> list[str]:
    """The committed rows, seen by a connection of its own."""
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as connection:
        return [row[0] for row in connection.execute("SELECT name FROM item ORDER BY rowid")]


def execute(path: Path, *commands: str) -> None:
    """Change a database from outside."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for command in commands:
            connection.execute(command)
