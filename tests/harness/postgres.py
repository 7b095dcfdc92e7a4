"""PostgreSQL servers for tests: one of each version for a run, its database emptied for each test.

`fsync` is off: these tests kill processes, not the machine's power.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg

from corral.bridge.database import Target, connection, migrate
from corral.local.postgres import PostgresServer, find_postgres

TABLES = (
    "bridge_delegation_controls, bridge_delegations, bridge_appservice_transactions, bridge_seen, "
    "bridge_processed_events, bridge_contexts, bridge_workers, bridge_transaction_conflicts"
)
FAST = {"fsync": "off", "full_page_writes": "off"}
MAJORS = (15, 18)


@contextlib.contextmanager
def server(major: int) -> Iterator[PostgresServer]:
    """A running server in a folder that an unprivileged user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="corral-pg-"))
    folder.chmod(0o755)
    try:
        with PostgresServer(folder / "pg", find_postgres()[major], settings=FAST) as made:
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def create(server: PostgresServer, name: str) -> Target:
    """A database with the bridge's schema."""
    made = await asyncpg.connect(server.dsn())
    try:
        await made.execute(f'CREATE DATABASE "{name}"')
    finally:
        await made.close()
    target = Target(server.dsn(name))
    async with connection(target) as fresh:
        await migrate(fresh)
    return target


async def empty(target: Target) -> None:
    """Nothing is in the tables any more, and nobody is connected but us."""
    async with connection(target) as made:
        await made.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        await made.execute(f"TRUNCATE {TABLES} RESTART IDENTITY CASCADE")
