"""Several processes at one ledger: one takes transactions, another takes over; who stands still is
cut off; and a worker that was forgotten makes itself known again."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from pathlib import Path

import aiohttp
import pytest

from corral.bridge import database, replica
from corral.bridge.database import Target, connect, connection
from corral.bridge.replica import SQL as WORK
from corral.bridge.replica import Replica
from corral.local.synapse import LOOPBACK, free_port
from corral.local.wait import until_async, until_true
from tests.contract.bridge.bridge import PATIENCE_S, Bridge
from tests.contract.bridge.kit import mention

URL = f"http://{LOOPBACK}:{{}}"
ANOTHER = {"ready": False, "reason": "another_replica_takes_transactions"}


class Process:
    """`a2a-bridge run` as a service of the type `notify`. The homeserver does not answer."""

    def __init__(
        self, stack: ExitStack, target: Target, folder: Path, name: str, **more: str
    ) -> None:
        self.port = free_port()
        self._said = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._said.bind(str(folder / f"{name}.notify"))
        self._said.setblocking(False)
        self.told: list[str] = []
        environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "NOTIFY_SOCKET": str(folder / f"{name}.notify"),
            "BRIDGE_HOMESERVER_URL": URL.format(free_port()),
            "BRIDGE_SERVER_NAME": "example.org",
            "BRIDGE_AS_TOKEN": "as",
            "BRIDGE_HS_TOKEN": "hs",
            "BRIDGE_LISTEN_PORT": str(self.port),
            "BRIDGE_DATABASE": target.dsn,
            "BRIDGE_AGENTS": json.dumps({"scout": {"url": URL.format(free_port())}}),
            **more,
        }
        argv = [sys.executable, "-W", "error", "-P", "-m", "corral.bridge.main", "run"]
        with (folder / f"{name}.log").open("wb") as log:
            self.process = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)
        stack.callback(self.kill)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def heard(self, text: str) -> bool:
        """Whether systemd was told that, by now."""
        with suppress(BlockingIOError):
            while True:
                self.told.append(self._said.recv(4_096).decode())
        return any(text in one for one in self.told)

    async def hears(self, text: str) -> None:
        await until_true(lambda: self.heard(text), PATIENCE_S, text)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers={"Authorization": "Bearer hs"}) as made:
        yield made


async def asked(http: aiohttp.ClientSession, process: Process) -> dict[str, object]:
    async with http.get(f"{URL.format(process.port)}/readyz") as answer:
        found: dict[str, object] = await answer.json()
        return found


async def put(http: aiohttp.ClientSession, process: Process, body: bytes) -> int:
    url = f"{URL.format(process.port)}/_matrix/app/v1/transactions/1"
    async with http.put(url, data=body) as answer:
        return answer.status


def body() -> bytes:
    event = {
        "event_id": "$a", "room_id": "!r", "sender": "@a:example.org", "type": "m.room.message",
        "content": {
            "msgtype": "m.text", "body": "scout: x",
            "m.mentions": {"user_ids": ["@scout:example.org"]},
        },
    }  # fmt: skip
    return json.dumps({"events": [event]}).encode()


async def test_one_replica_takes_transactions_and_another_takes_over(
    one_target: Target, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    with ExitStack() as stack:
        first = Process(stack, one_target, tmp_path, "a")
        await first.hears("READY=1\nSTATUS=takes transactions")
        second = Process(stack, one_target, tmp_path, "b")
        # It has started: nobody ends it for being late.
        await second.hears("READY=1\nSTATUS=standby")
        assert await asked(http, second) == ANOTHER
        assert await asked(http, first) == {"ready": True}
        assert await put(http, second, body()) == 503
        assert await put(http, first, body()) == 200
        first.kill()
        await second.hears("STATUS=takes transactions")
        assert await asked(http, second) == {"ready": True}
        assert await put(http, second, body()) == 200
        second.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(second.process.wait, PATIENCE_S) == 0
    async with connection(one_target) as made:
        assert await made.fetchval("SELECT count(*) FROM bridge_delegations") == 1


async def test_a_process_that_only_works_leaves_transactions_to_others(
    one_target: Target, tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    """As one that no homeserver reaches: with the lock it would keep it from those that are."""
    with ExitStack() as stack:
        works = Process(stack, one_target, tmp_path, "a", BRIDGE_TAKES_TRANSACTIONS="false")
        await works.hears("READY=1\nSTATUS=works, and takes no transactions")
        assert await put(http, works, body()) == 503
        takes = Process(stack, one_target, tmp_path, "b")
        await takes.hears("READY=1\nSTATUS=takes transactions")
        assert await put(http, takes, body()) == 200
        takes.kill()

        async def ready_for_nothing_else() -> bool:
            return await asked(http, works) == {"ready": False, "reason": "takes_no_transactions"}

        await until_async(ready_for_nothing_else, PATIENCE_S, "that it only works")
        again = Process(stack, one_target, tmp_path, "c")
        await again.hears("READY=1\nSTATUS=takes transactions")
        assert not works.heard("STATUS=takes transactions")


async def test_whoever_stands_still_with_the_intakes_lock_is_cut_off(
    one_target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that is stopped: it holds its connection, and says nothing."""
    # Far apart, so that a busy machine does not take one for the other.
    monkeypatch.setattr(database, "IDLE_IN_TRANSACTION_S", 4)
    monkeypatch.setattr(replica, "LOOK_S", 0.05)
    still = await connect(one_target)
    await still.execute(WORK["begin"])
    assert await still.fetchval(WORK["hold_intake"])
    waiting = Replica(one_target)
    running = asyncio.create_task(waiting.run())
    await asyncio.wait_for(waiting.active.wait(), PATIENCE_S)
    assert still.is_closed()
    # And it is not cut off itself, since it asks more often than that.
    async with connection(one_target) as made:
        began = "SELECT xact_start FROM pg_stat_activity WHERE state = 'idle in transaction'"
        since = await made.fetchval(began)
        over = f"SELECT clock_timestamp() - '{since}'::timestamptz > interval '5 s'"
        await until_async(lambda: made.fetchval(over), PATIENCE_S, "more than that time")
        assert await made.fetchval(began) == since
    assert waiting.active.is_set()
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.parametrize(
    "lock",
    [
        "BEGIN; UPDATE bridge_intake SET admissions = admissions + 1",
        "BEGIN; SELECT pg_advisory_xact_lock(1129272898, 3);",
    ],
)
async def test_whoever_stands_still_in_a_transaction_holds_up_the_others_for_so_long_only(
    one_target: Target, monkeypatch: pytest.MonkeyPatch, lock: str
) -> None:
    monkeypatch.setattr(database, "IDLE_IN_TRANSACTION_S", 1)
    still = await connect(one_target)
    async with Bridge(one_target) as bridge:
        await still.execute(lock)
        await bridge.receive(mention("a", text="reply x"))
        assert await bridge.quiet() == [("delivered", "answered")]
    assert still.is_closed()


async def test_a_worker_that_was_forgotten_makes_itself_known_again(one_target: Target) -> None:
    """PostgreSQL went away, and another worker was back first: it took this one for dead."""
    async with Bridge(one_target) as bridge:
        session = bridge.coordinator.session
        await asyncio.wait_for(session.alive.wait(), PATIENCE_S)
        async with connection(one_target) as made:
            known = (
                "SELECT count(*) FROM bridge_workers AS w JOIN pg_locks AS l"
                " ON l.classid = 1129272899 AND l.objid = w.lock_id::oid"
            )
            assert await made.fetchval(known) == 1
            await made.execute("DELETE FROM bridge_workers")
            await made.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE classid = 1129272899"
            )
            await until_async(lambda: made.fetchval(known), PATIENCE_S, "the worker to be known")
            # Nobody forgets it while it lives, whatever was read before.
            await made.execute(WORK["forget_workers"], [session.worker_id])
            assert await made.fetchval(known) == 1
        assert session.may_claim
