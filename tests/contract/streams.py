"""The Redis of one private deployment: what a test sends, breaks and looks at there."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import redis
import redis.asyncio

from corral.local.client import client, command
from corral.local.deployment import Deployment
from corral.local.servers import Login

AGENT = "scout"
GHOST = "ghost"  # a consumer of the group that is nobody any more

Words = str | bytes | int


@dataclass(frozen=True)
class Backend:
    """A kind of server and the protocol that the daemon speaks with it."""

    server: str
    protocol: int

    def __str__(self) -> str:
        return f"{self.server}-resp{self.protocol}"


# Each server and each protocol once; the other two pairs where shapes or ACLs matter.
PAIRS = (Backend("redis", 2), Backend("valkey", 3))
EVERY = (*PAIRS, Backend("redis", 3), Backend("valkey", 2))


@dataclass(frozen=True)
class Answer:
    """An outbox entry. `fields` has all of it."""

    outbox_id: str
    in_reply_to: str
    outcome: str
    slot: str
    content: bytes
    turn_id: str
    fields: Mapping[bytes, bytes] = field(repr=False)

    @classmethod
    def of(cls, outbox_id: bytes, fields: Mapping[bytes, bytes]) -> Self:
        def text(name: bytes) -> str:
            return fields.get(name, b"").decode()

        return cls(
            outbox_id.decode(),
            text(b"in_reply_to"),
            text(b"outcome"),
            text(b"slot"),
            fields.get(b"content", b""),
            text(b"turn_id"),
            fields,
        )


class Streams:
    """Commands as the test-only admin, and as the identities of the topology."""

    def __init__(self, deployment: Deployment, backend: Backend) -> None:
        self.deployment = deployment
        self.backend = backend
        self.topology = deployment.topology
        self._clients: dict[str, redis.asyncio.Redis] = {}

    async def close(self) -> None:
        for connection in self._clients.values():
            with suppress(redis.RedisError, OSError):
                await connection.aclose()

    async def admin(self, *words: Words) -> Any:
        """One command as the test-only admin."""
        return await self.deployment.ask(*(str(w) if isinstance(w, int) else w for w in words))

    def client(self, login: Login, *, socket: Path | None = None) -> "redis.asyncio.Redis":
        return client(
            socket or self.topology.redis_socket,
            login.username,
            login.password,
            protocol=self.backend.protocol,
        )

    async def as_identity(self, identity: str, *words: Words) -> Any:
        """One command as an identity of the topology."""
        if identity not in self._clients:
            self._clients[identity] = self.client(self.topology.login(identity))
        return await command(self._clients[identity], *words)

    async def send(
        self, source: str, content: str | bytes | None = None, **fields: str | bytes
    ) -> str:
        """Adds an entry as its source would; the entry id."""
        words: list[Words] = [] if content is None else ["content", content]
        for name, value in fields.items():
            words += (name, value)
        inbox = f"{AGENT}:{source}:inbox"
        added = await self.as_identity(f"source.{AGENT}.{source}", "XADD", inbox, "*", *words)
        return bytes(added).decode()

    async def outbox(self, source: str) -> list[Answer]:
        rows = await self.admin("XRANGE", f"{AGENT}:{source}:outbox", "-", "+")
        return [Answer.of(*row) for row in rows]

    async def by_entry(self, source: str) -> dict[str, list[Answer]]:
        found: dict[str, list[Answer]] = {}
        for answer in await self.outbox(source):
            found.setdefault(answer.in_reply_to, []).append(answer)
        return found

    async def dead(self, source: str) -> list[dict[bytes, bytes]]:
        rows = await self.admin("XRANGE", f"{AGENT}:{source}:inbox:dead", "-", "+")
        return [fields for _, fields in rows]

    async def pending(self, source: str) -> int:
        return (await self.deployment.state_of(source))[0]

    async def deliveries(self, source: str) -> list[int]:
        """How often each pending entry was delivered."""
        admin = await self.deployment.admin()
        rows = await admin.xpending_range(f"{AGENT}:{source}:inbox", "cowboy", "-", "+", 100)
        return [int(row["times_delivered"]) for row in rows]

    async def make_pending(self, source: str, entries: int, consumer: str = GHOST) -> list[str]:
        """Adds entries and reads them as a consumer that then forgets them; their ids."""
        inbox = f"{AGENT}:{source}:inbox"
        with suppress(redis.ResponseError):
            await self.admin("XGROUP", "CREATE", inbox, "cowboy", "0", "MKSTREAM")
        ids = [await self.send(source, f"pending {n}", channel=f"p{n}") for n in range(entries)]
        await self.admin(
            "XREADGROUP", "GROUP", "cowboy", consumer, "COUNT", entries, "STREAMS", inbox, ">"
        )
        return ids

    async def claim_for(
        self, consumer: str, source: str, entries: Sequence[str], *, idle_ms: int
    ) -> None:
        """Makes pending entries be a consumer's, idle for so long."""
        inbox = f"{AGENT}:{source}:inbox"
        await self.admin("XCLAIM", inbox, "cowboy", consumer, 0, *entries, "IDLE", idle_ms)

    async def has_group(self, source: str) -> bool:
        groups = await self.admin("XINFO", "GROUPS", f"{AGENT}:{source}:inbox")
        return bool(groups)

    async def denials(self) -> list[dict[str, str]]:
        """`ACL LOG`: what was refused to whom, and how often."""
        return [
            {_text(key): _text(value) for key, value in entry.items()}
            for entry in await self.admin("ACL", "LOG")
        ]

    async def blocked_clients(self) -> int:
        """Connections that wait in a blocking read."""
        return int((await self.admin("INFO", "clients"))["blocked_clients"])

    async def calls(self, name: str) -> int:
        """How often the server has run a command, refused calls included."""
        facts = await self.admin("INFO", "commandstats")
        found = facts.get(f"cmdstat_{name}", {})
        return int(found.get("calls", 0)) + int(found.get("rejected_calls", 0))

    async def errors(self, code: str) -> int:
        """How often the server has answered an error code since its start."""
        facts = await self.admin("INFO", "errorstats")
        return int(facts.get(f"errorstat_{code}", {}).get("count", 0))


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def only_answer(found: Mapping[str, list[Answer]], entry: str) -> Answer:
    """The answer to an entry that has exactly one."""
    answers = found.get(entry, [])
    assert len(answers) == 1, f"{entry}: {answers}"
    return answers[0]


def each_completed(found: Mapping[str, list[Answer]], entries: Iterable[str]) -> None:
    """Whether each entry has one answer, and that is the agent's."""
    for entry in entries:
        answer = only_answer(found, entry)
        assert (answer.outcome, answer.slot) == ("completed", "reply"), entry
