"""What the bridge says in a room: the contents of its events. Pure, and the same every time.

All of it is `m.notice`, marked as automated, and mentions nobody, so that no bot answers it. Each
content carries our own id under `OUR_ID`, by which an earlier send is found again. Text is cut into
parts that fit an event whatever characters they are made of.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from corral.bridge.domain import Reason, storable
from corral.bridge.ports import Artifact, Content, Place

OUR_ID: Final = "corral.id"
AUTOMATED: Final = "org.matrix.msc1767.automated"
# An event may have 65,536 bytes; an edit holds its text twice, and relations and ids need some.
PART_MAX_BYTES: Final = 24_000
PARTS_MAX: Final = 20
NAME_MAX_CHARS: Final = 200

PLACEHOLDER: Final = "Working on it …"
FAILED: Final = "The agent reports that it failed."
HOW_TO_ANSWER: Final = "(Answer in this thread.)"
SHORTENED: Final = "[The answer is longer than what is shown.]"

# What each stable reason says. The reasons are the ledger's; docs/reference/bridge-notices.md
# says what an operator does about each.
NOTICES: Final[Mapping[Reason, str]] = {
    Reason.ANSWERED: "Done; the agent sent no text.",
    Reason.TASK_FAILED: FAILED,
    Reason.TASK_REJECTED: "The agent declined this request.",
    Reason.TASK_CANCELED: "The agent canceled this request.",
    Reason.CANCELED: "Canceled.",
    Reason.REDACTED: "Canceled: the message was removed.",
    Reason.AGENT_REFUSED: "The agent could not take this request. It was not started.",
    Reason.AUTH_REQUIRED: "The agent asks for credentials, which are never passed on. It stopped.",
    Reason.INPUT_TIMEOUT: "The agent's question was not answered in time. It stopped waiting.",
    Reason.TASK_TIMEOUT: (
        "The agent did not finish in time. Whether it did what was asked is not known."
    ),
    Reason.TASK_LOST: (
        "The agent does not know this request any more. Whether it did what was asked is not known."
    ),
    Reason.CALL_UNCERTAIN: (
        "The connection to the agent broke at a moment when it may have begun. It is not asked "
        "again; whether it did what was asked is not known."
    ),
    Reason.AGENT_UNREACHABLE: "The agent could not be reached. It was not started.",
    Reason.AGENT_UNKNOWN: "There is no such agent any more.",
    Reason.ROOM_REFUSED: "This room does not accept the answer.",
    Reason.REPLY_UNDELIVERABLE: "The answer could not be delivered.",
    Reason.RETRIES_EXHAUSTED: "It failed too often and was given up.",
    Reason.CONTROLS_EXHAUSTED: "This request had more questions and answers than are kept for one.",
    Reason.ROOM_QUEUE_FULL: "This room has too many open requests. Please try again later.",
    Reason.GLOBAL_QUEUE_FULL: "There are too many open requests. Please try again later.",
    Reason.SENDER_RATE_LIMITED: "You ask faster than is allowed. Try again in a minute.",
    Reason.ROOM_RATE_LIMITED: "This room asks faster than is allowed. Try again in a minute.",
    Reason.SENDER_NOT_ALLOWED: "You are not allowed to ask this agent.",
}


def part_id(our_id: str, number: int) -> str:
    """Our id of a part, counted from 0: the first has the id of the whole."""
    return our_id if number == 0 else f"{our_id}.{number}"


class RoomContents:
    """Implements `corral.bridge.ports.Contents`."""

    def answer(self, place: Place, text: str, *, failed: bool, our_id: str) -> Sequence[Content]:
        first, *rest = _shown_parts(text, failed=failed)
        return [
            _said(first, our_id) | _replying(place),
            *self._further(place, rest, our_id),
        ]

    def edit(
        self, place: Place, primary: str, text: str, *, failed: bool, our_id: str
    ) -> Sequence[Content]:
        first, *rest = _shown_parts(text, failed=failed)
        return [_edited(first, primary, our_id), *self._further(place, rest, our_id)]

    def notice(self, place: Place, reason: str, *, our_id: str) -> Content:
        return _said(_text_of(reason), our_id) | _replying(place)

    def edit_notice(self, place: Place, primary: str, reason: str, *, our_id: str) -> Content:
        return _edited(_text_of(reason), primary, our_id)

    def placeholder(self, place: Place, *, our_id: str) -> Content:
        return _said(PLACEHOLDER, our_id) | _replying(place)

    def threaded(self, place: Place, text: str, *, kind: str, our_id: str) -> Content:
        shown = _only_part(text, room_for=HOW_TO_ANSWER)
        if kind == "question":
            shown = f"{shown}\n\n{HOW_TO_ANSWER}"
        relation = {
            "rel_type": "m.thread",
            "event_id": place.thread_root or place.reply_to,
            # For clients without threads.
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": place.reply_to},
        }
        return _said(shown, our_id) | {"m.relates_to": relation}

    def fits(self, artifact: Artifact) -> bool:
        room = 4 * NAME_MAX_CHARS + len(SHORTENED) + 16
        return _size(storable(artifact.text or "")) <= PART_MAX_BYTES - room

    def artifact(
        self, place: Place, artifact: Artifact, uri: str | None, *, our_id: str
    ) -> Content:
        name = storable(artifact.name or artifact.artifact_id)[:NAME_MAX_CHARS] or "artifact"
        if uri is None:
            shown = artifact.url if artifact.text is None else artifact.text
            return _said(_only_part(f"{name}:\n{shown or ''}"), our_id) | _replying(place)
        picture = artifact.media_type.startswith("image/")
        info: dict[str, Any] = {"mimetype": storable(artifact.media_type)[:NAME_MAX_CHARS]}
        size = (
            artifact.data
            if artifact.data is not None
            else (artifact.text or "").encode("utf-8", "replace")
        )
        info["size"] = len(size)
        return (
            _said(name, our_id)
            | _replying(place)
            | {
                "msgtype": "m.image" if picture else "m.file",
                "filename": name,
                "url": uri,
                "info": info,
            }
        )

    @staticmethod
    def _further(place: Place, parts: Sequence[str], our_id: str) -> list[Content]:
        return [
            _said(part, part_id(our_id, number)) | _replying(place)
            for number, part in enumerate(parts, start=1)
        ]


# ---- pieces of a content --------------------------------------------------------------------


def _said(body: str, our_id: str) -> dict[str, Any]:
    return {
        "msgtype": "m.notice",
        "body": body,
        "m.mentions": {},
        AUTOMATED: True,
        OUR_ID: our_id,
    }


def _replying(place: Place) -> dict[str, Any]:
    relation: dict[str, Any] = {"m.in_reply_to": {"event_id": place.reply_to}}
    if place.thread_root is not None:
        relation |= {
            "rel_type": "m.thread",
            "event_id": place.thread_root,
            "is_falling_back": False,
        }
    return {"m.relates_to": relation}


def _edited(body: str, primary: str, our_id: str) -> dict[str, Any]:
    new = {"msgtype": "m.notice", "body": body, "m.mentions": {}, AUTOMATED: True}
    return _said(f"* {body}", our_id) | {
        "m.new_content": new,
        "m.relates_to": {"rel_type": "m.replace", "event_id": primary},
    }


def _text_of(reason: str) -> str:
    try:
        return NOTICES[Reason(reason)]
    except ValueError:
        return NOTICES[Reason.RETRIES_EXHAUSTED]


# ---- cutting --------------------------------------------------------------------------------


def _shown_parts(text: str, *, failed: bool) -> list[str]:
    clean = storable(text).strip()
    if failed:
        clean = f"{FAILED}\n\n{clean}" if clean else FAILED
    parts = split(clean or NOTICES[Reason.ANSWERED])
    if len(parts) > PARTS_MAX:
        parts[PARTS_MAX - 1 :] = [SHORTENED]
    return parts


def _only_part(text: str, room_for: str = "") -> str:
    clean = storable(text).strip()
    room = len(room_for) + len(SHORTENED) + 8
    first, *rest = split(clean, PART_MAX_BYTES - room) or [""]
    return f"{first}\n\n{SHORTENED}" if rest else first


def split(text: str, part_max_bytes: int = PART_MAX_BYTES) -> list[str]:
    """The text in parts of at most `part_max_bytes` as JSON, cut at a line, a word, or anywhere."""
    parts = []
    rest = text
    while _size(rest) > part_max_bytes:
        end = _fitting(rest, part_max_bytes)
        for mark in ("\n\n", "\n", " "):
            at = rest.rfind(mark, end // 2, end)
            if at > 0:
                end = at + len(mark)
                break
        parts.append(rest[:end].rstrip())
        rest = rest[end:].lstrip("\n")
    if rest or not parts:
        parts.append(rest)
    return [part for part in parts if part] or [""]


def _fitting(text: str, limit: int) -> int:
    """The most characters from the front that fit (at least one)."""
    low, high = 1, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        if _size(text[:middle]) <= limit:
            low = middle
        else:
            high = middle - 1
    return low


def _size(text: str) -> int:
    """In bytes, as it stands in an event: control characters are escaped there."""
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace")) - 2
