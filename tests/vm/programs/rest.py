"""What Redis still holds of an agent's sources, as the operator's identity sees it."""

from dataclasses import dataclass
from typing import Any

import redis

from corral.local.client import client, command
from tests.vm.programs.place import Host

READ_MAX = 100


@dataclass(frozen=True)
class Left:
    pending: int
    undelivered: int
    markers: int

    @property
    def nothing(self) -> bool:
        return not (self.pending or self.undelivered or self.markers)


async def left(agent: str, source: str) -> Left:
    """Pending and unread entries of an inbox, markers of its outbox. Raises redis errors."""
    host = Host()
    login = host.login("operator")
    connection = client(host.redis_socket, login.username, login.password)
    inbox = f"{agent}:{source}:inbox"
    try:
        markers = int(await command(connection, "HLEN", f"{agent}:{source}:replies"))
        group = await _group(connection, inbox)
        if group is None:
            return Left(0, int(await command(connection, "XLEN", inbox)), markers)
        after = b"(" + group["last-delivered-id"]
        unread = await command(connection, "XRANGE", inbox, after, "+", "COUNT", READ_MAX)
        return Left(int(group["pending"]), len(unread), markers)
    finally:
        await connection.aclose()


async def _group(connection: "redis.asyncio.Redis", inbox: str) -> dict[str, Any] | None:
    try:
        groups: Any = await command(connection, "XINFO", "GROUPS", inbox)
    except redis.ResponseError:  # no such key: nothing was ever sent
        return None
    if not groups:
        return None
    first = groups[0]
    pairs = first if isinstance(first, dict) else dict(zip(first[::2], first[1::2], strict=True))
    return {key.decode() if isinstance(key, bytes) else key: value for key, value in pairs.items()}
