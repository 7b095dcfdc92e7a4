"""One message's way through the services: its hops, where it ends, what is certain. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from corral.overview import gaps, hops
from corral.overview.gaps import ENDED_TASKS, untaken
from corral.overview.hops import Hop
from corral.overview.tracing import BRIDGE, COWBOY, GATEWAY, TAMQ, Data, Found, whose

WAKE_WORDS: Final = {
    "pending": "no session was shown it with evidence so far",
    "awaiting_ack": "a session was shown it, and has not acknowledged it",
    "injected": "a session was shown it; that is no proof of work",
    "acknowledged": "it is shown to nobody any more: a session, or cowboy at the turn's end, "
    "acknowledged it",
    "failed": "its attempts are used up",
}


@dataclass(frozen=True)
class Chain:
    """`gap`: what should follow the last hop and does not; None at the end. `certain` is what the
    services say; `todo` the next step, empty when there is nothing to do. `starts`: how many starts
    of the agent are committed; None when the one who knows could not be asked."""

    hops: tuple[Hop, ...]
    gap: str | None
    certain: tuple[str, ...]
    todo: str
    starts: int | None

    def as_dict(self, any_id: str) -> dict[str, Any]:
        return {
            "id": any_id,
            "complete": self.gap is None,
            "hops": [hop.as_dict() for hop in self.hops],
            "gap": self.gap,
            "certain": list(self.certain),
            "next": self.todo or None,
            "starts": self.starts,
        }

    def lines(self) -> Iterator[str]:
        of_kind = max(len(hop.kind) for hop in self.hops)
        of_service = max(len(hop.service) for hop in self.hops)
        for hop in self.hops:
            text = f"{hop.kind:<{of_kind}}  {hop.service:<{of_service}}  {hop.id}"
            yield "  ".join(part for part in (text, hop.state, hop.at) if part)
        if self.gap is not None:
            yield f"gap: {self.gap}"
        yield from (f"certain: {text}" for text in self.certain)
        yield f"next: {self.todo or 'nothing: its way is complete'}"


def of(found: Found) -> Chain:
    """The chain of what was found, which is something."""
    way = hops.of(found)
    gap, todo = gaps.after(found, way[-1])
    return Chain(way, gap, tuple(_certain(found)), todo, _starts(found))


def _starts(found: Found) -> int | None:
    if not found.turns:
        job = found.job
        called = job is not None and job["attempts"] > job["never_left"] and not found.tasks
        return None if called or not all(map(untaken, found.tasks.values())) else 0
    if any(whose(case["agent"]) in found.troubles for case in found.turns.values()):
        return None
    return sum(int(case["turn"]["starts"]) for case in found.turns.values() if case["turn"])


def _certain(found: Found) -> Iterator[str]:
    """In the services' own words, nearest to the sender first."""
    yield from (f"{BRIDGE}: {line}" for line in found.job_lines)
    for task in found.tasks.values():
        yield f"{GATEWAY}: {_of_task(task)}"
        if task["late"]:
            yield f"{GATEWAY}: {len(task['late'])} answers came after the end of {task['task_id']}"
    for _, case in sorted(found.turns.items()):
        yield f"{COWBOY}: {case['sentence']}"
        if case.get("daemon"):
            yield f"{COWBOY}: its daemon could not be asked: {case['daemon']}"
    for wake in found.wakes.values():
        yield f"{TAMQ}: {WAKE_WORDS.get(wake['state'], wake['state'])}"


def _of_task(task: Data) -> str:
    if untaken(task):
        return "the agent's inbox does not have its message: nothing of it was executed"
    if any(one["kind"] == "message" for one in task["deliveries"]):
        return "the agent's inbox may have its message: that is not recorded yet"
    if task["state"] in ENDED_TASKS:
        return f"the task ended: {task['state']}"
    return f"the agent's inbox got its message; the task is {task['state']}"
