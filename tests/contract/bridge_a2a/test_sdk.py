"""Against agents built with the official SDK: 1.x, 0.3, and 1.x that serves 0.3 as well."""

from collections.abc import Iterator

import pytest

from corral.bridge.a2a.wire import Version
from corral.bridge.ports import (
    Canceled,
    Card,
    MayHaveLeft,
    NotCancelable,
    NotFound,
    Refused,
    Reply,
    TaskGone,
    TaskState,
    TaskView,
    Unsupported,
)
from tests.contract.bridge_a2a.kit import AGENT, agents, begun, rested, settled, submission, view
from tests.harness.a2a_peers import Peer, sdk_agent

SETUPS = {
    "1.x": ("1", False, None),
    "0.3": ("0.3", False, None),
    "1.x as 0.3": ("1", True, Version.V0_3),
}


@pytest.fixture(scope="module", params=SETUPS)
def setup(request: pytest.FixtureRequest) -> Iterator[tuple[Peer, Version | None]]:
    release, compat, version = SETUPS[request.param]
    with sdk_agent(release, compat=compat) as peer:
        yield peer, version


Setup = tuple[Peer, Version | None]


async def test_card_says_which_protocol_is_spoken(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        card = await found.card(AGENT)
    assert isinstance(card, Card)
    assert card.name == "scripted"
    assert card.idempotent_for_s is None
    assert card.lists_tasks == (card.protocol == "1.0")


async def test_message_becomes_a_task_that_is_polled_to_its_end(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await settled(found, "say grüße")
    assert isinstance(task, TaskView)
    assert (task.state, task.text) == (TaskState.COMPLETED, "grüße")


async def test_context_is_the_one_that_we_chose(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await begun(found, "say hi", context_id="chosen-by-us")
    assert task.context_id == "chosen-by-us"


async def test_long_task_answers_at_once(setup: Setup) -> None:
    """`returnImmediately` and `blocking: false` are understood: the call does not wait."""
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await begun(found, "work")
        assert task.state in {TaskState.SUBMITTED, TaskState.WORKING}
        assert isinstance(await found.cancel(AGENT, task.task_id), Canceled)


async def test_artifacts_of_each_kind(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await settled(found, "artifact words")
    assert isinstance(task, TaskView)
    text, file, data = task.artifacts
    assert (text.name, text.text) == ("result", "words")
    assert (file.name, file.media_type) == ("picture.png", "image/png")
    assert file.data == b"\x89PNG\r\n\x1a\n made up"
    assert (data.data, data.media_type) == (b'{"rest": "words"}', "application/json")
    assert len({one.artifact_id for one in task.artifacts}) == 3


async def test_message_without_a_task(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        answer = await found.send(submission("message hello", context_id="c-1"))
    assert answer == Reply("hello", "c-1")


async def test_question_and_its_answer(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await settled(found, "ask how many?")
        assert isinstance(task, TaskView)
        assert (task.state, task.text) == (TaskState.INPUT_REQUIRED, "how many?")
        more = submission("seven", task_id=task.task_id, context_id=task.context_id)
        again = view(await found.send(more))
        assert again.task_id == task.task_id
        done = await rested(found, again)
    assert (done.state, done.text) == (TaskState.COMPLETED, "got seven")


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("fail", TaskState.FAILED),
        ("reject", TaskState.REJECTED),
        ("login", TaskState.AUTH_REQUIRED),
    ],
)
async def test_f52_end_that_is_no_success_is_none(
    setup: Setup, word: str, state: TaskState
) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await settled(found, f"{word} because")
    assert isinstance(task, TaskView)
    assert (task.state, task.text) == (state, "because")


async def test_exception_in_the_agent_is_no_success(setup: Setup) -> None:
    """1.x fails the task. 0.3 leaves it as it was for ever: only the task's deadline ends it."""
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        answer = await found.send(submission("crash"))
        if isinstance(answer, MayHaveLeft):
            return
        card = await found.card(AGENT)
        if isinstance(card, Card) and card.lists_tasks:
            ended = await rested(found, view(answer))
            assert ended.state is TaskState.FAILED
        else:
            assert view(answer).state in {TaskState.SUBMITTED, TaskState.WORKING, TaskState.FAILED}


async def test_cancel_of_what_is_over(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await begun(found, "work")
        canceled = await found.cancel(AGENT, task.task_id)
        assert isinstance(canceled, Canceled)
        assert canceled.view.state is TaskState.CANCELED
        assert isinstance(await found.cancel(AGENT, task.task_id), NotCancelable)
        assert isinstance(await found.cancel(AGENT, "nobody's"), TaskGone)


async def test_task_that_nobody_knows_is_gone(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        assert await found.get(AGENT, "nobody's") == TaskGone("a2a_rpc_task_not_found")


async def test_message_to_a_task_that_is_over_is_refused(setup: Setup) -> None:
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        task = await settled(found, "say hi")
        assert isinstance(task, TaskView)
        for task_id in (task.task_id, "nobody's"):
            late = submission("more", task_id=task_id, context_id=task.context_id)
            assert isinstance(await found.send(late), Refused)


async def test_lost_message_is_found_by_its_context(setup: Setup) -> None:
    """Reconciliation: 1.0 can be asked for our message, 0.3 cannot."""
    peer, version = setup
    async with agents(peer.url, version=version) as found:
        ours = submission("say hi")
        task = view(await found.send(ours))
        context_id = ours.context_id or ""
        answer = await found.find(AGENT, context_id, ours.message_id)
        other = await found.find(AGENT, context_id, "another message")
        card = await found.card(AGENT)
    assert isinstance(card, Card)
    if card.lists_tasks:
        assert view(answer).task_id == task.task_id
        assert other == NotFound()
    else:
        assert answer == other == Unsupported()
