"""Events as homeservers send them, for the tests of what they mean."""

from typing import Any

from corral.bridge.events import Users
from corral.bridge.mentions import Ghosts

SERVER = "corral.test"
SCOUT = f"@scout:{SERVER}"
CLERK = f"@clerk.2:{SERVER}"
ALICE = f"@alice:{SERVER}"
ROOM = "!uYTfGc3zVbJ0xQ"  # without a server, as in rooms of version 12
GHOSTS = Ghosts.of(SERVER, {"scout": "scout", "clerk.2": "clerk"})
USERS = Users(GHOSTS, frozenset({SCOUT, CLERK, f"@bridge:{SERVER}"}))


def event(content: Any, *, kind: Any = "m.room.message", number: int = 1, **more: Any) -> Any:
    return {
        "type": kind,
        "event_id": f"$event{number}",
        "room_id": ROOM,
        "sender": ALICE,
        "content": content,
        "origin_server_ts": 1,
        "unsigned": {"age": 5},
        **more,
    }


def text(body: Any, *, mention: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """The content of a text message; `m.mentions` only where `mention` is given."""
    content = {"msgtype": "m.text", "body": body, **more}
    return content if mention is None else content | {"m.mentions": {"user_ids": mention}}


def html(body: str, formatted: str, **more: Any) -> dict[str, Any]:
    return text(body, format="org.matrix.custom.html", formatted_body=formatted, **more)


def in_thread(root: str, reply_to: str | None = None, *, fallback: bool = True) -> dict[str, Any]:
    relation: dict[str, Any] = {"rel_type": "m.thread", "event_id": root}
    if reply_to:
        relation |= {"m.in_reply_to": {"event_id": reply_to}, "is_falling_back": fallback}
    return {"m.relates_to": relation}


def reply(to: str) -> dict[str, Any]:
    return {"m.relates_to": {"m.in_reply_to": {"event_id": to}}}
