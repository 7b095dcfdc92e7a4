"""A turn that a live session answers, with a kill at each boundary: one wake, one answer.

Killed is who passes the point, or TAMQ, or the other of daemon and runner. Whatever dies is started
again. The session repeats its reply until it is told that it was taken.
"""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.local import wait
from corral.local.deployment import DAEMON, RUNNER
from tests.contract.kit import PAIRS, House, only_answer
from tests.contract.live import PATIENCE_S, Live, turn_of
from tests.harness.boundaries import LIVE_SESSION, owner

TAMQ = "tamq"
LOOK_S = 0.05
KILLS = [
    *((point, "self") for point in LIVE_SESSION),
    ("runner.wake.sending", TAMQ),
    ("runner.wake.sent", TAMQ),
    ("runner.wake.sent", DAEMON),
    ("cowboy.answer.received", TAMQ),
    ("cowboy.answer.committed", RUNNER),
    ("cowboy.answer.committed", f"{RUNNER}+self"),
    ("runner.wake.withdrawn", TAMQ),
]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with Live(tmp_path) as made:
        made.tamq.start()
        yield made


async def kept_up(live: Live, house: House) -> None:
    """Starts TAMQ again when it is dead, and says who it is to the armed processes."""
    while True:
        running = live.tamq.running
        assert running is not None
        if running.poll() is not None:
            await asyncio.to_thread(live.tamq.start)
        else:
            (house.base / "pids" / TAMQ).write_text(str(running.pid))
        await wait.at(time.monotonic() + LOOK_S)


@pytest.mark.parametrize(("point", "victims"), KILLS, ids=[f"{p}-{v}" for p, v in KILLS])
async def test_killed(live: Live, point: str, victims: str) -> None:
    arms = {owner(point): {0: (f"{point}:1={victims}",)}}
    async with House(PAIRS[0], only=("a2a",), changes=live.source(), arms=arms) as house:
        await house.start()
        keeper = asyncio.create_task(kept_up(live, house))
        try:
            await live.open(house)
            entry = await house.send("a2a", "close issue 7")
            found = await house.until_answered("a2a", [entry], PATIENCE_S)
            await house.until(lambda: live.replies, "the reply to be answered", PATIENCE_S)
            await house.until(house.kills, "the kill", PATIENCE_S)
            await house.until_quiet("a2a", PATIENCE_S)
            (receipt,) = await live.receipts()  # one wake, whoever asked for it how often
            assert not keeper.done()
        finally:
            keeper.cancel()
        assert house.kills() == [point]
        answer = only_answer(found, entry)
        assert (answer.outcome, answer.slot) == ("completed", "reply")
        assert answer.content == f"done: {turn_of(entry)}".encode()
        assert all(status == 0 for status, _ in live.replies), live.replies
        assert len(await house.outbox("a2a")) == 1
        assert receipt["idempotency_key"] == f"{turn_of(entry)}#1"
        assert {one["message"] for one in live.shown} == {receipt["message_id"]}


def test_every_point_of_a_live_session_is_exercised() -> None:
    assert {point for point, _ in KILLS} == set(LIVE_SESSION)
