"""Reconciles mentions with what was said in their rooms and what the agent did. Pure.

The rules: every mention that the homeserver took has exactly one reply, which has what the agent
was told to say; the agent began each once; nothing was made up. Answers in another order than
that of their room are reported apart: a mention that a killed homeserver never delivered is found
by the bridge's catching up, after later ones were delivered.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corral.local.matrix import replies_to
from corral.local.mentions_model import Told, told_in

Event = Mapping[str, Any]
Rooms = Mapping[str, Sequence[Event]]


def replies(events: Sequence[Event], ghost: str) -> dict[str, list[Told]]:
    """The ghost's replies by the event that they answer, as they stand after all edits."""
    found: dict[str, list[Told]] = defaultdict(list)
    for told in told_in(events, {"": ghost}):
        found[told.reply_to].append(told)
    return found


def strays(events: Iterable[Event], ghost: str) -> list[str]:
    """What the ghost said to nobody: neither a reply nor an edit of one."""

    def is_stray(event: Event) -> bool:
        relation = event["content"].get("m.relates_to", {})
        return relation.get("rel_type") != "m.replace" and not replies_to(event)

    return [one["event_id"] for one in events if one["sender"] == ghost and is_stray(one)]


def unanswered(mentions: Iterable[Mapping[str, str]], rooms: Rooms, ghost: str) -> list[str]:
    """The words of mentions without a reply that has them."""
    found = []
    for one in mentions:
        answers = replies(rooms[one["room_id"]], ghost)[one["event_id"]]
        if not any(_has(told.text, one["words"]) for told in answers):
            found.append(one["words"])
    return found


def reconcile(
    mentions: Sequence[Mapping[str, str]],
    rooms: Rooms,
    calls: Sequence[Mapping[str, Any]],
    ghost: str,
) -> dict[str, Any]:
    """What happened, and `violations`, one line each."""
    violations = [f"{words} has no answer" for words in unanswered(mentions, rooms, ghost)]
    by_room: dict[str, list[str]] = {}
    for one in mentions:
        by_room.setdefault(one["room_id"], []).append(one["event_id"])
    answered, order = 0, []
    for room_id, events in rooms.items():
        found = replies(events, ghost)
        violations += [f"{event_id} answers nobody" for event_id in strays(events, ghost)]
        answered += sum(1 for event_id in by_room.get(room_id, []) if event_id in found)
        for to, several in found.items():
            if to not in by_room.get(room_id, []):
                violations.append(f"a reply to {to}, which nobody said")
            elif len(several) > 1:
                violations.append(f"{to} has {len(several)} replies")
        order += _order(by_room.get(room_id, []), list(found))
    started = [call for call in calls if call["did"] == "started"]
    violations += [
        f"message {message_id} was begun {count} times"
        for message_id, count in Counter(call["message_id"] for call in started).items()
        if count > 1
    ]
    for one in mentions:
        count = sum(1 for call in started if _has(call["text"], one["words"]))
        if count != 1:
            violations.append(f"{one['words']} was begun {count} times")
    if len(started) > len(mentions):
        violations.append(f"{len(started)} were begun, {len(mentions)} were said")
    return {
        "mentions": len(mentions),
        "answered": answered,
        "begun": len(started),
        "sent_again": sum(1 for call in calls if call["did"] == "again"),
        "violations": violations,
        "out_of_order": order,
    }


def _order(said: Sequence[str], answered: Sequence[str]) -> list[str]:
    expected = [event_id for event_id in said if event_id in answered]
    found = [event_id for event_id in answered if event_id in said]
    return [] if expected == found else [f"the order of a room: {found}, said: {expected}"]


def _has(text: str, words: str) -> bool:
    return words in text.split()
