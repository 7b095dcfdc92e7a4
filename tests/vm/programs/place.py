"""Where things are on a host that the modules made."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.local.client import Address
from corral.local.servers import Login

CONFIG = Path("/etc/cowboy")
STATE = Path("/var/lib/cowboy")
AGENTS = Path("/var/lib/cowboy-agents")
SECRETS = STATE / "secrets"
REDIS = ("127.0.0.1", 6379)
BRIDGE = Path("/etc/a2a-bridge/settings.json")
AGENT_CALLS = Path("/var/lib/echo-agent/calls.jsonl")


@dataclass(frozen=True)
class Host:
    """This machine, for the senders and readers of the local deployment."""

    @property
    def redis_socket(self) -> Address:
        return REDIS

    def login(self, identity: str) -> Login:
        secret = (SECRETS / f"redis-{identity}").read_text(encoding="utf-8").strip()
        return Login(identity, secret)

    def source_login(self, agent: str, source: str) -> Login:
        return self.login(f"source.{agent}.{source}")


def sources(agent: str) -> dict[str, Any]:
    """The agent's sources, as its daemon reads them."""
    loaded = json.loads((CONFIG / agent / "sources.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = loaded["sources"]
    return found


def ledger(agent: str) -> Path:
    return STATE / agent / "ledger.db"


def effects(agent: str) -> Path:
    """What the test agent did; see `corral.local.agent`."""
    return AGENTS / agent / "effects.jsonl"


@dataclass(frozen=True)
class Homeserver:
    """Where the bridge's homeserver is, and who stands for the agents there."""

    url: str
    ghosts: list[str]


def bridge() -> Homeserver:
    """By the settings of this machine's bridge."""
    settings = json.loads(BRIDGE.read_text(encoding="utf-8"))
    domain = settings["server_name"]
    agents = settings["agents"].items()
    ghosts = [f"@{one.get('localpart', name)}:{domain}" for name, one in agents]
    return Homeserver(settings["homeserver_url"], ghosts)
