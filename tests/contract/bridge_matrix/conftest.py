"""A real Synapse, and people on it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Target
from corral.bridge.domain import Limits
from corral.bridge.matrix.rooms import MatrixRooms
from corral.bridge.ports import Joined
from corral.bridge.registration import document
from corral.local.matrix import Person
from corral.local.postgres import PostgresServer, find_postgres
from corral.local.synapse import Options, Synapse, find_python, free_port
from tests.harness import postgres
from tests.harness.homeserver import (
    Endpoint,
    Ledgered,
    Recording,
    client_options,
    ready_to_start,
    registration,
)


@pytest.fixture(scope="session")
def synapse_python() -> Path:
    ready_to_start()
    return find_python()


@pytest.fixture(scope="session")
def appservice_port() -> int:
    return free_port()


@pytest.fixture
def endpoint(appservice_port: int) -> Endpoint:
    return Endpoint(Recording(), appservice_port)


@pytest.fixture(scope="session")
def ledger_server() -> Iterator[PostgresServer]:
    with postgres.server(max(find_postgres())) as running:
        yield running


@pytest.fixture
async def target(ledger_server: PostgresServer, seed: int) -> Target:
    """A ledger of the test's own."""
    return await postgres.create(ledger_server, f"ledger_{seed}")


@pytest.fixture
async def ledger(target: Target, endpoint: Endpoint) -> AsyncIterator[LedgerAdmission]:
    """The real one takes what `endpoint` gets, by the events' identity where ids conflict."""
    admission = LedgerAdmission(target, Limits(), epochs=True)
    endpoint.admission = Ledgered(ledger=admission)
    yield admission
    await admission.close()


@pytest.fixture(scope="session")
def one_homeserver(
    tmp_path_factory: pytest.TempPathFactory, synapse_python: Path, appservice_port: int
) -> Iterator[Synapse]:
    """On SQLite, for all tests: each has a person and rooms of its own. What earlier tests said
    may be delivered in a later one, so each looks only at its own rooms."""
    options = Options(registrations=[document(registration(appservice_port))])
    with Synapse(tmp_path_factory.mktemp("synapse"), options, synapse_python) as running:
        yield running


@pytest.fixture
def homeserver(one_homeserver: Synapse) -> Synapse:
    """It runs, whatever an earlier test did to it."""
    if not one_homeserver.running:
        one_homeserver.start()
    return one_homeserver


@pytest.fixture
async def alice(homeserver: Synapse, seed: int) -> AsyncIterator[Person]:
    async with Person(homeserver.url, f"alice-{seed}") as person:
        await person.register()
        yield person


@pytest.fixture
async def rooms(homeserver: Synapse, endpoint: Endpoint) -> AsyncIterator[MatrixRooms]:
    async with MatrixRooms(client_options(homeserver, endpoint.port)) as made:
        yield made


@pytest.fixture
async def room_id(alice: Person, rooms: MatrixRooms) -> str:
    """A room of alice's, with the ghost of `scout` in it."""
    made = await alice.create_room("tests", invite=[rooms.user_id("scout")])
    assert await rooms.join("scout", made) == Joined()
    return made
