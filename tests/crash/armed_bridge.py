"""The bridge with armed crash points: `python -m tests.crash.armed_bridge POINT:N … -- CONFIG`.

CONFIG is JSON: the ledger's `dsn`, the sockets of the `world` (agent and rooms, in the test's
process) and of the `intake`, the `policy`, perhaps an agent to be called over HTTP, perhaps a
planted bug. The ledger, the coordinator and the machine are the real ones; the intake's HTTP and
Matrix have crash tests of their own.
"""

import asyncio
import json
import pickle
import sys
from pathlib import Path
from typing import Any, cast

from corral.bridge.a2a import target as a2a
from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.admission import LedgerAdmission
from corral.bridge.coordinator import Coordinator, Sides
from corral.bridge.database import Ledger, Target
from corral.bridge.domain import Limits
from corral.bridge.errors import LedgerError
from corral.bridge.machine import AgentPolicy, Policy
from corral.bridge.ports import Agents
from corral.bridge.session import Session
from corral.core import logs
from tests.harness import armed
from tests.harness.bridge_plants import PLANTS
from tests.harness.bridge_world import Contents, Remote


def agents_of(config: dict[str, Any]) -> Agents:
    """The world's agent, or one that is called over HTTP."""
    http = config.get("http")
    if http is None:
        return cast(Agents, Remote(Path(config["world"]), "agent"))
    token = http.pop("token_file", None)
    return HttpAgents({"scout": a2a.Target("scout", token_file=token and Path(token), **http)})


async def run(config: dict[str, Any]) -> None:
    target, world = Target(config["dsn"]), Path(config["world"])
    fields = dict(config["policy"])
    if "limits" in fields:
        fields["limits"] = Limits(**fields["limits"])
    policy = Policy({"scout": AgentPolicy(**config.get("agent", {}))}, **fields)
    admission = LedgerAdmission(target, policy.limits)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming = pickle.loads(await reader.read())  # noqa: S301  from the test
        try:
            answer = pickle.dumps(await admission.admit(incoming))
        except LedgerError:
            answer = b""
        writer.write(answer)
        await writer.drain()
        writer.close()

    await asyncio.start_unix_server(take, config["intake"])
    async with Ledger(target, 8) as connections:
        coordinator = Coordinator(
            connections,
            lambda heard: Session(target, heard),
            Sides(agents_of(config), Remote(world, "rooms"), Contents()),
            policy,
            concurrency=config.get("concurrency", 8),
            claim_interval_s=0.2,
        )
        await coordinator.run()


def cli() -> None:
    logs.configure("bridge", level="warning")
    config = json.loads(sys.argv[1])
    if config["plant"]:
        PLANTS[config["plant"]]()
    asyncio.run(run(config))


if __name__ == "__main__":
    armed.main(sys.argv[1:], cli)
