"""What the contract tests of TAMQ share."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from jsonschema import Draft202012Validator

from corral.core.errors import UsageError
from corral.local.wait import until
from corral.tamq import store, transport
from corral.tamq.client import AsyncClient, Client
from corral.tamq.domain import Times
from corral.tamq.errors import TamqError
from corral.tamq.operations import Operations
from corral.tamq.registry import Registry
from corral.tamq.schema import schema_text
from corral.tamq.transport import Limits, Server
from tests.contract.terminal.panes import Tmux
from tests.unit.tamq.queue import Queue

START_S = 60.0
VALIDATORS = {
    name: Draft202012Validator(one) for name, one in json.loads(schema_text())["$defs"].items()
}
SEND: dict[str, Any] = {
    "op": "send",
    "client_id": "engine",
    "idempotency_key": "k1",
    "sender_repo": "local",
    "target_repo": "shop",
    "body": "look at issue 7",
}


def registered(name: str = "a", **changes: Any) -> dict[str, Any]:
    """A request that registers a scripted session."""
    fields: dict[str, Any] = {
        "op": "register",
        "repos": ["shop"],
        "terminal": {"kind": "scripted", "name": name},
        "profile": "plain",
        "policy": {"delivery_max_attempts": 3, "delivery_ack_mode": "acknowledged"},
    }
    return fields | changes


def check_scripted(fields: Mapping[str, Any], profile: str) -> None:
    del profile
    if not isinstance(fields.get("name"), str):
        raise UsageError("terminal.name: must be a text")


class Service:
    """Server, operations, store and deliverer in this event loop."""

    def __init__(self, folder: Path, **options: float) -> None:
        self.path = folder / "s" / "tamq.sock"
        self.repos = folder / "repos.csv"
        self.repos.write_text("/src/shop,shop,,\n/src/lib,lib,,\n")
        self.queue = Queue(
            folder / "queue.db", Times(), open_messages_max=int(options.pop("open_max", 1_000))
        )
        self.limits = Limits(**options)  # type: ignore[arg-type]
        self.server: Server
        self.client = AsyncClient(self.path, 30)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.queue)
        instance = await self.queue.writer.submit(lambda conn: store.instance(conn, 1))
        operations = Operations(
            self.queue.writer, self.queue.deliverer, Registry(self.repos), self.queue.clock,
            check_scripted, instance,
        )  # fmt: skip
        self.server = Server(operations.handle, self.limits, operations.quick)
        listener, _ = await asyncio.to_thread(transport.listen, self.path)
        await self.server.start(listener)
        self._stack.push_async_callback(self.server.stop)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        return await self.request({"op": op, **fields})

    async def send(self, **changes: Any) -> dict[str, Any]:
        return await self.request({**SEND, **changes})

    async def register(self, name: str = "a", **changes: Any) -> dict[str, Any]:
        return await self.request(registered(name, **changes))

    async def request(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Ask; what was not refused is as the published schema says, both ways."""
        answer = await self.client.request(fields)
        VALIDATORS[f"request.{fields['op']}"].validate({"protocol": "0.1", **fields})
        VALIDATORS[f"answer.{fields['op']}"].validate({"ok": True, **answer})
        return answer

    async def refusal(self, op: str, **fields: Any) -> str:
        """The code with which a request is refused; a send is complete without `fields`."""
        whole = {**SEND, **fields} if op == "send" else {"op": op, **fields}
        try:
            answer = await self.client.request(whole)
        except TamqError as error:
            return error.code
        raise AssertionError(f"not refused: {answer}")

    async def raw(self, data: bytes, *, eof: bool = False) -> dict[str, Any]:
        """What the server says to these bytes."""
        reader, writer = await asyncio.open_unix_connection(self.path, limit=2**20)
        try:
            writer.write(data)
            if eof:
                writer.write_eof()
            async with asyncio.timeout(30):
                line = await reader.readline()
                assert await reader.read() == b""
        finally:
            writer.close()
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            VALIDATORS["refusal"].validate(answer)
        return answer


class Process:
    """`tamq serve` in a process of its own, killed and started again as the test likes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runtime = folder / "r"
        self.runtime.mkdir(mode=0o700)
        self.socket = self.runtime / "tamq.sock"
        self.repos = folder / "repos.csv"
        self.repos.write_text("/src/shop,shop,,\n/src/lib,lib,,\n")
        self.log = folder / "log"
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            "HOME": str(folder),
            "TAMQ_SOCKET": str(self.socket),
            "TAMQ_STATE_DIR": str(folder / "state"),
            "TAMQ_GITA_REPOS": str(self.repos),
        }
        self.client = Client(self.socket, 30)
        self.running: subprocess.Popen[bytes] | None = None

    def argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-W", "error", "-P", "-m", "corral.tamq.main", *arguments]

    def start(self, **environ: str) -> None:
        """Start it and wait for its answer."""
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(
                self.argv("serve"), env=self.environ | environ, stdout=log, stderr=log
            )
        until(self.answers, START_S, "TAMQ to answer")

    def answers(self) -> bool:
        assert self.running is not None
        assert self.running.poll() is None, self.log.read_text()
        try:
            return bool(self.client.request({"op": "ping"}))
        except TamqError:
            return False

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running.wait(30)

    def stop(self) -> int:
        assert self.running is not None
        self.running.send_signal(signal.SIGTERM)
        return self.running.wait(30)

    def close(self) -> None:
        if self.running is not None and self.running.poll() is None:
            self.running.kill()
            self.running.wait(30)

    def run(
        self, *arguments: str, stdin: bytes = b"", **environ: str
    ) -> "subprocess.CompletedProcess[bytes]":
        """One command."""
        return subprocess.run(
            self.argv(*arguments), env=self.environ | environ, input=stdin,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    def raw(self, data: bytes) -> bytes:
        """Bytes to the socket, and all that comes back."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(30)
            connection.connect(str(self.socket))
            connection.sendall(data)
            found = b""
            while chunk := connection.recv(65_536):
                found += chunk
        return found


def attach(process: Process, tmux: Tmux, *options: str) -> None:
    """The pane serves `shop`."""
    where = ("--pane", tmux.pane, "--tmux-socket", tmux.socket)
    done = process.run("attach", "--repo", "shop", *options, *where)
    assert done.returncode == 0, done.stderr
