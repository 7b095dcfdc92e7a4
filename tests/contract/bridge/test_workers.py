"""Several workers of one ledger: bounds, takeovers, lost leases, wrong clocks, lost sessions."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from corral.bridge.admission import SQL as ADMISSION
from corral.bridge.database import Ledger, Target, connection
from corral.bridge.errors import LeaseLostError
from corral.bridge.jobs import Held
from corral.bridge.session import SQL as WORK
from corral.bridge.session import Process, dead_workers
from corral.local.wait import until_async, until_true
from tests.contract.bridge.bridge import PATIENCE_S, Bridge
from tests.contract.bridge.kit import ALICE, mention
from tests.harness.bridge_world import World


async def two(target: Target, stack: AsyncExitStack, **policy: Any) -> tuple[Bridge, Bridge]:
    world = World()
    first = await stack.enter_async_context(Bridge(target, world, **policy))
    return first, await stack.enter_async_context(Bridge(target, world, **policy))


async def test_the_bound_on_leases_holds_for_all_workers_together(target: Target) -> None:
    async with AsyncExitStack() as stack:
        first, _ = await two(target, stack, concurrency=3)
        for n in range(12):
            await first.receive(mention(f"a{n}", text="task 0.3 x", room=f"!r{n}"))
        most = 0

        async def over() -> bool:
            nonlocal most
            rows = await first.rows()
            most = max(most, sum(row["lease_owner"] is not None for row in rows))
            return all(row["terminal_at"] for row in rows)

        await until_async(over, PATIENCE_S, "all jobs to end")
        assert most == 3
        assert len(first.world.agent.begun) == 12


async def test_work_of_a_dead_session_goes_on_long_before_its_lease_is_over(
    target: Target,
) -> None:
    async with AsyncExitStack() as stack:
        first, second = await two(target, stack, lease_s=600.0)
        await second.stop()
        await first.receive(mention("a", text="task 2 x"))
        await first.reaches("awaiting_task")
        await first.stop()
        second.start()
        began = time.monotonic()
        assert await second.quiet() == [("delivered", "answered")]
        assert time.monotonic() - began < 120  # far below the lease
        assert len(first.world.agent.begun) == 1


async def prepared(target: Target, bridge: Bridge) -> str:
    """A job whose call is open, leased for ten minutes by a worker that is gone; its id."""
    await bridge.receive(mention("a", text="reply x"))
    async with connection(target) as made:
        await made.execute(
            "INSERT INTO bridge_workers (worker_id, boot_id, pid_namespace, pid, start_ticks)"
            " VALUES ('gone', 'another host', 'pid:[1]', 1, 1)"
        )
        return str(
            await made.fetchval(
                "UPDATE bridge_delegations SET state = 'a2a_prepared', attempts = 1,"
                " lease_owner = 'gone', lease_expires_at = now() + interval '10 min',"
                " prepared_at = now(), deadline_at = now() + interval '10 min' RETURNING job_id"
            )
        )


async def test_an_open_call_of_another_host_waits_for_its_lease(one_target: Target) -> None:
    async with Ledger(one_target, 1) as ledger, Bridge(one_target) as bridge:
        await bridge.stop()
        await prepared(one_target, bridge)
        rows = await ledger.fetch(WORK["workers"], "me")
        ended, gone = await asyncio.to_thread(dead_workers, rows)
        assert ended == ["gone"]
        assert gone == []  # nobody here can know
        assert await ledger.fetch(WORK["take_over"], ended, gone) == []
        # Recognised as dead on its own host, the call is settled at once: uncertain, never again.
        assert len(await ledger.fetch(WORK["take_over"], ended, ended)) == 1
        bridge.start()
        assert await bridge.quiet() == [("ambiguous", "call_uncertain")]
        assert bridge.world.agent.sends == []


def test_a_process_is_recognised_by_its_start_and_host() -> None:
    here = Process.this()
    assert not here.gone()
    later = Process(here.boot_id, here.pid_namespace, here.pid, here.start_ticks + 1)
    assert later.gone()
    assert not Process("another boot", here.pid_namespace, here.pid, 0).gone()
    assert not Process(here.boot_id, "pid:[1]", here.pid, 0).gone()


async def test_a_lost_lease_changes_nothing(target: Target) -> None:
    async with Ledger(target, 1) as ledger, Bridge(target) as bridge:
        await bridge.stop()
        await bridge.receive(mention("a", text="reply x"))
        lease = timedelta(seconds=0)
        claim: tuple[Any, ...] = (lease, 8, 8, [], [])
        [row] = await ledger.fetch(WORK["claim"], "one", *claim)
        held = Held(ledger, "one", row, 5.0)
        [_] = await ledger.fetch(WORK["claim"], "two", *claim)
        with pytest.raises(LeaseLostError):
            await held.change("prepare", timedelta(seconds=60), "context")
        [after] = await bridge.rows()
        assert (after["state"], after["lease_owner"], after["attempts"]) == ("pending", "two", 0)
        assert after["recoveries"] == 1


async def test_a_control_that_comes_while_its_job_ends_ends_with_it(target: Target) -> None:
    """The intake holds the job's row, with an answer that is not committed, when the worker ends
    the job: what the worker saw before it waited is not all that there is."""
    async with (
        Ledger(target, 1) as ledger,
        Bridge(target) as bridge,
        connection(target) as intake,
        connection(target) as look,
    ):
        await bridge.stop()
        await bridge.receive(mention("a", text="reply x"))
        [row] = await ledger.fetch(WORK["claim"], "one", timedelta(seconds=60), 8, 8, [], [])
        held = Held(ledger, "one", row, 5.0)
        await held.change("result", "delivered", "answered", "x", None, None, None, None)
        columns: list[Any] = [
            ["c"], [held.job.job_id], ["continuation"], ["$yes"], [ALICE], [0], [bytes(32)],
            ["content"], ["message"],
        ]  # fmt: skip
        async with intake.transaction():
            await intake.fetchrow(ADMISSION["control"], *columns)
            end = asyncio.create_task(held.change("finish"))

            async def waits() -> bool:
                found = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                return bool(await look.fetchval(found))

            await until_async(waits, PATIENCE_S, "the worker to wait for the intake")
        assert (await end).terminal
        control = await look.fetchrow("SELECT * FROM bridge_delegation_controls")
        assert (control["state"], control["error_code"]) == ("dead", "job_ended")
        assert control["payload"] is None


@pytest.mark.parametrize("minutes", [-10, 10])
async def test_f53_a_wrong_clock_of_the_process_changes_nothing(
    one_target: Target, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """Two workers, of which the second believes in another time; the first one's lease holds."""
    real_s, real_ns = time.time, time.time_ns
    async with AsyncExitStack() as stack:
        first, _ = await two(one_target, stack, lease_s=20.0)
        await first.receive(mention("a", text="task 1.5 x"))
        await first.reaches("awaiting_task")
        monkeypatch.setattr(time, "time", lambda: real_s() + minutes * 60)
        monkeypatch.setattr(time, "time_ns", lambda: real_ns() + minutes * 60_000_000_000)
        await first.receive(mention("b", text="reply y"))
        assert await first.quiet(2) == [("delivered", "answered")] * 2
        assert [row["recoveries"] for row in await first.rows()] == [0, 0]
        assert len(first.world.agent.begun) == 2


WENT_BACK = """
UPDATE bridge_delegations
   SET created_at = created_at + interval '4 hours', due_at = due_at + interval '4 hours',
       lease_expires_at = CASE WHEN event_id = $1 THEN now() + interval '4 hours' END,
       lease_owner = CASE WHEN event_id = $1 THEN 'of before' END,
       error_code = CASE WHEN event_id = $2 THEN 'rate_limited' END
"""


async def test_a_clock_of_the_database_that_goes_back_holds_up_nothing(one_target: Target) -> None:
    """What waits was set by the clock of before; so was a lease whose owner nobody knows."""
    async with Bridge(one_target, lease_s=2.0, retry_max_s=1.0) as bridge:
        await bridge.stop()
        for n, text in enumerate(("reply x", "reply y", "task 0.2 z")):
            await bridge.receive(mention(f"a{n}", text=text, room=f"!r{n}"))
        await bridge.receive(mention("no", text="reply x", ghost="@nobody:test", room="!r3"))
        async with connection(one_target) as made:
            assert await made.execute(WENT_BACK, "$a0", "$a1") == "UPDATE 4"
        began = time.monotonic()
        bridge.start()
        ends = await bridge.quiet(4)
        assert ends == [("delivered", "answered")] * 3 + [("denied", "agent_unknown")]
        assert time.monotonic() - began < 120  # far below the hours
        assert len(bridge.world.agent.begun) == 3


AWAITS_INPUT = """
state = 'awaiting_input', input_deadline_at = now() + interval '9 hours', task_id = 't',
deadline_left = interval '1 min', attempts = 1, prepared_at = now()
"""


async def test_what_waits_as_it_was_told_to_waits_on(one_target: Target) -> None:
    """A look at the clock shortens nothing that may be set: a pause, a lease, an answer's time."""
    longest = [timedelta(seconds=1.0), timedelta(hours=1), timedelta(seconds=2.0)]
    async with Ledger(one_target, 1) as ledger, Bridge(one_target) as bridge:
        await bridge.stop()
        for n in range(3):
            await bridge.receive(mention(f"a{n}", text="reply x", room=f"!r{n}"))
        changes = (
            "due_at = now() + interval '0.9 s'",
            "due_at = now() + interval '59 min', error_code = 'rate_limited'",
            f"due_at = now() + interval '9 hours', {AWAITS_INPUT}",
        )
        for n, change in enumerate(changes):
            update = f"UPDATE bridge_delegations SET {change} WHERE event_id = '$a{n}' RETURNING 1"
            assert len(await ledger.fetch(update)) == 1
        assert await ledger.fetch(WORK["clock_went_back"], *longest) == []
        later = f"UPDATE bridge_delegations SET {changes[0]}".replace("0.9", "1.5")
        await ledger.execute(f"{later} WHERE event_id = '$a0'")
        assert len(await ledger.fetch(WORK["clock_went_back"], *longest)) == 1


async def test_a_worker_without_its_session_claims_nothing(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        session = bridge.coordinator.session
        await asyncio.wait_for(session.alive.wait(), PATIENCE_S)
        async with connection(one_target) as made:
            lock = await made.fetchval("SELECT lock_id FROM bridge_workers")
            held = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE objid = $1::int::oid"
            # Whoever takes the lock first keeps the worker out.
            await made.execute(held, lock)
            await take(made, lock)
            await until_true(lambda: not session.may_claim, PATIENCE_S, "the loss to be seen")
            await bridge.receive(mention("a", text="reply x"))
            await settled(bridge)
            assert await bridge.states() == [("pending", None)]
        assert await bridge.quiet() == [("delivered", "answered")]


async def take(made: Any, lock: int) -> None:
    async def taken() -> bool:
        return bool(await made.fetchval("SELECT pg_try_advisory_lock(1129272899, $1)", lock))

    await until_async(taken, PATIENCE_S, "the lock")


async def settled(bridge: Bridge) -> None:
    """The claim loop went around several times."""
    claims = 0
    inner: Callable[[], Awaitable[None]] = bridge.coordinator._take_over

    async def counted() -> None:
        nonlocal claims
        claims += 1
        await inner()

    for _ in range(5):
        await counted()
        bridge.coordinator._woken.set()
        await until_true(lambda: not bridge.coordinator._woken.is_set(), PATIENCE_S, "a round")


async def test_f54_behind_a_pooler_no_lock_is_taken_and_leases_only_expire(
    one_target: Target,
) -> None:
    pooled = Target(one_target.dsn, pooled=True)
    async with Bridge(pooled) as bridge:
        await bridge.receive(mention("a", text="reply x"))
        assert await bridge.quiet() == [("delivered", "answered")]
        rows = await bridge.pool.fetch("SELECT 1 FROM pg_locks WHERE classid = 1129272899")
        assert rows == []
        assert await bridge.pool.fetch("SELECT 1 FROM bridge_workers") == []


async def test_a_graceful_end_finishes_what_runs_and_claims_nothing_more(
    one_target: Target,
) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="task 0.5 x"), mention("b", text="reply y"))
        await bridge.reaches("awaiting_task")
        await bridge.coordinator.drain(PATIENCE_S)
        assert [row["state"] for row in await bridge.rows()] == ["delivered", "pending"]


async def test_a_graceful_end_gives_back_what_does_not_end_in_time(one_target: Target) -> None:
    async with Bridge(one_target) as bridge:
        await bridge.receive(mention("a", text="task 600 x"))
        await bridge.reaches("awaiting_task")
        await bridge.coordinator.drain(0.2)
        [row] = await bridge.rows()
        assert (row["state"], row["lease_owner"]) == ("awaiting_task", None)


async def test_a_graceful_end_gives_back_a_job_whose_change_takes_longer(
    one_target: Target,
) -> None:
    """The row is locked when the time is over: the job is stopped after its change, not in it."""
    async with (
        Bridge(one_target, placeholder_after_s=1.0) as bridge,
        connection(one_target) as other,
    ):
        await bridge.receive(mention("a", text="task 600 x"))
        await bridge.reaches("awaiting_task")
        async with other.transaction():
            await other.execute("SELECT FROM bridge_delegations FOR UPDATE")
            [one] = bridge.coordinator._running.values()
            await until_true(lambda: one.held.writing, PATIENCE_S, "the placeholder's change")
            end = asyncio.create_task(bridge.coordinator.drain(0.1))
            done, _ = await asyncio.wait({end}, timeout=0.5)
            assert done == set()
        await end
        [row] = await bridge.rows()
        assert (row["state"], row["lease_owner"]) == ("awaiting_task", None)
