"""What the operator's commands do with Redis: add one message, and look at what streams show.

No command is sent twice. Whoever asks decides about a repeat, and the message id makes it safe.
"""

import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from corral.core.errors import UnavailableError, UsageError
from corral.cowboy.config import GROUP, SourceConfig
from corral.cowboy.redisconn import RedisFault, Unreachable, Wire, connection_to
from corral.cowboy.settings import RedisEndpoint

ANSWER_TIMEOUT_S: Final = 10.0
LAG_COUNTED_MAX: Final = 100  # entries, with their content


class UncertainSendError(UnavailableError):
    """The message was sent and no answer came: it may be in the stream, or not."""

    code: ClassVar[str] = "send_uncertain"


@dataclass(frozen=True)
class Message:
    """A message for an inbox; absent fields are not sent. `message_id` makes repeats harmless."""

    content: bytes
    message_id: str
    sender: str | None = None
    channel: str | None = None
    thread: str | None = None

    def check(self, source: SourceConfig) -> None:
        """Refuses what the daemon would not hand to the agent. Raises UsageError."""
        if not self.content.strip():
            raise UsageError("the content is empty", hint="the agent would never see it")
        if len(self.content) > source.content_limit_bytes:
            raise UsageError(
                f"the content has more than {source.content_limit_bytes} bytes",
                hint=f"content_max_bytes of {source.source} in sources.json",
            )
        for name, value in self.metadata():
            size = len(value.encode("utf-8", "surrogateescape"))
            if size > source.metadata_max_bytes:
                raise UsageError(
                    f"{name} has {size} bytes, more than {source.metadata_max_bytes}",
                    hint=f"metadata_max_bytes of {source.source} in sources.json",
                )
            if "\0" in value or not value.isprintable() or not _is_unicode(value):
                raise UsageError(f"{name} is not plain text")

    def metadata(self) -> list[tuple[str, str]]:
        """The fields beside the content that are there."""
        fields = (
            ("message_id", self.message_id),
            ("sender", self.sender),
            ("channel", self.channel),
            ("thread", self.thread),
        )
        return [(name, value) for name, value in fields if value is not None]


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.asynccontextmanager
async def connected(endpoint: RedisEndpoint) -> AsyncIterator[Wire]:
    """A private connection, closed at the end. Raises RedisFault when there is none."""
    wire = Wire(connection_to(endpoint, ANSWER_TIMEOUT_S))
    try:
        await wire.connect()
        yield wire
    finally:
        await wire.close()


async def send(endpoint: RedisEndpoint, source: SourceConfig, message: Message) -> str:
    """Adds a message to the source's inbox; its entry id.

    Raises UsageError for a message that the source does not take, RedisFault when it was certainly
    not added, UncertainSendError when it may have been.
    """
    message.check(source)
    fields: list[str | bytes] = ["content", message.content]
    for pair in message.metadata():
        fields.extend(pair)
    return await add(endpoint, source, fields, message.message_id)


async def add(
    endpoint: RedisEndpoint,
    source: SourceConfig,
    fields: Sequence[str | bytes],
    message_id: str,
    repeat: str = "",
) -> str:
    """Adds an entry of these fields; its id. `repeat` says how to repeat it when it is uncertain.

    Raises RedisFault when it was certainly not added, UncertainSendError when it may have been.
    """
    async with connected(endpoint) as wire:
        try:
            entry_id = await wire.call("XADD", source.stream, "*", *fields)
        except Unreachable as error:
            raise uncertain(message_id, repeat) from error
    return str(entry_id.decode())


def uncertain(message_id: str, repeat: str = "") -> UncertainSendError:
    again = f"repeat the same command with --message-id {message_id}: it is never taken twice"
    return UncertainSendError(
        f"no answer from Redis: message {message_id} may have been added",
        hint=repeat or again,
        ids={"message_id": message_id},
    )


async def look(endpoint: RedisEndpoint, sources: Iterable[SourceConfig]) -> list[dict[str, Any]]:
    """What Redis knows of each source, for when the daemon cannot be asked.

    A value that could not be read is None, and `refused` says why. `lag` counts entries that were
    not read yet, `pending` those read and not acknowledged; `length` includes all that was kept.
    """
    async with connected(endpoint) as wire:
        return [await _look_at(wire, source) for source in sources]


async def _look_at(wire: Wire, source: SourceConfig) -> dict[str, Any]:
    inbox, inbox_groups, oldest, outbox, outbox_groups, dead = await wire.pipeline(
        [
            ("XLEN", source.stream),
            ("XINFO", "GROUPS", source.stream),
            ("XPENDING", source.stream, GROUP, "-", "+", "1"),
            ("XLEN", source.outbox),
            ("XINFO", "GROUPS", source.outbox),
            ("XLEN", source.dead_stream),
        ]
    )
    replies = (inbox, inbox_groups, oldest, outbox, outbox_groups, dead)
    refused = {
        reply.message
        for reply in replies
        if isinstance(reply, RedisFault) and not is_absence(reply)
    }
    group = groups_of(inbox_groups).get(GROUP, {})
    return {
        "source": source.source,
        "inbox": {
            "length": _count(inbox),
            "lag": await _lag(wire, source, inbox, group),
            "pending": _count(group.get("pending")),
            "oldest_pending_idle_ms": _idle_ms(oldest),
        },
        "outbox": {
            "length": _count(outbox),
            "readers": {
                name: {"lag": _count(of.get("lag")), "pending": _count(of.get("pending"))}
                for name, of in groups_of(outbox_groups).items()
            },
        },
        "dead": _count(dead),
        "refused": sorted(refused),
    }


async def _lag(
    wire: Wire, source: SourceConfig, length: object, group: Mapping[str, Any]
) -> int | None:
    """Entries that were never read. Without a group that is all of them; Redis itself does not
    say after entries were deleted one by one, and then a few are counted, or it stays None."""
    if not group:
        return _count(length)
    lag = _count(group.get("lag"))
    if lag is not None:
        return lag
    after = b"(" + group["last-delivered-id"]
    (rest,) = await wire.pipeline([("XRANGE", source.stream, after, "+", "COUNT", LAG_COUNTED_MAX)])
    counted = isinstance(rest, list) and len(rest) < LAG_COUNTED_MAX
    return len(rest) if counted else None


def is_absence(fault: RedisFault) -> bool:
    """A stream or group that is not there yet is no refusal."""
    return "no such key" in fault.message.lower() or fault.code == "redis_no_group"


def _count(reply: object) -> int | None:
    return reply if isinstance(reply, int) else None


def _idle_ms(reply: object) -> int | None:
    return _count(reply[0][2]) if isinstance(reply, list) and reply else None


def groups_of(reply: object) -> dict[str, dict[str, Any]]:
    """Groups of a stream by name; RESP2 sends each as a flat list, RESP3 as a map."""
    found = [pairs_of(item) for item in (reply if isinstance(reply, list) else [])]
    return {fields["name"].decode("utf-8", "replace"): fields for fields in found}


def pairs_of(item: object) -> dict[str, Any]:
    """A table that RESP2 sends as a flat list and RESP3 as a map; empty for anything else."""
    if isinstance(item, list):
        item = dict(zip(item[::2], item[1::2], strict=True))
    return {key.decode(): value for key, value in item.items()} if isinstance(item, Mapping) else {}
