"""A TAMQ with a live session, and the source of a `House` that is answered by it."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

from corral.local.topology import Topology
from corral.local.wait import until, until_async
from corral.tamq.errors import UnavailableTamqError
from tests.contract.kit import AGENT
from tests.crash.tamq_kit import Armed
from tests.harness import live_session

PATIENCE_S = 60.0


class Placed(Protocol):
    """Whoever has a deployment's directory, such as a `House`."""

    @property
    def topology(self) -> Topology: ...


class Live:
    """`tamq serve`, and sessions under `tamq run` that serve `shop`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tamq = Armed(folder)
        self.tamq.environ |= {
            "TAMQ_ACK_DEADLINE_MS": "60000",
            "TAMQ_LEASE_MS": "9000",
            "TAMQ_RETRY_DELAYS_MS": "[200]",
        }
        self.sessions: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.sessions:
            self.end(one)
        self.tamq.close()

    def source(self, **runner: object) -> dict[str, Mapping[str, object]]:
        """The changes of a house whose source `a2a` wakes the session."""
        kind = {"kind": "tamq", "repo": "shop", "socket": str(self.tamq.socket)}
        return {"a2a": {"runner": {**kind, "turn_timeout_s": 600, **runner}}}

    async def open(self, house: Placed, mode: str = "answer") -> "subprocess.Popen[bytes]":
        """Another session; returns when it is registered."""
        return await asyncio.to_thread(self._open, house, mode)

    def _open(self, house: Placed, mode: str) -> "subprocess.Popen[bytes]":
        log = self.folder / f"shown.{len(self.sessions)}"
        code = str(Path(live_session.__file__))
        program = [sys.executable, "-S", "-E", "-I", code, str(log), mode, sys.executable]
        run = self.tamq.argv("run", "--repo", "shop", "--profile", "plain", "--", *program)
        environment = {
            **self.tamq.environ,
            "COWBOY_RUNTIME_DIR": str(house.topology.runtime_dir),
            "COWBOY_CONFIG_DIR": str(house.topology.config_dir),
        }
        known = self._endpoints()
        with (self.folder / "run.log").open("ab") as file:
            one = subprocess.Popen(
                run, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        self.sessions.append(one)
        until(lambda: self._endpoints() - known, PATIENCE_S, "the session to register")
        return one

    def _endpoints(self) -> set[str]:
        return {one["endpoint_id"] for one in self.tamq.endpoints}

    @staticmethod
    def end(session: "subprocess.Popen[bytes]") -> None:
        """Its terminal, and the program in it."""
        if session.poll() is None:
            session.kill()
            session.wait(PATIENCE_S)

    @property
    def shown(self) -> list[dict[str, Any]]:
        """What all sessions were shown."""
        files = sorted(self.folder.glob("shown.?"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    @property
    def replies(self) -> list[tuple[int, str]]:
        """Exit status and words of each `cowboy reply`."""
        files = sorted(self.folder.glob("shown.?.replies"))
        lines = [line.split(" ", 1) for file in files for line in file.read_text().splitlines()]
        return [(int(status), text) for status, text in lines]

    async def receipts(self) -> list[dict[str, Any]]:
        """Every message that cowboy sent, oldest first; waits for a TAMQ that starts."""
        asked = {"op": "history", "client_id": "cowboy", "limit": 100}

        async def answered() -> dict[str, Any] | None:
            with suppress(UnavailableTamqError):
                return await asyncio.to_thread(self.tamq.client.request, asked)
            return None

        page = await until_async(answered, PATIENCE_S, "TAMQ to answer")
        assert page is not None
        return list(reversed(page["messages"]))

    async def until_withdrawn(self, count: int) -> None:
        """Nobody acknowledges but cowboy, when a run is over."""

        async def withdrawn() -> bool:
            states = [one["state"] for one in await self.receipts()]
            return states == ["acknowledged"] * count

        await until_async(withdrawn, PATIENCE_S, "the wakes to be withdrawn")


def turn_of(entry: str) -> str:
    return f"{AGENT}.a2a.1.{entry}"
