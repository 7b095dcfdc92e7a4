"""Redis clients of the harness: no retries, no handshake beyond what the topology grants.

The client library's own defaults are wrong here: it repeats an `XADD` whose answer was lost, and
greets the server with commands that a source identity may not use.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.driver_info import DriverInfo
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

ANSWER_TIMEOUT_S = 5.0


# An empty name and version: CLIENT SETINFO, which no identity may send, is left out.
SILENT = DriverInfo(name="", lib_version="")


def _options(username: str, password: str, protocol: int) -> dict[str, Any]:
    return {
        "username": username,
        "password": password,
        "protocol": protocol,
        "socket_timeout": ANSWER_TIMEOUT_S,
        "socket_connect_timeout": ANSWER_TIMEOUT_S,
        "driver_info": SILENT,
    }


def blocking_client(
    socket: Path, username: str, password: str, *, protocol: int = 3
) -> "redis.Redis":
    """A client for fixtures and tests that have no event loop."""
    options = _options(username, password, protocol)
    pool = redis.ConnectionPool(
        connection_class=redis.UnixDomainSocketConnection,
        path=str(socket),
        retry=Retry(NoBackoff(), 0),
        # Over RESP3 the client asks for notifications that no identity may have.
        maint_notifications_config=MaintNotificationsConfig(enabled=False),
        **options,
    )
    return redis.Redis.from_pool(pool)


# A socket's path, or host and port.
Address = Path | tuple[str, int]


def client(
    address: Address, username: str, password: str, *, protocol: int = 3
) -> "redis.asyncio.Redis":
    """A client of one connection; close it with `aclose()`."""
    options = _options(username, password, protocol)
    if isinstance(address, Path):
        options["unix_socket_path"] = str(address)
    else:
        options["host"], options["port"] = address
    return redis.asyncio.Redis(
        retry=AsyncRetry(NoBackoff(), 0),
        single_connection_client=True,
        **options,
    )


async def command(connection: "redis.asyncio.Redis", *words: str | bytes | int) -> Any:
    """One command as it is written; the answer in the shape that the client gives it."""
    run = cast(Callable[..., Awaitable[Any]], connection.execute_command)
    return await run(*words)
