"""What must be true of the ledger, the agent and the rooms, whatever was killed meanwhile."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from corral.bridge.domain import CONTROL_TERMINAL, ENDS, Reason, State
from corral.bridge.incoming import Mention
from tests.harness.bridge_cases import BESIDE
from tests.harness.bridge_world import Event, World

# What a mention does (see `Agent`), by its first word, and how that ends when nothing is killed.
ENDINGS: Mapping[str, frozenset[Reason]] = {
    "reply": frozenset({Reason.ANSWERED}),
    "task": frozenset({Reason.ANSWERED}),
    "progress": frozenset({Reason.ANSWERED}),
    "artifacts": frozenset({Reason.ANSWERED}),
    "down": frozenset({Reason.ANSWERED}),
    "ask": frozenset({Reason.ANSWERED}),
    "fail": frozenset({Reason.TASK_FAILED}),
}
# Somebody cancels it: at once, in the middle, or too late.
CANCELLED = frozenset({Reason.ANSWERED, Reason.TASK_CANCELED, Reason.CANCELED})
# A call was under way when the worker was killed; a room was full.
AT_ANY_TIME = frozenset({Reason.CALL_UNCERTAIN, Reason.ROOM_QUEUE_FULL})
ANSWER = "blue"  # to every question


def told_once(event: Event) -> bool:
    """Whether an event is the one visible end of a mention, or the placeholder that became it."""
    return not event.text.startswith(BESIDE) and "edits" not in event.content


def told(world: World) -> Counter[str]:
    """How many ends each mention has in its room."""
    return Counter(str(e.content["reply_to"]) for e in world.rooms.events if told_once(e))


def violations(
    mentions: Sequence[Mention],
    cancelled: frozenset[str],
    world: World,
    rows: Sequence[Any],
    controls: Sequence[Any],
) -> list[str]:
    """`cancelled`: the events that somebody wanted to cancel."""
    found: list[str] = []
    by_event = {one.event_id: one for one in mentions}
    if sorted(row["event_id"] for row in rows) != sorted(by_event):
        found.append("jobs and mentions differ")
    for row in rows:
        text = by_event[row["event_id"]].text if row["event_id"] in by_event else ""
        found += _row(row, text, canceled=row["event_id"] in cancelled)
    found += [
        f"control {one['kind']} is {one['state']}, payload {one['payload']!r}"
        for one in controls
        if one["state"] not in CONTROL_TERMINAL or one["payload"] is not None
    ]
    return found + _agent(world, rows) + _rooms(world, rows, controls, by_event)


def _row(row: Any, text: str, *, canceled: bool) -> list[str]:
    name, reason = row["event_id"], Reason(row["reason"])
    fine = CANCELLED if canceled else ENDINGS.get(text.partition(" ")[0], frozenset())
    found = []
    if reason not in fine | AT_ANY_TIME:
        found.append(f"{name} ({text}) ended {reason.value}")
    if State(row["state"]) is not ENDS[reason]:
        found.append(f"{name} is {row['state']} for {reason.value}")
    if any(row[column] is not None for column in ("prompt", "result", "artifacts")):
        found.append(f"{name}: content is left")
    return found


def _agent(world: World, rows: Sequence[Any]) -> list[str]:
    """No message left twice or was executed twice; each room in the order of its mentions."""
    found = []
    for what, calls in (("left", world.agent.sends), ("begun", world.agent.begun)):
        often = Counter(one.message_id for one in calls)
        found += [f"{ident[:8]} {what} {n} times" for ident, n in often.items() if n > 1]
    often = Counter(world.agent.cancels)
    found += [f"{task} was cancelled {n} times" for task, n in often.items() if n > 1]
    numbers = {row["a2a_message_id"]: (row["room_id"], row["seq"]) for row in rows}
    last: dict[str, int] = {}
    for one in world.agent.begun:
        if one.task_id is not None:  # an answer to a question
            continue
        room, number = numbers.get(one.message_id, ("", 0))
        if number < last.get(room, 0):
            found.append(f"order in {room}: {number} after {last[room]}")
        last[room] = number
        if not number:
            found.append(f"{one.message_id[:8]} was invented")
    return found


def _rooms(
    world: World, rows: Sequence[Any], controls: Sequence[Any], by_event: Mapping[str, Mention]
) -> list[str]:
    """One visible end for each mention: the answer, or the notice."""
    events, count = world.rooms.events, told(world)
    found = [f"{name} was told {count[name]} times" for name in by_event if count[name] != 1]
    found += [f"{name} was told, and nobody asked" for name in count if name not in by_event]
    shown = {str(e.content.get("edits", e.event_id)): e for e in events}
    found += [
        f"{event.content['reply_to']} has a placeholder still"
        for event in shown.values()
        if event.text == "PLACEHOLDER"
    ]
    texts = {str(e.content["reply_to"]): e.text for e in shown.values() if not _beside(e)}
    for row in rows:
        mention = by_event.get(row["event_id"])
        if mention is not None and row["reason"] == Reason.ANSWERED.value:
            wanted = answer_to(mention.text)
            if texts.get(row["event_id"]) != wanted:
                found.append(
                    f"{row['event_id']} got {texts.get(row['event_id'])!r}, not {wanted!r}"
                )
    for kind in ("QUESTION", "PROGRESS"):
        posted = sum(event.text.startswith(kind) for event in events)
        planned = sum(one["kind"] == kind.lower() for one in controls)
        if posted > planned:
            found.append(f"{posted} events for {planned} controls: {kind}")
    found += [f"{room} has a pin still" for room, pins in world.rooms.pinned.items() if pins]
    return found


def _beside(event: Event) -> bool:
    return event.text.startswith(BESIDE)


def answer_to(text: str) -> str:
    """What the room is told when the agent did what it was asked."""
    word, _, rest = text.partition(" ")
    match word:
        case "reply":
            return rest
        case "ask":
            return f"{rest}: {ANSWER}"
    return rest.partition(" ")[2]
