"""`corral trace` across everything, with the real services and a live session at the end.

Each of the ten kinds of id leads to the same chain; and where a chain is broken on purpose, it says
where, what is certain, and what to do.
"""

import asyncio
from typing import Any

import pytest

from corral.local.bridge_stack import BRIDGE, POSTGRES, SYNAPSE
from corral.local.deployment import DAEMON
from corral.local.front import GATEWAY, SOURCE
from tests.harness.chain_live import KINDS, World
from tests.harness.chain_stack import AGENT

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]

INBOX, OUTBOX = f"{AGENT}:{SOURCE}:inbox", f"{AGENT}:{SOURCE}:outbox"


def ids(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(hop["kind"], hop["id"]) for hop in told["hops"]]


async def test_each_of_the_ten_ids_leads_to_the_same_chain(world: World) -> None:
    async with world.talk() as talk:
        await world.answers()
        await talk.over()
    await world.withdrawn()
    whole = await world.trimmed(talk)
    assert [hop["kind"] for hop in whole["hops"]] == list(KINDS)
    assert (whole["complete"], whole["gap"], whole["next"], whole["starts"]) == (
        True,
        None,
        None,
        1,
    )
    for kind, any_id in ids(whole):
        again = await world.chain.trace(any_id)
        assert {**again, "id": None} == {**whole, "id": None}, kind
    keys = world.chain.turns("SELECT message_id FROM turns")
    again = await world.chain.trace(keys[-1][0].decode())  # the producer's own
    assert ids(again) == ids(whole)


# ------------------------------------------------------------ broken on purpose, hop by hop


async def test_an_event_that_was_not_handed_over(world: World) -> None:
    chain = world.chain
    await chain.kill(BRIDGE)
    async with world.talk() as talk:
        told = await chain.run("corral", "trace", talk.asked, status=64)
        assert told["error"]["message"].startswith("no service that answers here knows")
        assert "has not handed over yet" in told["error"]["hint"]
        await chain.start(BRIDGE)
        await world.answers()
        await talk.over()


async def test_a_job_that_nobody_takes(world: World) -> None:
    """The agent's gateway is not there, so no call leaves."""
    chain = world.chain
    await chain.kill(GATEWAY)
    async with world.talk() as talk:
        told = await world.until(talk, "nothing was executed")
        assert told["hops"][-1]["kind"] in {"job", "message"}
        assert told["starts"] == 0
        assert "a2a-bridge doctor" in told["next"]
        await chain.start(GATEWAY)
        await world.answers()
        await talk.over()


async def test_a_job_that_was_removed(world: World) -> None:
    """The rest is found without it; what the room has, nobody here can say."""
    chain = world.chain
    async with world.talk() as talk:
        await world.answers()
        await talk.over()
    whole = await world.trimmed(talk)
    await world.execute("DELETE FROM bridge_delegation_controls")
    await world.execute("DELETE FROM bridge_delegations WHERE event_id = $1", talk.asked)
    task = next(hop["id"] for hop in whole["hops"] if hop["kind"] == "task")
    rest = await chain.trace(task)
    assert [hop["kind"] for hop in rest["hops"]] == [
        "message",
        "task",
        "entry",
        "turn",
        "wake",
        "answer",
    ]
    assert rest["complete"]  # its client has fetched the end
    await chain.run("corral", "trace", talk.asked, status=64)


async def test_a_database_that_is_away(world: World) -> None:
    chain = world.chain
    async with world.talk() as talk:
        await world.answers()
        await talk.over()
    whole = await world.trimmed(talk)
    await chain.kill(POSTGRES)
    turn = next(hop["id"] for hop in whole["hops"] if hop["kind"] == "turn")
    told = await chain.trace(turn)
    assert told["gap"].startswith("a2a-bridge could not be asked: ")
    assert (told["complete"], told["next"], told["starts"]) == (False, "corral doctor", 1)
    await chain.start(POSTGRES)
    assert ids(await chain.trace(turn)) == ids(whole)


async def test_a_task_that_was_removed(world: World) -> None:
    """The agent goes on; the bridge is told that its task is lost, and tells the room."""
    chain = world.chain
    async with world.talk() as talk:
        turn = await world.shown()
        await chain.kill(BRIDGE)
        world.forget_tasks()
        told = await chain.trace(talk.asked)
        assert told["gap"] == "the agent has the task, and no gateway here knows it"
        assert told["hops"][-1]["service"] == "agent"
        assert told["starts"] is None
        await chain.start(BRIDGE)
        await talk.over()
        after = await chain.trace(turn)
        assert after["gap"] == "the room was told the end, and its turn is dispatched still"
        assert [hop["kind"] for hop in after["hops"]] == list(KINDS[:8] + KINDS[9:])
        await world.answer(turn)


async def test_an_entry_that_was_removed(world: World) -> None:
    chain = world.chain
    await chain.stop(DAEMON)
    async with world.talk() as talk:
        silent = await world.until(talk, "cowboy could not be asked: ")
        assert silent["hops"][-1]["kind"] == "task"
        assert silent["starts"] is None
        assert any("the agent's inbox got its message" in text for text in silent["certain"])
        (entry, _), *_ = await chain.deployment.ask("XREVRANGE", INBOX, "+", "-", "COUNT", "1")
        await chain.deployment.ask("XDEL", INBOX, entry)
        await chain.start(DAEMON)
        told = await world.until(talk, "the agent's inbox got it, and its ledger does not know it")
        assert told["next"] == f"cowboy doctor {AGENT}"
        await world.cancel(talk)


async def test_a_wake_that_cannot_be_sent(world: World) -> None:
    live = world.live
    await asyncio.to_thread(live.tamq.kill)
    async with world.talk() as talk:
        told = await world.until(talk, "tamq could not be asked: ")
        assert told["hops"][-1]["kind"] == "turn"
        await asyncio.to_thread(live.tamq.start)
        turn = await world.shown()
        waits = await world.until(talk, "the session has it (")
        assert waits["hops"][-1]["kind"] == "wake"
        assert waits["next"] == f"cowboy explain {AGENT} {turn}"
        await world.answer(turn)
        await talk.over()


async def test_an_answer_that_was_removed(world: World) -> None:
    chain = world.chain
    async with world.talk() as talk:
        turn = await world.shown()
        await chain.kill(GATEWAY)
        await world.answer(turn)
        waits = await world.until(talk, "the gateway has not made its task's end of the answer")
        outbox_id = waits["hops"][-1]["id"]
        assert waits["hops"][-1]["state"] == "completed, unread"
        await chain.deployment.ask("XDEL", OUTBOX, outbox_id)
        told = await chain.trace(talk.asked)
        assert told["hops"][-1]["state"] == "no longer in the outbox"
        assert "corral-gateway doctor" in told["next"]
        await chain.start(GATEWAY)
        await world.cancel(talk)


async def test_a_reply_that_cannot_be_posted(world: World) -> None:
    chain = world.chain
    async with world.talk() as talk:
        turn = await world.shown()
        await chain.kill(SYNAPSE)
        await world.answer(turn)
        told = await world.until(talk, "its end is decided, and no event of it is recorded")
        assert told["hops"][-1]["kind"] == "answer"
        assert told["next"].startswith("a2a-bridge jobs explain ")
        await chain.start(SYNAPSE)
        await talk.over()
