"""What each event of a transaction means to the bridge. Pure, and total: nothing is raised.

A homeserver forwards what other people's servers and clients made up: an event may lack any field,
have one of another type, or hold text that no database takes. Such an event is classified as
`Ignored` with a reason; it never keeps the others of its transaction from being stored.

| event | becomes |
| --- | --- |
| `m.room.message` that mentions ghosts | a `Mention` for each |
| `!cancel` as a reply or in a thread; the reaction ❌ | `Cancel` |
| another message in a thread | `Continuation` |
| `m.room.redaction` | `Redaction` |
| a notice, an edit, our own, encrypted, state, anything else, all of strangers | `Ignored` |

Room ids are opaque: newer rooms have none of a server in theirs.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from corral.bridge import mentions
from corral.bridge.domain import storable
from corral.bridge.incoming import (
    Cancel,
    Classified,
    Continuation,
    EventDigest,
    Ignored,
    Mention,
    Redaction,
)
from corral.bridge.mentions import Ghosts
from corral.core.ids import digest

ID_MAX_BYTES: Final = 255  # of event, room and user ids, by the specification
CANCEL_WORD: Final = "!cancel"
CANCEL_REACTION: Final = "\N{CROSS MARK}"
TRACEPARENT_KEY: Final = "corral.traceparent"
_EMOJI_STYLE: Final = "\N{VARIATION SELECTOR-16}"
_TEXT_TYPES: Final = frozenset({"m.text", "m.emote"})
_TRACEPARENT: Final = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_ENCODER: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))
# Text that neither a database nor UTF-8 takes.
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Users:
    """Who is who: the ghosts, and all users of the bridge, whose events are its own echo."""

    ghosts: Ghosts
    own: frozenset[str]


@dataclass(frozen=True)
class Invite:
    """A ghost was invited into a room."""

    event_id: str
    room_id: str
    sender: str
    ghost: str


class _Message(NamedTuple):
    """What all of one message's meanings share."""

    event_id: str
    room_id: str
    sender: str
    position: int
    content: Mapping[str, Any]
    body: str
    reply_to: str | None
    thread_root: str | None


# Why nothing is done about what this sender says in this room; None: it may mean something.
Unwelcome = Callable[[str, str], str | None]


def _everybody(_sender: str, _room_id: str) -> str | None:
    return None


def classify(
    events: Sequence[Any], users: Users, unwelcome: Unwelcome = _everybody
) -> tuple[Classified, ...]:
    """One or more results for each event, in order; `position` counts the events from 0.

    What an unwelcome sender says is not looked at, but for a redaction: whoever takes a message
    away, the homeserver has let them.
    """
    found: list[Classified] = []
    for position, event in enumerate(events):
        try:
            found += _classify(event, position, users, unwelcome)
        except RecursionError:
            found.append(Ignored(_shown_id(event, position), "malformed", position))
    return tuple(found)


def invites(events: Sequence[Any], users: Users) -> list[Invite]:
    """The invitations of ghosts among the events."""
    found = []
    for event in events:
        if not isinstance(event, dict) or event.get("type") != "m.room.member":
            continue
        ids = _ids(event)
        if ids is None:
            continue
        ghost = users.ghosts.by_user.get(_text(event.get("state_key")) or "")
        if ghost is not None and _mapping(event.get("content")).get("membership") == "invite":
            found.append(Invite(*ids, ghost))
    return found


def digests(events: Sequence[Any]) -> tuple[EventDigest, ...]:
    """What must be the same when an event is delivered again, in 32 bytes each.

    `unsigned` and the times are left out: a homeserver writes them anew for each try.
    """
    return tuple(_digest(event, position) for position, event in enumerate(events))


def _digest(event: Any, position: int) -> EventDigest:
    fields = event if isinstance(event, dict) else {"malformed": event}
    parts = [
        _canonical(fields.get(name))
        for name in ("event_id", "room_id", "sender", "type", "state_key", "content")
    ]
    # An event without a usable id is told apart by its place and its content.
    value = digest("corral.bridge.event/1", *parts)
    redacted = "redacted_because" in _mapping(fields.get("unsigned")) or (
        fields.get("type") == "m.room.message" and fields.get("content") == {}
    )
    return EventDigest(_shown_id(event, position), value, redacted)


def _canonical(value: object) -> str:
    """JSON in ASCII, keys sorted: also text with lone surrogates has such a form."""
    if value is None:
        return "null"
    try:
        return _ENCODER.encode(value)
    except RecursionError:
        return "nested too deeply"


# ---- one event ------------------------------------------------------------------------------


def _classify(event: Any, position: int, users: Users, unwelcome: Unwelcome) -> list[Classified]:
    ids = _ids(event)
    if ids is None:
        return [Ignored(_shown_id(event, position), "malformed", position)]
    event_id, room_id, sender = ids
    kind, content = event.get("type"), event.get("content")
    if sender in users.own:
        return [Ignored(event_id, "own", position)]
    if kind != "m.room.redaction" and (reason := unwelcome(sender, room_id)):
        return [Ignored(event_id, reason, position)]
    if not isinstance(kind, str) or not isinstance(content, dict):
        return [Ignored(event_id, "malformed", position)]
    if "state_key" in event:
        return [Ignored(event_id, "state", position)]
    match kind:
        case "m.room.message":
            return _message(event_id, room_id, sender, position, event, users)
        case "m.reaction":
            return [_reaction(event_id, room_id, sender, position, content)]
        case "m.room.redaction":
            # Up to room version 10 beside the content, from 11 on in it.
            target = _id(content.get("redacts")) or _id(event.get("redacts"))
            if target is None:
                return [Ignored(event_id, "malformed", position)]
            return [Redaction(event_id, room_id, sender, target, position)]
        case "m.room.encrypted":
            return [Ignored(event_id, "encrypted", position)]
    return [Ignored(event_id, "other_type", position)]


def _message(
    event_id: str,
    room_id: str,
    sender: str,
    position: int,
    event: Mapping[str, Any],
    users: Users,
) -> list[Classified]:
    content = _mapping(event.get("content"))
    if reason := _never_starts(event, content):
        return [Ignored(event_id, reason, position)]
    relation = _mapping(content.get("m.relates_to"))
    in_thread = relation.get("rel_type") == "m.thread"
    thread_root = _id(relation.get("event_id")) if in_thread else None
    reply_to = _id(_mapping(relation.get("m.in_reply_to")).get("event_id"))
    if thread_root is not None and relation.get("is_falling_back") is True:
        reply_to = None  # for clients without threads: not what the person replied to
    body = storable(str(content["body"]))
    body = mentions.without_fallback(body) if reply_to is not None else body
    message = _Message(event_id, room_id, sender, position, content, body, reply_to, thread_root)
    return _meanings(message, users)


def _never_starts(event: Mapping[str, Any], content: Mapping[str, Any]) -> str | None:
    """Why a message is nothing to act on, if so."""
    if not content or "redacted_because" in _mapping(event.get("unsigned")):
        return "redacted"
    if content.get("msgtype") == "m.notice":
        return "notice"
    relation = _mapping(content.get("m.relates_to"))
    if relation.get("rel_type") == "m.replace" or "m.new_content" in content:
        return "edit"
    if not isinstance(content.get("body"), str) or not isinstance(content.get("msgtype"), str):
        return "malformed"
    return None


def _meanings(message: _Message, users: Users) -> list[Classified]:
    at = (message.event_id, message.room_id, message.sender)
    found = mentions.find(message.content, message.body, users.ghosts)
    if message.content["msgtype"] not in _TEXT_TYPES and "m.mentions" not in message.content:
        # The body of a picture or a file is its name.
        return [Ignored(message.event_id, "not_text", message.position)]
    if found.text.lower() == CANCEL_WORD:
        target = message.reply_to or message.thread_root
        if target is not None:
            return [Cancel(*at, target, message.position)]
    if found.users:
        return [
            Mention(
                *at,
                users.ghosts.by_user[user],
                found.text,
                message.position,
                message.reply_to,
                message.thread_root,
                _traceparent(message.content),
            )
            for user in found.users
        ]
    if message.thread_root is not None:
        return [Continuation(*at, message.thread_root, message.body.strip(), message.position)]
    return [Ignored(message.event_id, "no_mention", message.position)]


def _reaction(
    event_id: str, room_id: str, sender: str, position: int, content: Mapping[str, Any]
) -> Classified:
    relation = _mapping(content.get("m.relates_to"))
    target, key = _id(relation.get("event_id")), _text(relation.get("key"))
    if relation.get("rel_type") != "m.annotation" or target is None or key is None:
        return Ignored(event_id, "redacted" if not content else "malformed", position)
    if key.removesuffix(_EMOJI_STYLE) != CANCEL_REACTION:
        return Ignored(event_id, "reaction", position)
    return Cancel(event_id, room_id, sender, target, position)


# ---- fields that may be anything ------------------------------------------------------------


def _ids(event: Any) -> tuple[str, str, str] | None:
    """Event id, room id and sender, if all three can be ids."""
    if not isinstance(event, dict):
        return None
    event_id, room_id = _id(event.get("event_id")), _id(event.get("room_id"))
    sender = _id(event.get("sender"))
    if event_id is None or room_id is None or sender is None:
        return None
    return (event_id, room_id, sender) if sender.startswith("@") and ":" in sender else None


def _id(value: object) -> str | None:
    text = _text(value)
    if not text or len(text.encode()) > ID_MAX_BYTES:
        return None
    return text


def _text(value: object) -> str | None:
    """A string that can be stored; nothing else is an id or a key."""
    return value if isinstance(value, str) and not _UNSTORABLE.search(value) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _shown_id(event: Any, position: int) -> str:
    """The event's id, or a stand-in by its place that no event can have (ours begin with `$`)."""
    found = _id(event.get("event_id")) if isinstance(event, dict) else None
    return found or f"malformed:{position}"


def _traceparent(content: Mapping[str, Any]) -> str | None:
    value = content.get(TRACEPARENT_KEY)
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else None
