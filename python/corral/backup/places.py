"""Where the state of each service is on a host that the NixOS modules set up."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

BRIDGE: Final = "bridge"
BRIDGE_TOKENS: Final = "bridge-tokens"
GATEWAY: Final = "gateway"
GATEWAY_TOKENS: Final = "gateway-tokens"
REDIS: Final = "redis"
SECRETS: Final = "secrets"
COWBOY: Final = "cowboy-"
TAMQ: Final = "tamq-"
APPEND_ONLY: Final = "appendonlydir"


@dataclass(frozen=True)
class Place:
    """A folder of the host that is kept under `name` in a backup.

    `database`: the file in it that is one of ours, of which a program makes the copy. `names`:
    those of its files that are copied as they are, if they are there. `above`: a folder that
    belongs to the service, too, if `folder` is only a part of it.
    """

    name: str
    folder: Path
    database: str = ""
    names: tuple[str, ...] = ()
    above: Path | None = None

    @property
    def folders(self) -> list[Path]:
        """All that belong to the service, the upper one first."""
        return [self.folder] if self.above is None else [self.above, self.folder]


@dataclass(frozen=True)
class Host:
    """This host, by what is in `/etc`; `lib` is where systemd keeps the state of services."""

    etc: Path = Path("/etc")
    lib: Path = Path("/var/lib")
    bridge_user: str = "a2a-bridge"

    @property
    def has_bridge(self) -> bool:
        return (self.etc / "a2a-bridge/settings.json").is_file()

    @property
    def has_gateway(self) -> bool:
        return (self.etc / "a2a-gateway/settings.json").is_file()

    @property
    def agents(self) -> list[str]:
        return sorted(file.parent.name for file in (self.etc / "cowboy").glob("*/sources.json"))

    @property
    def tamq_users(self) -> list[str]:
        return sorted(file.parent.name for file in (self.etc / "tamq").glob("*/settings.json"))

    @property
    def ledger(self) -> str:
        """The address of the bridge's ledger; empty when it is elsewhere, with a secret."""
        return str(_settings(self.etc / "a2a-bridge/settings.json").get("database", ""))

    @property
    def secrets(self) -> list[Path]:
        """Those that the host made; what was given as a file is its giver's to keep."""
        table = self.etc / "cowboy/secrets.list"
        if not table.is_file():
            return []
        rows = [line.split() for line in table.read_text(encoding="utf-8").splitlines()]
        return [Path(row[1]) for row in rows if len(row) == 3 and row[2] == "made"]

    def places(self) -> dict[str, Place]:
        """By name, in the order in which they are taken; the bridge's ledger is none of them."""
        return {one.name: one for one in self._places()}

    def _places(self) -> Iterator[Place]:
        if self.has_bridge:
            yield Place(BRIDGE_TOKENS, self.lib / "a2a-bridge", names=("as-token", "hs-token"))
        if self.has_gateway:
            settings = _settings(self.etc / "a2a-gateway/settings.json")
            yield Place(GATEWAY, Path(settings["state_dir"]), "gateway.db")
            clients = tuple(sorted(settings["clients"]))
            yield Place(GATEWAY_TOKENS, self.lib / "a2a-gateway-tokens", names=clients)
        if self.agents:
            above = self.lib / "redis-cowboy"
            yield Place(REDIS, above / APPEND_ONLY, above=above)
        for agent in self.agents:
            settings = _settings(self.etc / "cowboy" / agent / "settings.json")
            yield Place(f"{COWBOY}{agent}", Path(settings["state_dir"]) / agent, "ledger.db")
        for user in self.tamq_users:
            settings = _settings(self.etc / "tamq" / user / "settings.json")
            yield Place(f"{TAMQ}{user}", Path(settings["state_dir"]), "queue.db")
        if self.secrets:
            names = tuple(one.name for one in self.secrets)
            yield Place(SECRETS, self.secrets[0].parent, names=names)

    def makers(self) -> list[str]:
        """Units that make what is missing of tokens and secrets, and tell others of them."""
        found = ["cowboy-secrets"] if self.agents else []
        found += ["a2a-gateway-tokens"] if self.has_gateway else []
        return found + (["a2a-bridge-registration"] if self.has_bridge else [])

    def services(self) -> list[str]:
        """Units that write what is restored."""
        found = ["redis-cowboy"] if self.agents else []
        for agent in self.agents:
            found += [f"cowboy-runner-{agent}", f"cowboy-{agent}"]
        found += [f"tamq-{user}" for user in self.tamq_users]
        found += ["a2a-gateway"] if self.has_gateway else []
        return found + (["a2a-bridge"] if self.has_bridge else [])


def _settings(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found
