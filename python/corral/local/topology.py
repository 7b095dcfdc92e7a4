"""A rendered topology, made runnable in a private directory on this machine.

Input is what `modules/lib` renders (`examples/demo.json`): ACL lines with a placeholder for each
credential, each agent's `sources.json`, sockets, identities. This module joins the placeholders
with generated secrets, writes the files, and turns relative paths into absolute ones. It decides
nothing about access: the ACL is the topology's.
"""

import copy
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import corral
from corral.core.errors import ConfigError, UnavailableError
from corral.local.servers import Login, check_socket_path, write_private

Rendered = Mapping[str, Any]
SourcesEdit = Callable[[dict[str, Any]], None]
SECRET = re.compile(r"[0-9a-f]{48}")
PLACEHOLDER = re.compile(r"@([a-z0-9.-]+)@")
IMPORT_ROOT = Path(corral.__file__).parents[1]


def load_rendered(path: Path | None = None) -> dict[str, Any]:
    """The rendered topology at `path`, or the demo's: from the checkout, else as packaged data."""
    candidates = (
        [path]
        if path
        else [
            IMPORT_ROOT.parent / "examples" / "demo.json",
            Path(__file__).parent / "demo.json",
        ]
    )
    for candidate in candidates:
        if candidate.is_file():
            loaded: dict[str, Any] = json.loads(candidate.read_text(encoding="utf-8"))
            return loaded
    raise ConfigError(
        f"no rendered topology at {candidates[0]}",
        hint="render examples/demo.nix with nix-instantiate, or run from a checkout",
    )


def private_base(prefix: str = "corral-") -> Path:
    """A new private directory (0700) under TMPDIR, short enough for the sockets inside."""
    try:
        return Path(tempfile.mkdtemp(prefix=prefix)).resolve()
    except OSError as error:
        raise UnavailableError(
            f"cannot make a private directory: {error.strerror}",
            hint="set TMPDIR to a directory that you can write",
        ) from error


def passable_base(prefix: str) -> Path:
    """The same, but that others may pass through it: PostgreSQL may run as another user."""
    base = private_base(prefix)
    base.chmod(0o711)
    return base


@dataclass
class Topology:
    """One materialised topology. All paths are absolute; secrets are on disk (0600) only."""

    base: Path
    rendered: dict[str, Any]
    sources: dict[str, dict[str, Any]]  # agent -> its sources.json as written
    _secrets: dict[str, str] = field(repr=False)

    @classmethod
    def materialise(
        cls,
        rendered: Rendered,
        base: Path,
        *,
        edits: Mapping[str, SourcesEdit] | None = None,
        first: SourcesEdit | None = None,
    ) -> Self:
        """Writes config, secrets and directories below `base` (which must exist).

        `edits` (agent name to function) and `first` (every agent) change a copy of `sources_json`
        before it is written: the explicit way for a test to run with other limits. A secret that
        `base` already has is kept: who read it before a restart may go on.
        """
        for agent in edits or {}:
            if agent not in rendered["agents"]:
                raise ConfigError(f"agents.{agent}: not in the topology")
        plain = json.loads(json.dumps(rendered))
        sources: dict[str, dict[str, Any]] = {}
        for agent, description in plain["agents"].items():
            sources[agent] = copy.deepcopy(description["sources_json"])
            for edit in (first, (edits or {}).get(agent)):
                if edit is not None:
                    edit(sources[agent])
        topology = cls(base, plain, sources, {})
        for name in plain["credentials"]:
            topology._secrets[name] = _kept(topology.credential_file(name)) or secrets.token_hex(24)
        topology._write()
        return topology

    def _write(self) -> None:
        for directory in (self.config_dir, self.state_dir, self.runtime_dir, *self._private_dirs()):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, value in self._secrets.items():
            write_private(self.credential_file(name), value + "\n")
        for agent in self.agents:
            (self.config_dir / agent).mkdir(exist_ok=True, mode=0o700)
            write_private(
                self.config_dir / agent / "sources.json",
                json.dumps(self.sources[agent], indent=2) + "\n",
            )
            (self.runtime_dir / agent).mkdir(exist_ok=True, mode=0o700)
            for socket in self.rendered["agents"][agent]["sockets"].values():
                check_socket_path(self._absolute(socket))
        check_socket_path(self.redis_socket)

    def _private_dirs(self) -> tuple[Path, ...]:
        return (self.base / "credentials", self.log_dir, self.redis_socket.parent)

    def _absolute(self, path: str) -> Path:
        return self.base / path

    @property
    def agents(self) -> list[str]:
        return sorted(self.rendered["agents"])

    @property
    def config_dir(self) -> Path:
        return self._absolute(self.rendered["paths"]["config"])

    @property
    def state_dir(self) -> Path:
        return self._absolute(self.rendered["paths"]["state"])

    @property
    def runtime_dir(self) -> Path:
        return self._absolute(self.rendered["paths"]["runtime"])

    @property
    def log_dir(self) -> Path:
        return self.base / "logs"

    @property
    def redis_socket(self) -> Path:
        return self._absolute(self.rendered["redis"]["socket"])

    @property
    def redis_settings(self) -> dict[str, str]:
        return dict(self.rendered["redis"]["settings"])

    def credential_file(self, name: str) -> Path:
        return self.base / "credentials" / name

    def control_socket(self, agent: str) -> Path:
        return self._absolute(self.rendered["agents"][agent]["sockets"]["control"])

    def ledger(self, agent: str) -> Path:
        return self.state_dir / agent / "ledger.db"

    def acl(self) -> list[str]:
        """The lines of the ACL file, every placeholder replaced by its secret's SHA-256."""

        def digest(found: re.Match[str]) -> str:
            if found[1] not in self._secrets:
                raise ConfigError(f"redis.acl: unknown credential {found[1]}")
            return hashlib.sha256(self._secrets[found[1]].encode()).hexdigest()

        return [PLACEHOLDER.sub(digest, line) for line in self.rendered["redis"]["acl"]]

    def login(self, identity: str) -> Login:
        """The ACL user of an identity and its secret."""
        return Login(identity, self._secrets[self.rendered["identities"][identity]["credential"]])

    def source_login(self, agent: str, source: str) -> Login:
        return self.login(f"source.{agent}.{source}")

    def secret_words(self) -> list[str]:
        """Every generated secret: none may occur in a log file."""
        return list(self._secrets.values())

    def environment(self, agent: str, *, redis: bool, protocol: int = 3) -> dict[str, str]:
        """The environment of an agent's process; `redis` adds the daemon's way to Redis.

        Nothing else is inherited, so a run behaves the same from every shell.
        """
        variables = {
            **base_environment(),
            "COWBOY_CONFIG_DIR": str(self.config_dir),
            "COWBOY_STATE_DIR": str(self.state_dir),
            "COWBOY_RUNTIME_DIR": str(self.runtime_dir),
        }
        if redis:
            identity = self.rendered["agents"][agent]["identity"]
            credential = self.rendered["identities"][identity]["credential"]
            variables |= {
                "COWBOY_REDIS_URL": f"unix://{self.redis_socket}",
                "COWBOY_REDIS_PASSWORD_FILE": str(self.credential_file(credential)),
                "COWBOY_REDIS_PROTOCOL": str(protocol),
            }
        return variables

    def remove(self) -> None:
        """Deletes the whole private directory."""
        shutil.rmtree(self.base, ignore_errors=True)


def _kept(credential: Path) -> str:
    """The secret of an earlier start; empty when there is none, or not one of ours."""
    try:
        secret = credential.read_text(encoding="ascii").removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    return secret if SECRET.fullmatch(secret) else ""


def base_environment() -> dict[str, str]:
    """What every process of a local deployment gets: a PATH, a locale, where Python finds us."""
    roots = [str(IMPORT_ROOT), str(IMPORT_ROOT.parent)]
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LANG": "C.UTF-8",
        "HOME": os.environ.get("HOME", "/"),
        "PYTHONPATH": os.pathsep.join(roots),
        "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", ""),
        "PYTHONUNBUFFERED": "1",
        "VIRTUAL_ENV": sys.prefix,
    }
