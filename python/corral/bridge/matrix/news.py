"""What a sync of a ghost tells: new events, and invitations. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_FILTER: Final = (
    '{"room":{"timeline":%s,"state":{"types":[]},"ephemeral":{"types":[]},'
    '"account_data":{"types":[]}},"presence":{"types":[]},"account_data":{"types":[]}}'
)
ONLY_INVITES: Final = _FILTER % '{"types":[]}'
ONLY_MESSAGES: Final = _FILTER % (
    '{"types":["m.room.message","m.reaction","m.room.redaction"],"limit":100}'
)


@dataclass(frozen=True)
class News:
    """What a ghost's rooms have since an earlier `position`: events with their `room_id`, in the
    order of each room, and invitations as room and inviter."""

    position: str
    events: Sequence[dict[str, Any]]
    invitations: Sequence[tuple[str, str]]


def of(position: str, answer: Mapping[str, Any], user_id: str) -> News:
    """From the answer to a sync of the ghost `user_id`; what is malformed is left out."""
    rooms = _object(answer.get("rooms"))
    events: list[dict[str, Any]] = []
    for room_id, room in _object(rooms.get("join")).items():
        found = _object(_object(room).get("timeline")).get("events")
        listed = found if isinstance(found, list) else []
        events += [{**one, "room_id": room_id} for one in listed if isinstance(one, dict)]
    invited = _object(rooms.get("invite")).items()
    return News(position, events, [(room_id, _inviter(one, user_id)) for room_id, one in invited])


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _inviter(room: object, user_id: str) -> str:
    events = _object(_object(room).get("invite_state")).get("events")
    for event in events if isinstance(events, list) else []:
        if _object(event).get("type") == "m.room.member" and event.get("state_key") == user_id:
            sender = event.get("sender")
            return sender if isinstance(sender, str) else ""
    return ""
