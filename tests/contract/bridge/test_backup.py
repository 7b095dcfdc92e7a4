"""The bridge's ledger as `corral backup` takes it and puts it back, in a real PostgreSQL."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from corral.backup import ledger
from corral.bridge.database import Target, check, connection, migrate
from corral.core.errors import StorageError, UnavailableError
from corral.local.postgres import SUPERUSER, find_postgres
from tests.contract.bridge.conftest import Servers

MAJOR, OWNER = 15, "keeper"


@pytest.fixture
def target(postgres_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Target]:
    """A database whose owner is nobody special, as on a host; PostgreSQL's programs on PATH."""
    server = postgres_servers.server(MAJOR)
    programs = find_postgres()[MAJOR].folder
    if not (programs / "pg_dump").exists():
        pytest.skip("this PostgreSQL has no pg_dump")
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")

    async def admin(*statements: str) -> None:
        made = await asyncpg.connect(server.dsn())
        try:
            for statement in statements:
                await made.execute(statement)
        finally:
            await made.close()

    asyncio.run(admin(f"CREATE ROLE {OWNER} LOGIN", f"CREATE DATABASE kept OWNER {OWNER}"))
    yield Target(server.dsn("kept").replace(f"//{SUPERUSER}@", f"//{OWNER}@"))
    asyncio.run(admin("DROP DATABASE kept WITH (FORCE)", f"DROP ROLE {OWNER}"))


def user_of(target: Target) -> str:
    """Who may enter the folder of the server's socket."""
    (folder,) = parse_qs(urlsplit(target.dsn).query)["host"]
    return Path(folder).owner()


async def _asked(target: Target, statement: str) -> object:
    async with connection(target) as made:
        return await made.fetchval(statement)


async def _migrated(target: Target) -> None:
    async with connection(target) as made:
        await migrate(made)


async def _checked(target: Target) -> None:
    async with connection(target) as made:
        await check(made)


def test_what_was_dumped_takes_the_place_of_what_is_there_only_when_wanted(
    target: Target, tmp_path: Path
) -> None:
    asyncio.run(_migrated(target))
    # A table of nobody's release stands for a row, and for a schema of a later one.
    asyncio.run(_asked(target, "CREATE TABLE of_then AS SELECT 'secret words' AS text"))
    dump = tmp_path / "ledger.dump"
    with dump.open("xb") as file:
        ledger.dump(target.dsn, user_of(target), file)
    asyncio.run(_asked(target, "CREATE TABLE of_later AS SELECT 1 AS number"))
    with pytest.raises(StorageError, match="not empty") as raised:
        ledger.restore(target.dsn, user_of(target), dump, replace=False)
    assert "secret words" not in str(raised.value)
    assert asyncio.run(_asked(target, "SELECT number FROM of_later")) == 1
    ledger.restore(target.dsn, user_of(target), dump, replace=True)
    assert asyncio.run(_asked(target, "SELECT to_regclass('of_later')")) is None
    assert asyncio.run(_asked(target, "SELECT text FROM of_then")) == "secret words"
    asyncio.run(_checked(target))  # the bridge knows it for its own
    owner = "SELECT tableowner FROM pg_tables WHERE tablename = 'of_then'"
    assert asyncio.run(_asked(target, owner)) == OWNER


def test_a_dump_that_is_cut_changes_nothing(target: Target, tmp_path: Path) -> None:
    asyncio.run(_migrated(target))
    dump = tmp_path / "ledger.dump"
    with dump.open("xb") as file:
        ledger.dump(target.dsn, user_of(target), file)
    dump.write_bytes(dump.read_bytes()[: dump.stat().st_size * 2 // 3])
    with pytest.raises(UnavailableError, match="pg_restore with 1"):
        ledger.restore(target.dsn, user_of(target), dump, replace=True)
    asyncio.run(_checked(target))


def test_a_server_that_is_away_is_said_to_be(target: Target, tmp_path: Path) -> None:
    away = target.dsn.replace("port=", "port=1")
    with (
        (tmp_path / "dump").open("xb") as file,
        pytest.raises(UnavailableError, match="PostgreSQL running"),
    ):
        ledger.dump(away, user_of(target), file)
