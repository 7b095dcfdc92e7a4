"""The demo's second agent, `pilot`: a live session in a terminal answers its turns.

It has a daemon and a runner of its own, and no program that is started for a turn: TAMQ wakes the
session under `tamq run`, which answers with `cowboy reply`. Daemon, runner and session are killed.
A turn whose session was killed wakes the next one: its source says `resume`.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import redis

from corral.cowboy.runner.wake import CLIENT_ID
from corral.local import wait
from corral.local.deployment import DAEMON, RUNNER, Deployment, plain_launch
from corral.local.evidence import Effect, TurnRow
from corral.local.front import SOURCE
from corral.local.ledger import copy_ledger, read_effects, read_ledger
from corral.local.mentions_model import LIVE
from corral.local.pilot_session import JOURNAL
from corral.local.supervisor import Service, Supervisor, left_behind
from corral.local.wakes import socket_in
from corral.local.wakes_model import ACKNOWLEDGED
from corral.tamq.client import AsyncClient
from corral.tamq.errors import TamqError

REPO: Final = "helm"  # as examples/demo.nix has it
PILOT_RUNNER: Final = f"{LIVE} {RUNNER}"
PILOT_DAEMON: Final = f"{LIVE} {DAEMON}"
PILOT_SESSION: Final = f"{LIVE} session"
PROCESSES: Final = (PILOT_RUNNER, PILOT_DAEMON, PILOT_SESSION)
QUIET_S: Final = 20.0
END_S: Final = 30.0


def woken_in(folder: str) -> Callable[[Path, dict[str, Any]], None]:
    """What a deployment changes of the agent's sources: the TAMQ in that folder wakes."""

    def edit(base: Path, sources: dict[str, Any]) -> None:
        sources["sources"][SOURCE]["runner"]["socket"] = str(socket_in(base / folder))

    return edit


@dataclass(frozen=True)
class Left:
    """What it left: its ledger's turns, what its sessions did, what is wrong."""

    turns: list[TurnRow]
    effects: list[Effect]
    trouble: list[str]


class Pilot:
    """Its processes are for a supervisor; `tamq` is the environment of the TAMQ's commands.

    An async context manager around them: leaving waits until the session's program is gone.
    """

    def __init__(self, deployment: Deployment, tamq: Mapping[str, str]) -> None:
        self.deployment = deployment
        self.journal = deployment.base / "pilot.jsonl"
        self.client = AsyncClient(Path(tamq["TAMQ_SOCKET"]))
        topology = deployment.topology
        self._session = {
            **tamq,
            JOURNAL: str(self.journal),
            "COWBOY_CONFIG_DIR": str(topology.config_dir),
            "COWBOY_RUNTIME_DIR": str(topology.runtime_dir),
        }

    def services(self) -> list[Service]:
        """In the order of `PROCESSES`, which is that of their start."""
        module = [sys.executable, "-P", "-m"]
        program = [*module, "corral.local.pilot_session", self._session["TAMQ_SOCKET"]]
        line = [*module, "corral.tamq.main", "run", "--repo", REPO, "--max-attempts", "9"]
        session = Service(
            PILOT_SESSION,
            lambda _: [*line, "--", *program],
            self._session,
            self.deployment.base,
            self._registered,
        )
        return [*self.deployment.cowboy(LIVE, plain_launch(LIVE), f"{LIVE} "), session]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """It is hung up when `tamq run` is ended."""
        marker = f"{JOURNAL}={self.journal}"
        await wait.until_true(lambda: not left_behind(marker), END_S, "the session's end")

    async def _registered(self) -> bool:
        with suppress(TamqError):
            found = (await self.client.request({"op": "endpoints"}))["endpoints"]
            return any(one["repos"] == [REPO] for one in found)
        return False

    def at_work(self) -> bool:
        """Whether a session has begun a turn, and was not told yet that its answer is taken."""
        effects = read_effects(self.journal)
        begun, over = (
            {one.turn for one in effects if one.ev in events}
            for events in ({"start"}, {"taken", "refused"})
        )
        return bool(begun - over)

    # ------------------------------------------------------------ what became of it

    async def left(self, supervisor: Supervisor) -> Left:
        """When it has come to rest; ends daemon and runner."""
        trouble = []
        try:
            await wait.until_async(self._quiet, QUIET_S, f"{LIVE} to come to rest")
        except wait.WaitTimeoutError as error:
            trouble.append(str(error))
        await supervisor.stop(PILOT_DAEMON, PILOT_RUNNER)
        ledger = self.deployment.topology.ledger(LIVE)
        copy = await asyncio.to_thread(copy_ledger, ledger, self.deployment.base / "copy" / LIVE)
        rows, _, faults = await asyncio.to_thread(read_ledger, copy)
        effects = await asyncio.to_thread(read_effects, self.journal)
        return Left(rows, effects, [*trouble, *faults])

    async def _quiet(self) -> bool:
        """Nothing is in its streams, no turn is open, no wake waits."""
        with suppress(redis.RedisError, OSError, TamqError):
            asked = {"op": "history", "client_id": CLIENT_ID, "limit": 100}
            wakes = (await self.client.request(asked))["messages"]
            return (
                all(one["state"] == ACKNOWLEDGED for one in wakes)
                and not any(await self.deployment.state_of(SOURCE, LIVE))
                and await self.deployment.no_open_turns(LIVE)
            )
        return False
