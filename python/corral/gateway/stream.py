"""The way to an agent and back: its inbox and outbox, under the identity of their source.

A message is added by a script with a marker, so an addition whose answer was lost is simply made
again: while its commit is not recorded here, the marker keeps the script from adding it twice,
however long that takes. Each connection takes a fence, and the script refuses an older one: late
bytes of a dead connection add nothing. Markers go once their entries are recorded, those that a
kill left behind at the next start.

An answer is acknowledged after its commit, and read again when that was not recorded; it counts
once. Neither leg gives up: after a fault it pauses and goes on, and nothing is lost meanwhile.
"""

import asyncio
import importlib.resources
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from redis.exceptions import NoScriptError, RedisError, ResponseError

from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.clock import wall_ms
from corral.core.crashpoints import crashpoint
from corral.core.errors import CorralError, UnavailableError
from corral.gateway import domain, points
from corral.gateway.domain import Answer, Delivery
from corral.gateway.redislink import Stream, ask, connect, obey
from corral.gateway.service import Gateway

if TYPE_CHECKING:
    import redis.asyncio

GROUP: Final = "source"
CONSUMER: Final = "gateway"
BATCH: Final = 64
BLOCK_MS: Final = 5_000  # less than the time that an answer may take
LEGS: Final = ("publish", "read")

_log = logs.get(__name__)


class FencedError(UnavailableError):
    """A newer connection of the same source adds entries: this one may not any more."""

    code = "fenced"


def _script(name: str) -> str:
    return importlib.resources.files("corral.gateway").joinpath("lua", f"{name}.lua").read_text()


ADD: Final = _script("add")
FENCE: Final = _script("fence")


class Carrier:
    """Both legs of one agent; `run` until cancelled. `trouble` has the fault of each leg."""

    def __init__(self, gateway: Gateway, stream: Stream) -> None:
        self._gateway = gateway
        self._stream = stream
        self.trouble: dict[str, str] = dict.fromkeys(LEGS, "not_connected")

    @property
    def agent(self) -> str:
        return self._stream.agent

    async def run(self) -> NoReturn:
        """Raises cancellation, and what nobody foresaw."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forever("publish", self._publish))
            group.create_task(self._forever("read", self._read))
        raise AssertionError("neither leg ends")

    async def _forever(
        self, leg: str, work: Callable[["redis.asyncio.Redis"], Awaitable[NoReturn]]
    ) -> NoReturn:
        backoff = Backoff(0.1, 10.0)
        while True:
            obey()
            client: redis.asyncio.Redis | None = None
            try:
                client = await self._connect()
                obey()
                backoff.reset()
                await work(client)
            except (RedisError, OSError, CorralError) as error:
                pause_s = backoff.next_s()
                self.trouble[leg] = getattr(error, "code", type(error).__name__)
                _log.warning(
                    "a leg pauses", leg=leg, agent=self._stream.agent,
                    kind=type(error).__name__, pause_s=round(pause_s, 2),
                )  # fmt: skip
                await asyncio.sleep(pause_s)
            finally:
                if client is not None:
                    await client.aclose()

    async def _connect(self) -> "redis.asyncio.Redis":
        return await connect(self._stream)

    # ---- there ---------------------------------------------------------------------------

    async def _publish(self, client: "redis.asyncio.Redis") -> NoReturn:
        agent = self._stream.agent
        inbox = Inbox(client, self._stream)
        await inbox.attach(await self._gateway.unrecorded(agent))
        while True:
            while taken := await self._gateway.take(agent, BATCH):
                for one in taken:
                    await inbox.add(one)
                    self.trouble["publish"] = ""
                    crashpoint(points.ADDED)
                    await self._gateway.published(one)
                    inbox.recorded(one.entry_key)
            await inbox.tidy()
            self.trouble["publish"] = ""
            await self._gateway.work(agent)

    # ---- and back ------------------------------------------------------------------------

    async def _read(self, client: "redis.asyncio.Redis") -> NoReturn:
        await self._make_group(client)
        start = "0"  # first what was read before and not acknowledged
        while True:
            entries = await self._entries(client, start)
            self.trouble["read"] = ""
            if not entries:
                start = ">"
                continue
            for outbox_id, fields in entries:
                crashpoint(points.READ)
                answer = answer_of(self._stream.agent, outbox_id, fields)
                if answer is not None:
                    await self._gateway.answered(answer)
            ids = [outbox_id for outbox_id, _ in entries]
            await ask(client, "XACK", self._stream.outbox, GROUP, *ids)
            await ask(client, "XTRIM", self._stream.outbox, "MINID", "=", ids[-1])

    async def _entries(
        self, client: "redis.asyncio.Redis", start: str
    ) -> list[tuple[bytes, Mapping[bytes, bytes]]]:
        words = ("GROUP", GROUP, CONSUMER, "COUNT", BATCH, "BLOCK", BLOCK_MS)
        try:
            reply = await ask(client, "XREADGROUP", *words, "STREAMS", self._stream.outbox, start)
        except ResponseError as error:
            if not str(error).startswith("NOGROUP"):
                raise
            await self._make_group(client)
            return []
        streams = reply.values() if isinstance(reply, dict) else [one for _, one in reply or ()]
        return [
            (outbox_id, fields or {})  # an entry that was deleted has no fields
            for found in streams
            for outbox_id, fields in _flat(found)
        ]

    async def _make_group(self, client: "redis.asyncio.Redis") -> None:
        try:
            await ask(client, "XGROUP CREATE", self._stream.outbox, GROUP, "0", "MKSTREAM")
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise


class Inbox:
    """Adds entries, each once, over one connection."""

    def __init__(self, client: "redis.asyncio.Redis", stream: Stream) -> None:
        self._client = client
        self._stream = stream
        self._fence: bytes = b""
        self._add = ""
        self._recorded: list[str] = []

    async def attach(self, unrecorded: frozenset[str]) -> None:
        """Cuts off older connections; removes markers of what is recorded, or is nobody's."""
        sent = self._stream.sent
        self._add = _text(await ask(self._client, "SCRIPT LOAD", ADD))
        fence = _text(await ask(self._client, "SCRIPT LOAD", FENCE))
        self._fence = await ask(self._client, "EVALSHA", fence, 1, sent, wall_ms())
        markers = {_text(field) for field in await ask(self._client, "HKEYS", sent)}
        stale = sorted(markers - unrecorded - {"fence"})
        for first in range(0, len(stale), BATCH):
            await ask(self._client, "HDEL", sent, *stale[first : first + BATCH])

    async def add(self, one: Delivery) -> str:
        """The id of its entry, which is there once; "" for the message of a task that ended before
        it was added: it is not added any more. `FencedError`."""
        gone = self._recorded[:BATCH]
        over = one.kind == "message" and one.task.state in domain.ENDED
        verb = "look" if over else "add"
        words: list[str | bytes | int] = [self._fence, verb, len(gone), *gone, one.entry_key]
        words += fields_of(one)
        try:
            reply = await ask(
                self._client, "EVALSHA", self._add, 2, self._stream.inbox, self._stream.sent, *words
            )
        except NoScriptError as error:
            raise UnavailableError("Redis has forgotten the script; it is loaded again") from error
        if reply[0] == b"fenced":
            raise FencedError(
                "another connection adds entries for this source",
                hint="does a second gateway, or another program, use the same identity?",
                ids={"agent": self._stream.agent},
            )
        del self._recorded[: len(gone)]
        return _text(reply[1])

    def recorded(self, marker: str) -> None:
        """Its entry is recorded: the marker goes with the next call."""
        self._recorded.append(marker)

    async def tidy(self) -> None:
        """Removes what `recorded` has left, when there is nothing to add."""
        while gone := self._recorded[:BATCH]:
            await ask(self._client, "HDEL", self._stream.sent, *gone)
            del self._recorded[: len(gone)]


def fields_of(delivery: Delivery) -> list[str]:
    """The fields of an inbox entry and their values, in turn. Pure."""
    task = delivery.task
    fields = {
        "message_id": delivery.entry_key,
        "channel": task.context_id,
        "thread": task.task_id,
    }
    if delivery.kind == "cancel":
        fields |= {"kind": "cancel", "cancels": delivery.message_key}
    else:
        fields |= {"content": delivery.text}
        if delivery.user:
            fields["sender"] = delivery.user
        if delivery.traceparent:
            fields["traceparent"] = delivery.traceparent
    return [word for pair in fields.items() for word in pair]


def answer_of(agent: str, outbox_id: bytes, fields: Mapping[bytes, bytes]) -> Answer | None:
    """What an outbox entry says; None when it says nothing of a task. Pure."""

    def text(name: bytes) -> str:
        return fields.get(name, b"").decode(errors="replace")

    state = domain.state_of(text(b"outcome"))
    if state is None or not fields:
        return None
    return Answer(
        agent=agent,
        outbox_id=outbox_id.decode(errors="replace"),
        entry_key=text(b"message_id"),
        task_id=text(b"thread"),
        state=state,
        text=text(b"content"),
    )


def _text(reply: bytes | str) -> str:
    return reply.decode() if isinstance(reply, bytes) else reply


def _flat(found: Any) -> list[Any]:
    """The entries of a stream; in RESP3 the library wraps them in one more list."""
    wrapped = bool(found) and isinstance(found[0], list)
    return list(found[0] if wrapped else found)
