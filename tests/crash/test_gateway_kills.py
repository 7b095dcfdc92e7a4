"""The gateway is killed at each of its points, with Redis and cowboy behind it.

The client repeats its message under the same id, as the extension allows. In the end there is one
task with one answer, and the agent was started once.
"""

import contextlib
import sqlite3
from collections.abc import AsyncIterator, Iterator

import pytest

from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.ports import Canceled, Submission, Task, TaskState, TaskView
from corral.core import crashpoints
from corral.gateway import points
from corral.local.wait import until_async
from tests.contract.kit import AGENT, CAT, PAIRS, House
from tests.harness.gateway_process import SOURCE, GatewayProcess

WAIT_S = 120
POINTS = [points.SENT, points.ADDED, points.PUBLISHED, points.READ, points.SETTLED]


@contextlib.contextmanager
def running(gateway: GatewayProcess, *arms: str) -> Iterator[GatewayProcess]:
    gateway.start(*arms)
    try:
        yield gateway
    finally:
        gateway.kill()


@pytest.fixture
def gateway(house: House) -> GatewayProcess:
    return GatewayProcess(house.base / "gateway", house.topology, AGENT)


@pytest.fixture
async def house() -> AsyncIterator[House]:
    changes = {SOURCE: {"runner": dict(CAT)}}
    async with House(PAIRS[1], only=(SOURCE,), changes=changes) as found:
        await found.start()
        yield found


def message(text: str) -> Submission:
    return Submission(AGENT, "m-1", "c-1", None, text, "@ann:example.org")


async def task_of(agents: HttpAgents, ours: Submission) -> Task:
    """The same message until there is an answer."""

    async def sent() -> Task | None:
        answer = await agents.send(ours)
        return answer if isinstance(answer, Task) else None

    found = await until_async(sent, WAIT_S, "an answer to the message")
    assert found is not None
    return found


async def killed(gateway: GatewayProcess, agents: HttpAgents) -> None:
    """Sends until it has killed itself: before its answer or after it, as the point has it."""

    async def over() -> bool:
        if gateway.ended() is None:
            await agents.send(message("hello"))
        return gateway.ended() is not None

    await until_async(over, WAIT_S, "the kill")
    await gateway.died()


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at(house: House, gateway: GatewayProcess, point: str) -> None:
    async with gateway.client() as agents:
        with running(gateway, point):
            await killed(gateway, agents)
        with running(gateway):
            task = await task_of(agents, message("hello"))

            async def ended() -> Task | None:
                answer = await agents.get(AGENT, task.view.task_id)
                done = isinstance(answer, Task) and answer.view.state is TaskState.COMPLETED
                return answer if isinstance(answer, Task) and done else None

            found = await until_async(ended, WAIT_S, "the end of the task")
            assert found is not None
            assert found.view.text == "hello"
            assert (await task_of(agents, message("hello"))).view == found.view
    assert starts(house) == 1


def starts(house: House) -> int:
    """How often the agent was started, by its ledger."""
    ledger = house.topology.ledger(AGENT)
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as conn:
        found: int = conn.execute("SELECT sum(starts) FROM turns").fetchone()[0]
    return found


async def test_killed_at_a_cancel(house: House, gateway: GatewayProcess) -> None:
    """The cancel is committed and not answered; the task is over, and the agent is told."""
    await house.stop("runner")
    async with gateway.client() as agents:
        with running(gateway, points.CANCELED):
            task_id = (await task_of(agents, message("hello"))).view.task_id
            assert not isinstance(await agents.cancel(AGENT, task_id), Canceled)
            await gateway.died()
        with running(gateway):
            assert (await task_of(agents, message("hello"))).view.state is TaskState.CANCELED


async def test_killed_when_an_overdue_task_has_ended(house: House, gateway: GatewayProcess) -> None:
    """Its end is committed and nobody was told: not who waits, nor the agent."""
    await house.stop("runner")
    async with gateway.client() as agents:
        with running(gateway):
            view = (await task_of(agents, message("hello"))).view
            await until_async(lambda: is_in(agents, view, TaskState.WORKING), WAIT_S, "the agent")
        gateway.environ["GATEWAY_TASK_TIMEOUT_S"] = "0.001"
        with running(gateway, points.SWEPT):
            await gateway.died()
        with running(gateway):
            assert (await task_of(agents, message("hello"))).view.state is TaskState.FAILED

            async def told() -> bool:
                return any(one.outcome == "cancel_applied" for one in await house.outbox(SOURCE))

            await until_async(told, WAIT_S, "the agent's side to be told")


async def is_in(agents: HttpAgents, view: TaskView, state: TaskState) -> bool:
    answer = await agents.get(AGENT, view.task_id)
    return isinstance(answer, Task) and answer.view.state is state


def test_every_point_is_killed_at() -> None:
    registered = {name for name in crashpoints.registered() if name.startswith("gateway.")}
    assert registered == {*POINTS, points.CANCELED, points.SWEPT}
