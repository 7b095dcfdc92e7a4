"""Fixtures of the bridge's contract tests: a ledger in a real PostgreSQL, of each version."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import asyncpg
import pytest

from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Target
from corral.local.postgres import PostgresServer, find_postgres
from tests.contract.bridge.kit import SMALL
from tests.harness import postgres


class Servers:
    """Started when they are first asked for, kept for the run."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: dict[int, PostgresServer] = {}
        self._targets: dict[int, Target] = {}

    def server(self, major: int) -> PostgresServer:
        if major not in find_postgres():
            pytest.skip(f"no PostgreSQL {major} on this machine")
        if major not in self._running:
            self._running[major] = self._stack.enter_context(postgres.server(major))
        return self._running[major]

    def target(self, major: int) -> Target:
        if major not in self._targets:
            made = asyncio.run(postgres.create(self.server(major), "ledger"))
            self._targets[major] = made
        return self._targets[major]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="session")
def postgres_servers() -> Iterator[Servers]:
    servers = Servers()
    try:
        yield servers
    finally:
        servers.close()


@pytest.fixture(params=postgres.MAJORS, ids=lambda major: f"pg{major}")
def target(request: pytest.FixtureRequest, postgres_servers: Servers) -> Target:
    """An empty ledger in each version of PostgreSQL."""
    found = postgres_servers.target(request.param)
    asyncio.run(postgres.empty(found))
    return found


@pytest.fixture
def one_target(postgres_servers: Servers) -> Target:
    """An empty ledger, for what no version has a part in."""
    newest = max(set(postgres.MAJORS) & set(find_postgres()), default=postgres.MAJORS[0])
    found = postgres_servers.target(newest)
    asyncio.run(postgres.empty(found))
    return found


@pytest.fixture
async def sql(target: Target) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A connection of the test's own."""
    made = await asyncpg.connect(target.dsn)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def admission(target: Target) -> AsyncIterator[LedgerAdmission]:
    made = LedgerAdmission(target, SMALL)
    yield made
    await made.close()
