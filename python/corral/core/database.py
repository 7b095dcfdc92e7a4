"""A database file of ours: created private, recognised, migrated, copied. All of it blocks."""

import contextlib
import functools
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from corral.core.errors import ForeignDatabaseError, StorageError
from corral.core.ids import digest
from corral.core.sqlfiles import load_sql, statements

_MIGRATION_TAG: Final = "corral.core.migration"
_WAL_FRAME_HEADER_BYTES: Final = 24
_FULL_SYNCHRONOUS: Final = 2
_OLDEST: Final = re.compile(r"-- oldest: ([1-9][0-9]*)\n")


@dataclass(frozen=True)
class Schema:
    """What makes a database ours: `application_id` (32 bits) and the migrations, in order.

    A migration that leaves earlier releases able to work begins with `-- oldest: N`: the number of
    migrations that a release must know of at least. Without it a release must know this one.
    """

    application_id: int
    migrations: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 0 < self.application_id < 2**31:
            raise ValueError("application_id must be a positive signed 32-bit number")


class GuardedConnection(sqlite3.Connection):
    """Refuses what would end the transaction of a whole group behind the writer's back."""

    def commit(self) -> None:
        raise sqlite3.ProgrammingError("the writer commits, not the request")

    def rollback(self) -> None:
        raise sqlite3.ProgrammingError("raise an exception to roll a request back")

    def __enter__(self) -> Self:
        raise sqlite3.ProgrammingError("a with statement commits: the writer does that")

    def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
        raise sqlite3.ProgrammingError("executescript() commits: use execute()")


def storage_error(error: BaseException, path: Path) -> StorageError:
    """A new `StorageError` for what SQLite or the system reported; says what to do next."""
    if isinstance(error, StorageError):
        return type(error)(error.message, hint=error.hint, ids=error.ids)
    if isinstance(error, OSError):
        text, name = error.strerror or str(error), ""
    elif isinstance(error, sqlite3.Error):
        text, name = str(error), getattr(error, "sqlite_errorname", "")
    else:
        text, name = type(error).__name__, ""  # its text may hold content
    message = f"{path}: {text}" + (f" [{name}]" if name else "")
    return StorageError(message, hint=_hint(name, error), ids={"path": str(path)})


def _hint(name: str, error: BaseException) -> str:
    if name == "SQLITE_FULL":
        return "the disk is full: free space, work goes on by itself"
    if name.startswith("SQLITE_IOERR"):
        return "the disk refused: is it full, is there a quota or a limit? Then see the kernel log"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another program holds the database: only one may write"
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return "check that the directory exists and belongs to the service"
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return "stop the service and restore the newest backup"
    if isinstance(error, OSError):
        return "check that the directory exists, belongs to the service and has space"
    return ""


def open_database(
    path: Path,
    schema: Schema,
    *,
    busy_timeout_ms: int,
    journal_size_limit_bytes: int,
    create: bool = True,
) -> sqlite3.Connection:
    """Open for writing, after making sure that the file is ours and its schema up to date.

    `ForeignDatabaseError` for another application's file, an edited migration, or a schema of a
    newer release that this one cannot use (one that it can is taken as it is);
    `StorageError` for everything that the disk or a lock refuses. With `create=False` a file
    that is gone is an error and not a new, empty ledger.
    """
    try:
        _prepare_file(path, create=create)
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
            factory=GuardedConnection,
        )
    except (OSError, sqlite3.Error) as error:
        raise storage_error(error, path) from error
    try:
        _recognise(connection, path, schema)
        _configure(connection, path, journal_size_limit_bytes)
        _migrate(connection, path, schema)
        _pragma(connection, "foreign_keys = ON")
        # A process that is killed often must not let the log grow from start to start.
        truncate_wal(connection, busy_timeout_ms=busy_timeout_ms)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error | OSError):
            raise storage_error(error, path) from error
        raise
    return connection


def truncate_wal(connection: sqlite3.Connection, *, busy_timeout_ms: int) -> bool:
    """Move the write-ahead log into the database and empty it; `False` if a reader is in the way.

    Never waits and never raises: the log is as good a place as the database.
    """
    try:
        _pragma(connection, "busy_timeout = 0")
        try:
            row = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            _pragma(connection, f"busy_timeout = {busy_timeout_ms}")
    except sqlite3.Error:
        return False
    return bool(row[0] == 0)


def check_database(path: Path) -> list[str]:
    """What is wrong with the file, one line each; empty when nothing is."""
    try:
        with contextlib.closing(_read_only(path)) as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check")]
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return [str(error)]
        raise storage_error(error, path) from error
    orphans = [f"row {row[1]} of {row[0]} refers to a missing {row[2]}" for row in broken]
    return [line for line in found if line != "ok"] + orphans


def examine_database(path: Path, schema: Schema) -> None:
    """`ForeignDatabaseError` when the file is not ours or too new, `StorageError` when it cannot
    be read. Changes nothing."""
    try:
        with contextlib.closing(_read_only(path)) as connection:
            _recognise(connection, path, schema)
    except sqlite3.Error as error:
        raise storage_error(error, path) from error


def copy_database(path: Path, dest: Path) -> None:
    """A consistent copy, while others write: one file, mode 0600, on the disk, verified.

    `dest` appears complete or not at all; an older one is replaced. `StorageError` otherwise.
    """
    partial = dest.with_name(f".{dest.name}.partial")
    try:
        if dest.exists() and dest.samefile(path):
            raise StorageError(f"{dest}: is the database itself", ids={"path": str(dest)})
        _remove(partial)  # of a process that was killed
        try:
            _create_private(partial)
            _copy_into(path, partial)
            _sync(partial)
            partial.replace(dest)
            _sync(dest.parent)
        finally:
            _remove(partial)
    except (OSError, sqlite3.Error) as error:
        raise storage_error(error, dest) from error


def back_up(path: Path) -> Path:
    """A copy as `copy_database` makes it, in `backups` beside the database; its path."""
    dest = path.parent / "backups" / f"{path.stem}-{time.time_ns() // 1_000_000}.db"
    try:
        dest.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise storage_error(error, dest.parent) from error
    copy_database(path, dest)
    return dest


def _copy_into(path: Path, partial: Path) -> None:
    with (
        contextlib.closing(_read_only(path)) as source,
        contextlib.closing(sqlite3.connect(partial, isolation_level=None)) as target,
    ):
        source.backup(target)  # all pages in one step: one snapshot, writers go on meanwhile
        # A copy is one file that can be read where nothing may be written beside it.
        _pragma(target, "journal_mode = DELETE")
        problem = target.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise StorageError(f"{path}: the copy is damaged: {problem}", ids={"path": str(path)})


def _read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, timeout=5.0
    )


def _prepare_file(path: Path, *, create: bool) -> None:
    # Never open() an existing database beside SQLite: closing the descriptor would drop the locks
    # that this process holds on it.
    if not create or path.exists():
        if not path.stat().st_mode & stat.S_IWUSR:
            # SQLite would open it for reading and leave files beside it that only read as well.
            raise StorageError(
                f"{path}: is read-only", hint=f"chmod 600 {path}", ids={"path": str(path)}
            )
        _make_private(path)
        for file in _beside(path):
            with contextlib.suppress(FileNotFoundError):
                _make_private(file)
        return
    with contextlib.suppress(FileExistsError):
        _create_private(path)
        _sync(path.parent)


def _beside(path: Path) -> Iterator[Path]:
    return (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal"))


def _remove(path: Path) -> None:
    for file in (path, *_beside(path)):
        file.unlink(missing_ok=True)


def _make_private(path: Path) -> None:
    mode = path.stat().st_mode
    if mode & 0o077 or not mode & stat.S_IWUSR:
        path.chmod(0o600)


def _create_private(path: Path) -> None:
    # SQLite gives the files that it puts beside a database (-wal, -shm, -journal) the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@functools.cache
def _sql() -> dict[str, str]:
    return load_sql("corral.core", "sql/history.sql")


def _pragma(connection: sqlite3.Connection, text: str) -> object:
    row = connection.execute(f"PRAGMA {text}").fetchone()
    return row[0] if row is not None else None


def _recognise(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    """Before the first write: is this file ours, and not from a newer release?"""
    ids = {"path": str(path)}
    try:
        found = _pragma(connection, "application_id")
        version = _version(connection)
        used = connection.execute(_sql()["used"]).fetchone() is not None
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB":
            raise
        raise ForeignDatabaseError(
            f"{path}: is not a database", hint="move the file away or restore a backup", ids=ids
        ) from None
    if found != schema.application_id and (found != 0 or version != 0 or used):
        raise ForeignDatabaseError(
            f"{path}: application_id is {found}, expected {schema.application_id}",
            hint="the file belongs to another program: check the state directory",
            ids=ids,
        )
    known = len(schema.migrations)
    if version > known and not _usable(connection, known):
        raise ForeignDatabaseError(
            f"{path}: the schema is version {version}, this program knows {known}",
            hint="written by a newer release: run that one, or restore a backup made before it",
            ids=ids,
        )


def _usable(connection: sqlite3.Connection, known: int) -> bool:
    """Does the release that made this schema say that one with `known` migrations may work?"""
    try:
        (oldest,) = connection.execute(_sql()["oldest"], (known,)).fetchone()
    except sqlite3.OperationalError:  # its history says nothing of that
        return False
    return oldest is not None and oldest <= known


def _configure(connection: sqlite3.Connection, path: Path, journal_size_limit_bytes: int) -> None:
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0] + _WAL_FRAME_HEADER_BYTES
    checkpoint_pages = max(journal_size_limit_bytes * 3 // 4 // page_bytes, 1)
    settings: tuple[tuple[str, str, object], ...] = (
        ("journal_mode", "WAL", "wal"),
        ("synchronous", "FULL", _FULL_SYNCHRONOUS),
        ("secure_delete", "ON", 1),
        ("journal_size_limit", str(journal_size_limit_bytes), journal_size_limit_bytes),
        # Pages that change again and again are written back once per checkpoint.
        ("wal_autocheckpoint", str(checkpoint_pages), checkpoint_pages),
    )
    for name, value, expected in settings:
        _pragma(connection, f"{name} = {value}")
        found = _pragma(connection, name)
        if found != expected:
            raise StorageError(
                f"{path}: {name} is {found!r} and not {expected!r}",
                hint="the file system must support shared memory and locks: use a local one",
                ids={"path": str(path)},
            )


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection, path: Path, schema: Schema) -> None:
    digests = [digest(_MIGRATION_TAG, text) for text in schema.migrations]
    # Off while tables are rebuilt; what a migration leaves behind is checked before its commit.
    _pragma(connection, "foreign_keys = OFF")
    if _narrow(connection):
        with _transaction(connection):
            if _narrow(connection):  # else another process was faster
                connection.execute(_sql()["widen"])
                connection.execute(_sql()["fill"])
    for number in range(_version(connection) + 1, len(digests) + 1):
        with _transaction(connection):
            if _version(connection) < number:  # else another process was faster
                _apply(connection, path, schema, number, digests[number - 1])
    _compare_history(connection, path, digests)


def _narrow(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute(_sql()["narrow"]).fetchone()[0])


def _apply(
    connection: sqlite3.Connection, path: Path, schema: Schema, number: int, text_digest: bytes
) -> None:
    if number == 1:
        _pragma(connection, f"application_id = {schema.application_id}")
        connection.execute(_sql()["create"])
    for statement in statements(schema.migrations[number - 1]):
        connection.execute(statement)
    orphan = connection.execute("PRAGMA foreign_key_check").fetchone()
    if orphan is not None:
        raise StorageError(
            f"{path}: migration {number} leaves rows of {orphan[0]} without their {orphan[2]}",
            ids={"path": str(path)},
        )
    said = _OLDEST.match(schema.migrations[number - 1])
    oldest = int(said[1]) if said else number
    applied_ms = time.time_ns() // 1_000_000
    connection.execute(_sql()["record"], (number, text_digest, applied_ms, oldest))
    _pragma(connection, f"user_version = {number}")


def _compare_history(connection: sqlite3.Connection, path: Path, digests: Sequence[bytes]) -> None:
    if not digests:
        return
    applied = dict(connection.execute(_sql()["applied"]).fetchall())
    edited = [n for n, expected in enumerate(digests, 1) if applied.get(n) != expected]
    if edited or len(applied) != max(len(digests), _version(connection)):
        raise ForeignDatabaseError(
            f"{path}: migration {(edited or [len(digests) + 1])[0]} was applied with another text",
            hint="migrations are append-only: run the release that wrote the file",
            ids={"path": str(path)},
        )


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
