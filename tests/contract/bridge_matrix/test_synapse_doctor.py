"""Faults planted into a real deployment, each found by doctor, and gone when it is repaired."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Target, connection
from corral.bridge.doctor_facts import examine
from corral.bridge.domain import Limits
from corral.bridge.incoming import Conflict
from corral.bridge.session import Session
from corral.bridge.settings import BridgeSettings
from corral.core.findings import Level
from corral.core.settings import load
from corral.local import wait
from corral.local.echo_agent import EchoAgent
from corral.local.matrix import Person
from corral.local.postgres import PostgresServer
from corral.local.synapse import LOOPBACK, Synapse, free_port
from tests.contract.bridge.kit import incoming, mention
from tests.harness.homeserver import AGENTS, Endpoint, registration

TIMEOUT_S = 60.0


@pytest.fixture
async def agent() -> AsyncIterator[str]:
    port = free_port()
    url = f"http://{LOOPBACK}:{port}/"
    runner = web.AppRunner(EchoAgent(url).application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, port).start()
    yield url
    await runner.cleanup()


@pytest.fixture
def given(homeserver: Synapse, endpoint: Endpoint, target: Target, agent: str) -> dict[str, Any]:
    """Settings with which nothing is wrong, while the endpoint and a worker are there."""
    ours = registration(endpoint.port)
    return {
        "homeserver_url": homeserver.url,
        "server_name": ours.server_name,
        "sender_localpart": ours.sender_localpart,
        "appservice_id": ours.id,
        "as_token": ours.as_token,
        "hs_token": ours.hs_token,
        "listen_port": endpoint.port,
        "database": target.dsn,
        "agents": {key: {"url": agent, "localpart": local} for local, key in AGENTS.items()},
    }


@pytest.fixture
async def worker(target: Target) -> AsyncIterator[Session]:
    session = Session(target, lambda _: None)
    running = asyncio.create_task(session.run())
    await asyncio.wait_for(session.alive.wait(), TIMEOUT_S)
    yield session
    running.cancel()
    await asyncio.wait({running})


async def found(given: dict[str, Any], *rooms: str, **more: Any) -> set[str]:
    findings = await examine(load(BridgeSettings, **{**given, **more}), rooms)
    return {one.code for one in findings if one.level is not Level.OK}


@pytest.mark.usefixtures("worker")
async def test_of_the_homeserver_and_its_rooms(
    given: dict[str, Any], endpoint: Endpoint, alice: Person, room_id: str, agent: str
) -> None:
    assert await found(given) == {"bridge_unreachable"}
    endpoint.hs_token = "another"
    async with endpoint.serving():
        assert await found(given) == {"hs_token_wrong"}
    endpoint.hs_token = given["hs_token"]
    async with endpoint.serving():
        assert await found(given, as_token="x" * 20) == {"as_token_wrong"}
        assert await found(given, homeserver_url="http://127.0.0.1:9") == {"homeserver_unreachable"}

        async def differs() -> bool:
            return await found(given, sender_localpart="someone") == {"registration_differs"}

        # On a busy machine Synapse says for a while that it cannot reach who is there again.
        await wait.until_async(differs, TIMEOUT_S, "the homeserver to reach the bridge again")
        assert await found(given, appservice_id="other") == {"registration_differs"}
        foreign = {**given["agents"], "third": {"url": agent, "localpart": "not-registered"}}
        assert await found(given, agents=foreign) == {"ghost_not_ours"}
        elsewhere = await alice.create_room()
        assert await found(given, elsewhere) == {"ghost_not_in_room"}
        # In this room there is one of the two.
        assert await found(given, room_id) == {"ghost_not_in_room"}
        only = {"scout": given["agents"]["scout"]}
        assert await found(given, room_id, agents=only) == set()
        levels = await alice.state(room_id, "m.room.power_levels")
        path = f"/rooms/{room_id}/state/m.room.power_levels/"
        await alice.call("PUT", path, levels | {"events_default": 50})
        assert await found(given, room_id, agents=only) == {"ghost_may_not_speak"}
        wrong_version = {"scout": {**given["agents"]["scout"], "protocol": "0.3"}}
        assert await found(given, agents=wrong_version)
        gone = {"scout": {"url": "http://127.0.0.1:9/"}}
        assert await found(given, agents=gone) == {"a2a_connect"}
        assert await found(given) == set()


async def test_of_the_ledger(
    given: dict[str, Any], endpoint: Endpoint, target: Target, ledger_server: PostgresServer
) -> None:
    admission = LedgerAdmission(target, Limits())
    async with endpoint.serving():
        assert await found(given) == {"worker_dead"}
        session = Session(target, lambda _: None)
        running = asyncio.create_task(session.run())
        await asyncio.wait_for(session.alive.wait(), TIMEOUT_S)
        assert await found(given) == set()

        await admission.admit(incoming("1", mention("a", room="!nowhere", ghost="scout")))
        full = {"global_queue_capacity": 1, "room_queue_capacity": 1}
        assert await found(given, **full) == {"queue_full", "ghost_not_in_room"}
        async with connection(target) as made:
            await made.execute("UPDATE bridge_delegations SET due_at = due_at - interval '5 min'")
        assert await found(given) == {"jobs_waiting", "ghost_not_in_room"}
        async with connection(target) as made:
            await made.execute("TRUNCATE bridge_delegations CASCADE")

        other = incoming("1", mention("b", room="!nowhere", ghost="scout"))
        assert await admission.admit(other) == Conflict()
        assert await found(given) == {"txn_id_wedge"}
        await admission.admit(incoming("2"))
        assert await found(given) == set()

        name = target.dsn.split("/")[3].partition("?")[0]
        async with connection(Target(ledger_server.dsn())) as made:
            await made.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        assert await found(given) == {"database_read_only"}
        async with connection(Target(ledger_server.dsn())) as made:
            await made.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        assert await found(given, database=ledger_server.dsn("template1")) == {"schema_wrong"}
        gone = ledger_server.dsn("nobody_made_it")
        assert await found(given, database=gone) == {"database_unreachable"}

        running.cancel()
        await asyncio.wait({running})

        async def dead() -> bool:
            return await found(given) == {"worker_dead"}

        await wait.until_async(dead, TIMEOUT_S, "the end of the session")
    await admission.close()
