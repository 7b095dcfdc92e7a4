"""What the tests of this folder share: an agent's table of one, and messages to it."""

import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.a2a.target import Target
from corral.bridge.a2a.wire import Version
from corral.bridge.ports import TASK_ENDED, Reply, Submission, Task, TaskView
from corral.local.a2a_agent import Options, serving
from corral.local.a2a_tasks import Agent
from corral.local.wait import until_async

AGENT = "scout"
WAIT_S = 60


@contextlib.asynccontextmanager
async def agents(url: str, **options: Any) -> AsyncIterator[HttpAgents]:
    """The table with one agent at `url`."""
    if options.get("version") is not None:
        options["version"] = Version(options["version"])
    found = HttpAgents({AGENT: Target(AGENT, url, **options)})
    try:
        yield found
    finally:
        await found.close()


@contextlib.asynccontextmanager
async def served(folder: Path, **options: Any) -> AsyncIterator[tuple[Agent, str]]:
    """The scriptable agent in this process, with another presentation; it and its URL."""
    agent = Agent(folder / "effects")
    try:
        async with serving(agent, Options(**options), socket=folder / "agent", port=0) as url:
            yield agent, url
    finally:
        agent.close()


def submission(text: str, **fields: Any) -> Submission:
    """A first message in a context of its own, unless `fields` say otherwise."""
    given = {
        "agent": AGENT,
        "message_id": uuid.uuid4().hex,
        "context_id": uuid.uuid4().hex,
        "task_id": None,
        "text": text,
        "user": "@ann:example.org",
    }
    return Submission(**(given | fields))


def view(answer: object) -> TaskView:
    """The view of an answer that must be a task."""
    assert isinstance(answer, Task), answer
    return answer.view


async def begun(found: HttpAgents, text: str, **fields: Any) -> TaskView:
    """Sends a message that must become a task."""
    return view(await found.send(submission(text, **fields)))


async def settled(found: HttpAgents, text: str) -> TaskView | Reply:
    """Sends a message and polls until the task needs no more of the agent."""
    answer = await found.send(submission(text))
    return answer if isinstance(answer, Reply) else await rested(found, view(answer))


async def rested(found: HttpAgents, task: TaskView) -> TaskView:
    """The task once it has ended or waits for someone else."""
    waits = {"input-required", "auth-required"}

    async def looked() -> TaskView | None:
        now = view(await found.get(AGENT, task.task_id))
        return now if now.state in TASK_ENDED or now.state.value in waits else None

    now = await until_async(looked, WAIT_S, "the task's rest")
    assert now is not None
    return now
