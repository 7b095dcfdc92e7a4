"""Settings of the program `cowboy`: where an agent's files are, and how to reach Redis.

They come from the environment (`COWBOY_…`, `COWBOY_…_FILE`), systemd credentials or the file that
COWBOY_CONFIG names; see `corral.core.settings`. What is to be read from which stream is in
`sources.json`. Every path of an agent is derived here.
"""

import os
import pwd
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, unquote

from pydantic import AfterValidator, Field, SecretStr
from pydantic_settings import SettingsConfigDict

from corral.core import redisurl, sockets
from corral.core.errors import ConfigError, UsageError
from corral.core.settings import ServiceSettings
from corral.cowboy.config import FILE_NAME, SourcesFile, is_name, load_sources

# The kernel keeps 108 bytes for a Unix socket's path, its NUL included.
SOCKET_PATH_MAX_BYTES = sockets.PATH_MAX_BYTES


@dataclass(frozen=True)
class RedisEndpoint:
    """How to reach Redis as one user. `socket` is set for a Unix socket, else host and port."""

    username: str
    password: str | None = field(repr=False)
    protocol: int
    socket: str | None = None
    host: str = ""
    port: int = 0
    tls: bool = False
    database: int = 0

    @property
    def where(self) -> str:
        """The place for messages; no secret is in it."""
        return self.socket or f"{self.host}:{self.port}"


def _redis_url(value: str) -> str:
    _split_redis_url(value)
    return value


def _split_redis_url(value: str) -> tuple[SplitResult, int]:
    """The parts and the database number. ValueError says what is wrong, without the URL."""
    parts = redisurl.split(value, "use redis_username, redis_password")
    if parts.fragment or (parts.query and not parts.query.startswith("db=")):
        raise ValueError("must have nothing after the path but ?db=N")
    if parts.scheme == "unix":
        if parts.netloc or not parts.path.startswith("/") or parts.port is not None:
            raise ValueError("must be unix:///path/of/the.sock")
        database = parts.query.removeprefix("db=")
    else:
        if not parts.hostname or parts.query:
            raise ValueError("must be redis://host:port or redis://host:port/database")
        database = parts.path.removeprefix("/")
    if not (database.isascii() and database.isdigit()) and database:
        raise ValueError("must name the database by its number")
    return parts, int(database or 0)


def _netns(value: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", value) is None:
        raise ValueError("is not the name of a network namespace")
    return value


class CowboySettings(ServiceSettings):
    """The settings of cowboy; read them with `corral.core.settings.load(CowboySettings)`."""

    model_config = SettingsConfigDict(env_prefix="COWBOY_")

    config_dir: Path = Field(
        default=Path("/etc/cowboy"), description="Has `<agent>/sources.json` of each agent."
    )
    state_dir: Path = Field(
        default=Path("/var/lib/cowboy"), description="Has the ledger of each agent."
    )
    runtime_dir: Path = Field(
        default=Path("/run/cowboy"), description="Has the sockets of each agent."
    )
    runner_dir: Path | None = Field(
        default=None,
        description="Has the runner's socket and records of each agent, where the runner is "
        "another user than the daemon; unset: `runtime_dir`.",
    )
    daemon_user: str | None = Field(
        default=None,
        min_length=1,
        description="For `runner`: the daemon's user. With it the runner serves that user and "
        "root alone; unset: its own user and root.",
    )
    runner_user: str | None = Field(
        default=None,
        min_length=1,
        description="For `run`: the runner's user, where it is another than the daemon's. Its live "
        "sessions may answer their turns with `cowboy reply`.",
    )
    runs_inherit: bool = Field(
        default=False,
        description="For `runner`: whether runs get its environment, without what is for the "
        "service itself. For a unit whose environment is the agent's own.",
    )
    redis_url: Annotated[str, AfterValidator(_redis_url)] | None = Field(
        default=None,
        description="`unix:///path.sock`, `redis://host:port` or `rediss://host:port`; "
        "`/N` (or `?db=N` for a socket) selects a database. Never holds a user or a password.",
    )
    redis_username: str | None = Field(
        default=None,
        min_length=1,
        description="ACL user. Unset: `agent-<agent>` for `run`, `operator` for `send`, `status`.",
    )
    redis_password: SecretStr | None = Field(default=None, description="Password of that user.")
    redis_protocol: int = Field(
        default=3, ge=2, le=3, description="Version of the Redis protocol, RESP2 or RESP3."
    )
    redis_netns: Annotated[str, AfterValidator(_netns)] | None = Field(
        default=None,
        description="Network namespace in which Redis listens, by its name in `/run/netns`. The "
        "operator's commands enter it, which only root can; not needed for a Unix socket.",
    )
    operator_env: Path = Field(
        default=Path("/run/cowboy/operator-redis.env"),
        description="Where the operator's commands find `REDIS_URL` and `REDISCLI_AUTH` "
        "when no `redis_url` is set.",
    )
    metrics_dir: Path | None = Field(
        default=None, description="Where to write `cowboy-<agent>.prom`; unset: nowhere."
    )

    def sources_path(self, agent: str) -> Path:
        """`sources.json` of the agent. UsageError when `agent` is no name."""
        return self.config_dir / _agent(agent) / FILE_NAME

    def state_path(self, agent: str) -> Path:
        return self.state_dir / _agent(agent)

    def ledger_path(self, agent: str) -> Path:
        return self.state_path(agent) / "ledger.db"

    def lock_path(self, agent: str) -> Path:
        """Locked by the one daemon that serves the agent."""
        return self.state_path(agent) / "lock"

    def runtime_path(self, agent: str) -> Path:
        return self.runtime_dir / _agent(agent)

    def control_socket(self, agent: str) -> Path:
        """Where the daemon takes commands. ConfigError when the path is too long for a socket."""
        return _socket(self.runtime_path(agent) / "control.sock", "runtime_dir")

    def runner_socket(self, agent: str) -> Path:
        """Where the runner takes orders. ConfigError when the path is too long for a socket."""
        setting = "runtime_dir" if self.runner_dir is None else "runner_dir"
        return _socket(self._runner_path(agent) / "runner.sock", setting)

    def runs_path(self, agent: str) -> Path:
        """Where the runner keeps its records of runs."""
        return self._runner_path(agent) / "runs"

    def reply_socket(self, agent: str) -> Path:
        """Where the daemon takes answers of live sessions. ConfigError as `control_socket`."""
        return _socket(self.runtime_path(agent) / "reply.sock", "runtime_dir")

    def daemon_uid(self) -> int | None:
        """Uid of `daemon_user`; None without one. ConfigError when no such user exists."""
        return _uid("daemon_user", self.daemon_user, "`cowboy run`")

    def runner_uid(self) -> int | None:
        """Uid of `runner_user`, likewise."""
        return _uid("runner_user", self.runner_user, "`cowboy runner`")

    def _runner_path(self, agent: str) -> Path:
        return (self.runner_dir or self.runtime_dir) / _agent(agent)

    def metrics_path(self, agent: str) -> Path | None:
        return self.metrics_dir / f"cowboy-{_agent(agent)}.prom" if self.metrics_dir else None

    def load_sources(self, agent: str) -> SourcesFile:
        """The agent's `sources.json`. ConfigError names the key at fault."""
        return load_sources(self.sources_path(agent), agent=agent)

    def agents(self) -> list[str]:
        """The agents that have a folder in `config_dir`, in order of name."""
        return sorted(self._folders())

    def _folders(self) -> Iterator[str]:
        try:
            for entry in self.config_dir.iterdir():
                if is_name(entry.name) and (entry / FILE_NAME).exists():
                    yield entry.name
        except OSError as error:
            raise ConfigError(
                f"config_dir: {self.config_dir} cannot be read: {error.strerror}",
                hint="set COWBOY_CONFIG_DIR to the folder with the agents' folders",
            ) from error

    def redis_endpoint(self, default_username: str) -> RedisEndpoint:
        """Redis as `redis_username`, or as `default_username`. ConfigError without a URL."""
        if self.redis_url is None:
            raise ConfigError(
                "redis_url: is missing", hint="set COWBOY_REDIS_URL, as unix:///path.sock"
            )
        parts, database = _split_redis_url(self.redis_url)
        secret = self.redis_password
        local = parts.scheme == "unix"
        return RedisEndpoint(
            username=self.redis_username or default_username,
            password=secret.get_secret_value() if secret else None,
            protocol=self.redis_protocol,
            socket=unquote(parts.path) if local else None,
            host="" if local else parts.hostname or "",
            port=0 if local else parts.port or redisurl.PORT,
            tls=parts.scheme == "rediss",
            database=database,
        )


def agent_username(agent: str) -> str:
    """The ACL user of an agent's daemon."""
    return f"agent-{_agent(agent)}"


def _uid(setting: str, user: str | None, who: str) -> int | None:
    try:
        return None if user is None else pwd.getpwnam(user).pw_uid
    except KeyError:
        raise ConfigError(
            f"{setting}: this system has no user {user!r}",
            hint=f"set COWBOY_{setting.upper()} to the user that {who} runs as",
        ) from None


def _agent(name: str) -> str:
    if not is_name(name):
        raise UsageError(
            f"{name!r} is not the name of an agent",
            hint="1 to 31 of a-z, 0-9 and '-', beginning with a letter",
        )
    return name


def _socket(path: Path, setting: str) -> Path:
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_MAX_BYTES:
        raise ConfigError(
            f"{setting}: the socket {path} has a path of {length} bytes, "
            f"the system takes {SOCKET_PATH_MAX_BYTES}",
            hint=f"set COWBOY_{setting.upper()} to a shorter path",
        )
    return path
