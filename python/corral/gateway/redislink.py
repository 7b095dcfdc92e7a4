"""Where an agent's streams are, who we are there, and one connection to them without retries."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo

from corral.core import redisurl
from corral.core.errors import ConfigError

SOURCE: Final = "a2a"
ANSWER_TIMEOUT_S: Final = 20.0
PASSWORD_MAX_BYTES: Final = 4_096


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Unix socket, or a host and a port."""

    socket: str | None = None
    host: str = ""
    port: int = 0
    tls: bool = False

    @property
    def where(self) -> str:
        return self.socket or f"{self.host}:{self.port}"


def endpoint(url: str) -> Endpoint:
    """`unix:///path.sock`, `redis://host:port` or `rediss://host:port`.

    `ValueError` says what is wrong, without the URL: it may hold a password.
    """
    parts = redisurl.split(url, "each agent has a password_file")
    if parts.query or parts.fragment:
        raise ValueError("must have nothing after the path")
    if parts.scheme == "unix":
        if parts.netloc or not parts.path.startswith("/") or len(parts.path) == 1:
            raise ValueError("must be unix:///path/of/the.sock")
        return Endpoint(socket=parts.path)
    if not parts.hostname or parts.path not in {"", "/"}:
        raise ValueError("must be redis://host:port")
    return Endpoint(
        host=parts.hostname, port=parts.port or redisurl.PORT, tls=parts.scheme == "rediss"
    )


@dataclass(frozen=True, slots=True)
class Stream:
    """Where one agent's inbox and outbox are, and who we are there."""

    agent: str
    redis: Endpoint
    username: str
    password_file: Path
    source: str = SOURCE

    @property
    def inbox(self) -> str:
        return f"{self.agent}:{self.source}:inbox"

    @property
    def outbox(self) -> str:
        return f"{self.agent}:{self.source}:outbox"

    @property
    def sent(self) -> str:
        """The hash with our markers: which entries are in the inbox and not recorded here yet."""
        return f"{self.agent}:{self.source}:sent"

    def password(self) -> str:
        """Blocks. `ConfigError` when the file cannot be read; it is never quoted."""
        try:
            with self.password_file.open("rb") as file:
                return file.read(PASSWORD_MAX_BYTES).decode().rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{self.password_file}: cannot be read ({type(error).__name__})",
                ids={"agent": self.agent},
            ) from None


async def connect(stream: Stream, *, timeout_s: float = ANSWER_TIMEOUT_S) -> "redis.asyncio.Redis":
    """A connection of its own. Errors of the client library, `OSError`, `ConfigError`."""
    where = stream.redis
    place: dict[str, Any] = (
        {"unix_socket_path": where.socket}
        if where.socket
        else {"host": where.host, "port": where.port, "ssl": where.tls}
    )
    client = redis.asyncio.Redis(
        **place,
        username=stream.username,
        password=await asyncio.to_thread(stream.password),
        # A lost answer is not asked for again by the library, and it sends no greetings that
        # the identity may not send.
        retry=Retry(NoBackoff(), 0),
        driver_info=DriverInfo(name="", lib_version=""),
        single_connection_client=True,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
    )
    try:
        return await client.initialize()
    except BaseException:
        await client.aclose()
        raise


async def ask(client: "redis.asyncio.Redis", *words: str | bytes | int) -> Any:
    """One command, one answer."""
    run = cast(Callable[..., Awaitable[Any]], client.execute_command)
    reply = await run(*words)
    obey()
    return reply


def obey() -> None:
    """The client library may lose a cancellation that comes while it connects: it counts anyway."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
