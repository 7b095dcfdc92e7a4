"""What is asked of the bridge while something is killed, and what must be true in the end.

Whatever is killed: no message leaves twice, nothing is executed twice, every mention is told its
end once, and nothing of what was said is left in the ledger. How a job ends depends on the point.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from corral.bridge import points
from corral.bridge.domain import CONTROL_TERMINAL, TERMINAL, Limits
from corral.bridge.incoming import Cancel, Classified, Continuation
from corral.local.wait import at
from tests.contract.bridge.kit import ALICE, ROOM, mention
from tests.harness.bridge_world import World

End = tuple[str, str]
ANSWERED: Final = ("delivered", "answered")
UNCERTAIN: Final = ("ambiguous", "call_uncertain")
CANCELED: Final = ("denied", "task_canceled")
FULL: Final = ("denied", "queue_room_capacity_rejected")
BESIDE: Final = ("QUESTION ", "PROGRESS ", "ARTIFACT ")


@dataclass(frozen=True)
class Case:
    """Mentions in one room, the person's part, and the ends when nothing is killed."""

    name: str
    texts: tuple[str, ...]
    ends: tuple[End, ...]
    said: tuple[str, ...]  # without questions and progress
    policy: Mapping[str, Any] = field(default_factory=dict)
    answers: bool = False
    cancels: bool = False
    waits: bool = False  # with the second mention, until the task of the first is known and polled


REPLY = Case("reply", ("reply hello",), (ANSWERED,), ("hello",))
TWO = Case("two", ("reply one", "reply two"), (ANSWERED,) * 2, ("one", "two"))
TASK = Case("task", ("task 0.4 done",), (ANSWERED,), ("done",))
DOWN = Case("down", ("down 1 up",), (ANSWERED,), ("up",))
LONG = Case(
    "long", ("progress 1.5 done",), (ANSWERED,), ("done",),
    {"placeholder_after_s": 0.0, "pin": True},
)  # fmt: skip
PARTS = Case(
    "parts", ("artifacts 2 a|b",), (ANSWERED,), ("a", "b", "ARTIFACT file-0", "ARTIFACT file-1")
)
ASK = Case("ask", ("ask color",), (ANSWERED,), ("color: blue",), answers=True)
CANCEL = Case("cancel", ("task 3 done",), (CANCELED,), ("NOTICE task_canceled",), cancels=True)
CROWD = Case(
    "crowd", ("task 3 done", "reply never"), (ANSWERED, FULL),
    ("NOTICE queue_room_capacity_rejected", "done"),
    {"limits": Limits(room_queue_capacity=1)}, waits=True,
)  # fmt: skip


@dataclass(frozen=True)
class Kill:
    """A point, the case that passes it, and how that ends if the bridge dies there."""

    point: str
    case: Case
    ends: tuple[End, ...] | None = None  # None: as if nothing had been killed
    nth: int = 1

    @property
    def name(self) -> str:
        return f"{self.point.removeprefix('bridge.')}-{self.case.name}"


KILLS: Final = (
    Kill(points.INTAKE, TWO),
    Kill(points.CLAIMING, TASK),
    Kill(points.CLAIMED, REPLY),
    Kill(points.PREPARED, REPLY, (UNCERTAIN,)),
    Kill(points.CALLED, TASK, (UNCERTAIN,)),
    Kill(points.NEVER_LEFT, DOWN),
    Kill(points.TASK, TASK),
    Kill(points.POLLED, TASK, nth=2),
    Kill(points.RESULT, TASK),
    Kill(points.REPLY_SENT, REPLY),
    Kill(points.REPLY, PARTS),
    Kill(points.PLACEHOLDER_SENT, LONG),
    Kill(points.PLACEHOLDER, LONG),
    Kill(points.PROGRESS_SENT, LONG),
    Kill(points.PIN_SENT, LONG),
    Kill(points.UNPIN_SENT, LONG),
    Kill(points.EDIT_SENT, LONG),
    Kill(points.PART_SENT, PARTS, nth=2),
    Kill(points.PART, PARTS, nth=2),
    Kill(points.FINISHING, TWO),
    Kill(points.FINISHED, TWO),
    Kill(points.DENIED, CROWD),
    Kill(points.NOTICE_SENT, CROWD),
    Kill(points.ASKED, ASK),
    Kill(points.QUESTION, ASK),
    Kill(points.QUESTION_SENT, ASK),
    Kill(points.CONTROL_PREPARED, ASK, nth=2),  # the continuation; the question was the first
    Kill(points.ANSWER_CALLED, ASK),
    Kill(points.CONTROLLED, CANCEL),
    Kill(points.CONTROL_PREPARED, CANCEL, (ANSWERED,)),
    Kill(points.CANCEL_CALLED, CANCEL),
)

Deliver = Callable[[Classified], Awaitable[object]]


class Person:
    """Who mentions, answers questions and cancels, by what is seen in the room."""

    def __init__(self, case: Case, world: World, deliver: Deliver) -> None:
        self._case = case
        self._world = world
        self._deliver = deliver

    async def run(self) -> None:
        """Ends when there is nothing left to say; questions are answered as long as it runs."""
        for number, text in enumerate(self._case.texts):
            while number and self._case.waits and not self._world.agent.gets:
                await at(time.monotonic() + 0.02)
            await self._deliver(mention(f"m{number}", text=text))
        answered: set[str] = set()
        cancelled = False
        while self._case.answers or (self._case.cancels and not cancelled):
            await at(time.monotonic() + 0.02)
            if self._case.cancels and self._world.agent.tasks:
                cancelled = True
                await self._deliver(Cancel("$cancel", ROOM, ALICE, "$m0", 0))
            for event in list(self._world.rooms.events):
                asked = event.text.startswith("QUESTION ")
                if asked and self._case.answers and event.event_id not in answered:
                    answered.add(event.event_id)
                    root = str(event.content["thread"])
                    reply = f"$answer{len(answered)}"
                    await self._deliver(Continuation(reply, ROOM, ALICE, root, "blue", 0))


def problems(
    case: Case, ends: tuple[End, ...], world: World, rows: list[Any], controls: list[Any]
) -> list[str]:
    """What is wrong in the end."""
    found = [f"{row['event_id']} is {row['state']}" for row in rows if row["state"] not in TERMINAL]
    if (got := tuple((row["state"], row["reason"]) for row in rows)) != ends:
        found.append(f"ended as {got}, not {ends}")
    for row in rows:
        left = [name for name in ("prompt", "result", "artifacts") if row[name] is not None]
        found += [f"{row['event_id']}: {name} is left in the ledger" for name in left]
    found += [
        f"control {one['kind']} is {one['state']}, payload {one['payload']!r}"
        for one in controls
        if one["state"] not in CONTROL_TERMINAL or one["payload"] is not None
    ]
    for what, calls in (("left", world.agent.sends), ("executed", world.agent.begun)):
        often = Counter(one.message_id for one in calls)
        found += [f"{ident[:8]} {what} {n} times" for ident, n in often.items() if n > 1]
    if (most := Counter(world.agent.cancels).most_common(1)) and most[0][1] > 1:
        found.append(f"cancelled {most[0][1]} times")
    said = [one for one in world.rooms.said() if not one.startswith(BESIDE[:2])]
    wanted = list(case.said)
    if ends != case.ends:
        wanted = ["NOTICE call_uncertain" if end == UNCERTAIN else "done" for end in ends]
    if said != wanted:
        found.append(f"the room has {said}, not {wanted}")
    for kind in ("QUESTION", "PROGRESS"):
        posted = sum(one.text.startswith(kind) for one in world.rooms.events)
        planned = sum(one["kind"] == kind.lower() for one in controls)
        if posted > planned:
            found.append(f"{posted} events for {planned} controls: {kind}")
    txns = [(one.room_id, one.txn_id) for one in world.rooms.events]
    if len(txns) != len(set(txns)):
        found.append("a transaction id made two events")
    if world.rooms.pinned.get(ROOM):
        found.append("the placeholder is pinned still")
    return found
