"""Connections to the ledger's PostgreSQL: made, recognised, migrated; their faults named."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import asyncpg

from corral.bridge.errors import LedgerError, PooledError
from corral.core.errors import ForeignDatabaseError
from corral.core.ids import digest
from corral.core.sqlfiles import load_sql, migrations

PACKAGE: Final = "corral.bridge"
SQL: Final = load_sql(PACKAGE, "sql/schema.sql")
KNOWN: Final = migrations(PACKAGE)
MIGRATION_TAG: Final = "corral.bridge.migration"
CONNECT_TIMEOUT_S: Final = 10.0
COMMAND_TIMEOUT_S: Final = 30.0
# A paused holder of a lock is cut off by the server, so that others go on.
IDLE_IN_TRANSACTION_S: Final = 10

_REFUSED_SETTING: Final = "startup parameter"  # what PgBouncer says
_OLDEST: Final = re.compile(r"-- oldest: (\d+)\n")
_CONNECTION_FAULTS: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.PostgresSystemError,
    asyncpg.InternalServerError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the ledger is. `pooled`: behind a pooler of transactions, which keeps no sessions."""

    dsn: str
    pooled: bool = False
    application: str = "a2a-bridge"


def _pooled(why: str) -> PooledError:
    return PooledError(
        f"database: it is reached through a pooler of transactions: {why}",
        hint="set database_pooled, or name PostgreSQL itself, or a pooler of sessions that passes"
        " on the settings of a connection",
    )


@contextlib.contextmanager
def faults_named() -> Iterator[None]:
    """Turns what the server, the network or the driver raises into `LedgerError`."""
    try:
        yield
    except _CONNECTION_FAULTS as error:
        if isinstance(error, asyncpg.ProtocolViolationError) and _REFUSED_SETTING in str(error):
            raise _pooled("it refuses the settings of a session") from None
        text = getattr(error, "sqlstate", None) or type(error).__name__
        raise LedgerError(
            f"the ledger's database does not do what it was asked ({text})",
            hint="check that PostgreSQL runs, takes writes and has space: a2a-bridge doctor",
        ) from error


def _options(target: Target) -> dict[str, Any]:
    return {
        "dsn": target.dsn,
        "timeout": CONNECT_TIMEOUT_S,
        "command_timeout": COMMAND_TIMEOUT_S,
        "statement_cache_size": 0 if target.pooled else 200,
        "server_settings": {}
        if target.pooled
        else {
            "application_name": target.application,
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
            "jit": "off",
        },
    }


async def connect(target: Target) -> "asyncpg.Connection[asyncpg.Record]":
    """One connection. `LedgerError` when there is none."""
    with faults_named():
        return await asyncpg.connect(**_options(target))


async def check_sessions(target: Target) -> None:
    """`PooledError` when connections of ours share one of the server's: a lock of a session would
    be anybody's, and stay behind. Nothing to check where the settings say so."""
    if target.pooled:
        return
    async with connection(target) as one, connection(target) as other:
        with faults_named():
            first = await one.fetchval(SQL["backend"])
            async with other.transaction():
                second = await other.fetchval(SQL["backend"])
                if second == first or await one.fetchval(SQL["backend"]) != first:
                    raise _pooled("its sessions are not ours alone")


class Ledger:
    """Connections to the ledger, made when they are needed: `async with Ledger(target, 8)`.

    Every fault is a `LedgerError`; a connection with which anything went wrong is not used again.
    """

    def __init__(self, target: Target, size: int) -> None:
        self.pooled: Final = target.pooled
        self._pool = asyncpg.create_pool(min_size=0, max_size=size, reset=_keep, **_options(target))

    async def __aenter__(self) -> Self:
        await self._pool
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.terminate()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """One connection for a while; cut when an exception leaves the block."""
        with faults_named():
            async with self._pool.acquire(timeout=CONNECT_TIMEOUT_S) as made:
                try:
                    yield made
                except BaseException:
                    made.terminate()
                    raise

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        async with self.connection() as made:
            rows: list[Any] = await made.fetch(query, *args)
            return rows

    async def fetchrow(self, query: str, *args: Any) -> Any:
        async with self.connection() as made:
            return await made.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        async with self.connection() as made:
            return await made.fetchval(query, *args)

    async def execute(self, query: str, *args: Any) -> None:
        async with self.connection() as made:
            await made.execute(query, *args)


async def _keep(connection: Any) -> None:
    """Our statements leave nothing behind: no reset, which would be a round trip each."""


@contextlib.asynccontextmanager
async def connection(
    target: Target,
) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection that is closed, or cut when that takes long."""
    made = await connect(target)
    try:
        yield made
    finally:
        await close(made)


async def close(made: "asyncpg.Connection[asyncpg.Record]") -> None:
    """Closes without waiting for a server that does not answer."""
    try:
        async with asyncio.timeout(2):
            await made.close()
    except (TimeoutError, *_CONNECTION_FAULTS):
        made.terminate()


async def migrate(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    """Brings the schema up to date; how many migrations were applied.

    Safe beside other processes that do the same. `ForeignDatabaseError` for a ledger that this
    release must not touch; a newer one whose changes leave it usable is taken as it is.
    """
    known = KNOWN
    with faults_named():
        async with connection.transaction():
            await connection.execute(SQL["lock"])
            done = await _applied(connection, known, create=True)
            for number, text in enumerate(known[done:], done + 1):
                await connection.execute(text)
                await connection.execute(
                    SQL["record"], number, digest(MIGRATION_TAG, text), _oldest(text)
                )
    return len(known) - min(done, len(known))


async def check(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    """`ForeignDatabaseError` unless the schema is one that this release can use as it is."""
    known = KNOWN
    with faults_named():
        done = await _applied(connection, known, create=False)
    if done < len(known):
        raise ForeignDatabaseError(
            f"the ledger has the schema {done}, this release needs {len(known)}",
            hint="start the bridge once: it brings the schema up to date",
        )


async def _applied(
    connection: "asyncpg.Connection[asyncpg.Record]", known: list[str], *, create: bool
) -> int:
    exists = await connection.fetchrow(SQL["exists"])
    if not exists["history"]:
        if exists["ledger"]:
            raise ForeignDatabaseError(
                "the database has tables of the bridge, but no history of its migrations",
                hint="give the bridge a database of its own",
            )
        if not create:
            return 0
        await connection.execute(SQL["create"])
        return 0
    rows = await connection.fetch(SQL["applied"])
    for row, text in zip(rows, known, strict=False):
        if row["digest"] != digest(MIGRATION_TAG, text):
            raise ForeignDatabaseError(
                f"migration {row['number']} of the ledger is not the one of this release",
                hint="give the bridge a database of its own, or the release that made this one",
            )
    if len(rows) > len(known) and max(row["oldest"] for row in rows) > len(known):
        raise ForeignDatabaseError(
            f"the ledger has the schema {len(rows)}, too new for this release ({len(known)})",
            hint="run the release that made it, or a later one",
        )
    return len(rows)


def _oldest(text: str) -> int:
    found = _OLDEST.match(text)
    if found is None:
        raise ValueError("a migration of the bridge begins with '-- oldest: N'")
    return int(found[1])
