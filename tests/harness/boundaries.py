"""The boundaries that a kill is tried at, and the trials that try them.

Each boundary stands for a line of what the documentation promises about kills. It has the crash
points that lie on it; each point is tried with every victim: the process that passes it, the other
process, Redis, and (at the first point of each boundary) all of them at once.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from corral.local.agent import prompt_for
from corral.local.plan import SECRET_WORD, Planned
from tests.harness.armed import Arm
from tests.harness.trial import Trial

DAEMON, RUNNER = "daemon", "runner"
SERVERS = (("redis", 3), ("valkey", 2), ("redis", 2), ("valkey", 3))

# What has to have happened before a point can be passed at all: an earlier kill.
AFTER_READ = {DAEMON: "cowboy.read.done:2=self"}
AFTER_GO = {RUNNER: "runner.go.written:2=self"}


@dataclass(frozen=True)
class Boundary:
    """`nth` is the pass that kills; `first` arms the first start of a process, before that."""

    name: str
    points: tuple[str, ...]
    nth: int = 2
    first: Mapping[str, str] | None = None
    on_interrupt: str | None = None
    cancels: bool = False


BOUNDARIES = (
    Boundary("read, not in the ledger", ("cowboy.read.done",)),
    Boundary(
        "in the ledger, not prepared",
        (
            "cowboy.received.committed",
            "cowboy.dispatched.committed",
            "cowboy.prepare.sent",
            "runner.prepare.received",
            "runner.prepared.recorded",
        ),
    ),
    Boundary("prepared, start not committed", ("cowboy.prepared.received", "runner.prepared.sent")),
    Boundary("start committed, go not said", ("cowboy.started.committed", "runner.go.recorded")),
    Boundary("the agent runs, its children too", ("runner.go.written", "cowboy.go.sent")),
    Boundary(
        "result there, not committed",
        ("cowboy.result.received", "runner.run.over", "runner.result.held", "runner.result.sent"),
    ),
    Boundary("answer persisted, not in the outbox", ("cowboy.replying.committed",)),
    Boundary("in the outbox, id not recorded", ("cowboy.outbox.added", "cowboy.settle.sent")),
    Boundary("acknowledged, not recorded", ("cowboy.ack.sent",)),
    Boundary(
        "recorded, result not forgotten",
        ("cowboy.settled.committed", "cowboy.forget.sent", "runner.forget.done"),
    ),
    Boundary("start of a session", ("cowboy.attach.done",)),
    Boundary("start-up drain", ("cowboy.drain.page",), nth=1, first=AFTER_READ),
    Boundary("trim", ("cowboy.trim.before", "cowboy.trim.done"), nth=1),
    Boundary("held", ("cowboy.held.committed",), nth=1, first=AFTER_GO, on_interrupt="hold"),
    Boundary("interrupted", ("cowboy.interrupted.committed",), nth=1, first=AFTER_GO),
    Boundary("cancel of a running turn", ("cowboy.cancel.kill_sent",), nth=1, cancels=True),
    Boundary(
        "recovery of the runner",
        ("runner.recover.before", "runner.recover.killed"),
        nth=1,
        first=AFTER_GO,
    ),
    Boundary(
        "any commit",
        ("cowboy.tick.committed", "core.sqlite.commit.before", "core.sqlite.commit.after"),
        nth=9,
    ),
)

# Those of a turn that a live session answers: tests/crash/test_live_session_kills.py.
LIVE_SESSION = (
    "runner.wake.sending",
    "runner.wake.sent",
    "cowboy.answer.received",
    "cowboy.answer.committed",
    "runner.wake.withdrawn",
)


def owner(point: str) -> str:
    """The process that passes a point."""
    return RUNNER if point.startswith("runner.") else DAEMON


def victims(point: str, *, all_at_once: bool) -> Iterator[tuple[str, ...]]:
    other = DAEMON if owner(point) == RUNNER else RUNNER
    yield ("self",)
    yield (other,)
    yield ("redis",)
    if all_at_once:
        yield ("redis", other, "self")


def trials() -> list[Trial]:
    """One trial for each boundary, point and victim; servers and protocols take turns."""
    found: list[Trial] = []
    turns = itertools.cycle(SERVERS)
    for boundary in BOUNDARIES:
        for point in boundary.points:
            for who in victims(point, all_at_once=point == boundary.points[0]):
                server, protocol = next(turns)
                trial = _trial(boundary, point, who, seed=len(found))
                found.append(replace(trial, server=server, protocol=protocol))
            next(turns)  # so that no victim always meets the same server
    return found


def _trial(boundary: Boundary, point: str, who: tuple[str, ...], seed: int) -> Trial:
    text = str(Arm(point, boundary.nth, who))
    process = owner(point)
    arms: dict[str, dict[int, tuple[str, ...]]] = {}
    for earlier, first in (boundary.first or {}).items():
        arms[earlier] = {0: (first,)}
    starts = arms.setdefault(process, {})
    starts[1 if 0 in starts else 0] = (text,)
    policy = boundary.on_interrupt
    variant = {name: {"on_interrupt": policy} for name in ("a2a", "chat")} if policy else {}
    named = "+".join(_label(process, victim) for victim in who)
    return Trial(
        name=f"{point}-{named}",
        seed=seed,
        variant=variant,
        planned=tuple(workload(cancels=boundary.cancels)),
        arms=arms,
        must_hit=True,
    )


def _label(process: str, victim: str) -> str:
    return process if victim == "self" else victim


def workload(*, cancels: bool = False, work_s: float = 0.12, hangs: int = 0) -> list[Planned]:
    """A few messages in three channels of both sources: enough for every boundary's second pass.

    Some of them misbehave: a run whose child outlives it, one that fails, one that is a duplicate.
    The first `hangs` work until they are killed.
    """
    planned: list[Planned] = []
    actions = ("answer", "orphan", "answer", "exit", "answer")
    for number in range(10):
        source = ("a2a", "chat")[number % 2]
        fields = _fields(source, number, f"room-{number % 3}")
        action = "hang" if number < hangs else actions[number // 2]
        words = b"%s message %d" % (SECRET_WORD.encode(), number)
        fields[b"content"] = prompt_for(words, action=action, work_s=work_s)
        planned.append(Planned(number, 0.06 * number, source, "normal", fields, action))
    again = planned[2]
    planned.append(Planned(10, 0.65, again.source, "duplicate", dict(again.fields)))
    if cancels:
        planned += _cancelled(len(planned))
    return planned


def _cancelled(first: int) -> Iterator[Planned]:
    """Long turns in channels of their own, and for each a cancel entry that meets it running."""
    for number, source in enumerate(("a2a", "chat")):
        key = first + 2 * number
        fields = _fields(source, key, "long")
        fields[b"content"] = prompt_for(b"a long one", work_s=6.0)
        yield Planned(key, 0.0, source, "normal", fields)
        cancel = _fields(source, key + 1, "control") | {b"kind": b"cancel"}
        at_s = 1.0 + number
        yield Planned(key + 1, at_s, source, "cancel", cancel, target=key)


def _fields(source: str, number: int, channel: str) -> dict[bytes, bytes]:
    return {
        b"sender": b"sender-%d" % (number % 3),
        b"channel": channel.encode(),
        b"message_id": f"{source}-{number}".encode(),
    }
