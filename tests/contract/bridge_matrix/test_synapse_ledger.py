"""A real Synapse against the real ledger: retries, restarts, and on which database it runs."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from corral.bridge.admission import LedgerAdmission
from corral.bridge.catchup import CatchUp, Options
from corral.bridge.database import Target, connection
from corral.bridge.domain import Limits
from corral.bridge.incoming import Admitted, Committed, Conflict, Incoming, Replay
from corral.bridge.matrix.rooms import MatrixRooms
from corral.bridge.ports import Joined
from corral.bridge.registration import document
from corral.local import synapse, wait
from corral.local.matrix import Person
from corral.local.postgres import PostgresServer
from corral.local.synapse import Synapse
from tests.contract.bridge_matrix.test_synapse_intake import SCOUT, said_max, used_twice
from tests.harness.homeserver import (
    Endpoint,
    Ledgered,
    client_options,
    delivered,
    registration,
    restart_delivered,
)

TIMEOUT_S = 60.0


async def jobs(target: Target, room_id: str) -> list[str]:
    """The events of a room's jobs, in the order of admission."""
    async with connection(target) as made:
        rows = await made.fetch(
            "SELECT event_id FROM bridge_delegations WHERE room_id = $1 ORDER BY seq", room_id
        )
    return [row["event_id"] for row in rows]


async def until_jobs(target: Target, room_id: str, count: int) -> list[str]:
    async def enough() -> bool:
        return len(await jobs(target, room_id)) >= count

    await wait.until_async(enough, TIMEOUT_S, f"{count} jobs")
    return await jobs(target, room_id)


@pytest.mark.usefixtures("ledger")
async def test_f39_a_lost_answer_makes_no_second_job(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str, target: Target
) -> None:
    endpoint.lose = 2
    async with endpoint.serving():
        await delivered(homeserver)  # the invitation; what is said before that may be left behind
        first = await alice.say(room_id, "look", mention=[SCOUT])
        assert await until_jobs(target, room_id, 1) == [first]
        second = await alice.say(room_id, "again", mention=[SCOUT])
        assert await until_jobs(target, room_id, 2) == [first, second]
    assert Replay(exact=False) in endpoint.admission.answers


@pytest.mark.usefixtures("ledger")
async def test_f40_numbers_that_begin_again_lose_nothing(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str, target: Target
) -> None:
    async with endpoint.serving():
        await delivered(homeserver)  # the invitation; what is said before that may be left behind
        said = [await alice.say(room_id, "one", mention=[SCOUT])]
        await until_jobs(target, room_id, 1)
        enough = said_max(endpoint)
        await restart_delivered(homeserver)
        while not used_twice(endpoint):
            assert len(said) < enough, "the numbers did not begin again"
            said.append(await alice.say(room_id, "again", mention=[SCOUT]))
            assert await until_jobs(target, room_id, len(said)) == said
    assert any(isinstance(one, Committed) and one.epoch for one in endpoint.admission.answers)


async def test_f40_rejected_they_wedge_the_homeserver_and_the_ledger_shows_it(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str, target: Target
) -> None:
    """The default, for homeservers on PostgreSQL: `doctor` knows this state and its cure."""
    strict = LedgerAdmission(target, Limits())
    admission = endpoint.admission = Ledgered(ledger=strict)
    async with endpoint.serving():
        await delivered(homeserver)  # the invitation; what is said before that may be left behind
        said = [await alice.say(room_id, "one", mention=[SCOUT])]
        await until_jobs(target, room_id, 1)
        enough = said_max(endpoint)
        await restart_delivered(homeserver)
        while Conflict() not in endpoint.admission.answers:
            assert len(said) < enough, "the numbers did not begin again"
            said.append(await alice.say(room_id, "again", mention=[SCOUT]))

            async def decided(count: int = len(said)) -> bool:
                stored = len(await jobs(target, room_id)) == count
                return stored or Conflict() in endpoint.admission.answers

            await wait.until_async(decided, TIMEOUT_S, "an answer to the homeserver")
        # The cure: the same ledger by event identity, and nothing was lost.
        lenient = LedgerAdmission(target, Limits(), epochs=True)
        admission.ledger = lenient
        assert await until_jobs(target, room_id, len(said)) == said
    await lenient.close()
    await strict.close()


@dataclass
class Holding(Ledgered):
    """Takes a transaction, and does not answer before it may (at first it may)."""

    came_in: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def admit(self, incoming: Incoming) -> Admitted:
        self.came_in.set()
        await self.go.wait()
        return await super().admit(incoming)


def passed_on(homeserver: Synapse, event_id: str) -> bool:
    """Whether the homeserver has noted that an event was handed to its appservice sender."""
    with closing(sqlite3.connect(homeserver.directory / "synapse.db")) as database:
        asked = "SELECT stream_ordering FROM events WHERE event_id = ?"
        (place,) = database.execute(asked, (event_id,)).fetchone()
        noted = database.execute("SELECT stream_ordering FROM appservice_stream_position")
        return bool(noted.fetchone()[0] >= place)


async def test_what_a_killed_homeserver_never_delivers_is_found_and_admitted_once(
    homeserver: Synapse,
    endpoint: Endpoint,
    alice: Person,
    room_id: str,
    rooms: MatrixRooms,
    target: Target,
) -> None:
    """What waits behind a transaction is in its memory only, and counts as handed over."""
    ledger = LedgerAdmission(target, Limits(), epochs=True)
    held = endpoint.admission = Holding(ledger=ledger)
    held.go.set()
    async with endpoint.serving():
        before = await alice.say(room_id, "before", mention=[SCOUT])
        await until_jobs(target, room_id, 1)
        await delivered(homeserver)
        held.go.clear()
        held.came_in.clear()
        first = await alice.say(room_id, "one", mention=[SCOUT])
        await asyncio.wait_for(held.came_in.wait(), TIMEOUT_S)
        lost = await alice.say(room_id, "two", mention=[SCOUT])
        await asyncio.to_thread(
            wait.until, lambda: passed_on(homeserver, lost), TIMEOUT_S, "it to be handed over"
        )
        homeserver.kill()
        held.go.set()
        homeserver.start()
        last = await alice.say(room_id, "three", mention=[SCOUT])
        assert await until_jobs(target, room_id, 3) == [before, first, last]
        catching = CatchUp(
            rooms,
            ["scout"],
            Options(1, 900, frozenset([SCOUT])),
            admit=endpoint.intake.catch_up,
            invited=lambda _: None,
        )
        endpoint.intake.heard = catching.heard
        assert await catching.look()
        assert await jobs(target, room_id) == [before, first, last], "it had time to come"
        for _ in range(3):
            assert await catching.look()
            assert await jobs(target, room_id) == [before, first, last, lost]
    await ledger.close()


async def test_on_postgresql_the_numbers_go_on_after_a_restart(
    tmp_path: Path,
    synapse_python: Path,
    ledger_server: PostgresServer,
    target: Target,
    seed: int,
) -> None:
    ledger = LedgerAdmission(target, Limits())
    endpoint = Endpoint(Ledgered(ledger=ledger))
    database = f"synapse_{seed}"
    async with connection(target) as made:
        await made.execute(f"CREATE DATABASE {database} ENCODING 'UTF8' TEMPLATE template0")
    where = {"host": str(ledger_server.socket_dir), "user": "corral", "dbname": database}
    options = synapse.Options(
        registrations=[document(registration(endpoint.port))],
        database={"name": "psycopg2", "args": {**where, "cp_min": 1, "cp_max": 5}},
    )
    with Synapse(tmp_path / "synapse", options, synapse_python) as server:
        async with (
            Person(server.url, "alice") as alice,
            MatrixRooms(client_options(server, endpoint.port)) as rooms,
            endpoint.serving(),
        ):
            await alice.register()
            room_id = await alice.create_room(invite=[SCOUT])
            assert await rooms.join("scout", room_id) == Joined()
            first = await alice.say(room_id, "one", mention=[SCOUT])
            assert await until_jobs(target, room_id, 1) == [first]
            before = {one.txn_id for one in endpoint.admission.came}
            server.kill()
            server.start()
            second = await alice.say(room_id, "two", mention=[SCOUT])
            assert await until_jobs(target, room_id, 2) == [first, second]
    await ledger.close()
    after = {one.txn_id for one in endpoint.admission.came} - before
    assert max(map(int, before)) < min(map(int, after))
