"""A real Synapse, from its wheel in an environment of its own, with a private directory.

It listens on loopback, takes registrations without verification, limits nobody, and knows no other
server. For tests and for trying out; never for anything that others can reach.
"""

import base64
import json
import os
import secrets
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.core.errors import UnavailableError
from corral.local import wait
from corral.local.server import ServerProcess
from corral.local.servers import write_private
from corral.local.tether import tethered

PYTHON_VARIABLE = "CORRAL_SYNAPSE_PYTHON"
LOOPBACK = "127.0.0.1"
START_TIMEOUT_S = 120.0
ANSWER_TIMEOUT_S = 5.0
RETRY_FIRST_MS = 100
RETRY_MAX_MS = 500
# Rates far above what a test or a person does: per second, and at once.
UNLIMITED = {"per_second": 1_000_000, "burst_count": 1_000_000}


def find_python() -> Path:
    """The interpreter of the environment that has Synapse: named by the variable
    `CORRAL_SYNAPSE_PYTHON`, or beside our own environment, where `./corral` makes it."""
    named = os.environ.get(PYTHON_VARIABLE)
    prefix = Path(sys.prefix)
    beside = prefix.with_name(prefix.name.removesuffix("-floor") + "-synapse")
    python = Path(named) if named else beside / "bin" / "python"
    if not python.exists():
        raise UnavailableError(
            f"no Synapse: {python} does not exist", hint="make it with: ./corral setup --synapse"
        )
    return python


def free_port() -> int:
    """A loopback port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Options:
    """`database` is Synapse's own setting, SQLite in its directory when None; `registrations` are
    the documents of appservices; `settings` are added to the configuration, and win."""

    server_name: str = "corral.test"
    port: int = 0
    database: Mapping[str, Any] | None = None
    registrations: Sequence[Mapping[str, Any]] = ()
    quick_retries: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)


class Synapse(ServerProcess):
    """The server process. Its data and keys survive `kill` and `stop`; `start` goes on."""

    what = "Synapse"

    def __init__(self, directory: Path, options: Options, python: Path | None = None) -> None:
        super().__init__(directory)
        self.options = options
        self.python = python or find_python()
        self.port = options.port or free_port()
        self.config_file = directory / "homeserver.json"
        self.log_file = directory / "synapse.log"

    @property
    def server_name(self) -> str:
        return self.options.server_name

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    # ------------------------------------------------------------ configuration

    def write(self) -> None:
        """Writes all that the server reads; keys only once, so that its identity is kept."""
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        key = self.directory / "signing.key"
        if not key.exists():
            seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
            write_private(key, f"ed25519 a_corral {seed}\n")
        files = []
        for number, registration in enumerate(self.options.registrations):
            file = self.directory / f"appservice-{number}.json"
            write_private(file, json.dumps(registration))
            files.append(str(file))
        write_private(self.directory / "log.json", json.dumps(_logging(self.log_file)))
        write_private(self.config_file, json.dumps(self._settings(files), indent=1))

    def _settings(self, registration_files: list[str]) -> dict[str, Any]:
        listener = {
            "port": self.port,
            "bind_addresses": [LOOPBACK],
            "type": "http",
            "resources": [{"names": ["client"]}],
        }
        module = {
            "module": "synapse_module.QuickRetries",
            "config": {"first_ms": RETRY_FIRST_MS, "max_ms": RETRY_MAX_MS},
        }
        rates = ("message", "registration", "joins", "invites", "login", "room_creation")
        return {
            "server_name": self.server_name,
            "public_baseurl": f"{self.url}/",
            "pid_file": str(self.directory / "synapse.pid"),
            "listeners": [listener],
            "database": self.options.database
            or {"name": "sqlite3", "args": {"database": str(self.directory / "synapse.db")}},
            "log_config": str(self.directory / "log.json"),
            "media_store_path": str(self.directory / "media"),
            "signing_key_path": str(self.directory / "signing.key"),
            "macaroon_secret_key": self._secret("macaroon"),
            "form_secret": self._secret("form"),
            "registration_shared_secret": self._secret("shared"),
            "report_stats": False,
            "enable_registration": True,
            "enable_registration_without_verification": True,
            "trusted_key_servers": [],
            "federation_domain_whitelist": [],
            "presence": {"enabled": False},
            "app_service_config_files": registration_files,
            "modules": [module] if self.options.quick_retries else [],
            **{f"rc_{name}": _rate(name) for name in rates},
            **self.options.settings,
        }

    def _secret(self, name: str) -> str:
        path = self.directory / f"{name}.secret"
        if not path.exists():
            write_private(path, secrets.token_hex(16))
        return path.read_text(encoding="ascii")

    # ------------------------------------------------------------ life

    def argv(self) -> list[str]:
        return [
            str(self.python), "-P", "-m", "synapse.app.homeserver", "-c", str(self.config_file),
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        """What the process gets: our module on its path, and nothing else of ours."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        module_dir = self.directory / "modules"
        module_dir.mkdir(exist_ok=True, mode=0o700)
        source = Path(__file__).with_name("synapse_module.py")
        (module_dir / source.name).write_bytes(source.read_bytes())
        return kept | {"PYTHONPATH": str(module_dir), "SYNAPSE_ASYNC_IO_REACTOR": "0"}

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Starts the server with the data it has and waits until it answers."""
        self.write()
        output = self.directory / "output.log"
        self._spawn(tethered(self.argv()), output, self.environment())
        wait.until(self._answers, timeout_s, f"Synapse on {self.url} to answer")

    def _answers(self) -> bool:
        self._must_run(f"see output.log and {self.log_file.name} there")
        return answers(self.url)


def answers(url: str) -> bool:
    """Whether a homeserver answers there; blocks for at most a few seconds."""
    try:
        with urllib.request.urlopen(  # noqa: S310 - a loopback address that we chose
            f"{url}/_matrix/client/versions", timeout=ANSWER_TIMEOUT_S
        ) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def _rate(name: str) -> dict[str, Any]:
    parts = {
        "joins": ("local", "remote"),
        "invites": ("per_room", "per_user", "per_issuer"),
        "login": ("address", "account", "failed_attempts"),
    }.get(name)
    return dict.fromkeys(parts, UNLIMITED) if parts else dict(UNLIMITED)


def _logging(file: Path) -> dict[str, Any]:
    """Warnings, and what Synapse says of its deliveries to appservices."""
    return {
        "version": 1,
        "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
        "handlers": {
            "file": {
                "class": "logging.FileHandler",
                "filename": str(file),
                "formatter": "plain",
                "encoding": "utf8",
            }
        },
        "loggers": {"synapse.appservice": {"level": "INFO"}},
        "root": {"level": "WARNING", "handlers": ["file"]},
        "disable_existing_loggers": False,
    }
