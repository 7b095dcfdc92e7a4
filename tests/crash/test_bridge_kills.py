"""The bridge is SIGKILLed at each of its boundaries, and started again."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.bridge import points
from corral.bridge.database import Target
from corral.local.postgres import PostgresServer, find_postgres
from tests.harness import postgres
from tests.harness.armed import known_points
from tests.harness.bridge_cases import ASK, KILLS, REPLY, TASK, Kill, Person, problems
from tests.harness.bridge_plants import PLANTS
from tests.harness.bridge_process import BridgeProcess, over
from tests.harness.bridge_world import World


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres.server(max(find_postgres())) as made:
        yield made


@pytest.fixture(scope="module")
def ledger(server: PostgresServer) -> Target:
    return asyncio.run(postgres.create(server, "ledger"))


def test_every_point_is_killed_at() -> None:
    own = {point for point in known_points("bridge") if point.startswith("bridge.")}
    assert {kill.point for kill in KILLS} == own


async def played(kill: Kill, ledger: Target, folder: Path, plant: str = "") -> list[str]:
    """Killed at the point, started again; what is wrong in the end."""
    await postgres.empty(ledger)
    world, case = World(), kill.case
    serving = await world.serve(folder / "world.sock")
    bridge = BridgeProcess(folder, ledger, folder / "world.sock", case.policy, plant=plant)
    person = asyncio.ensure_future(Person(case, world, bridge.deliver).run())
    try:
        bridge.start(f"{kill.point}:{kill.nth}")
        await bridge.died()
        bridge.start()
        rows, controls = await over(ledger, len(case.texts))
    finally:
        bridge.kill()
        person.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await person
        serving.close()
    assert bridge.kills() == [kill.point]
    wrong = problems(case, kill.ends or case.ends, world, rows, controls)
    return [*wrong, bridge.log()] if wrong else []


@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: kill.name)
async def test_a_kill_loses_nothing_and_repeats_nothing(
    kill: Kill, ledger: Target, tmp_path: Path
) -> None:
    wrong = await played(kill, ledger, tmp_path)
    assert not wrong, "\n".join(wrong)


PLANTED = {
    "send-again": (Kill(points.CALLED, TASK), "left 2 times"),
    "new-transaction-ids": (Kill(points.REPLY_SENT, REPLY), "['hello', 'hello']"),
    "new-control-ids": (Kill(points.QUESTION_SENT, ASK), "2 events for 1 controls"),
    "call-before-commit": (Kill(points.CALLED, TASK), "left 2 times"),
}


def test_every_planted_bug_has_its_trial() -> None:
    assert set(PLANTED) == set(PLANTS)


@pytest.mark.parametrize("plant", PLANTED)
async def test_a_planted_bug_is_caught(plant: str, ledger: Target, tmp_path: Path) -> None:
    kill, sign = PLANTED[plant]
    wrong = await played(kill, ledger, tmp_path, plant)
    assert any(sign in one for one in wrong), "\n".join(wrong)
