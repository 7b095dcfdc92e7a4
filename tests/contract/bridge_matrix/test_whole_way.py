"""A mention crosses the bridge, the gateway, Redis and cowboy, and its answer comes back.

With `corral.local`, as `./corral up --bridge` starts it: real parts all the way.
"""

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.local import wait
from corral.local.bridge_stack import BRIDGE, SERVER_NAME, BridgeStack, Options
from corral.local.deployment import DAEMON, REDIS
from corral.local.front import GATEWAY
from corral.local.gateway_side import AGENT_NAME, GatewaySide
from corral.local.matrix import Person, shown
from corral.local.say import Conversation
from corral.local.topology import passable_base
from tests.harness.homeserver import ready_to_start

TIMEOUT_S = 120.0
GHOST = f"@{AGENT_NAME}:{SERVER_NAME}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """PostgreSQL's user must reach it; short, for the sockets in it."""
    made = passable_base("way-")
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.timeout(600)
async def test_mention_is_answered_through_all_hops(folder: Path) -> None:
    ready_to_start()
    async with BridgeStack(Options(folder / "s", gateway=True)) as stack:
        side = stack.side
        assert side is not None
        await stack.start()
        person = await stack.person()
        async with person:
            room_id = await stack.room(person)
            talk = Conversation(person, room_id, None, False, TIMEOUT_S, AGENT_NAME)
            assert await talk.hold("grüße") == "GRÜSSE"
            # With every hop killed while it is on its way, the answer comes all the same, and once.
            await person.say(room_id, f"@{AGENT_NAME} slow 2 still here", mention=[GHOST])
            await wait.until_true(lambda: starts(side) == 2, TIMEOUT_S, "the agent to begin")
            for name in (GATEWAY, REDIS, DAEMON):
                side.supervisor.kill(name)
            stack.supervisor.kill(BRIDGE)

            async def answered() -> bool:
                return "STILL HERE" in await texts(person, room_id)

            await wait.until_async(answered, TIMEOUT_S, "the answer after the kills")
            assert await talk.hold("next") == "NEXT"
            assert (await texts(person, room_id)).count("STILL HERE") == 1
    assert starts(side) == 3


async def texts(person: Person, room_id: str) -> list[str]:
    """What the ghost has said."""
    return [shown(one) for one in await person.history(room_id) if one["sender"] == GHOST]


def starts(side: GatewaySide) -> int:
    """How often the agent was started, by cowboy's ledger."""
    ledger = side.deployment.topology.ledger(AGENT_NAME)
    with contextlib.closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as conn:
        found: int | None = conn.execute("SELECT sum(starts) FROM turns").fetchone()[0]
    return found or 0
