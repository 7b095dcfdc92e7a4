"""A message id is one task: for ever, for one client, whatever is cut or repeated."""

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.a2a.examination import examine
from corral.bridge.a2a.target import Target
from corral.bridge.ports import (
    Card,
    MayHaveLeft,
    NotCancelable,
    Refused,
    Submission,
    Task,
    TaskState,
)
from corral.gateway.domain import Limits, Send
from corral.gateway.errors import (
    InvalidParamsError,
    MessageConflictError,
    TaskNotFoundError,
    TasksFullError,
    UnsupportedOperationError,
)
from corral.gateway.store import Caller
from corral.local.wait import until_async
from tests.contract.gateway.kit import CLIENTS, gateway
from tests.harness.fault_proxy import Fault, FaultProxy, Place

ANN, BOB = Caller("ann", "scout"), Caller("bob", "scout")
SAY = Send("m-1", "say hi", context_id="c-1")


def count(folder: Path, table: str) -> int:
    with sqlite3.connect(folder / "gateway.db") as conn:
        found: int = conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    conn.close()
    return found


async def test_same_message_is_one_task(tmp_path: Path) -> None:
    async with gateway(tmp_path) as found:
        answers = await asyncio.gather(*(found.send(ANN, SAY) for _ in range(20)))
        assert len({one.task_id for one in answers}) == 1
        done = await found.rested(ANN, answers[0].task_id)
        again = await found.send(ANN, SAY)
    assert (again.text, again.generation) == (done.text, done.generation)
    assert count(tmp_path, "tasks") == 1


@pytest.mark.parametrize(
    "other",
    [{"text": "say ho"}, {"context_id": "c-2"}, {"context_id": None}, {"task_id": "t"}],
)
async def test_same_id_with_another_message_is_refused(
    tmp_path: Path, other: dict[str, str]
) -> None:
    async with gateway(tmp_path) as found:
        await found.send(ANN, SAY)
        with pytest.raises(MessageConflictError):
            await found.send(ANN, replace(SAY, **other))
        with pytest.raises(MessageConflictError):
            await found.send(Caller("ann", "other"), SAY)
        assert (await found.send(BOB, SAY)).task_id != (await found.send(ANN, SAY)).task_id


async def test_message_is_known_after_a_restart(tmp_path: Path) -> None:
    async with gateway(tmp_path) as found:
        first = await found.rested(ANN, (await found.send(ANN, SAY)).task_id)
    async with gateway(tmp_path) as found:
        assert await found.send(ANN, SAY) == first
    assert count(tmp_path, "messages WHERE role = 'user'") == 1


async def test_tasks_of_others_do_not_exist(tmp_path: Path) -> None:
    async with gateway(tmp_path) as found:
        task = await found.send(ANN, SAY)
        for caller in (BOB, Caller("ann", "other")):
            with pytest.raises(TaskNotFoundError):
                await found.get(caller, task.task_id)
            with pytest.raises(TaskNotFoundError):
                await found.cancel(caller, task.task_id)


async def test_question_is_answered_once(tmp_path: Path) -> None:
    async with gateway(tmp_path) as found:
        asked = await found.send(ANN, Send("m-1", "ask how many?"))
        await found.rested(ANN, asked.task_id)
        seven = Send("m-2", "say seven", task_id=asked.task_id)
        with pytest.raises(InvalidParamsError):
            await found.send(ANN, replace(seven, context_id="another"))
        assert (await found.send(ANN, seven)).task_id == asked.task_id
        assert (await found.send(ANN, seven)).task_id == asked.task_id
        done = await found.rested(ANN, asked.task_id)
        assert done.text == "seven"
        with pytest.raises(UnsupportedOperationError):
            await found.send(ANN, Send("m-3", "say eight", task_id=asked.task_id))
        assert [one.text for one in done.messages] == [
            "ask how many?", "how many?", "say seven", "seven",
        ]  # fmt: skip


async def test_open_tasks_have_a_limit(tmp_path: Path) -> None:
    async with gateway(tmp_path, limits=Limits(open_tasks_max=2)) as found:
        first = await found.send(ANN, Send("m-1", "work"))
        await found.send(ANN, Send("m-2", "work"))
        with pytest.raises(TasksFullError):
            await found.send(ANN, Send("m-3", "work"))
        assert (await found.send(ANN, Send("m-1", "work"))).task_id == first.task_id
        await found.send(BOB, Send("m-3", "work"))
        await found.cancel(ANN, first.task_id)
        await found.send(ANN, Send("m-3", "work"))


# ---- the bridge's own client, in idempotent mode --------------------------------------------


async def test_bridge_repeats_a_lost_message(tmp_path: Path) -> None:
    """The answer is dropped after the commit; the same message has the same task."""
    token = tmp_path / "token"
    token.write_text(CLIENTS["ann"])
    ours = Submission("scout", "m-1", "c-1", None, "say hi", "@ann:example.org")
    async with (
        gateway(tmp_path),
        FaultProxy(Place(path=tmp_path / "socket"), Place(path=tmp_path / "front")) as front,
    ):
        url = f"unix:{tmp_path / 'front'}:/a2a/scout/"
        target = Target("scout", url, token_file=token, idempotent=True)
        assert (await examine(target)).findings == ()
        agents = HttpAgents({"scout": target})
        try:
            card = await agents.card("scout")
            assert isinstance(card, Card)
            assert card.idempotent_for_s == 30 * 86_400
            for fault in (Fault.DROP_ANSWER, Fault.CUT_ANSWER):
                front.arm(b"SendMessage", fault, after_bytes=40)
                assert isinstance(await agents.send(ours), MayHaveLeft)
            answer = await agents.send(ours)
            assert isinstance(answer, Task)
            await until_async(lambda: completed(agents, answer.view.task_id), 60, "the answer")
            other = replace(ours, text="say ho")
            assert await agents.send(other) == Refused("a2a_rpc_invalid_params")
            found = await agents.find("scout", "c-1", "m-1")
            assert isinstance(found, Task)
            assert found.view.task_id == answer.view.task_id
            assert isinstance(await agents.cancel("scout", answer.view.task_id), NotCancelable)
        finally:
            await agents.close()
    assert count(tmp_path, "tasks") == 1


async def completed(agents: HttpAgents, task_id: str) -> bool:
    answer = await agents.get("scout", task_id)
    assert isinstance(answer, Task)
    done = answer.view.state is TaskState.COMPLETED
    assert answer.view.text == ("hi" if done else "")
    return done
