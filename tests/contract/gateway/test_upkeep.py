"""No task is open for ever, and what has ended is forgotten: content first, ids later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.core.clock import ManualClock
from corral.gateway.domain import DAY_S, Limits, Send, State, Task
from corral.gateway.errors import TaskNotFoundError, TasksFullError
from corral.gateway.service import Gateway
from corral.gateway.store import Caller, Wanted

ANN = Caller("ann", "scout")
HOUR_S = 3_600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def found(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Gateway]:
    """Its agent does nothing by itself."""
    async with Gateway(tmp_path / "g.db", limits=Limits(open_tasks_max=2), clock=clock) as gateway:
        yield gateway


async def publish(gateway: Gateway) -> None:
    for one in await gateway.take("scout", 9):
        await gateway.published(one)


async def done(gateway: Gateway, message_id: str = "m-1") -> Task:
    task = await gateway.send(ANN, Send(message_id, "the question"))
    await publish(gateway)
    await gateway.settle(task.task_id, State.COMPLETED, "the answer")
    return await gateway.get(ANN, task.task_id)


# ---- open ones ------------------------------------------------------------------------------


async def test_task_that_never_ends_gives_its_place_back(
    found: Gateway, clock: ManualClock
) -> None:
    for number in range(2):
        await found.send(ANN, Send(f"m-{number}", "work"))
    await publish(found)
    with pytest.raises(TasksFullError):
        await found.send(ANN, Send("m-2", "work"))
    clock.advance(DAY_S - 1)
    assert (await found.sweep()).ended == ()
    clock.advance(1)
    assert len((await found.sweep()).ended) == 2
    assert (await found.send(ANN, Send("m-2", "work"))).state is State.SUBMITTED


async def test_agent_is_told_of_what_it_has_and_gets_nothing_else(
    found: Gateway, clock: ManualClock
) -> None:
    taken = await found.send(ANN, Send("m-1", "work"))
    await publish(found)
    untaken = await found.send(ANN, Send("m-2", "work"))
    clock.advance(DAY_S)
    await found.sweep()
    for task in (taken, untaken):
        now = await found.get(ANN, task.task_id)
        assert (now.state, "in time" in now.text) == (State.FAILED, True)
    [told] = await found.take("scout", 9)
    assert (told.kind, told.task.task_id) == ("cancel", taken.task_id)
    assert not await found.settle(taken.task_id, State.COMPLETED, "too late")


async def test_question_that_nobody_answers_ends(found: Gateway, clock: ManualClock) -> None:
    task = await found.send(ANN, Send("m-1", "ask"))
    await publish(found)
    clock.advance(DAY_S - 1)
    await found.settle(task.task_id, State.INPUT_REQUIRED, "how many?")
    clock.advance(DAY_S - 1)
    assert (await found.sweep()).ended == ()
    clock.advance(1)
    assert (await found.sweep()).ended == (task.task_id,)
    assert (await found.get(ANN, task.task_id)).state is State.CANCELED


async def test_who_waits_is_told_of_the_end(found: Gateway, clock: ManualClock) -> None:
    task = await found.send(ANN, Send("m-1", "work"))
    waiting = asyncio.create_task(found.rested(ANN, task.task_id))
    await asyncio.sleep(0)
    clock.advance(DAY_S)
    await found.sweep()
    assert (await waiting).state is State.FAILED


# ---- ended ones -----------------------------------------------------------------------------


async def test_content_goes_after_it_was_read_and_the_ids_stay(
    found: Gateway, clock: ManualClock, tmp_path: Path
) -> None:
    read, unread = await done(found), await done(found, "m-2")
    found.handed_out(read)
    clock.advance(DAY_S - 1)
    # The time begins with the first reading, and with none it does not begin.
    found.handed_out(await found.get(ANN, read.task_id))
    assert (await found.sweep()).cleared == 0
    clock.advance(1)
    assert (await found.sweep()).cleared == 1
    now = await found.get(ANN, read.task_id)
    assert (now.state, now.text, now.messages) == (State.COMPLETED, "", ())
    assert await found.send(ANN, Send("m-1", "the question")) == now
    assert (await found.get(ANN, unread.task_id)).text == "the answer"
    clock.advance(DAY_S)
    found.handed_out(unread)
    await found.sweep()
    clock.advance(DAY_S)
    await found.sweep()
    await found.__aexit__(None, None, None)
    left = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    await found.__aenter__()
    assert b"the question" not in left
    assert b"the answer" not in left


async def test_open_task_that_was_looked_at_keeps_its_content(
    found: Gateway, clock: ManualClock
) -> None:
    task = await found.send(ANN, Send("m-1", "ask"))
    found.handed_out(task)
    clock.advance(DAY_S - 1)
    assert (await found.sweep()).cleared == 0
    assert (await found.get(ANN, task.task_id)).messages != ()


async def test_task_is_known_for_its_retention(found: Gateway, clock: ManualClock) -> None:
    task = await done(found)
    clock.advance(found.limits.retention_s - 1)
    assert (await found.sweep()).forgotten == 0
    assert await found.send(ANN, Send("m-1", "the question")) == task
    clock.advance(1)
    assert (await found.sweep()).forgotten == 1
    with pytest.raises(TaskNotFoundError):
        await found.get(ANN, task.task_id)
    assert (await found.page(ANN, Wanted(9))).total == 0


async def test_task_whose_agent_is_not_told_yet_is_kept(found: Gateway, clock: ManualClock) -> None:
    task = await found.send(ANN, Send("m-1", "work"))
    await found.take("scout", 1)
    await found.cancel(ANN, task.task_id)
    clock.advance(found.limits.retention_s)
    assert (await found.sweep()).forgotten == 0
    await publish(found)
    assert (await found.sweep()).forgotten == 1


async def test_many_are_forgotten_in_one_go(tmp_path: Path, clock: ManualClock) -> None:
    """More than one batch."""
    async with Gateway(tmp_path / "g.db", clock=clock) as gateway:
        for number in range(201):
            task = await gateway.send(ANN, Send(f"m-{number}", "x"))
            await gateway.cancel(ANN, task.task_id)
        clock.advance(gateway.limits.retention_s)
        assert (await gateway.sweep()).forgotten == 201


async def test_known_tasks_have_a_limit(tmp_path: Path, clock: ManualClock) -> None:
    """An id that is promised to be known is not forgotten earlier for want of room."""
    async with Gateway(tmp_path / "g.db", limits=Limits(tasks_max=2), clock=clock) as gateway:
        first = await done(gateway)
        clock.advance(HOUR_S)
        await done(gateway, "m-2")
        with pytest.raises(TasksFullError):
            await gateway.send(ANN, Send("m-3", "x"))
        assert await gateway.send(ANN, Send("m-1", "the question")) == first
        clock.advance(gateway.limits.retention_s - HOUR_S)
        await gateway.sweep()
        await gateway.send(ANN, Send("m-3", "x"))
