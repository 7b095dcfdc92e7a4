"""`corral trace` with the real programs: a message to a live session, by each of its ids.

The way through bridge and gateway is in tests/unit/overview/test_trace.py, by what they print.
"""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.local.deployment import DAEMON
from tests.contract.kit import AGENT, House
from tests.contract.live import PATIENCE_S, Live, turn_of
from tests.contract.streams import Backend
from tests.contract.test_operator import OPERATOR


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with Live(tmp_path) as made:
        made.tamq.start()
        yield made


async def traced(house: House, live: Live, any_id: str, status: int = 0) -> dict[str, Any]:
    """What the program prints, as an operator who has the session's user, too."""
    protocol = house.backend.protocol
    environment = {**house.topology.environment(AGENT, redis=True, protocol=protocol)}
    credential = house.topology.rendered["identities"][OPERATOR]["credential"]
    environment |= {
        "COWBOY_REDIS_USERNAME": OPERATOR,
        "COWBOY_REDIS_PASSWORD_FILE": str(house.topology.credential_file(credential)),
        "TAMQ_SOCKET": str(live.tamq.socket),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "corral.overview.main", "trace", any_id, "--json"),
        cwd=house.base,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode == status, (out, err)
    found: dict[str, Any] = json.loads(out)
    return found


async def test_a_live_sessions_message_by_each_of_its_ids(live: Live, one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=live.source()) as house:
        await house.start()
        session = await live.open(house, "silent")
        entry = await house.send("a2a", "a secret word", message_id="m-1")
        await house.until(lambda: live.shown, "the wake to be shown")
        waits = await traced(house, live, entry)
        assert [hop["kind"] for hop in waits["hops"]] == ["entry", "turn", "wake"]
        assert waits["gap"].startswith("the session has it (")
        taken = await house.cowboy("reply", turn_of(entry), "another secret")
        assert taken.status == 0, taken.err
        found = await house.until_answered("a2a", [entry])
        await live.until_withdrawn(1)
        await house.until_quiet("a2a")
        ((answer,),) = found.values()
        (wake,) = [one["message_id"] for one in await live.receipts()]
        ids = [entry, turn_of(entry), wake, answer.outbox_id]
        for any_id in (answer.outbox_id, "m-1"):
            whole = await traced(house, live, any_id)
            assert [hop["id"] for hop in whole["hops"]] == ids, any_id
            # A queued answer is not a delivered one: nobody reads this outbox.
            assert (
                whole["gap"]
                == "the outbox has the answer, and nobody has acknowledged it: no_reader"
            )
            assert (whole["complete"], whole["starts"]) == (False, 1)
            assert "secret" not in json.dumps(whole)
        nobody = await traced(house, live, "m-2", 64)
        assert "knows 'm-2'" in nobody["error"]["message"]
        await house.slay(DAEMON)
        lost = await traced(house, live, answer.outbox_id, 64)
        assert "cowboy scout: " in lost["error"]["hint"]  # it alone knows whose answer that is
        silent = await traced(house, live, wake)
        assert [hop["id"] for hop in silent["hops"]] == [entry, wake, answer.outbox_id]
        assert any("its daemon could not be asked" in text for text in silent["certain"])
        assert silent["starts"] is None
        live.end(session)
