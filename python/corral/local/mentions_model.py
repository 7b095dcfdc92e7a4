"""Judges the mentions of a run: what people said, what rooms show, what was started. Pure."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from corral.bridge.domain import State
from corral.bridge.matrix.contents import PLACEHOLDER
from corral.local.evidence import Effect, TurnRow, sha
from corral.local.matrix import replies_to, shown
from corral.local.page import Hop, Message
from corral.local.rules import TERMINAL, Report, Violation

LIVE: Final = "pilot"  # the agent whose turns a live session answers
# The one right answer of each of the demo's agents: of what it was asked, and in which turn.
ANSWER: Final = re.compile(r"answer ([0-9a-f]{32}) (\S+)")
DIGEST_CHARS: Final = 32
FINE: Final = frozenset({State.DELIVERED, State.DENIED})
ROOM_KIND: Final = "m.room.message"


@dataclass(frozen=True)
class Asked:
    """A mention whose sending was answered. `place` is its place among those that the bridge took:
    the homeserver's times (in ms) do not say what it was told first. Below 0: it took none."""

    key: int
    agent: str
    person: str
    room_id: str
    text: str
    event_id: str
    at_ms: int
    place: int


@dataclass(frozen=True)
class Told:
    """What an agent's user said in reply to a mention, as it stands in the end.

    `final`: whether an edit, or no placeholder, stands there.
    """

    agent: str
    reply_to: str
    room_id: str
    text: str
    at_ms: int
    final: bool


@dataclass
class MentionEvidence:
    """Of one run. `jobs`: how many of the bridge's jobs are open, uncertain or dead, by state.

    An idempotent gateway stands behind the bridge: no job may end uncertain. `session_ends_ms`:
    when the live session was killed; what it had begun, the next one may begin again.
    """

    planned: int = 0
    asked: list[Asked] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    turns: list[TurnRow] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    jobs: dict[str, int] = field(default_factory=dict)
    kills: dict[str, int] = field(default_factory=dict)
    kills_in_flight: int = 0
    session_ends_ms: list[int] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """As JSON, for whoever looks into a failed run. Blocks."""
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")


@dataclass(frozen=True)
class MentionSummary:
    """The numbers of the table. `kills`: of everything, `live_kills` of what is the session's."""

    asked: int
    asked_live: int
    answered: int
    answered_live: int
    notices: int
    lost: int
    doubled: int
    started_twice: int
    handed_on: int
    order_violations: int
    kills: int
    live_kills: int
    kills_in_flight: int

    def rows(self) -> list[tuple[str, str]]:
        return [
            ("mentions in rooms", str(self.asked)),
            ("mentions answered", str(self.answered)),
            ("by the live session", f"{self.answered_live} of {self.asked_live}"),
            ("mentions ended with a notice", str(self.notices)),
            ("mentions lost", str(self.lost)),
            ("mentions told twice", str(self.doubled)),
            ("agents started twice for a mention", str(self.started_twice)),
            ("handed on to the next session after a kill", str(self.handed_on)),
            ("mentions out of order", str(self.order_violations)),
            ("kills of bridge, gateway, PostgreSQL, Synapse", str(self.kills - self.live_kills)),
            ("kills of the session and of its cowboy", str(self.live_kills)),
            ("kills with mentions in flight", str(self.kills_in_flight)),
        ]


class Case:
    """The evidence, indexed the way the rules look at it."""

    def __init__(self, evidence: MentionEvidence) -> None:
        self.evidence = evidence
        self.told: dict[str, list[Told]] = defaultdict(list)
        for told in evidence.told:
            self.told[told.reply_to].append(told)
        self.starts: dict[str, list[float]] = defaultdict(list)
        self.runs: dict[str, set[int]] = defaultdict(set)
        for effect in evidence.effects:
            self.runs[effect.turn].add(effect.run)
            if effect.ev == "start":
                self.starts[effect.turn].append(effect.at_ms)

    def answer(self, asked: Asked) -> tuple[str, str] | None:
        """Digest and turn of the answer; None when it was no answer of the agent's."""
        for told in self.told[asked.event_id]:
            if told.agent == asked.agent and (found := ANSWER.fullmatch(told.text)):
                return found[1], found[2]
        return None

    def session_ended(self, between: tuple[float, float]) -> bool:
        """Whether the live session was killed between two times."""
        return any(between[0] < at_ms < between[1] for at_ms in self.evidence.session_ends_ms)

    def ended(self, asked: Asked) -> bool:
        return any(told.final for told in self.told[asked.event_id])


def judge(evidence: MentionEvidence) -> Report[MentionSummary]:
    """By every rule."""
    case = Case(evidence)
    violations = [violation for rule in RULES for violation in rule(case)]
    count = {rule: sum(one.rule == rule for one in violations) for rule in COUNTED}
    turns, live = evidence.turns, [asked for asked in evidence.asked if asked.agent == LIVE]
    answered = sum(case.answer(asked) is not None for asked in evidence.asked)
    ended = sum(case.ended(asked) for asked in evidence.asked)
    summary = MentionSummary(
        asked=len(evidence.asked),
        asked_live=len(live),
        answered=answered,
        answered_live=sum(case.answer(asked) is not None for asked in live),
        notices=ended - answered,
        lost=count["mention_lost"],
        doubled=count["mention_told_twice"],
        started_twice=count["mention_started_twice"],
        handed_on=sum(_is_live(row) and len(case.runs[row.turn_id]) > 1 for row in turns),
        order_violations=count["mention_order"],
        kills=sum(evidence.kills.values()),
        live_kills=sum(n for name, n in evidence.kills.items() if name.startswith(f"{LIVE} ")),
        kills_in_flight=evidence.kills_in_flight,
    )
    return Report(violations, summary)


COUNTED: Final = ("mention_lost", "mention_told_twice", "mention_started_twice", "mention_order")


def _trouble(case: Case) -> Iterator[Violation]:
    for trouble in case.evidence.trouble:
        yield Violation("trouble", (), trouble)
    unsent = case.evidence.planned - len(case.evidence.asked)
    if unsent:
        yield Violation("not_sent", (), f"{unsent} mentions were never sent")
    for state, count in case.evidence.jobs.items():
        yield Violation("mention_job", (), f"{count} jobs are {state} in the end")


def _lost(case: Case) -> Iterator[Violation]:
    for asked in case.evidence.asked:
        if not case.ended(asked):
            yield Violation("mention_lost", (asked.event_id,), "nobody answered")


def _doubled(case: Case) -> Iterator[Violation]:
    for asked in case.evidence.asked:
        told = len(case.told[asked.event_id])
        if told > 1:
            yield Violation("mention_told_twice", (asked.event_id,), f"{told} replies")


def _wrong(case: Case) -> Iterator[Violation]:
    for asked in case.evidence.asked:
        answer = case.answer(asked)
        if answer is not None and answer[0] != sha(asked.text.encode())[:DIGEST_CHARS]:
            yield Violation("mention_mixed_up", (asked.event_id,), "the answer to something else")
        if any(told.agent != asked.agent for told in case.told[asked.event_id]):
            yield Violation("mention_mixed_up", (asked.event_id,), "another agent answered")


def _started_twice(case: Case) -> Iterator[Violation]:
    turns: dict[str, list[TurnRow]] = defaultdict(list)
    for row in case.evidence.turns:
        if row.kind == "message" and row.message_id is not None:
            turns[row.message_id].append(row)
    for name, rows in turns.items():
        starts = sorted(at_ms for row in rows for at_ms in case.starts[row.turn_id])
        one_live = len(rows) == 1 and _is_live(rows[0])
        again = [one for one in pairwise(starts) if not (one_live and case.session_ended(one))]
        if again:
            yield Violation("mention_started_twice", (name,), f"{len(again) + 1} starts")


def _is_live(row: TurnRow) -> bool:
    return row.turn_id.startswith(f"{LIVE}.")


def _turns_end(case: Case) -> Iterator[Violation]:
    for row in case.evidence.turns:
        if row.state not in TERMINAL:
            yield Violation("mention_turn", (row.turn_id,), f"is still {row.state} in the end")
        elif not row.scrubbed:
            yield Violation("mention_turn", (row.turn_id,), f"{row.state}, content still there")


def _order(case: Case) -> Iterator[Violation]:
    """In a room each agent begins in the order in which it was asked."""
    rooms: dict[tuple[str, str], list[tuple[Asked, float]]] = defaultdict(list)
    for asked in sorted(case.evidence.asked, key=lambda one: one.place):
        answer = case.answer(asked)
        if answer is not None and case.starts[answer[1]]:
            first_ms = min(case.starts[answer[1]])
            rooms[asked.room_id, asked.agent].append((asked, first_ms))
    for begun in rooms.values():
        for (_, before), (asked, after) in pairwise(begun):
            if after < before:
                yield Violation("mention_order", (asked.event_id,), "began before an earlier one")


def _strangers(case: Case) -> Iterator[Violation]:
    known = {asked.event_id for asked in case.evidence.asked}
    for reply_to in case.told:
        if reply_to not in known:
            yield Violation("mention_stranger", (reply_to,), "a reply to what nobody asked")


def _it_shows_what_it_is_for(case: Case) -> Iterator[Violation]:
    live = [asked for asked in case.evidence.asked if asked.agent == LIVE]
    if live and not any(map(case.answer, live)):
        yield Violation("mention_not_shown", (), "the live session answered nothing")


RULES: Final = (
    _trouble,
    _lost,
    _doubled,
    _wrong,
    _started_twice,
    _turns_end,
    _order,
    _strangers,
    _it_shows_what_it_is_for,
)


# ---- what was seen, as evidence -----------------------------------------------------------------


def told_in(events: Sequence[Mapping[str, Any]], ghosts: Mapping[str, str]) -> list[Told]:
    """What agents' users said in reply to others, with their edits. `ghosts`: of each agent."""
    kind = [one for one in events if one["type"] == ROOM_KIND]
    return [
        told
        for agent, ghost in ghosts.items()
        for told in _told_by(agent, [one for one in kind if one["sender"] == ghost])
    ]


def _told_by(agent: str, ours: Sequence[Mapping[str, Any]]) -> Iterator[Told]:
    edits: dict[str, Mapping[str, Any]] = {}
    for event in ours:
        relation = event["content"].get("m.relates_to", {})
        if relation.get("rel_type") == "m.replace":
            edits[relation["event_id"]] = event
    for event in ours:
        relation = event["content"].get("m.relates_to", {})
        reply_to = replies_to(event)
        if not reply_to or relation.get("rel_type") == "m.replace":
            continue
        last = edits.get(event["event_id"], event)
        text = shown(last)
        yield Told(
            agent=agent,
            reply_to=reply_to,
            room_id=event.get("room_id", ""),
            text=text,
            at_ms=last["origin_server_ts"],
            final=text != PLACEHOLDER,
        )


def add_jobs(evidence: MentionEvidence, jobs: Sequence[Mapping[str, Any]]) -> None:
    """What the bridge itself says of all its jobs, the newest first."""
    places = {one["event_id"]: place for place, one in enumerate(reversed(jobs))}
    evidence.asked = [
        replace(asked, place=places.get(asked.event_id, -1)) for asked in evidence.asked
    ]
    states = Counter(State(one["state"]) for one in jobs)
    evidence.jobs = {state: count for state, count in states.items() if state not in FINE}


# ---- for the page that shows a run ------------------------------------------------------------


def messages(evidence: MentionEvidence) -> list[Message]:
    """The mentions, by room."""
    case = Case(evidence)
    rooms = sorted({asked.room_id for asked in evidence.asked})
    found = []
    for asked in evidence.asked:
        ends = [told.at_ms for told in case.told[asked.event_id] if told.final]
        outcome = "answered" if case.answer(asked) else "notice" if ends else "nothing came back"
        group = f"room {rooms.index(asked.room_id) + 1}"
        name = f"mention {asked.key} of {asked.person} to {asked.agent}"
        found.append(Message(name, group, asked.at_ms, min(ends, default=None), outcome))
    return found


def hops(evidence: MentionEvidence) -> list[Hop]:
    """Of the mentions that were answered after one run. Times of one machine's clock."""
    case = Case(evidence)
    entered = {row.turn_id: float(row.entry_id.partition("-")[0]) for row in evidence.turns}
    ends = {one.turn: one.at_ms for one in evidence.effects if one.ev == "end"}
    took: dict[str, list[float]] = defaultdict(list)
    for asked in evidence.asked:
        answer = case.answer(asked)
        if answer is None or answer[1] not in ends or len(case.starts[answer[1]]) != 1:
            continue
        way = "room, live session" if asked.agent == LIVE else "room"
        turn, told = answer[1], case.told[asked.event_id][0]
        start_ms, end_ms = case.starts[turn][0], ends[turn]
        for name, ms in (
            ("mention to the agent's inbox", entered[turn] - asked.at_ms),
            ("inbox to the agent's start", start_ms - entered[turn]),
            ("the agent at work", end_ms - start_ms),
            ("the agent's end to the room", told.at_ms - end_ms),
            ("mention to answer", float(told.at_ms - asked.at_ms)),
        ):
            took[f"{way}: {name}"].append(max(0.0, ms))
    return [Hop(name, times) for name, times in took.items()]
