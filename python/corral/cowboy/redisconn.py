"""One Redis connection without retries, and what Redis' errors mean to cowboy.

The client library's defaults retry a command whose answer was lost, which turns one `XADD` into
many; here a command is sent once, a lost answer is `Unreachable`, and a cancelled or failed read
drops the connection, so that no late answer can be taken for the next one.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Any

from hiredis import pack_command
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from corral.core.errors import CorralError
from corral.cowboy.settings import RedisEndpoint

Reply = Any

# Answers that say "not now": the same command may succeed later, so they spend no attempt.
_LATER = ("LOADING", "BUSY ", "MASTERDOWN", "MISCONF", "READONLY", "CLUSTERDOWN", "TRYAGAIN",
          "NOREPLICAS", "FAILOVER", "UNBLOCKED")  # fmt: skip
KEEPALIVE = {socket.TCP_KEEPIDLE: 15, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}


class RedisFault(CorralError):
    """Base of what can go wrong with one command."""

    code = "redis"
    exit_code = 69


class Unreachable(RedisFault):
    """No answer: not connected, cut off, or too late. What was sent may have been done."""

    code = "redis_unreachable"


class NotNow(RedisFault):
    """Redis answers, but cannot serve at present (loading, busy, read-only, disk error)."""

    code = "redis_not_now"


class Full(NotNow):
    """`maxmemory` is reached: nothing is lost, work goes on when space returns."""

    code = "redis_full"


class Denied(RedisFault):
    """Authentication failed: wrong credential, or the identity does not exist."""

    code = "redis_denied"


class Refused(RedisFault):
    """Redis refused the command for good: an ACL without the verb or key, or a wrong type."""

    code = "redis_refused"


class NoGroup(RedisFault):
    """The consumer group or its stream is gone."""

    code = "redis_no_group"


class ScriptGone(RedisFault):
    """The server has forgotten a script; it is loaded again."""

    code = "redis_script_gone"


def fault_of(text: str) -> RedisFault:
    """The fault that an error text of Redis stands for (its code is the first word)."""
    if text.startswith("OOM"):
        return Full(
            "Redis has reached maxmemory",
            hint="raise maxmemory, or let the outboxes' readers catch up and trim",
        )
    if text.startswith(_LATER):
        return NotNow(f"Redis cannot serve now: {text[:120]}")
    if text.startswith(("NOAUTH", "WRONGPASS")):
        return Denied("Redis refused the credential", hint="check the identity and its secret")
    if text.startswith("NOGROUP"):
        return NoGroup("the consumer group is gone")
    if text.startswith("NOSCRIPT"):
        return ScriptGone("a script is gone")
    return Refused(f"Redis refused: {text[:160]}")


def as_fault(error: BaseException) -> RedisFault:
    """The fault that an exception of the client library stands for."""
    if isinstance(error.__cause__, AuthenticationError):  # wrapped while connecting
        error = error.__cause__
    text = str(error)
    if isinstance(error, OutOfMemoryError):
        return fault_of("OOM")
    if isinstance(error, BusyLoadingError | MasterDownError | ReadOnlyError):
        return NotNow(f"Redis cannot serve now: {text[:120]}")
    if isinstance(error, NoScriptError):
        return fault_of("NOSCRIPT")
    if isinstance(error, NoPermissionError):
        return Refused(f"Redis refused: {text[:160]}", hint="check the ACL of this identity")
    if isinstance(error, AuthenticationError):
        return fault_of("WRONGPASS")
    if isinstance(error, RedisTimeoutError | TimeoutError):
        return Unreachable("Redis did not answer in time")
    if isinstance(error, RedisConnectionError | OSError | EOFError):
        return Unreachable(f"no connection to Redis: {text[:160]}")
    if isinstance(error, ResponseError):
        return fault_of(text)
    return Refused(f"Redis: {type(error).__name__}: {text[:160]}")


def connection_to(endpoint: RedisEndpoint, timeout_s: float) -> Connection:
    """A connection object (not yet connected) whose reads give up after `timeout_s`."""
    kwargs: dict[str, Any] = {
        "username": endpoint.username,
        "password": endpoint.password,
        "protocol": endpoint.protocol,
        "db": endpoint.database,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": min(timeout_s, 5.0),
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        # Never sent; but without one each connection reads files to learn the library's version.
        "driver_info": DriverInfo("cowboy", lib_version="0"),
    }
    if endpoint.socket:
        connection: Any = UnixDomainSocketConnection(path=endpoint.socket, **kwargs)
    else:
        kwargs |= {
            "host": endpoint.host,
            "port": endpoint.port,
            "socket_keepalive": True,
            "socket_keepalive_options": KEEPALIVE,
        }
        connection = (SSLConnection if endpoint.tls else Connection)(**kwargs)
    connection.driver_info = None  # CLIENT SETINFO is not among the identity's verbs
    return connection  # type: ignore[no-any-return]


class Wire:
    """A connected, private connection: commands go out once, answers come back in order."""

    def __init__(self, connection: Connection) -> None:
        self._connection: Any = connection

    async def connect(self) -> None:
        asked = _cancellations()
        try:
            await self._connection.connect()
        except (RedisError, OSError, TimeoutError) as error:
            raise as_fault(error) from error
        await self._obey(asked)

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)

    async def call(self, *args: Any) -> Reply:
        """One command, one answer. Raises a `RedisFault`."""
        (reply,) = await self.pipeline([args])
        if isinstance(reply, RedisFault):
            raise reply
        return reply

    async def pipeline(self, commands: Sequence[Sequence[Any]]) -> list[Reply]:
        """Commands in one write; a refused one's answer is a `RedisFault` in the list.

        Raises `Unreachable` when any answer is missing; the connection is then closed. A command
        that is cancelled closes the connection too.
        """
        connection = self._connection
        asked = _cancellations()
        try:
            # The client library's own packing, in Python, was a third of the daemon's work.
            packed = b"".join([pack_command(tuple(command)) for command in commands])
            await connection.send_packed_command(packed, check_health=False)
            await self._obey(asked)
            replies: list[Reply] = []
            for _ in commands:
                try:
                    replies.append(await connection.read_response())
                except ResponseError as error:
                    replies.append(as_fault(error))
        except (RedisError, OSError, TimeoutError, EOFError) as error:
            await connection.disconnect(nowait=True)
            raise as_fault(error) from error
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return replies

    async def _obey(self, asked: int) -> None:
        """Raise a cancellation that came after `asked` of them, and that was swallowed.

        The client library sends within `asyncio.wait_for`, which before Python 3.12 returns as if
        nothing were when the sending ends at that instant.
        """
        if _cancellations() > asked:
            await self._connection.disconnect(nowait=True)
            raise asyncio.CancelledError


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0
