"""TAMQ as it runs at a user's: the service on its socket, a registry, a live session in tmux.

Somebody has typed half a line in the session, so that messages wait and the service looks at the
session now and then: what is measured is admission, with a delivery that goes on beside it.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from corral.core.errors import UnavailableError
from corral.local.topology import base_environment, private_base
from corral.local.wait import until
from corral.tamq.client import Client
from corral.tamq.errors import TamqError
from tests.bench.process import Process
from tests.contract.terminal.panes import Tmux

START_S = 60.0
LOAD_S = 600.0
COMMAND_S = 60.0
OPEN_MESSAGES_MAX = 1_000_000


@dataclass(frozen=True)
class Sent:
    """What the clients of one run saw, and what the server had used for each operation."""

    per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    cpu_us: float
    resident_bytes: int


class Server(Process):
    """A process with a socket; whoever uses it starts it."""

    def __init__(self, argv: list[str], socket: Path, environ: Mapping[str, str]) -> None:
        super().__init__(argv, environ, socket.with_name("log"))
        self.socket = socket

    def load(self, clients: int, operations: int, name: str) -> Sent:
        """So many operations, by clients in a process of their own."""
        before = self.usage()
        argv = [sys.executable, "-P", "-m", "tests.bench.load", str(self.socket)]
        done = subprocess.run(
            [*argv, str(clients), str(operations), name],
            env=base_environment(), capture_output=True, text=True, timeout=LOAD_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise UnavailableError(f"the clients failed: {done.stderr.strip()[-600:]}")
        told: dict[str, Any] = json.loads(done.stdout)
        if told.pop("refused"):
            raise UnavailableError(f"operations were refused: {done.stderr.strip()[-600:]}")
        after = self.usage()
        return Sent(
            **told,
            cpu_us=(after.cpu_s - before.cpu_s) / operations * 1e6,
            resident_bytes=after.resident_bytes,
        )


class TamqStand:
    """One TAMQ with one session; `queue` is a database to begin with, which is used in place."""

    def __init__(self, queue: Path | None = None) -> None:
        self.base = private_base("corral-bench-")
        self.state = queue.parent if queue is not None else self.base / "state"
        runtime = self.base / "r"
        runtime.mkdir(mode=0o700)
        (self.base / "repos.csv").write_text("/src/shop,shop,,\n")
        self.environ = base_environment() | {
            "HOME": str(self.base),
            "TAMQ_SOCKET": str(runtime / "tamq.sock"),
            "TAMQ_STATE_DIR": str(self.state),
            "TAMQ_GITA_REPOS": str(self.base / "repos.csv"),
            "TAMQ_OPEN_MESSAGES_MAX": str(OPEN_MESSAGES_MAX),
        }
        self.server = Server(self._argv("serve"), runtime / "tamq.sock", self.environ)
        self.client = Client(runtime / "tamq.sock", START_S)
        self._tmux: Tmux | None = None

    def __enter__(self) -> Self:
        self._tmux = Tmux(self.base, "exec cat")
        self._tmux.type("half a line")
        self.start()
        where = ("--pane", self._tmux.pane, "--tmux-socket", self._tmux.socket)
        done = subprocess.run(
            self._argv("attach", "--repo", "shop", *where),
            env=self.environ, capture_output=True, text=True, timeout=COMMAND_S, check=False,
        )  # fmt: skip
        if done.returncode:
            raise UnavailableError(f"tamq attach: {done.stderr.strip()}")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        if self._tmux is not None:
            self._tmux.close()
        shutil.rmtree(self.base, ignore_errors=True)

    def _argv(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "corral.tamq.main", *arguments]

    def start(self) -> None:
        """Start it and wait for its answer."""
        self.server.start()
        until(lambda: self._answers({"op": "ping"}), START_S, "TAMQ to answer")

    def _answers(self, fields: Mapping[str, object]) -> bool:
        try:
            return bool(self.client.request(fields))
        except TamqError:
            return False

    def send(self, key: str) -> bool:
        """Whether it was admitted now."""
        return self._answers({
            "op": "send", "client_id": "kills", "idempotency_key": key,
            "sender_repo": "local", "target_repo": "shop", "body": "b" * 256,
        })  # fmt: skip


class BareStand:
    """The server that only inserts."""

    def __init__(self) -> None:
        self.base = private_base("corral-bench-")
        socket = self.base / "bare.sock"
        argv = [sys.executable, "-P", "-m", "tests.bench.bare_queue", str(socket)]
        self.server = Server([*argv, str(self.base / "bare.db")], socket, base_environment())

    def __enter__(self) -> Self:
        self.server.start()
        until(self.server.socket.exists, START_S, "the bare server")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        shutil.rmtree(self.base, ignore_errors=True)
