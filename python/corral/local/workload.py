"""Senders and outbox readers: clients that record what they sent and what they saw.

A sender never leaves a retry to the client library. When the answer to an `XADD` is lost it cannot
know whether the entry exists: it sends again under the same `message_id` and records that it did.
A reader keeps every outbox entry before it acknowledges it, so nothing it saw is forgotten.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import redis
import redis.asyncio

from corral.local import wait
from corral.local.client import Address, client, command
from corral.local.evidence import Binding, Seen, Sent, sha, text
from corral.local.plan import Planned
from corral.local.servers import Login
from corral.local.supervisor import wall_ms

READ_BLOCK_MS = 250
READ_COUNT = 50
RETRY_S = 0.03
READER_GROUP = "source"
SHOWN_MAX_CHARS = 120

LOST = (redis.ConnectionError, redis.TimeoutError, OSError)


class Place(Protocol):
    """Where a Redis is, and who the senders are to it."""

    @property
    def redis_socket(self) -> Address: ...

    def source_login(self, agent: str, source: str) -> Login: ...


@dataclass
class Board:
    """What is known so far, shared by senders, readers and the supervisor."""

    sent: list[Sent] = field(default_factory=list)
    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)  # source, outbox id
    answered: set[tuple[str, str]] = field(default_factory=set)  # source, inbox entry id
    waiting: dict[tuple[str, str], Sent] = field(default_factory=dict)
    refused: int = 0  # sends that a full Redis turned away, and that were tried again

    def note_trying(self, sent: Sent) -> None:
        """Called before each send, for whoever may lose its memory before `note_sent`."""

    def note_sent(self, sent: Sent) -> None:
        self.sent.append(sent)
        at = (sent.source, sent.entry_id)
        # A repeated send may be the duplicate of one that arrived: it is no promise of an answer.
        promised = sent.label not in {"empty", "duplicate"} and not sent.lost_answers
        if promised and at not in self.answered:
            self.waiting[at] = sent

    def note_seen(self, seen: Seen) -> bool:
        """Records an outbox entry; False when it was known already."""
        key = (seen.source, seen.outbox_id)
        if key in self.seen:
            return False
        self.seen[key] = seen
        self.answered.add((seen.source, seen.in_reply_to))
        self.waiting.pop((seen.source, seen.in_reply_to), None)
        return True

    def expect_again(self, held: Seen) -> None:
        """An operator decides about a held turn: its sender will hear of it once more."""
        later = any(
            seen.turn_id == held.turn_id and seen.added_ms >= held.added_ms and seen is not held
            for seen in self.seen.values()
        )
        for sent in self.sent:
            if not later and (sent.source, sent.entry_id) == (held.source, held.in_reply_to):
                self.waiting[sent.source, sent.entry_id] = sent

    def held(self, source: str) -> int:
        """Turns of a source whose sender knows that they are held, and nothing newer."""
        last = {
            seen.in_reply_to: seen.outcome
            for (of, _), seen in sorted(self.seen.items(), key=lambda item: item[1].added_ms)
            if of == source
        }
        return sum(outcome == "held" for outcome in last.values())

    def in_flight(self) -> int:
        """Acknowledged messages that wait for their answer."""
        return len(self.waiting)


class Sender:
    """Sends a plan's messages of one sender through one source, in order."""

    def __init__(
        self,
        place: Place,
        agent: str,
        source: str,
        board: Board,
        *,
        protocol: int = 3,
        down: Callable[[], bool] = lambda: False,
    ) -> None:
        self.agent = agent
        self.source = source
        self.board = board
        self.down = down
        self.inbox = f"{agent}:{source}:inbox"
        login = place.source_login(agent, source)
        self._client = client(place.redis_socket, login.username, login.password, protocol=protocol)

    async def run(self, planned: Sequence[Planned], start_s: float) -> None:
        """Sends each message at its time (or as soon as it can after an outage)."""
        try:
            for item in planned:
                await wait.at(start_s + item.at_s)
                await self.send(item)
        finally:
            await self.close()

    async def close(self) -> None:
        with suppress(*LOST):
            await self._client.aclose()

    async def send(self, item: Planned) -> Sent:
        """Sends one message until its `XADD` is answered."""
        fields = dict(item.fields)
        if item.target is not None:
            fields[b"cancels"] = self._target(item.target)
        cancels = fields.get(b"cancels", b"")
        trying = Sent(
            key=item.key,
            source=self.source,
            entry_id="",
            label=item.label,
            binding=item.binding,
            said=item.said(cancels),
            content=sha(fields.get(b"content", b"")),
            at_ms=wall_ms(),
            action=item.action,
            cancels=text(cancels) or None,
        )
        self.board.note_trying(trying)
        entry_id, lost = await self._until_added(fields)
        sent = replace(
            trying,
            entry_id=entry_id,
            at_ms=wall_ms(),
            lost_answers=lost,
            while_down=self.down(),
        )
        self.board.note_sent(sent)
        return sent

    async def _until_added(self, fields: dict[bytes, bytes]) -> tuple[str, int]:
        """The entry's id, and how many answers to earlier tries were lost."""
        lost = 0
        while True:
            try:
                await self._client.ping()  # what cannot connect has sent nothing
            except LOST:
                await wait.at(time.monotonic() + RETRY_S)
                continue
            try:
                return await self._add(fields), lost
            except LOST:
                lost += 1
            except redis.ResponseError:  # full, or loading: refused, nothing was added
                self.board.refused += 1
                await wait.at(time.monotonic() + RETRY_S)

    async def _add(self, fields: dict[bytes, bytes]) -> str:
        arguments: list[bytes] = [part for pair in fields.items() for part in pair]
        answer: Any = await command(self._client, "XADD", self.inbox, "*", *arguments)
        return bytes(answer).decode("ascii")

    def _target(self, key: int) -> bytes:
        for sent in self.board.sent:
            if sent.key == key:
                by_entry = key % 2 == 0 or not sent.binding.message_id
                return (sent.entry_id if by_entry else sent.binding.message_id or "").encode()
        return b"not-sent-yet"


class Reader:
    """Reads one source's outbox in its own group, records every entry, then acknowledges it."""

    def __init__(
        self,
        place: Place,
        agent: str,
        source: str,
        board: Board,
        *,
        protocol: int = 3,
        trim: bool = False,
        on_seen: Callable[[Seen], None] = lambda _: None,
    ) -> None:
        self.source = source
        self.board = board
        self.outbox = f"{agent}:{source}:outbox"
        self.trim = trim
        self.on_seen = on_seen
        login = place.source_login(agent, source)
        self._stopped = False
        self._client = client(place.redis_socket, login.username, login.password, protocol=protocol)

    def stop(self) -> None:
        """Has `run` return soon, whatever becomes of a cancellation."""
        self._stopped = True

    async def run(self) -> None:
        """Reads until stopped; a lost connection begins again with what was not acknowledged."""
        try:
            while not self._stopped:
                try:
                    await self._create_group()
                    await self._follow()
                except (*LOST, redis.ResponseError):
                    with suppress(*LOST):
                        await self._client.aclose()
                    await wait.at(time.monotonic() + RETRY_S)
        finally:
            with suppress(*LOST):
                await self._client.aclose()

    async def _create_group(self) -> None:
        try:
            await command(
                self._client, "XGROUP", "CREATE", self.outbox, READER_GROUP, "0", "MKSTREAM"
            )
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def _follow(self) -> None:
        position = "0"
        while not self._stopped:
            entries = await self._read(position)
            if not entries:
                position = ">"
                continue
            for outbox_id, fields in entries:
                if fields:
                    self._take(outbox_id, fields)
            last = entries[-1][0]
            await command(
                self._client, "XACK", self.outbox, READER_GROUP, *[entry[0] for entry in entries]
            )
            if self.trim:
                ms, _, seq = last.partition("-")
                await command(self._client, "XTRIM", self.outbox, "MINID", f"{ms}-{int(seq) + 1}")
            if position != ">":
                position = last

    async def _read(self, position: str) -> list[tuple[str, dict[bytes, bytes]]]:
        arguments = ["GROUP", READER_GROUP, "reader", "COUNT", str(READ_COUNT)]
        if position == ">":
            arguments += ["BLOCK", str(READ_BLOCK_MS)]
        answer: Any = await command(
            self._client, "XREADGROUP", *arguments, "STREAMS", self.outbox, position
        )
        return entries_of(answer)

    def _take(self, outbox_id: str, fields: dict[bytes, bytes]) -> None:
        content = fields.get(b"content", b"")
        names = (b"sender", b"channel", b"thread", b"message_id", b"traceparent")
        seen = Seen(
            source=self.source,
            outbox_id=outbox_id,
            in_reply_to=text(fields.get(b"in_reply_to")) or "",
            turn_id=text(fields.get(b"turn_id")) or "",
            outcome=text(fields.get(b"outcome")) or "",
            slot=text(fields.get(b"slot")) or "",
            content=(text(content) or "")[:SHOWN_MAX_CHARS],
            content_sha=sha(content),
            binding=Binding(*(text(fields.get(name)) for name in names)),
            seen_at_ms=wall_ms(),
        )
        if self.board.note_seen(seen):
            self.on_seen(seen)


def entries_of(answer: Any) -> list[tuple[str, dict[bytes, bytes]]]:
    """The entries of an `XREADGROUP` of one stream, in the reply shape of either protocol."""
    if not answer:
        return []
    rows = next(iter(answer.values())) if isinstance(answer, dict) else answer[0][1]
    wrapped = rows and isinstance(rows[0], list) and not (rows[0] and isinstance(rows[0][0], bytes))
    if isinstance(answer, dict) and wrapped:
        rows = rows[0]  # the client wraps RESP3's list of entries once more
    found: list[tuple[str, dict[bytes, bytes]]] = []
    for entry_id, fields in rows:
        pairs = fields or {}
        if isinstance(pairs, list):
            pairs = dict(zip(pairs[::2], pairs[1::2], strict=True))
        found.append((bytes(entry_id).decode("ascii"), pairs))
    return found


async def send_all(
    senders: Callable[[str], Sender], planned: Sequence[Planned], start_s: float
) -> None:
    """Runs one task per sender and source; each sends its part of the plan in order."""
    parts: dict[tuple[str, bytes], list[Planned]] = defaultdict(list)
    for item in planned:
        parts[item.source, item.fields.get(b"sender", b"")].append(item)
    async with asyncio.TaskGroup() as group:
        for (source, _), part in parts.items():
            group.create_task(senders(source).run(part, start_s))
