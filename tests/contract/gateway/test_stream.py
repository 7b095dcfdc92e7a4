"""Both legs with a real Redis or Valkey and the real cowboy behind them."""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest

from corral.gateway.domain import Send, State, Task
from corral.gateway.redislink import Endpoint, Stream, connect
from corral.gateway.service import Gateway
from corral.gateway.store import Caller
from corral.gateway.stream import Carrier, FencedError, Inbox
from corral.local.deployment import REDIS
from corral.local.wait import until_async, until_true
from tests.contract.kit import AGENT, CAT, House
from tests.contract.streams import Backend

ANN = Caller("ann", AGENT)
SOURCE = "echo"
WAIT_S = 60.0


def stream(house: House) -> Stream:
    """As the topology has it, under the source's own identity."""
    identity = f"source.{AGENT}.{SOURCE}"
    credential = house.topology.rendered["identities"][identity]["credential"]
    return Stream(
        agent=AGENT,
        redis=Endpoint(socket=str(house.topology.redis_socket)),
        username=house.topology.login(identity).username,
        password_file=house.topology.credential_file(credential),
        source=SOURCE,
    )


@contextlib.asynccontextmanager
async def carried(house: House, folder: Path) -> AsyncIterator[Gateway]:
    """A gateway with both legs; they end as by a kill: nothing is said goodbye to."""
    async with Gateway(folder / "gateway.db") as gateway:
        legs = asyncio.create_task(Carrier(gateway, stream(house)).run())
        try:
            yield gateway
        finally:
            legs.cancel()
            await asyncio.gather(legs, return_exceptions=True)


CHANGES = {SOURCE: {"runner": dict(CAT)}}


@pytest.fixture
async def each_house(backend: Backend) -> AsyncIterator[House]:
    async with House(backend, only=(SOURCE,), changes=CHANGES) as found:
        yield found


@pytest.fixture
async def house(one_backend: Backend) -> AsyncIterator[House]:
    async with House(one_backend, only=(SOURCE,), changes=CHANGES) as found:
        yield found


async def rested(gateway: Gateway, task: Task) -> Task:
    async with asyncio.timeout(WAIT_S):
        return await gateway.rested(ANN, task.task_id)


async def test_message_goes_to_the_agent_and_its_answer_comes_back(
    each_house: House, tmp_path: Path
) -> None:
    await each_house.start()
    async with carried(each_house, tmp_path) as gateway:
        tasks = [await gateway.send(ANN, Send(f"m-{n}", f"grüße {n}")) for n in range(5)]
        done = [await rested(gateway, task) for task in tasks]
    assert [(one.state, one.text) for one in done] == [
        (State.COMPLETED, f"grüße {n}") for n in range(5)
    ]


async def test_all_may_be_away_for_a_while(house: House, tmp_path: Path) -> None:
    """The gateway takes messages without Redis; the legs go on when it is there."""
    await house.start()
    await house.slay(REDIS)
    async with carried(house, tmp_path) as gateway:
        task = await gateway.send(ANN, Send("m", "hello"))
        assert task.state is State.SUBMITTED
        await house.start(REDIS)
        assert (await rested(gateway, task)).text == "hello"


async def test_answer_that_came_while_the_gateway_was_away(house: House, tmp_path: Path) -> None:
    await house.start()
    async with carried(house, tmp_path) as gateway:
        task = await gateway.send(ANN, Send("m", "hello"))
        await until_async(lambda: passed_on(gateway, task), WAIT_S, "the message to be passed on")
    await until_async(lambda: house.outbox(SOURCE), WAIT_S, "the answer")
    async with carried(house, tmp_path) as gateway:
        assert (await rested(gateway, task)).text == "hello"


async def passed_on(gateway: Gateway, task: Task) -> bool:
    return (await gateway.get(ANN, task.task_id)).state is not State.SUBMITTED


async def test_lost_answer_to_the_addition_starts_nothing_twice(
    house: House, tmp_path: Path
) -> None:
    """What was added and not recorded is added again; the agent's side knows the id."""
    await house.start()
    async with Gateway(tmp_path / "gateway.db") as gateway:
        task = await gateway.send(ANN, Send("m", "hello"))
    for _ in range(2):  # each time the commit after the addition is lost
        async with Gateway(tmp_path / "gateway.db") as gateway:
            lost = Unrecorded(gateway, stream(house))
            await lost.until_added()
    async with carried(house, tmp_path) as gateway:
        assert (await rested(gateway, task)).text == "hello"
    runs = [one for one in await house.outbox(SOURCE) if one.content == b"hello"]
    assert len(runs) == 1


async def test_lost_answer_to_the_addition_adds_nothing_twice(house: House, tmp_path: Path) -> None:
    """M9: whatever the agent's side remembers: there is no agent's side here."""
    await house.start(REDIS)
    async with Gateway(tmp_path / "gateway.db") as gateway:
        await gateway.send(ANN, Send("m", "hello"))
        for _ in range(3):
            await Unrecorded(gateway, stream(house)).until_added()
        assert await house.admin("XLEN", f"{AGENT}:{SOURCE}:inbox") == 1
        assert await house.admin("HLEN", f"{AGENT}:{SOURCE}:sent") == 2  # the marker, the fence
    async with carried(house, tmp_path) as gateway:
        later = await gateway.send(ANN, Send("m-2", "bye"))
        await until_async(lambda: passed_on(gateway, later), WAIT_S, "the message to be passed on")

        async def tidy() -> bool:
            return bool(await house.admin("HKEYS", f"{AGENT}:{SOURCE}:sent") == [b"fence"])

        await until_async(tidy, WAIT_S, "the markers to be removed")
        assert await house.admin("XLEN", f"{AGENT}:{SOURCE}:inbox") == 2


async def test_marker_that_a_kill_left_behind_goes_at_the_next_start(
    house: House, tmp_path: Path
) -> None:
    await house.start(REDIS)
    sent = f"{AGENT}:{SOURCE}:sent"
    await house.admin("HSET", sent, "nobodys", "1-1")
    async with carried(house, tmp_path):

        async def swept() -> bool:
            return bool(await house.admin("HKEYS", sent) == [b"fence"])

        await until_async(swept, WAIT_S, "the marker to be removed")


async def test_older_connection_adds_nothing(house: House, tmp_path: Path) -> None:
    await house.start(REDIS)
    where = stream(house)
    old, new = await connect(where), await connect(where)
    async with Gateway(tmp_path / "gateway.db") as gateway:
        await gateway.send(ANN, Send("m", "hello"))
        [one] = await gateway.take(AGENT, 9)
    try:
        first, second = Inbox(old, where), Inbox(new, where)
        await first.attach(frozenset())
        await second.attach(frozenset())
        with pytest.raises(FencedError):
            await first.add(one)
        assert await house.admin("XLEN", where.inbox) == 0
        assert await second.add(one) == await second.add(one)
        assert await house.admin("XLEN", where.inbox) == 1
    finally:
        await old.aclose()
        await new.aclose()


async def test_message_of_a_task_that_ended_meanwhile_starts_nothing(
    house: House, tmp_path: Path
) -> None:
    """It was taken, but Redis never got it; when that is back, the task is over."""
    await house.start()
    await house.slay(REDIS)
    async with Gateway(tmp_path / "gateway.db") as gateway:
        task = await gateway.send(ANN, Send("m", "hello"))
        await gateway.take(AGENT, 9)
        await gateway.cancel(ANN, task.task_id)
    await house.start(REDIS)
    async with carried(house, tmp_path) as gateway:
        later = await gateway.send(ANN, Send("m-2", "bye"))
        assert (await rested(gateway, later)).text == "bye"
        outcomes = await asyncio.to_thread(ended, house.topology.ledger(AGENT))
    # Of the outbox the gateway has trimmed what it read.
    assert outcomes == {("cancel", "cancel_unknown"), ("message", "completed")}


def ended(ledger: Path) -> set[tuple[str, str]]:
    """Kind and outcome of all turns."""
    with contextlib.closing(sqlite3.connect(ledger)) as conn:
        return set(conn.execute("SELECT kind, outcome FROM turns"))


class Unrecorded(Carrier):
    """Stops between the addition to the inbox and its commit."""

    def __init__(self, gateway: Gateway, where: Stream) -> None:
        super().__init__(_Stops(gateway), where)

    async def until_added(self) -> None:
        client = await self._connect()
        try:
            with contextlib.suppress(_Stopped):
                await self._publish(client)
        finally:
            await client.aclose()


class _Stopped(Exception):
    pass


class _Stops(Gateway):
    def __init__(self, gateway: Gateway) -> None:
        self.__dict__ = gateway.__dict__

    async def published(self, _delivery: object) -> None:
        raise _Stopped


async def test_same_answer_counts_once(house: House, tmp_path: Path) -> None:
    """Read, committed, and not acknowledged: read again, it changes nothing."""
    await house.start()
    async with carried(house, tmp_path) as gateway:
        task = await gateway.send(ANN, Send("m", "hello"))
        done = await rested(gateway, task)
    await house.admin("XGROUP", "SETID", f"{AGENT}:{SOURCE}:outbox", "source", "0")
    async with carried(house, tmp_path) as gateway:
        other = await gateway.send(ANN, Send("m-2", "again"))
        await rested(gateway, other)
        assert await gateway.get(ANN, task.task_id) == done


ASKS = """\
read -r words
case $words in
ask*) echo '{"state": "input_required", "text": "which?"}' ;;
*) printf '{"state": "completed", "text": "%s"}' "$words" ;;
esac"""


async def test_agent_asks_and_is_answered_in_its_channel(
    one_backend: Backend, tmp_path: Path
) -> None:
    runner = {"kind": "exec", "command": ["/bin/sh", "-c", ASKS], "output": "json"}
    changes = {SOURCE: {"runner": {**runner, "turn_timeout_s": 60}}}
    async with House(one_backend, only=(SOURCE,), changes=changes) as house:
        await house.start()
        async with carried(house, tmp_path) as gateway:
            asked = await rested(gateway, await gateway.send(ANN, Send("m", "ask me")))
            assert (asked.state, asked.text) == (State.INPUT_REQUIRED, "which?")
            answer = Send("m-2", "the blue one", task_id=asked.task_id)
            done = await rested(gateway, await gateway.send(ANN, answer))
            assert (done.state, done.text) == (State.COMPLETED, "the blue one")
        found = await asyncio.to_thread(threads, house.topology.ledger(AGENT))
    assert found == [done.task_id.encode()]


def threads(ledger: Path) -> list[bytes]:
    """Of all turns; they are in one channel."""
    with contextlib.closing(sqlite3.connect(ledger)) as conn:
        found = conn.execute("SELECT DISTINCT channel, thread FROM turns").fetchall()
    return [thread for _, thread in found]


async def test_cancel_reaches_the_agent(house: House, tmp_path: Path) -> None:
    """Its runner is away, so the turn waits; the cancel ends it."""
    await house.start("daemon")
    async with carried(house, tmp_path) as gateway:
        task = await gateway.send(ANN, Send("m", "hello"))
        await until_async(lambda: passed_on(gateway, task), WAIT_S, "the message to be passed on")
        assert (await gateway.cancel(ANN, task.task_id)).state is State.CANCELED

        async def told() -> bool:
            return any(one.outcome == "cancel_applied" for one in await house.outbox(SOURCE))

        await until_async(told, WAIT_S, "the agent's side to apply the cancel")
        assert (await gateway.get(ANN, task.task_id)).state is State.CANCELED


class Deaf(Carrier):
    """Loses a cancellation while it connects, as the client library may."""

    connecting = 0

    async def _connect(self) -> NoReturn:
        self.connecting += 1
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        raise OSError("no connection")


async def test_legs_end_when_they_are_cancelled_while_they_connect(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "gateway.db") as gateway:
        carrier = Deaf(gateway, Stream("scout", Endpoint(socket="none"), "u", tmp_path / "p"))
        legs = asyncio.create_task(carrier.run())
        await until_true(lambda: carrier.connecting == 2, WAIT_S, "both legs to connect")
        legs.cancel()
        await asyncio.wait([legs], timeout=WAIT_S)
        assert legs.cancelled()
