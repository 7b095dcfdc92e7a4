"""Redis clients of the harness: no retries, no handshake beyond what the topology grants.

The client library's own defaults are wrong here: it repeats an `XADD` whose answer was lost, and
greets the server with commands that a source identity may not use.
"""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

ANSWER_TIMEOUT_S = 5.0


def _options(kind: type, username: str, password: str, protocol: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "username": username,
        "password": password,
        "protocol": protocol,
        "socket_timeout": ANSWER_TIMEOUT_S,
        "socket_connect_timeout": ANSWER_TIMEOUT_S,
    }
    if "driver_info" in inspect.signature(kind.__init__).parameters:  # type: ignore[misc]
        options["driver_info"] = None
    else:
        options |= {"lib_name": None, "lib_version": None}
    return options


def blocking_client(
    socket: Path, username: str, password: str, *, protocol: int = 3
) -> "redis.Redis":
    """A client for fixtures and tests that have no event loop."""
    options = _options(redis.Redis, username, password, protocol)
    return redis.Redis(unix_socket_path=str(socket), retry=Retry(NoBackoff(), 0), **options)


def client(
    socket: Path, username: str, password: str, *, protocol: int = 3
) -> "redis.asyncio.Redis":
    """A client of one connection; close it with `aclose()`."""
    options = _options(redis.asyncio.Redis, username, password, protocol)
    return redis.asyncio.Redis(
        unix_socket_path=str(socket),
        retry=AsyncRetry(NoBackoff(), 0),
        single_connection_client=True,
        **options,
    )


async def command(connection: "redis.asyncio.Redis", *words: str | bytes | int) -> Any:
    """One command as it is written; the answer in the shape that the client gives it."""
    run = cast(Callable[..., Awaitable[Any]], connection.execute_command)
    return await run(*words)
