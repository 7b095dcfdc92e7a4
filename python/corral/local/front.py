"""The gateway in front of a deployment's agents: its files, and its process."""

import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from corral.local.deployment import Deployment
from corral.local.servers import check_socket_path, write_private
from corral.local.supervisor import Service
from corral.local.topology import base_environment

GATEWAY: Final = "gateway"
CLIENT: Final = "bridge"
SOURCE: Final = "a2a"


class Front:
    """Makes the files in `base`; `service` is for a supervisor. `agents`: name to description.

    What is in `base` is kept: the token, and the tasks.
    """

    def __init__(self, deployment: Deployment, base: Path, agents: Mapping[str, str]) -> None:
        self.folder = base / GATEWAY
        self.folder.mkdir(exist_ok=True, mode=0o700)
        self.agents = dict(agents)
        self.socket = self.folder / "socket"
        check_socket_path(self.socket)
        self.token_file = self.folder / "token"
        if not self.token_file.exists():
            write_private(self.token_file, secrets.token_urlsafe(24) + "\n")
        self.config_file = self.folder / "gateway.json"
        write_private(self.config_file, json.dumps(self._config(deployment), indent=1))

    def _config(self, deployment: Deployment) -> dict[str, Any]:
        topology = deployment.topology
        agents = {}
        for agent, description in self.agents.items():
            identity = topology.rendered["identities"][f"source.{agent}.{SOURCE}"]
            file = topology.credential_file(identity["credential"])
            agents[agent] = {
                "password_file": str(file), "source": SOURCE, "description": description,
            }  # fmt: skip
        return {
            "socket": str(self.socket),
            "socket_mode": 0o600,
            "state_dir": str(self.folder),
            "redis_url": f"unix://{topology.redis_socket}",
            "agents": agents,
            "clients": {CLIENT: str(self.token_file)},
        }

    def variables(self) -> dict[str, str]:
        """For `corral-gateway`; no secret is in them."""
        return {"GATEWAY_CONFIG": str(self.config_file)}

    def agent_entries(self) -> dict[str, dict[str, Any]]:
        """The agents as the bridge's settings have them: messages may be sent again."""
        return {
            agent: {
                "url": f"unix:{self.socket}:/a2a/{agent}/",
                "display_name": agent.capitalize(),
                "token_file": str(self.token_file),
                "idempotent": True,
            }
            for agent in self.agents
        }

    def service(self) -> Service:
        program = [sys.executable, "-P", "-m", "corral.gateway.main", "run"]
        environment = base_environment() | self.variables()
        return Service(GATEWAY, lambda _: program, environment, self.folder, self._ready)

    async def _ready(self) -> bool:
        connector = aiohttp.UnixConnector(str(self.socket))
        timeout = aiohttp.ClientTimeout(total=5)
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
                http.get("http://localhost/readyz") as response,
            ):
                return response.status == 200
        except (aiohttp.ClientError, OSError, TimeoutError):
            return False
