"""Scenarios on a disk that refuses: really full, limited in file size, failing to flush."""

import asyncio
import contextlib
import os
import resource
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from corral.core.errors import StorageError
from corral.core.sqlite import SqliteReader, SqliteWriter
from tests.unit.core.child import say
from tests.unit.core.databases import count, held, insert, names, outcome, writer
from tests.unit.core.failing_flush import no_flush_in_this_thread

BIG_BYTES = 6 * 1024 * 1024  # more than SQLite's page cache: written before the COMMIT


def fill(directory: Path, leave_bytes: int = 0) -> None:
    """Use up the space of the file system."""
    with (directory / "ballast").open("wb", buffering=0) as ballast:
        for size in (1024 * 1024, 4096, 1):
            with contextlib.suppress(OSError):
                while ballast.write(b"\0" * size) == size:
                    pass
        os.truncate(ballast.fileno(), max(0, ballast.tell() - leave_bytes))


def free(directory: Path) -> None:
    (directory / "ballast").unlink()


def described(outcomes: list[Any]) -> list[Any]:
    """What a test compares: values as they are, errors by kind, SQLite's name and hint."""
    return [
        {
            "kind": type(found).__name__,
            "sqlite": getattr(found.__cause__, "sqlite_errorname", None),
            "hint": getattr(found, "hint", ""),
        }
        if isinstance(found, BaseException)
        else found
        for found in outcomes
    ]


async def group_of(
    ledger: SqliteWriter, *requests: Callable[[sqlite3.Connection], Any]
) -> list[Any]:
    async with held(ledger) as group:
        group.submit(*requests)
    return described(await group.outcomes())


async def full(directory: Path) -> None:
    """A COMMIT that finds no space, alone and in a group; then there is space again."""
    path = directory / "ledger.db"
    async with writer(path) as ledger:
        await ledger.submit(insert("before"))
        fill(directory)
        alone = described([await outcome(ledger, insert("alone", 100_000))])
        group = await group_of(ledger, count, insert("a", 100_000), insert("b"))
        backup = described([await caught_backup(ledger, directory / "copy.db")])
        async with SqliteReader(path) as reader:
            (seen,) = await reader.fetch("SELECT count(*) FROM item")
        left = sorted(item.name for item in directory.iterdir())
        free(directory)
        after = described([await outcome(ledger, insert("after", 100_000))])
        say({"alone": alone, "group": group, "backup": backup, "seen": seen[0], "left": left})
        say({"after": after, "rows": names(path), "integrity": await ledger.integrity()})


async def caught_backup(ledger: SqliteWriter, dest: Path) -> object:
    try:
        await ledger.backup(dest)
    except StorageError as error:
        return error
    return None


async def middle(directory: Path) -> None:
    """A request so large that the disk is full before the COMMIT: SQLite rolls everything back."""
    path = directory / "ledger.db"
    ran: list[str] = []

    def last(connection: sqlite3.Connection) -> None:
        ran.append(insert("last")(connection))

    def swallowing(connection: sqlite3.Connection) -> str:
        with contextlib.suppress(sqlite3.Error):
            insert("swallowed", BIG_BYTES)(connection)
        return "done"

    async with writer(path) as ledger:
        await ledger.submit(insert("before"))
        fill(directory, leave_bytes=1024 * 1024)
        group = await group_of(ledger, insert("small"), insert("big", BIG_BYTES), last)
        quiet = await group_of(ledger, insert("small"), swallowing, last)
        alone = described([await outcome(ledger, insert("big", BIG_BYTES))])
        fits = await ledger.submit(insert("fits"))
        say({"group": group, "quiet": quiet, "alone": alone, "fits": fits, "ran": ran})
        free(directory)
        again = await group_of(ledger, insert("small"), insert("big", BIG_BYTES), last)
        say({"again": again, "rows": names(path), "integrity": await ledger.integrity()})


async def opening(directory: Path) -> None:
    """A disk that is full at the start: the same writer opens once there is space."""
    path = directory / "ledger.db"
    fill(directory)
    ledger = writer(path)
    try:
        await ledger.open()
    except StorageError as error:
        say({"refused": error.code})
    free(directory)
    async with ledger:
        say({"value": await ledger.submit(insert("a")), "rows": names(path)})


async def limited(directory: Path) -> None:
    """A limit of the file size (as of a quota), reached and lifted again."""
    path = directory / "ledger.db"
    async with writer(path) as ledger:
        await ledger.submit(insert("before"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
        outcomes = [await outcome(ledger, insert(f"{number}", 50_000)) for number in range(10)]
        group = await group_of(ledger, count, insert("a", 300_000), insert("b", 300_000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        after = await outcome(ledger, insert("after", 300_000))
        say({"outcomes": described(outcomes), "group": group, "after": described([after])})
        say({"rows": names(path), "integrity": await ledger.integrity()})


async def unflushed(directory: Path) -> None:
    """A flush that the disk refuses: nobody may be answered."""
    path = directory / "ledger.db"
    async with writer(path) as ledger:
        say(await ledger.submit(insert("before")))
        await ledger.submit(no_flush_in_this_thread)
        first = await group_of(ledger, insert("a"), count, insert("b"))
        second = described([await outcome(ledger, insert("c"))])
        say({"first": first, "second": second})


SCENARIOS = {
    scenario.__name__: scenario for scenario in (full, middle, opening, limited, unflushed)
}

if __name__ == "__main__":
    asyncio.run(SCENARIOS[sys.argv[1]](Path(sys.argv[2])))
