"""Gathers what `doctor` judges: from the ledger, the homeserver and the agents."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from corral.bridge import service
from corral.bridge.a2a import examination
from corral.bridge.database import Target, check, check_sessions, connection, faults_named
from corral.bridge.doctor import (
    WAITING_S,
    HomeserverFacts,
    LedgerFacts,
    of_agent,
    of_homeserver,
    of_ledger,
)
from corral.bridge.matrix.rooms import MatrixRooms, Pinged, Problem
from corral.bridge.ports import Forbidden, Limited
from corral.bridge.settings import BridgeSettings
from corral.core.errors import CorralError
from corral.core.findings import Finding
from corral.core.ids import new_uuid
from corral.core.sqlfiles import load_sql

SQL: Final = load_sql("corral.bridge", "sql/doctor.sql")
ROOMS_MAX: Final = 20


async def examine(settings: BridgeSettings, rooms: Sequence[str] = ()) -> list[Finding]:
    """All findings, in order. `rooms`: looked at besides those that have open jobs."""
    target = Target(settings.database.get_secret_value(), settings.database_pooled)
    ledger, agents = await asyncio.gather(ledger_facts(target), _agents(settings))
    asked = list(dict.fromkeys([*ledger.rooms, *_all_of(rooms, settings)]))
    homeserver = await homeserver_facts(settings, asked)
    found = list(
        of_ledger(
            ledger,
            room_capacity=settings.room_queue_capacity,
            capacity=settings.global_queue_capacity,
        )
    )
    sender = f"@{settings.sender_localpart}:{settings.server_name}"
    found += of_homeserver(homeserver, url=settings.homeserver_url, sender=sender)
    return found + agents


def _all_of(rooms: Sequence[str], settings: BridgeSettings) -> list[tuple[str, str]]:
    return [(room_id, agent) for room_id in rooms for agent in settings.agents]


async def _agents(settings: BridgeSettings) -> list[Finding]:
    targets = service.agent_targets(settings).values()
    found = await asyncio.gather(*(examination.examine(target) for target in targets))
    return [finding for one in found for finding in of_agent(one)]


# ---- the ledger -----------------------------------------------------------------------------


async def ledger_facts(target: Target) -> LedgerFacts:
    try:
        async with connection(target) as made:
            await check(made)
            await check_sessions(target)
            return await _ledger(made, pooled=target.pooled)
    except CorralError as error:
        return LedgerFacts(error)


async def _ledger(made: Any, *, pooled: bool) -> LedgerFacts:
    with faults_named():
        before = datetime.now(UTC)
        now = await made.fetchrow(SQL["now"])
        middle = before + (datetime.now(UTC) - before) / 2
        workers = await made.fetchrow(SQL["workers"])
        jobs = await made.fetchrow(SQL["jobs"], timedelta(seconds=WAITING_S))
        uncertain = await made.fetchrow(SQL["uncertain"])
        wedge = await made.fetchrow(SQL["wedge"])
        rooms = await made.fetch(SQL["rooms"], ROOMS_MAX)
    return LedgerFacts(
        writable=now["writable"],
        clock_off_s=(middle - now["now"]).total_seconds(),
        workers_alive=workers["alive"],
        pooled=pooled,
        open_jobs=jobs["open"],
        fullest_room=jobs["fullest_room"],
        oldest_s=jobs["oldest_s"],
        waiting=jobs["waiting"],
        ambiguous=uncertain["ambiguous"],
        dead=uncertain["dead"],
        wedged_txn=wedge["txn_id"] if wedge else None,
        rooms=tuple((row["room_id"], row["ghost"]) for row in rooms),
    )


# ---- the homeserver -------------------------------------------------------------------------


async def homeserver_facts(
    settings: BridgeSettings, rooms: Sequence[tuple[str, str]]
) -> HomeserverFacts:
    async with MatrixRooms(service.rooms_options(settings)) as client:
        who = await client.whoami()
        if not isinstance(who, str):
            code = _code(who)
            refused = code in {"m_unknown_token", "m_missing_token", "http_401", "m_forbidden"}
            return HomeserverFacts(token=code) if refused else HomeserverFacts(reachable=code)
        pinged = await client.ping(new_uuid())
        ghosts = {agent: _code(await client.prepare(agent)) for agent in settings.agents}
        seen = [
            (room_id, agent, await _in_room(client, agent, room_id))
            for room_id, agent in rooms
            if not ghosts.get(agent, "unknown")
        ]
        ping = "" if isinstance(pinged, Pinged) else _code(pinged)
        return HomeserverFacts(sender=who, ping=ping, ghosts=ghosts, rooms=seen)


async def _in_room(client: MatrixRooms, agent: str, room_id: str) -> str:
    answer = await client.may_speak(agent, room_id)
    if isinstance(answer, bool):
        return "" if answer else "may_not_speak"
    return "not_in_room" if isinstance(answer, Forbidden) else _code(answer)


def _code(problem: Problem | None) -> str:
    if problem is None:
        return ""
    return "limited" if isinstance(problem, Limited) else problem.code
