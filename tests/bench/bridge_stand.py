"""The bridge as it runs at a user's: its process, PostgreSQL, a homeserver and an agent.

PostgreSQL flushes at every commit. The homeserver's side of what is measured is `Line`: one
connection over which transactions are put, one after the other, as a homeserver does it.
"""

import json
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import asyncpg

from corral.bridge.database import Target, connection, migrate
from corral.core.errors import UnavailableError
from corral.core.sqlfiles import load_sql
from corral.local import wait
from corral.local.postgres import PostgresServer, choose_postgres
from corral.local.synapse import LOOPBACK, free_port
from corral.local.topology import base_environment, passable_base
from tests.bench.process import Process

SQL = load_sql("tests.bench", "bridge.sql")
SERVER_NAME = "corral.test"
AGENT = "echo"
HS_TOKEN = "hs-token-of-the-benchmark"
START_S = 60.0
ANSWER_S = 60.0
ROOMS = 100
QUEUE = 256  # what may be open, by default
CONCURRENCY = 16
POSTGRES = {"shared_buffers": "128MB"}  # its own default


def event(name: str, number: int, text: str, rooms: int = ROOMS) -> dict[str, Any]:
    """A mention as Synapse delivers it."""
    sender = f"@user{number % 10}:{SERVER_NAME}"
    return {
        "type": "m.room.message",
        "event_id": f"${name}-{number}".ljust(44, "x"),
        "room_id": f"!{name.partition('/')[0]}room{number % rooms}:{SERVER_NAME}",
        "sender": sender,
        "user_id": sender,
        "content": {
            "msgtype": "m.text",
            "body": f"@{AGENT} {text}",
            "m.mentions": {"user_ids": [f"@{AGENT}:{SERVER_NAME}"]},
        },
        "origin_server_ts": 1_790_000_000_000 + number,
        "unsigned": {"age": 12},
        "age": 12,
    }


def body(events: Sequence[Mapping[str, Any]]) -> bytes:
    return json.dumps({"events": events}).encode()


class Line:
    """A kept connection to an appservice; `put` answers with the seconds that it took."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOOPBACK, port), ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def put(self, txn_id: str, content: bytes) -> float:
        """`UnavailableError` unless it was answered 200."""
        head = (
            f"PUT /_matrix/app/v1/transactions/{txn_id} HTTP/1.1\r\nHost: bench\r\n"
            f"Authorization: Bearer {HS_TOKEN}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        request = head.encode() + content
        began = time.perf_counter()
        self._socket.sendall(request)
        answer = self._socket.recv(65_536)
        while not whole(answer):
            more = self._socket.recv(65_536)
            if not more:
                raise UnavailableError("the appservice closed the connection")
            answer += more
        took = time.perf_counter() - began
        if not answer.startswith(b"HTTP/1.1 200"):
            raise UnavailableError(f"the appservice answered {answer[:200]!r}")
        return took

    def close(self) -> None:
        self._socket.close()


def whole(answer: bytes) -> bool:
    """Whether all of an HTTP answer with a length is there."""
    head, end, content = answer.partition(b"\r\n\r\n")
    if not end:
        return False
    _, found, rest = head.lower().partition(b"content-length:")
    return bool(found) and len(content) >= int(rest.partition(b"\r\n")[0])


class BridgeStand:
    """Use it as a context manager; the bridge itself is started by `start`."""

    def __init__(self, **settings: Any) -> None:
        self.base = passable_base("corral-bench-")
        self.postgres = PostgresServer(self.base / "pg", choose_postgres(), settings=POSTGRES)
        self.port, homeserver, agent = free_port(), free_port(), free_port()
        module = [sys.executable, "-P", "-m"]
        self.sides = Process(
            [*module, "tests.bench.bridge_sides", str(homeserver), str(agent)],
            base_environment(), self.base / "sides.log",
        )  # fmt: skip
        config = {
            "homeserver_url": f"http://{LOOPBACK}:{homeserver}",
            "server_name": SERVER_NAME,
            "listen_port": self.port,
            "agents": {AGENT: {"url": f"http://{LOOPBACK}:{agent}/"}},
            "task_timeout_s": 86_400,
            "request_timeout_s": 3_600,
            "placeholder_after_s": 600,
            # The rates are looked at, and nobody is too fast.
            **{f"{who}_rate_per_min": 1e9 for who in ("sender", "room")},
            **{f"{who}_burst": 10_000 for who in ("sender", "room")},
            **settings,
        }
        (self.base / "bridge.json").write_text(json.dumps(config))
        self.bridge = Process(
            [*module, "corral.bridge.main", "run"], self._environment(), self.base / "bridge.log"
        )
        self._sql: Any = None

    @property
    def sql(self) -> Any:
        """A connection to the ledger's database."""
        if self._sql is None:
            raise UnavailableError("the stand is not entered")
        return self._sql

    @property
    def target(self) -> Target:
        return Target(self.postgres.dsn("bridge"))

    @property
    def bare(self) -> Target:
        """A ledger that no bridge looks at."""
        return Target(self.postgres.dsn("bare"))

    @property
    def large(self) -> Target:
        """Another."""
        return Target(self.postgres.dsn("large"))

    def _environment(self) -> dict[str, str]:
        return base_environment() | {
            "BRIDGE_CONFIG": str(self.base / "bridge.json"),
            "BRIDGE_AS_TOKEN": "as-token-of-the-benchmark",
            "BRIDGE_HS_TOKEN": HS_TOKEN,
            "BRIDGE_DATABASE": self.postgres.dsn("bridge"),
        }

    async def __aenter__(self) -> Self:
        self.postgres.start()
        self.sides.start()
        await self.make("make", self.target)
        self._sql = await asyncpg.connect(self.target.dsn)
        return self

    async def make(self, statement: str, target: Target) -> None:
        """A database with the bridge's schema."""
        admin = await asyncpg.connect(self.postgres.dsn())
        await admin.execute(SQL[statement])
        await admin.close()
        async with connection(target) as made:
            await migrate(made)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bridge.kill()
        self.sides.kill()
        if self._sql is not None:
            self._sql.terminate()
        self.postgres.stop()
        shutil.rmtree(self.base, ignore_errors=True)

    def start(self) -> None:
        """Starts the bridge and waits until it takes transactions."""
        self.bridge.start()
        wait.until(self._ready, START_S, "the bridge to be ready")

    def _ready(self) -> bool:
        self.bridge.must_run()
        return ready(self.port, "/readyz")

    async def counts(self) -> dict[str, int]:
        return dict(await self.sql.fetchrow(SQL["counts"]))


def ready(port: int, path: str) -> bool:
    """Whether somebody answers 200 there."""
    try:
        with socket.create_connection((LOOPBACK, port), ANSWER_S) as asking:
            asking.sendall(f"GET {path} HTTP/1.0\r\nHost: bench\r\n\r\n".encode())
            return b" 200 " in asking.recv(65_536).partition(b"\r\n")[0]
    except OSError:
        return False
