"""The gateway as a process of its own, in front of an agent of a topology, with one client."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.a2a.target import Target
from corral.local.topology import Topology
from tests.harness.armed_process import ArmedProcess

SOURCE = "echo"
TOKEN = "anns-token"


class GatewayProcess(ArmedProcess):
    """`folder` is made: state, socket, token, log."""

    def __init__(self, folder: Path, topology: Topology, agent: str) -> None:
        folder.mkdir(mode=0o700)
        self.agent = agent
        self.place = folder / "socket"
        self.url = f"unix:{self.place}:/a2a/{agent}/"
        self.token = folder / "token"
        self.token.write_text(TOKEN)
        credential = topology.rendered["identities"][f"source.{agent}.{SOURCE}"]["credential"]
        password = str(topology.credential_file(credential))
        environ = {
            "GATEWAY_SOCKET": str(self.place),
            "GATEWAY_STATE_DIR": str(folder),
            "GATEWAY_REDIS_URL": f"unix://{topology.redis_socket}",
            "GATEWAY_AGENTS": json.dumps({agent: {"password_file": password, "source": SOURCE}}),
            "GATEWAY_CLIENTS": json.dumps({"ann": str(self.token)}),
        }
        super().__init__(folder, "gateway", "tests.crash.armed_gateway", environ=environ)

    @asynccontextmanager
    async def client(self) -> AsyncIterator[HttpAgents]:
        target = Target(self.agent, self.url, token_file=self.token, idempotent=True)
        agents = HttpAgents({self.agent: target})
        try:
            yield agents
        finally:
            await agents.close()
