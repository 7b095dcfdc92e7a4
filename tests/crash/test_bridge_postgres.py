"""PostgreSQL is killed at each of the bridge's boundaries, and its connection cut after COMMIT.

The bridge goes on: what it knows it records when the database is back, so nothing ends otherwise
than without the fault.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from blockbuster import BlockBuster

from corral.bridge.database import Target
from corral.bridge.errors import LedgerError
from corral.bridge.incoming import Classified
from corral.core import crashpoints
from corral.local.postgres import PORT, SUPERUSER, PostgresServer, find_postgres
from corral.local.wait import WaitTimeoutError, at
from tests.contract.bridge.bridge import Bridge
from tests.contract.bridge.kit import incoming
from tests.harness import postgres
from tests.harness.bridge_cases import (
    ASK,
    CANCEL,
    CROWD,
    DOWN,
    KILLS,
    LONG,
    PARTS,
    REPLY,
    TASK,
    TWO,
    Case,
    Kill,
    Person,
    problems,
)
from tests.harness.bridge_process import ledger as read_ledger
from tests.harness.bridge_process import over
from tests.harness.pg_proxy import PgProxy

# The driver forgets connections whose server was killed while they began.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    # Debian's: the process tests run with the newest.
    with postgres.server(min(find_postgres())) as made:
        yield made


@pytest.fixture(scope="module")
def ledger(server: PostgresServer) -> Target:
    return asyncio.run(postgres.create(server, "ledger"))


AtPoint = Callable[[str, int, Callable[[], object]], None]


@pytest.fixture
def at_point(blockbuster: BlockBuster) -> Iterator[AtPoint]:
    """The action happens, whole, at the n-th pass of a point in this process."""

    def set_up(point: str, nth: int, action: Callable[[], object]) -> None:
        passes = 0

        def passed(name: str) -> None:
            nonlocal passes
            passes += name == point
            if name == point and passes == nth:
                blockbuster.deactivate()
                try:
                    action()
                finally:
                    blockbuster.activate()

        crashpoints.set_observer(passed)

    yield set_up
    crashpoints.disarm()


async def play(bridge: Bridge, case: Case, ledger: Target) -> list[str]:
    """The case until its end; what is wrong then."""
    txn = 0

    async def deliver(classified: Classified) -> None:
        nonlocal txn
        txn += 1
        while True:
            with contextlib.suppress(LedgerError):
                age = str(time.monotonic())
                await bridge.admission.admit(incoming(f"p{txn}", classified, age=age))
                return
            await at(time.monotonic() + 0.05)

    person = asyncio.ensure_future(Person(case, bridge.world, deliver).run())
    try:
        rows, controls = await over(ledger, len(case.texts))
    except WaitTimeoutError:
        rows, controls = await read_ledger(ledger)
        states = [(row["state"], row["error_code"]) for row in rows]
        raise AssertionError(f"{states}, said {bridge.world.rooms.said()}") from None
    finally:
        person.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await person
    return problems(case, case.ends, bridge.world, rows, controls)


@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: kill.name)
async def test_postgres_is_killed_at_each_boundary(
    kill: Kill, server: PostgresServer, ledger: Target, at_point: AtPoint
) -> None:
    await postgres.empty(ledger)
    killed: list[str] = []

    def restart() -> None:
        server.kill()
        killed.append(kill.point)
        server.start()

    at_point(kill.point, kill.nth, restart)
    async with Bridge(ledger, **{"lease_s": 60.0, **kill.case.policy}) as bridge:
        wrong = await play(bridge, kill.case, ledger)
    assert killed == [kill.point]
    assert not wrong, "\n".join(wrong)


CUTS = {
    "admission": ("INSERT INTO bridge_seen", TWO),
    "admission of a control": ("WITH parent AS", CANCEL),
    "prepare": ("attempts = attempts + 1", REPLY),
    "never left": ("never_left = attempts", DOWN),
    "task known": ("state = 'awaiting_task', task_id", TASK),
    "polled": ("polls = polls + 1, failures = 0", TASK),
    "result": ("state = 'reply_pending', intended", TASK),
    "primary": ("primary_event_id = $4", REPLY),
    "placeholder": ("placeholder = true", LONG),
    "edit": ("edit_event_id = $4", LONG),
    "part": ("part_event_ids = part_event_ids ||", PARTS),
    "control added": ("'question'", ASK),
    "ask": ("state = 'awaiting_input'", ASK),
    "control prepared": ("SET state = 'prepared'", CANCEL),
    "control ended": ("event_id = coalesce(event_id", LONG),
    "continuation": ("deadline_left = NULL", ASK),
    "release": ("due_at = CASE WHEN", ASK),
    "finish": ("SET generation = generation + 1, state = intended", TWO),
    "notice": ("notice_pending = NULL", CROWD),
    "claim": ("SET lease_owner = $1", TWO),
}


@pytest.mark.parametrize("cut", CUTS)
async def test_the_connection_is_cut_after_the_commit_was_sent(
    cut: str, server: PostgresServer, ledger: Target, tmp_path: Path
) -> None:
    await postgres.empty(ledger)
    needle, case = CUTS[cut]
    async with PgProxy(server.socket, tmp_path / "p") as proxy:
        through = Target(
            f"postgresql://{SUPERUSER}@/ledger?host={quote(str(proxy.folder))}&port={PORT}"
        )
        async with Bridge(through, **case.policy) as bridge:
            proxy.arm(needle, at_commit=cut in {"admission of a control", "claim", "finish"})
            wrong = await play(bridge, case, ledger)
        assert proxy.cuts == 1
    assert not wrong, "\n".join(wrong)
