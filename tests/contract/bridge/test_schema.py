"""The schema: migrated once, refused when it is foreign or too new; what it does not let happen."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from corral.bridge import database
from corral.bridge.database import Ledger, Target, check, connection, migrate
from corral.bridge.session import SQL as WORK
from corral.core.errors import ForeignDatabaseError
from tests.contract.bridge.bridge import Bridge
from tests.contract.bridge.conftest import Servers
from tests.contract.bridge.kit import mention
from tests.harness import postgres


@pytest.fixture
async def fresh(postgres_servers: Servers) -> AsyncIterator[Any]:
    """A connection to a database that nobody has used."""
    server = postgres_servers.server(max(postgres.MAJORS))
    admin = await asyncpg.connect(server.dsn())
    await admin.execute("CREATE DATABASE fresh")
    try:
        async with connection(Target(server.dsn("fresh"))) as made:
            yield made
    finally:
        await admin.execute("DROP DATABASE fresh WITH (FORCE)")
        await admin.close()


async def test_migrations_are_applied_once_and_known_again(fresh: Any) -> None:
    with pytest.raises(ForeignDatabaseError, match="has the schema 0"):
        await check(fresh)
    assert await migrate(fresh) == len(database.KNOWN)
    assert await migrate(fresh) == 0
    await check(fresh)


async def test_a_ledger_of_a_later_release_is_used_if_it_allows_that(
    fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rollback by one release: its schema was only added to."""
    await migrate(fresh)
    ours = len(database.KNOWN)
    monkeypatch.setattr(database, "KNOWN", database.KNOWN[: ours - 1])
    assert await migrate(fresh) == 0
    await check(fresh)
    await fresh.execute("UPDATE bridge_migrations SET oldest = $1", ours)
    with pytest.raises(ForeignDatabaseError, match="too new"):
        await migrate(fresh)


async def test_an_edited_migration_and_foreign_tables_are_refused(fresh: Any) -> None:
    await fresh.execute("CREATE TABLE bridge_delegations (x int)")
    with pytest.raises(ForeignDatabaseError, match="no history"):
        await migrate(fresh)
    await fresh.execute("DROP TABLE bridge_delegations")
    await migrate(fresh)
    await fresh.execute("UPDATE bridge_migrations SET digest = '\\x00'")
    with pytest.raises(ForeignDatabaseError, match="is not the one"):
        await migrate(fresh)


async def test_the_earlier_releases_markers_are_taken_over(fresh: Any) -> None:
    await fresh.execute(
        "CREATE TABLE bridge_processed_events (event_id text PRIMARY KEY,"
        " processed_at timestamptz NOT NULL DEFAULT now())"
    )
    await fresh.execute("INSERT INTO bridge_processed_events VALUES ('$old')")
    await migrate(fresh)
    assert await fresh.fetchval("SELECT count(*) FROM bridge_processed_events") == 1


@pytest.fixture
async def ended(one_target: Target) -> AsyncIterator[Any]:
    """A connection to a ledger with one delivered job."""
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="reply x"))
        await bridge.quiet()
    async with connection(one_target) as made:
        yield made


@pytest.mark.parametrize("change", [
    "state = 'pending', terminal_at = NULL",
    "terminal_at = NULL",
    "prompt = 'content'",
    "result = 'content'",
    "artifacts = 'content'",
    "lease_owner = 'x'",
    "lease_owner = 'x', lease_expires_at = now()",
    "input_deadline_at = now()",
    "primary_event_id = '$other'",
    "primary_event_id = NULL",
    "part_event_ids = '{}'",
    "attempts = 0",
    "generation = 1",
    "never_left = 5",
    "sender = '@eve:example.org'",
    "reason = NULL",
    "resolved_at = now()",
])  # fmt: skip
async def test_the_database_refuses_what_must_not_be(ended: Any, change: str) -> None:
    await ended.execute("UPDATE bridge_delegations SET part_event_ids = '{$part}'")
    with pytest.raises(asyncpg.IntegrityConstraintViolationError):
        await ended.execute(f"UPDATE bridge_delegations SET {change}")
    # The control: a change that is allowed is not refused.
    await ended.execute("UPDATE bridge_delegations SET generation = generation + 1")


async def test_evidence_is_kept_as_long_as_it_must(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        for n, text in enumerate(["reply x", "lost x", "fail", "reject"]):
            await bridge.receive(mention(f"a{n}", text=text))
        await bridge.quiet(4)
        await bridge.receive()  # a transaction without anything
    async with Ledger(one_target, 1) as ledger:

        async def forget() -> tuple[int, int]:
            day = timedelta(hours=24)
            jobs = await ledger.fetch(WORK["forget_jobs"], day, 100)
            return len(jobs), len(await ledger.fetch(WORK["forget_transactions"], day, 100))

        assert await forget() == (0, 0)
        await ledger.execute(
            "UPDATE bridge_delegations SET terminal_at = terminal_at - interval '25 h'"
        )
        await ledger.execute(
            "UPDATE bridge_appservice_transactions SET committed_at = now() - interval '25 h'"
        )
        # The uncertain one stays, and the transaction that it came with.
        assert await forget() == (3, 4)
        assert [row["state"] for row in await ledger.fetch("SELECT * FROM bridge_delegations")] == [
            "ambiguous"
        ]
        assert await ledger.fetchval("SELECT count(*) FROM bridge_seen") == 4
        assert await ledger.fetchval("SELECT count(*) FROM bridge_appservice_transactions") == 1


async def test_claims_and_counts_look_at_open_rows_only(one_target: Target) -> None:
    """Plans of the hot statements use the index of what is open."""
    async with connection(one_target) as made:
        await made.execute("SET enable_seqscan = off")
        claim = WORK["claim"].replace("$1", "'w'").replace("$2", "'30 s'").replace("$3", "8")
        claim = claim.replace("$4", "16").replace("$5", "'{}'").replace("$6", "'{}'")
        plan = "\n".join(row[0] for row in await made.fetch(f"EXPLAIN {claim}"))
    assert "bridge_delegations_open" in plan


async def test_a_claim_takes_no_more_than_it_may_whatever_the_plan(one_target: Target) -> None:
    """A choice within a join may be made again for each row, and then takes more."""
    async with Bridge(one_target) as bridge:
        await bridge.stop()
        for n in range(6):
            await bridge.receive(mention(f"a{n}", room=f"!r{n}"))
    for plan in ("enable_hashjoin", "enable_mergejoin", "enable_nestloop", "enable_material"):
        async with connection(one_target) as made:
            await made.execute(f"SET {plan} = off; SET enable_seqscan = on")
            if plan == "enable_material":
                await made.execute("SET enable_hashjoin = off; SET enable_mergejoin = off")
            claim: tuple[object, ...] = ("w", timedelta(0), 1, 2, [], [])
            told = "\n".join(row[0] for row in await made.fetch(f"EXPLAIN {WORK['claim']}", *claim))
            assert "CTE taken" in told  # evaluated once
            assert len(await made.fetch(WORK["claim"], *claim)) == 1, plan
