"""SQLite as the services use it: one writer with group commit, readers beside it.

`SqliteWriter` runs one thread with one connection. The thread takes all requests that wait,
up to `group_max`, as one transaction with one COMMIT, that is one flush of the disk, and answers
none of them before. So sixty-four callers cost about as many flushes as one.

What a caller can rely on:

- An answer, value or exception of its own function, means that the COMMIT of its group is on the
  disk, or that the request changed nothing.
- `StorageError` means that nobody may count on the request. It is not in the database, except that
  after a COMMIT that failed in the middle of its flush a crash may bring it back.
- A caller that is cancelled withdraws nothing: its request is still done.
"""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from corral.core.crashpoints import crashpoint, register
from corral.core.database import (
    Schema,
    check_database,
    copy_database,
    open_database,
    truncate_wal,
)
from corral.core.errors import StorageError
from corral.core.group import Callback, Request, TransactionEndedError, answer
from corral.core.reader import SqliteReader
from corral.core.sqlfiles import load_sql, migrations

__all__ = [
    "COMMIT_AFTER",
    "COMMIT_BEFORE",
    "JOURNAL_SIZE_LIMIT_BYTES",
    "SqliteReader",
    "SqliteWriter",
    "load_sql",
    "migrations",
]

T = TypeVar("T")

COMMIT_BEFORE: Final = register(
    "core.sqlite.commit.before", "all of a group is done, its COMMIT has not begun"
)
COMMIT_AFTER: Final = register(
    "core.sqlite.commit.after", "the COMMIT of a group is durable, nobody was answered"
)
JOURNAL_SIZE_LIMIT_BYTES: Final = 16 * 1024 * 1024

# After a lost group the connection is as good as before with these, and opened anew with others.
_HARMLESS: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CONSTRAINT}
)


class SqliteWriter:
    """The only writer of one database file. Belongs to the event loop in which it is opened."""

    def __init__(
        self,
        path: Path,
        *,
        application_id: int,
        migrations: Sequence[str],
        group_max: int = 64,
        busy_timeout_ms: int = 5000,
        journal_size_limit_bytes: int = JOURNAL_SIZE_LIMIT_BYTES,
    ) -> None:
        if group_max < 1:
            raise ValueError(f"group_max must be at least 1, not {group_max}")
        self.path = path
        self.commits = 0
        self.version = 0  # of the schema, once it is open: as many migrations were applied
        self._schema = Schema(application_id, tuple(migrations))
        self._group_max = group_max
        self._busy_timeout_ms = busy_timeout_ms
        self._journal_size_limit_bytes = journal_size_limit_bytes
        self._backup_lock = threading.Lock()
        self._queue: SimpleQueue[Request[Any] | None] = SimpleQueue()  # None: the last one
        # Used by the event loop:
        self._loop: asyncio.AbstractEventLoop
        self._closed: asyncio.Future[None] | None = None  # there while the thread lives
        self._accepting = False
        self._closing = False
        # Used by the thread:
        self._connection: sqlite3.Connection | None = None
        self._loop_gone = False
        self._identity: tuple[int, int] | None = None
        self._bytes = 0
        self._wal_path = Path(f"{path}-wal")
        self._wal_bytes = 0
        self._truncate_at_bytes = journal_size_limit_bytes

    async def open(self) -> None:
        """Create (mode 0600) or open the file, apply the missing migrations, start the thread.

        `ForeignDatabaseError` for a file that is not ours or too new, `StorageError` for what
        the disk refuses; after either the writer may be opened again.
        """
        if self._closed is not None:
            raise self._error("is open already")
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        closed: asyncio.Future[None] = loop.create_future()
        self._loop, self._loop_gone = loop, False
        self._closed, self._closing = closed, False
        self._identity, self._bytes = None, 0
        self._queue = SimpleQueue()
        # A daemon: a service that ends without close() must not hang; SQLite survives that.
        threading.Thread(
            target=self._run, args=(opened, closed), name=f"sqlite {self.path.name}", daemon=True
        ).start()
        await opened

    async def submit(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        """Run `fn(connection)` in the writer's thread, in the transaction of its group.

        Answers `fn`'s value after the COMMIT. An exception of `fn` undoes what `fn` did and
        nothing else, and is raised here; a `sqlite3.Error` as the cause of a `StorageError`.
        `fn` must not begin, commit or roll back, nor keep the connection or a cursor.
        """
        if not self._accepting:
            raise self._error("is not open")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(Request(fn, future))
        try:
            return await future
        finally:
            del future  # else an exception and its traceback keep each other alive

    def ask(
        self,
        fn: Callable[[sqlite3.Connection], T],
        call: Callable[[T | None, BaseException | None], None],
    ) -> None:
        """As `submit`, without a task: in the event loop, `call` gets the value or the exception.

        A writer that is not open raises here. What `call` raises goes to the loop's handler.
        """
        if not self._accepting:
            raise self._error("is not open")
        self._queue.put(Request(fn, Callback(call)))

    async def close(self) -> None:
        """Do all that was submitted, empty the write-ahead log, close. May be repeated."""
        closed = self._closed
        if closed is None:
            return
        if not self._closing:
            self._closing, self._accepting = True, False
            self._queue.put(None)
        await asyncio.shield(closed)
        if self._closed is closed:
            self._closed = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def wal_bytes(self) -> int:
        """Size of the write-ahead log after the last group; no system call."""
        return self._wal_bytes

    async def integrity(self) -> list[str]:
        """What SQLite finds wrong with the file, one line each; reads all of it meanwhile."""
        if not self._accepting:
            raise self._error("is not open")
        return await asyncio.to_thread(check_database, self.path)

    async def backup(self, dest: Path) -> None:
        """A consistent copy at `dest` (mode 0600, flushed, verified); writing goes on meanwhile.

        `dest` is replaced in one step or left as it was. `StorageError` if that fails.
        """
        if not self._accepting:
            raise self._error("is not open")
        await asyncio.to_thread(self._copy, dest)

    def _error(self, problem: str, hint: str = "") -> StorageError:
        return StorageError(f"{self.path}: {problem}", hint=hint, ids={"path": str(self.path)})

    def _copy(self, dest: Path) -> None:
        with self._backup_lock:
            copy_database(self.path, dest)

    # In the event loop, on behalf of the thread.

    def _opened(self, opened: "asyncio.Future[None]") -> None:
        self._accepting = not self._closing
        _settle(opened)

    def _not_opened(
        self,
        opened: "asyncio.Future[None]",
        closed: "asyncio.Future[None]",
        error: BaseException,
    ) -> None:
        self._closed = None
        _settle(closed)
        if not opened.done():
            opened.set_exception(error)

    # In the thread.

    def _run(self, opened: "asyncio.Future[None]", closed: "asyncio.Future[None]") -> None:
        try:
            self._connect(create=True)
        except BaseException as error:
            self._tell(self._not_opened, opened, closed, error)
            return
        self._tell(self._opened, opened)
        last = False
        while not last:
            group, last = self._next_group()
            if group:
                self._serve(group)
                self._bound_wal()
            del group  # a waiting thread must not keep values and callers alive
        self._disconnect()
        self._tell(_settle, closed)

    def _next_group(self) -> tuple[list[Request[Any]], bool]:
        """What waits, at least one request, and whether the thread ends after it."""
        group: list[Request[Any]] = []
        try:
            # Nobody can submit to a loop that is closed: finish what there is.
            request = self._queue.get(block=not self._loop_gone)
            while request is not None:
                group.append(request)
                if len(group) == self._group_max:
                    return group, False
                request = self._queue.get_nowait()
        except Empty:
            return group, self._loop_gone and not group
        return group, True

    def _serve(self, group: list[Request[Any]]) -> None:
        try:
            self._commit(group)
        except BaseException as error:  # whatever it is, nobody may wait for ever
            self._lose(group, error)
        self._tell(answer, group)

    def _commit(self, group: list[Request[Any]]) -> None:
        connection = self._connection or self._connect(create=False)
        connection.execute("BEGIN IMMEDIATE")
        if len(group) == 1:
            if not group[0].attempt(connection, self.path):
                connection.execute("ROLLBACK")
                return
        else:
            for request in group:
                connection.execute("SAVEPOINT request")
                if not request.attempt(connection, self.path):
                    connection.execute("ROLLBACK TO request")
                connection.execute("RELEASE request")
        crashpoint(COMMIT_BEFORE)
        connection.execute("COMMIT")
        crashpoint(COMMIT_AFTER)
        self._wal_bytes = self._same_file()
        self.commits += 1

    def _lose(self, group: list[Request[Any]], error: BaseException) -> None:
        """Nothing of the group is in the database: tell everyone, make the connection good."""
        cause = error.__cause__ if isinstance(error, TransactionEndedError) else error
        for request in group:
            if cause is None:
                request.error = self._error("a request ended the transaction of its group")
            else:
                request.fail(cause, self.path)
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            self._disconnect()
            return
        code = getattr(cause, "sqlite_errorcode", -1)
        if cause is not None and code & 0xFF not in _HARMLESS:
            self._disconnect()

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        if not create:
            self._same_file()
        self._connection = open_database(
            self.path,
            self._schema,
            busy_timeout_ms=self._busy_timeout_ms,
            journal_size_limit_bytes=self._journal_size_limit_bytes,
            create=create,
        )
        self.version = int(self._connection.execute("PRAGMA user_version").fetchone()[0])
        self._wal_bytes = self._same_file()
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            # First, while this connection still knows which frames of the log were committed.
            truncate_wal(connection, busy_timeout_ms=self._busy_timeout_ms)
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _same_file(self) -> int:
        """Size of the log; refuses to call a file durable that was removed, replaced or cut."""
        try:
            file = self.path.stat()
            identity = (file.st_dev, file.st_ino)
            self._identity = self._identity or identity
            if file.st_size < self._bytes:  # nothing of ours makes it smaller
                self._identity = (-1, -1)  # it stays refused, whatever it grows to
            self._bytes = file.st_size
            if identity == self._identity:
                # Without a connection the log may be gone: the last one that closes removes it.
                return self._wal_path.stat().st_size if self._connection else 0
        except FileNotFoundError:
            pass
        raise self._error(
            "was removed, replaced or truncated while in use",
            "stop the service, put its database back, start it again",
        )

    def _bound_wal(self) -> None:
        """Readers can keep SQLite from starting the log again; then it only grows."""
        if self._wal_bytes <= self._truncate_at_bytes or self._connection is None:
            return
        done = truncate_wal(self._connection, busy_timeout_ms=self._busy_timeout_ms)
        # With a reader in the way an attempt costs flushes for nothing: not at every commit.
        grown = 0 if done else self._wal_bytes
        self._truncate_at_bytes = self._journal_size_limit_bytes + grown

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *arguments)
        except RuntimeError:  # the loop is closed, and with it everybody who could listen
            self._loop_gone = True


def _settle(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
