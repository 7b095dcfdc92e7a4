"""Reading a database beside its writer. Services import this from `corral.core.sqlite`."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from corral.core.database import storage_error
from corral.core.errors import StorageError

if TYPE_CHECKING:
    import aiosqlite


class SqliteReader:
    """A reading connection of its own, for one `async with`: it is always closed.

    Cannot write (`query_only`) and does not create a file that is missing.
    """

    def __init__(self, path: Path, *, busy_timeout_ms: int = 5000) -> None:
        self.path = path
        self._busy_timeout_ms = busy_timeout_ms
        self._connection: aiosqlite.Connection | None = None

    async def __aenter__(self) -> Self:
        opening = asyncio.ensure_future(self._open())
        try:
            self._connection = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # Half an opening would leave its thread behind; the whole of it takes a moment.
            with contextlib.suppress(StorageError):
                await (await opening).close()
            raise
        return self

    async def _open(self) -> "aiosqlite.Connection":
        import aiosqlite

        connection = aiosqlite.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            timeout=self._busy_timeout_ms / 1000,
        )
        # A process that is told to end in the middle must not wait for this thread for ever.
        thread: threading.Thread = getattr(connection, "_thread", connection)  # type: ignore[arg-type]
        thread.daemon = True
        try:
            connection = await connection
        except sqlite3.Error as error:
            await asyncio.to_thread(thread.join)  # else it answers to a loop that may be closed
            raise storage_error(error, self.path) from error
        connection.row_factory = sqlite3.Row
        await connection.execute_fetchall("PRAGMA query_only = ON")  # touches no file: cannot fail
        return connection

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await asyncio.shield(asyncio.ensure_future(connection.close()))

    async def fetch(
        self, sql: str, params: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[sqlite3.Row]:
        """All rows of one SELECT, from one snapshot. `StorageError` for what SQLite refuses."""
        if self._connection is None:
            raise StorageError(f"{self.path}: is not open", ids={"path": str(self.path)})
        try:
            return list(await self._connection.execute_fetchall(sql, params))
        except sqlite3.Error as error:
            raise storage_error(error, self.path) from error
