"""A worker stands still (SIGSTOP) for longer than its lease, in the middle of a call.

Another one takes its job over. When the first goes on it has the answer that it waited for, and
what it would write is refused: nothing is sent twice, nothing is told twice, no end is changed.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from corral.bridge.database import Target
from corral.local.postgres import find_postgres
from corral.local.wait import until_async
from tests.contract.bridge.kit import mention
from tests.harness import postgres
from tests.harness.armed_process import PATIENCE_S
from tests.harness.bridge_process import BridgeProcess, over
from tests.harness.bridge_process import ledger as read_ledger
from tests.harness.bridge_world import World

LEASE_S = 3.0


@pytest.fixture(scope="module")
def ledger() -> Iterator[Target]:
    with postgres.server(max(find_postgres())) as made:
        yield asyncio.run(postgres.create(made, "ledger"))


class Gate:
    """The first call of a method is done, and is not answered until the gate is open."""

    def __init__(self, side: Any, method: str) -> None:
        self.done = asyncio.Event()
        self.open = asyncio.Event()
        self._real = getattr(side, method)
        setattr(side, method, self)

    async def __call__(self, *args: Any) -> Any:
        answer = await self._real(*args)
        if not self.done.is_set():
            self.done.set()
            await self.open.wait()
        return answer


@asynccontextmanager
async def halted(
    ledger: Target, folder: Path, side: str, lease_s: float
) -> AsyncIterator[tuple[World, BridgeProcess, BridgeProcess, Gate]]:
    """A worker that stands still while a call of `side` is under way, and another beside it."""
    await postgres.empty(ledger)
    world = World()
    gate = Gate(getattr(world, side), "send")
    serving = await world.serve(folder / "world.sock")
    still, other = (
        BridgeProcess(folder, ledger, folder / "world.sock", {"lease_s": lease_s}, name=name)
        for name in ("still", "other")
    )
    try:
        still.start()
        await still.deliver(mention("a", text="reply hello"))
        await asyncio.wait_for(gate.done.wait(), PATIENCE_S)
        assert still.process is not None
        still.process.send_signal(signal.SIGSTOP)
        other.start()
        yield world, still, other, gate
    finally:
        still.kill()
        other.kill()
        serving.close()


@dataclass(frozen=True)
class Pause:
    side: str
    end: tuple[str, str]
    said: str


@pytest.mark.parametrize(
    "pause",
    [
        Pause("rooms", ("delivered", "answered"), "hello"),  # the room has it, nobody knows
        Pause("agent", ("ambiguous", "call_uncertain"), "NOTICE call_uncertain"),
    ],
    ids=lambda pause: pause.side,
)
async def test_a_worker_that_stands_still_past_its_lease_changes_nothing_afterwards(
    pause: Pause, ledger: Target, tmp_path: Path
) -> None:
    async with halted(ledger, tmp_path, pause.side, LEASE_S) as (world, still, other, gate):
        [before], _ = await over(ledger, 1)
        assert (before["state"], before["reason"]) == pause.end
        assert before["recoveries"] >= 1
        other.kill()
        # It goes on, with the answer; and it works: the next mention is its own.
        gate.open.set()
        assert still.process is not None
        still.process.send_signal(signal.SIGCONT)
        await still.deliver(mention("b", text="reply next"))
        [after, following], _ = await over(ledger, 2)
    assert dict(after) == dict(before)
    assert following["state"] == "delivered"
    assert [one.text for one in world.agent.sends] == ["reply hello", "reply next"]
    assert world.rooms.said() == [pause.said, "next"]


async def test_the_other_waits_for_the_lease_while_the_first_only_stands_still(
    ledger: Target, tmp_path: Path
) -> None:
    """The control: within its lease nothing is taken from it, and it goes on itself."""
    async with halted(ledger, tmp_path, "agent", 600.0) as (world, still, other, gate):
        await other.deliver(mention("b", text="reply b", room="!b"))

        async def beside() -> bool:
            rows, _ = await read_ledger(ledger)
            return bool(rows[-1]["state"] == "delivered")

        await until_async(beside, PATIENCE_S, "the other to work")
        gate.open.set()
        assert still.process is not None
        still.process.send_signal(signal.SIGCONT)
        rows, _ = await over(ledger, 2)
    assert [(row["state"], row["recoveries"]) for row in rows] == [("delivered", 0)] * 2
    assert world.rooms.said() == ["b", "hello"]
