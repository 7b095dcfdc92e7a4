"""What Redis shows of one entry, read as the operator: the facts for `explain` and `resubmit`."""

from collections.abc import Mapping
from typing import Any, Final

from corral.cowboy.config import GROUP, OUTBOX_GROUP, SourceConfig
from corral.cowboy.domain import pack_id
from corral.cowboy.facts import Delivery, Evidence, Fields, Pending, Queued, Seen
from corral.cowboy.redisconn import RedisFault, Wire
from corral.cowboy.redisops import groups_of, is_absence, pairs_of

SEARCH_PAGE: Final = 50  # outbox entries per question: each may hold a whole answer
SEARCH_MAX: Final = 5_000  # outbox entries looked through for one entry
DEAD_MAX: Final = 1_000  # dead letters, newest first


async def gather(
    wire: Wire, source: SourceConfig, entry: str, outbox_id: str | None = None
) -> Evidence:
    """All that the streams of one source show of an entry. Raises Unreachable.

    `outbox_id`: where the ledger says that the answer is, however long the outbox.
    """
    stream = source.stream
    found, info, groups, pending, outbox_groups = await wire.pipeline(
        [
            ("XRANGE", stream, entry, entry),
            ("XINFO", "STREAM", stream),
            ("XINFO", "GROUPS", stream),
            ("XPENDING", stream, GROUP, entry, entry, "1"),
            ("XINFO", "GROUPS", source.outbox),
        ]
    )
    replies = (found, info, groups, pending, outbox_groups)
    faults = [r for r in replies if isinstance(r, RedisFault) and not is_absence(r)]
    readers = groups_of(outbox_groups)
    reader = readers.get(OUTBOX_GROUP)
    answers, searched_all = await _answers(wire, source, entry, reader)
    if outbox_id is not None and all(one.outbox_id != outbox_id for one in answers):
        (page,) = await wire.pipeline([("XRANGE", source.outbox, outbox_id, outbox_id)])
        if found_there := _fields(page):
            answers.append(await _queued(wire, source, outbox_id, found_there, reader))
    dead_id, dead = await _dead_letter(wire, source, entry)
    fields = _fields(found)
    group = groups_of(groups).get(GROUP)
    seen = Seen(
        present=None if isinstance(found, RedisFault) and not is_absence(found) else bool(fields),
        last_id=_text(pairs_of(info).get("last-generated-id")),
        last_delivered=_text(group.get("last-delivered-id")) if group else None,
        pending=_pending(pending),
        answers=tuple(answers),
        searched_all=searched_all,
        dead=(dead_id,) if dead_id else (),
        refused=tuple(sorted({fault.message for fault in faults})),
    )
    return Evidence(seen, fields, dead, await _resubmitted(wire, source, entry))


def _fields(reply: Any) -> Fields | None:
    if isinstance(reply, RedisFault) or not reply:
        return None
    values = reply[0][1]
    return dict(zip(values[::2], values[1::2], strict=True))


def _text(value: object) -> str | None:
    return value.decode() if isinstance(value, bytes) else None


def _pending(reply: Any) -> Pending | None:
    if isinstance(reply, RedisFault) or not reply:
        return None
    _, consumer, idle_ms, deliveries = reply[0]
    return Pending(consumer.decode(errors="replace"), int(idle_ms), int(deliveries))


async def _answers(
    wire: Wire, source: SourceConfig, entry: str, reader: Mapping[str, Any] | None
) -> tuple[list[Queued], bool]:
    """Outbox entries about an inbox entry, and whether all that could be one were looked at."""
    at = entry.partition("-")[0] + "-0"
    answers: list[Queued] = []
    for _ in range(0, SEARCH_MAX, SEARCH_PAGE):
        page = await wire.pipeline([("XRANGE", source.outbox, at, "+", "COUNT", SEARCH_PAGE)])
        if isinstance(page[0], RedisFault):
            return answers, is_absence(page[0])
        for outbox_id, values in page[0]:
            fields = dict(zip(values[::2], values[1::2], strict=True))
            if fields.get(b"in_reply_to") == entry.encode():
                answers.append(await _queued(wire, source, outbox_id.decode(), fields, reader))
        if len(page[0]) < SEARCH_PAGE:
            return answers, True
        at = "(" + page[0][-1][0].decode()
    return answers, False


async def _queued(
    wire: Wire,
    source: SourceConfig,
    outbox_id: str,
    fields: Fields,
    reader: Mapping[str, Any] | None,
) -> Queued:
    if reader is None:
        delivery = Delivery.NO_READER
    elif pack_id(outbox_id.encode()) > pack_id(reader["last-delivered-id"]):
        delivery = Delivery.UNREAD
    else:
        asked = ("XPENDING", source.outbox, OUTBOX_GROUP, outbox_id, outbox_id, "1")
        (pending,) = await wire.pipeline([asked])
        waits = not isinstance(pending, RedisFault) and bool(pending)
        delivery = Delivery.READ if waits else Delivery.ACKNOWLEDGED
    outcome, slot = (fields.get(name, b"").decode() for name in (b"outcome", b"slot"))
    return Queued(outbox_id, outcome, slot, delivery)


async def _dead_letter(
    wire: Wire, source: SourceConfig, entry: str
) -> tuple[str | None, Fields | None]:
    (reply,) = await wire.pipeline(
        [("XREVRANGE", source.dead_stream, "+", entry, "COUNT", DEAD_MAX)]
    )
    for dead_id, values in [] if isinstance(reply, RedisFault) else reply:
        fields = dict(zip(values[::2], values[1::2], strict=True))
        if fields.get(b"entry") == entry.encode():
            return dead_id.decode(), fields
    return None, None


async def _resubmitted(wire: Wire, source: SourceConfig, entry: str) -> str | None:
    """The entry that says it was sent again in place of this one, if it is still in the inbox."""
    at = "(" + entry
    for _ in range(0, SEARCH_MAX, SEARCH_PAGE):
        (page,) = await wire.pipeline([("XRANGE", source.stream, at, "+", "COUNT", SEARCH_PAGE)])
        if isinstance(page, RedisFault):
            return None
        for entry_id, values in page:
            fields = dict(zip(values[::2], values[1::2], strict=True))
            if fields.get(b"resubmit_of") == entry.encode():
                return str(entry_id.decode())
        if len(page) < SEARCH_PAGE:
            return None
        at = "(" + page[-1][0].decode()
    return None
