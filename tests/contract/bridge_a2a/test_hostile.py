"""Agents that answer with nonsense: typed results, no exception, and no second send."""

import pytest

from corral.bridge.ports import MayHaveLeft, Refused, Reply, Task, TaskGone, TaskState, Unreachable
from corral.local.a2a_script import GARBAGE
from tests.contract.bridge_a2a.kit import AGENT, agents, begun, rested, submission, view
from tests.harness.a2a_peers import Peer

EXPECTED = {
    "html": "a2a_answer_not_json",
    "half": "a2a_answer_not_json",
    "deep": "a2a_answer_not_json",
    "huge": "a2a_answer_too_large",
    "list": "a2a_answer_not_jsonrpc",
    "wrong-id": "a2a_answer_wrong_id",
    "wrong-task": "a2a_answer_wrong_task",
}


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("kind", sorted(set(EXPECTED) - {"wrong-task"}))
async def test_nonsense_is_ambiguous(peer: Peer, kind: str, version: str) -> None:
    ours = submission(f"garbage {kind}")
    async with agents(peer.url, answer_max_bytes=1 << 20, version=version) as found:
        assert await found.send(ours) == MayHaveLeft(EXPECTED[kind])
    assert peer.starts(ours.message_id) == 1


def test_every_kind_of_nonsense_is_tested() -> None:
    assert set(EXPECTED) | {"no-state", "nul"} == set(GARBAGE)


async def test_f46_text_that_cannot_be_stored(peer: Peer) -> None:
    async with agents(peer.url) as found:
        task = await begun(found, "garbage nul")
    assert task.text == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c"
    assert task.state is TaskState.COMPLETED


async def test_f46_text_that_we_send(peer: Peer) -> None:
    async with agents(peer.url) as found:
        task = await begun(found, "echo a\0b\ud800c")
    assert "\0" not in task.text
    assert "\N{REPLACEMENT CHARACTER}" in task.text


async def test_state_that_we_do_not_know_keeps_the_task(peer: Peer) -> None:
    async with agents(peer.url) as found:
        task = await begun(found, "garbage no-state")
        assert task.state is TaskState.SUBMITTED
        assert (await rested(found, task)).state is TaskState.COMPLETED


async def test_answer_about_another_task(peer: Peer) -> None:
    """Only where we asked about one: a new task's id is the agent's to choose."""
    async with agents(peer.url) as found:
        task = await begun(found, "ask which?")
        more = submission("garbage wrong-task", task_id=task.task_id, context_id=task.context_id)
        # The scriptable agent continues the task that it was given; another agent need not.
        assert view(await found.send(more)).task_id == task.task_id


async def test_f52_failed_task_is_no_success(peer: Peer) -> None:
    async with agents(peer.url) as found:
        task = await begun(found, "fail out of luck")
    assert (task.state, task.text) == (TaskState.FAILED, "out of luck")


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_f52_blocking_is_ignored(peer: Peer, version: str) -> None:
    """An agent that answers only at the end is waited for, as long as a request may take."""
    async with agents(peer.url, version=version) as found:
        task = await begun(found, "block 1.5 done")
    assert (task.state, task.text) == (TaskState.COMPLETED, "done")


async def test_f52_request_is_waited_for_longer_than_five_seconds(peer: Peer) -> None:
    async with agents(peer.url) as found:
        task = await begun(found, "block 6 done")
    assert task.text == "done"


async def test_task_that_the_agent_forgot(peer: Peer) -> None:
    async with agents(peer.url) as found:
        task = await begun(found, "forget")
        assert await found.get(AGENT, task.task_id) == TaskGone("a2a_rpc_task_not_found")


async def test_message_without_a_task(peer: Peer) -> None:
    async with agents(peer.url) as found:
        answer = await found.send(submission("message hello", context_id="c-1"))
    assert answer == Reply("hello", "c-1")


async def test_answer_at_the_limit_and_past_it(peer: Peer) -> None:
    async with agents(peer.url) as found:
        task = await begun(found, "echo " + "x" * 1000)
    allowed = await smallest_limit(peer.url, task.task_id)
    async with agents(peer.url, answer_max_bytes=allowed) as found:
        assert isinstance(await found.get(AGENT, task.task_id), Task)
    async with agents(peer.url, answer_max_bytes=allowed - 1) as found:
        assert await found.get(AGENT, task.task_id) == Unreachable("a2a_answer_too_large")


async def smallest_limit(url: str, task_id: str) -> int:
    """The size of the answer about a task, by halving."""
    low, high = 0, 10_000
    while high - low > 1:
        middle = (low + high) // 2
        async with agents(url, answer_max_bytes=middle) as found:
            fits = isinstance(await found.get(AGENT, task_id), Task)
        low, high = (low, middle) if fits else (middle, high)
    return high


async def test_agent_that_is_not_in_the_table(peer: Peer) -> None:
    async with agents(peer.url) as found:
        answer = await found.send(submission("echo", agent="nobody"))
    assert answer == Refused("a2a_agent_unknown")
