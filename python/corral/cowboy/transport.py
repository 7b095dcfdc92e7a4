"""What cowboy says to Redis for one source, and how it reads the answers.

Two connections per source: one that may block (in `XREAD`, which takes nothing), one for everything
else. Both use the fence that the second took when it attached; the scripts refuse an older one, so
the delayed bytes of a dead connection take and add nothing.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain
from typing import Any, Protocol

from corral.cowboy.config import SourceConfig
from corral.cowboy.domain import Entry, pack_id, unpack_id
from corral.cowboy.redisconn import NotNow, RedisFault, Reply, ScriptGone, Wire, fault_of

CLAIM_COUNT = 10
DRAIN_COUNT = 100
SETTLE_MAX = 256  # turns in one settle script: Lua's unpack and a fair share of the server
_LUA = files("corral.cowboy.lua")
SCRIPTS = {
    name: (_LUA / f"{name}.lua").read_text() for name in ("attach", "claim", "poll", "settle")
}


@dataclass(frozen=True, slots=True)
class Attachment:
    """What the source's keys said when this connection attached."""

    fence: bytes
    uuid: str
    sequence: int
    incarnation: int
    stream_was_gone: bool


@dataclass(slots=True)
class Effect:
    """One entry to add: an outbox entry (`dead` false) or a dead letter, once per `field`."""

    field: str
    dead: bool
    own_ack: bytes  # entry id to acknowledge in the same script, or empty
    strings: list[bytes | str]


@dataclass(slots=True)
class Settlement:
    """One script call: what is acknowledged, added and cleaned up."""

    sequence: int
    acks: list[bytes] = field(default_factory=list)
    markers: list[str] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer: counts and ids, or the fault that stands in their place."""

    acked: int | RedisFault
    effects: list[tuple[bytes | RedisFault, int | RedisFault | None]]

    def later(self) -> NotNow | None:
        """The first part that Redis could not serve at present; None when there is none."""
        for part in (self.acked, *chain.from_iterable(self.effects)):
            if isinstance(part, NotNow):
                return part
        return None


class Fenced(RedisFault):
    """A newer connection has taken over this source."""

    code = "redis_fenced"


class LedgerGone(RedisFault):
    """The source's ledger key is gone or names another ledger."""

    code = "redis_ledger_gone"


def entries_of(reply: Reply) -> list[Entry]:
    """Entries of an `XREADGROUP` of one stream: a RESP3 map, a RESP2 list of pairs, or nil."""
    if not reply:
        return []
    entries = next(iter(reply.values())) if isinstance(reply, Mapping) else reply[0][1]
    return flat_entries(entries)


def flat_entries(reply: Sequence[Any]) -> list[Entry]:
    """Entries from `[[id, [field, value, …] or nil], …]`."""
    found: list[Entry] = []
    for item in reply:
        pairs = item[1]
        if pairs is None:
            found.append(Entry(pack_id(item[0]), None))
        else:
            found.append(Entry(pack_id(item[0]), dict(zip(pairs[::2], pairs[1::2], strict=True))))
    return found


@dataclass(frozen=True, slots=True)
class Claimed:
    """An answer of `XAUTOCLAIM`: where to go on, entries, ids whose entries were deleted."""

    cursor: bytes
    entries: list[Entry]
    deleted: list[bytes]


def claimed_of(reply: Reply) -> Claimed:
    """Redis 7 answers three elements; 6.2 answered two and gave nil for deleted entries."""
    entries = [item for item in reply[1] if item is not None]
    deleted = reply[2] if len(reply) > 2 else []
    return Claimed(reply[0], flat_entries(entries), [pack_id(item) for item in deleted])


class Connector(Protocol):
    """Makes a connection whose reads time out after so many seconds."""

    def __call__(self, timeout_s: float) -> Wire: ...


class Reader:
    """The connection that reads the inbox; it may block."""

    def __init__(self, wire: Wire, config: SourceConfig, fence: bytes) -> None:
        self._wire = wire
        self._config = config
        self._fence = fence
        self._sha = b""
        self.cursor = b"0-0"

    async def pending(self, after: bytes) -> list[Entry]:
        """A page of the own pending list after this packed id."""
        config = self._config
        reply = await self._wire.call(
            "XREADGROUP", "GROUP", config.group, config.consumer, "COUNT", DRAIN_COUNT,
            "STREAMS", config.stream, unpack_id(after),
        )  # fmt: skip
        return entries_of(reply)

    async def poll(self, count: int, *, claim: bool = True) -> tuple[Claimed, list[Entry]]:
        """Reclaim, then read up to `count` new entries. The cursor moves only with an answer."""
        config = self._config
        args = (self._fence, config.group, config.consumer, config.reclaim_idle_ms, self.cursor,
                CLAIM_COUNT if claim else 0, count)  # fmt: skip
        if not self._sha:
            self._sha = await self._wire.call("SCRIPT", "LOAD", SCRIPTS["poll"])
        try:
            reply = await self._wire.call(
                "EVALSHA", self._sha, 2, config.fence_key, config.stream, *args
            )
        except ScriptGone:
            self._sha = b""
            return await self.poll(count, claim=claim)
        if reply[0] == b"fenced":
            raise Fenced("another connection has taken over this source")
        if reply[0] == b"gone":
            raise LedgerGone("the source's keys are gone: Redis was emptied")
        claimed = claimed_of(reply[1:4])
        self.cursor = claimed.cursor
        return claimed, flat_entries(reply[4])

    async def wait(self, after: bytes | None) -> bool:
        """Block until an entry above this packed id exists (None: until one is added).

        False when `block_ms` passed without one. Takes nothing: only `poll` does.
        """
        config = self._config
        start = b"$" if after is None else unpack_id(after)
        reply = await self._wire.call(
            "XREAD", "COUNT", 1, "BLOCK", config.block_ms, "STREAMS", config.stream, start
        )
        return bool(reply)

    async def first_after(self, after: bytes) -> bytes | None:
        """The packed id of the first entry above this one, whoever was offered it."""
        start = "(" + unpack_id(after).decode()
        reply = await self._wire.call("XRANGE", self._config.stream, start, "+", "COUNT", 1)
        return pack_id(reply[0][0]) if reply else None


class Settler:
    """The connection that attaches, settles, fetches and trims."""

    def __init__(self, wire: Wire, config: SourceConfig) -> None:
        self._wire = wire
        self._config = config
        self._shas: dict[str, bytes] = {}
        self._fence = b""

    async def attach(self, uuid: str, sequence: int, *, take_over: bool) -> Attachment:
        """Load the scripts, read the ledger key, take a fence, make sure of the group.

        The fence is empty, and nothing was changed, when the source belongs to another ledger or
        to a newer copy of this one; unless it is taken over.
        """
        config = self._config
        names = ("attach", "claim", "settle")
        loads = [("SCRIPT", "LOAD", SCRIPTS[name]) for name in names]
        for name, reply in zip(names, await self._wire.pipeline(loads), strict=True):
            if isinstance(reply, RedisFault):
                raise reply
            self._shas[name] = reply
        begin = time.time_ns() // 1000
        keys = (config.fence_key, config.ledger_key)
        reply = await self._script("attach", keys, begin, uuid, sequence, int(take_over))
        self._fence = reply[0]
        owner, seen, incarnation = (part.decode() for part in reply[1:4])
        gone = await self._ensure_group() if self._fence else False
        return Attachment(self._fence, owner, int(seen or 0), int(incarnation or 0), gone)

    async def _ensure_group(self) -> bool:
        """The group exists afterwards, from the stream's beginning; whether the stream did not."""
        create = ("XGROUP", "CREATE", self._config.stream, self._config.group, "0")
        (reply,) = await self._wire.pipeline([create])
        if not isinstance(reply, RedisFault) or "BUSYGROUP" in str(reply):
            return False
        if "requires the key to exist" not in str(reply):
            raise reply
        (reply,) = await self._wire.pipeline([(*create, "MKSTREAM")])
        if isinstance(reply, RedisFault) and "BUSYGROUP" not in str(reply):
            raise reply
        return True

    async def claim_ledger(self, expected: str, uuid: str, sequence: int, incarnation: int) -> None:
        """Write whose ledger this is; `LedgerGone` when the former owner is not the expected."""
        keys = (self._config.fence_key, self._config.ledger_key)
        args = (self._fence, expected, uuid, sequence, incarnation)
        answer = await self._script("claim", keys, *args)
        if answer == b"fenced":
            raise Fenced("another connection has taken over this source")
        if answer != b"ok":
            raise LedgerGone("the ledger key changed meanwhile")

    async def settle(self, uuid: str, work: Settlement) -> Settled:
        """Send one settlement. Raises `Fenced`, `LedgerGone` or another `RedisFault`."""
        config = self._config
        keys = (config.fence_key, config.ledger_key, config.stream, config.replies_key,
                config.outbox, config.dead_stream)  # fmt: skip
        args: list[Any] = [self._fence, uuid, work.sequence, config.group]
        args += [len(work.acks), *work.acks, len(work.markers), *work.markers]
        args += [len(work.effects), *[effect.field for effect in work.effects]]
        for effect in work.effects:
            args += ("d" if effect.dead else "o", effect.own_ack, len(effect.strings))
            args += effect.strings
        reply = await self._script("settle", keys, *args)
        if reply[0] == b"fenced":
            raise Fenced("another connection has taken over this source")
        if reply[0] == b"ledger":
            raise LedgerGone("the ledger key is gone or names another ledger")
        effects = [
            (_id(added), None if own == b"" else _count(own))
            for added, own in zip(reply[2::2], reply[3::2], strict=True)
        ]
        return Settled(_count(reply[1]), effects)

    async def markers(self) -> list[str]:
        """Fields of the replies hash: effects in flight, or left by a crash after their commit."""
        reply = await self._wire.call("HKEYS", self._config.replies_key)
        return [item.decode(errors="replace") for item in reply]

    async def fetch(self, entries: Sequence[bytes]) -> dict[bytes, bytes | None]:
        """The contents of entries by id; None for one that is gone or has none."""
        ids = [unpack_id(entry) for entry in entries]
        commands = [("XRANGE", self._config.stream, item, item) for item in ids]
        contents: dict[bytes, bytes | None] = {}
        for entry, reply in zip(entries, await self._wire.pipeline(commands), strict=True):
            if isinstance(reply, RedisFault):
                raise reply
            found = flat_entries(reply or [])
            fields = found[0].fields if found else None
            contents[entry] = fields.get(b"content") if fields else None
        return contents

    async def trim(self, keep_from: bytes) -> int:
        """Drop inbox entries below this packed id; how many went."""
        return int(
            await self._wire.call("XTRIM", self._config.stream, "MINID", unpack_id(keep_from))
        )

    async def _script(self, name: str, keys: Sequence[str], *args: Any) -> Reply:
        try:
            return await self._wire.call("EVALSHA", self._shas[name], len(keys), *keys, *args)
        except ScriptGone:
            self._shas[name] = await self._wire.call("SCRIPT", "LOAD", SCRIPTS[name])
            return await self._wire.call("EVALSHA", self._shas[name], len(keys), *keys, *args)


def _id(item: Reply) -> bytes | RedisFault:
    text: bytes = item
    return fault_of(text[1:].decode(errors="replace")) if text[:1] == b"!" else text


def _count(item: Reply) -> int | RedisFault:
    """`XACK` must answer an integer: anything else is not an acknowledgement."""
    if isinstance(item, int):
        return item
    if isinstance(item, bytes) and item[:1] == b"!":
        return fault_of(item[1:].decode(errors="replace"))
    return fault_of(f"XACK answered {type(item).__name__}, not a count")
