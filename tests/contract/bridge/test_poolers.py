"""Behind a pooler of transactions no lock is left behind; where none was declared it is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from corral.bridge import operations
from corral.bridge.database import Ledger, Target, check_sessions, connect, connection
from corral.bridge.doctor_facts import ledger_facts
from corral.bridge.errors import PooledError
from corral.bridge.replica import Replica
from corral.local.wait import until_async
from tests.contract.bridge.bridge import PATIENCE_S, Bridge
from tests.contract.bridge.kit import mention
from tests.harness.pooler import Pooler

SESSION_LOCK = "SELECT pg_try_advisory_lock(1129272898, 99)"


@asynccontextmanager
async def behind(
    target: Target, folder: Path, *, pooled: bool, strict: bool = False
) -> AsyncIterator[Target]:
    """The ledger as it is reached through a pooler."""
    found = parse_qs(urlsplit(target.dsn).query)
    host, port = found["host"][0], found["port"][0]
    async with Pooler(Path(host) / f".s.PGSQL.{port}", folder / "p", strict=strict) as pooler:
        dsn = f"{target.dsn.partition('?')[0]}?host={quote(str(pooler.folder))}&port={port}"
        yield Target(dsn, pooled)


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_sessions_of_our_own_are_recognised(one_target: Target) -> None:
    await check_sessions(one_target)
    assert (await ledger_facts(one_target)).error is None


@pytest.mark.parametrize("strict", [True, False])
async def test_f54_a_pooler_that_is_not_declared_is_refused_with_what_to_do(
    one_target: Target, tmp_path: Path, strict: bool
) -> None:
    async with behind(one_target, tmp_path, pooled=False, strict=strict) as target:
        with pytest.raises(PooledError, match="set database_pooled"):
            await check_sessions(target)
        found = (await ledger_facts(target)).error
        assert found is not None
        assert (found.code, found.exit_code) == ("database_pooled", 78)


async def test_f54_the_intakes_lock_is_not_stranded_behind_a_pooler(
    one_target: Target, tmp_path: Path
) -> None:
    """The process dies, the pooler and its connections stay."""
    async with behind(one_target, tmp_path, pooled=True) as target:
        await check_sessions(target)  # it was declared: nothing to find out
        other = await connect(target)
        # The control: that is what becomes of a session's lock here.
        assert await other.fetchval(SESSION_LOCK)
        await other.close()
        async with connection(one_target) as direct:
            assert not await direct.fetchval(SESSION_LOCK)
        first = Replica(target)
        holds = asyncio.create_task(first.run())
        await asyncio.wait_for(first.active.wait(), PATIENCE_S)
        told = asyncio.Event()
        second = Replica(target, lambda _: told.set())
        waits = asyncio.create_task(second.run())
        await told.wait()
        assert not second.active.is_set()
        await stop(holds)
        await asyncio.wait_for(second.active.wait(), PATIENCE_S)
        await stop(waits)


async def test_f54_jobs_are_done_through_a_pooler_and_no_lock_is_left(
    one_target: Target, tmp_path: Path
) -> None:
    async with behind(one_target, tmp_path, pooled=True) as target, Bridge(target) as bridge:
        await bridge.receive(mention("a", text="task 0.2 x"), mention("b", text="reply y"))
        assert await bridge.quiet(2) == [("delivered", "answered")] * 2
        assert len(bridge.world.agent.begun) == 2
        # But for the moments of a claim; what is left behind would stay.
        none = "SELECT count(*) = 0 FROM pg_locks WHERE locktype = 'advisory'"
        await until_async(lambda: bridge.pool.fetchval(none), PATIENCE_S, "no lock")


async def test_behind_a_pooler_nobody_is_said_to_have_ended(
    one_target: Target, tmp_path: Path
) -> None:
    """No worker has a session there, so that it has none says nothing."""
    async with behind(one_target, tmp_path, pooled=True) as target, Bridge(target) as bridge:
        await bridge.receive(mention("a", text="task 600 x"))
        await bridge.reaches("awaiting_task")
        async with Ledger(target, 1) as asked:
            shown = await operations.shown(asked, await operations.find(asked, "$a"))
        assert (shown["lease_valid"], shown["worker_seen"]) == (True, None)
        assert "behind a pooler" in "\n".join(operations.explained(shown))
