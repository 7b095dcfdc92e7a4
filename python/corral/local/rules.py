"""The rules that a run must have kept. Pure: each looks at the case and yields violations.

Safety is judged always. Liveness (`quiet`, `leftover`) is judged after the faults have stopped and
a bound has passed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

from corral.local.evidence import (
    Binding,
    Effect,
    Evidence,
    Policy,
    Seen,
    Sent,
    TurnRow,
    entry_order,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SummaryT = TypeVar("SummaryT", bound="DataclassInstance")

REPLIES = {"completed", "input_required", "failed"}
NEVER_RAN = {
    "content_too_large",
    "metadata_invalid",
    "kind_unknown",
    "start_failed",
    "payload_lost",
    "cancel_applied",
    "cancel_too_late",
    "cancel_unknown",
    "empty",
}
CERTAINLY_RAN = {"completed", "exit_nonzero", "timeout", "output_invalid", "reply_too_large"}
TERMINAL = {"done", "empty", "dead", "cancelled"}
REMOVED = {"trimmed", "deleted"}
OUTCOME_OF_ACTION = {
    "answer": "completed",
    "orphan": "completed",
    "exit": "exit_nonzero",
    "garbage": "output_invalid",
    "big": "reply_too_large",
    "hang": "timeout",
}
CLOCK_TOLERANCE_MS = 5.0  # Redis stamps an entry with the start of its command, to a millisecond


@dataclass(frozen=True)
class Violation:
    """A broken promise: the rule, what it was broken for, and how."""

    rule: str
    ids: tuple[str, ...]
    message: str

    def __str__(self) -> str:
        return f"{self.rule}: {', '.join(self.ids)}: {self.message}"


@dataclass(frozen=True)
class Report(Generic[SummaryT]):
    """What a model found, with its own summary (a dataclass of numbers)."""

    violations: list[Violation]
    summary: SummaryT

    @property
    def ok(self) -> bool:
        return not self.violations

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "summary": asdict(self.summary),
            "violations": [asdict(violation) for violation in self.violations],
        }


@dataclass
class Group:
    """All that was said once: sends of the same words under the same message id, and its rows."""

    sends: list[Sent] = field(default_factory=list)
    rows: list[TurnRow] = field(default_factory=list)

    @property
    def first(self) -> Sent:
        return self.sends[0]

    @property
    def lost_answers(self) -> int:
        return sum(sent.lost_answers for sent in self.sends)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(f"{sent.source}/{sent.entry_id}" for sent in self.sends)


class Case:
    """The evidence, indexed the way the rules look at it."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        self.by_turn = {row.turn_id: row for row in evidence.rows}
        self.notes: dict[tuple[str, str], list[str]] = defaultdict(list)
        for note in evidence.notes:
            if note.entry_id is not None:
                self.notes[note.source, note.entry_id].append(note.kind)
        self.seen: dict[str, list[Seen]] = defaultdict(list)
        for seen in sorted(evidence.seen, key=lambda seen: entry_order(seen.outbox_id)):
            self.seen[seen.turn_id].append(seen)
        self.effects: dict[str, list[Effect]] = defaultdict(list)
        for effect in sorted(evidence.effects, key=lambda effect: effect.at_ms):
            self.effects[effect.turn].append(effect)
        self.strangers: list[TurnRow] = []
        self.groups = self._group()
        self.group_of = {row.turn_id: group for group in self.groups for row in group.rows}

    def _group(self) -> list[Group]:
        groups: dict[tuple[str, str, str], Group] = {}
        owner: dict[tuple[str, str], Group] = {}
        for sent in self.evidence.sent:
            name = sent.binding.message_id
            key = (sent.source, name or sent.entry_id, sent.said if name else "")
            group = groups.setdefault(key, Group())
            group.sends.append(sent)
            owner[sent.source, sent.entry_id] = group
        for row in self.evidence.rows:
            known = owner.get((row.source, row.entry_id)) or self._lost_one(row, groups)
            if known is None:
                self.strangers.append(row)
            else:
                known.rows.append(row)
        return list(groups.values())

    @staticmethod
    def _lost_one(row: TurnRow, groups: dict[tuple[str, str, str], Group]) -> Group | None:
        """The group of a row whose entry nobody knows: a send whose answer was lost made it."""
        for (source, name, _), group in groups.items():
            ours = (source, name) == (row.source, row.message_id)
            if ours and group.lost_answers and not group.rows:
                return group
        return None

    def policy(self, source: str) -> Policy:
        return self.evidence.policies.get(source, Policy())

    def finals(self, turn_id: str) -> list[Seen]:
        """Outbox entries that end a turn: all but the word that it is held."""
        return [seen for seen in self.seen.get(turn_id, []) if seen.outcome != "held"]

    def starts(self, turn_id: str) -> list[Effect]:
        return [effect for effect in self.effects.get(turn_id, []) if effect.ev == "start"]

    @cached_property
    def runner_deaths_ms(self) -> list[int]:
        """When the runner ended other than by being asked to."""
        return [
            happening.at_ms
            for happening in self.evidence.happenings
            if happening.process == "runner"
            and (happening.lethal or (happening.what == "ended" and happening.code))
        ]

    def runner_died_during(self, row: TurnRow) -> bool:
        """Whether a runner died between the arrival of a turn's entry and its (last) answer."""
        answers = [entry.added_ms for entry in self.seen.get(row.turn_id, [])]
        until_ms = max(answers, default=None)
        from_ms = entry_order(row.entry_id)[0]
        return any(
            from_ms <= at_ms and (until_ms is None or at_ms <= until_ms)
            for at_ms in self.runner_deaths_ms
        )

    @cached_property
    def cancel_names(self) -> set[tuple[str, str]]:
        return {(s.source, s.cancels) for s in self.evidence.sent if s.cancels}


Rule = Callable[[Case], Iterator[Violation]]


def one_fate(case: Case) -> Iterator[Violation]:
    """Every acknowledged `XADD` has exactly one terminal fate; one saying has one turn."""
    for group in case.groups:
        if len(group.rows) > 1:
            ids = tuple(row.turn_id for row in group.rows)
            yield Violation("duplicated_turn", ids, "one message has several turns")
        for sent in group.sends:
            at = (sent.source, sent.entry_id)
            notes = set(case.notes.get(at, []))
            fine = any((row.source, row.entry_id) == at for row in group.rows)
            fine = fine or bool(group.rows and "duplicate" in notes)
            fine = fine or bool(notes & REMOVED and "/".join(at) in case.evidence.removed)
            if not fine:
                heard = ", ".join(sorted(notes)) or "nothing"
                message = f"no turn, and the ledger recorded {heard} for it"
                yield Violation("lost", ("/".join(at),), message)
    for row in case.strangers:
        yield Violation("invented_turn", (row.turn_id,), "nobody sent its entry")


def terminal(case: Case) -> Iterator[Violation]:
    """Every turn has ended, or waits for the operator where the operator chose so."""
    for row in case.evidence.rows:
        waits = row.state == "held" and case.policy(row.source).on_interrupt == "hold"
        if row.state not in TERMINAL and not waits:
            yield Violation("not_terminal", (row.turn_id,), f"still {row.state}")


def one_answer(case: Case) -> Iterator[Violation]:
    """One reply or notice for each turn, and the ledger and the outbox tell the same."""
    for row in case.evidence.rows:
        seen = case.seen.get(row.turn_id, [])
        finals = case.finals(row.turn_id)
        ids = (row.turn_id, *(entry.outbox_id for entry in seen))
        if sum(entry.slot == "reply" for entry in seen) > 1:
            yield Violation("reply_twice", ids, "two replies for one turn")
        elif len(finals) > 1:
            yield Violation("answered_twice", ids, "several answers for one turn")
        wanted = 0 if row.state in {"empty", "held"} else 1
        if len(finals) < wanted:
            yield Violation("unanswered", ids, f"{row.state} ({row.outcome}), sender heard nothing")
        elif wanted == 0 and finals:
            yield Violation("answered_twice", ids, f"an answer although it is {row.state}")
        helds = len(seen) - len(finals)
        if row.state == "held" and helds == 0:
            yield Violation("unanswered", ids, "held, and its sender was not told")
        if helds > max(1, row.starts):
            yield Violation("answered_twice", ids, "the same hold was told more than once")
        if finals and row.state in TERMINAL and finals[-1].outcome != row.outcome:
            message = f"outbox says {finals[-1].outcome}, ledger says {row.outcome}"
            yield Violation("outcome_differs", ids, message)
        for entry in seen:
            if (entry.slot == "reply") != (entry.outcome in REPLIES):
                yield Violation("slot_wrong", ids, f"{entry.outcome} in slot {entry.slot}")


def nothing_invented(case: Case) -> Iterator[Violation]:
    """Each outbox entry answers an entry that was sent, and gives back what was sent with it."""
    for turn_id, entries in case.seen.items():
        group = case.group_of.get(turn_id)
        row = case.by_turn.get(turn_id)
        for entry in entries:
            ids = (turn_id, entry.outbox_id)
            if group is None or row is None:
                yield Violation("invented_answer", ids, "no such turn")
                continue
            if (entry.source, entry.in_reply_to) != (row.source, row.entry_id):
                yield Violation("binding_wrong", ids, f"in reply to {entry.in_reply_to}")
            for name in Binding.__dataclass_fields__:
                sent, back = getattr(group.first.binding, name), getattr(entry.binding, name)
                if back != sent and not (group.first.label == "metadata" and back is None):
                    yield Violation("binding_wrong", ids, f"{name}: {back!r} for {sent!r}")


def right_answer(case: Case) -> Iterator[Violation]:
    """The outcome is one that this message can have, and the answer is the agent's."""
    for group in case.groups:
        for row in group.rows:
            allowed = _allowed(case, group, row)
            if row.state in TERMINAL and row.outcome not in allowed:
                message = f"{row.outcome}, expected {' or '.join(sorted(allowed))}"
                yield Violation("outcome_wrong", (row.turn_id,), message)
            for entry in case.finals(row.turn_id):
                if entry.outcome == "completed" and not _is_answer(case, group, row, entry):
                    yield Violation("answer_wrong", (row.turn_id, entry.outbox_id), entry.content)
    yield from _cancels(case)


def _allowed(case: Case, group: Group, row: TurnRow) -> set[str]:
    policy = case.policy(row.source)
    fixed = {
        "empty": {"empty"},
        "large": {"content_too_large"},
        "metadata": {"metadata_invalid"},
        "unknown": {"kind_unknown"},
        "cancel": {"cancel_applied", "cancel_too_late", "cancel_unknown"},
    }
    if group.first.label in fixed:
        return fixed[group.first.label]
    names = {row.entry_id, row.turn_id, row.message_id or row.entry_id}
    cancelled = {"cancelled"} if any((row.source, n) in case.cancel_names for n in names) else set()
    if policy.runner == "echo":
        return {"completed", "reply_too_large"} | cancelled
    allowed = {OUTCOME_OF_ACTION[group.first.action]} | cancelled
    if case.runner_died_during(row):
        given_up = {"notify": {"interrupted"}, "resume": {"poisoned"}}
        allowed |= given_up.get(policy.on_interrupt, set())
        if row.turn_id in case.evidence.abandoned:
            allowed.add("abandoned")
    return allowed


def _is_answer(case: Case, group: Group, row: TurnRow, entry: Seen) -> bool:
    if case.policy(row.source).runner == "echo":
        return entry.content_sha == group.first.content
    return entry.content == f"answer {group.first.content[:32]} {row.turn_id}"


def _cancels(case: Case) -> Iterator[Violation]:
    """A cancel that was applied has a cancelled target; a known target is not unknown."""
    for row in case.evidence.rows:
        group = case.group_of.get(row.turn_id)
        if group is None or group.first.label != "cancel" or row.outcome is None:
            continue
        name = group.first.cancels
        targets = [
            target
            for target in case.evidence.rows
            if target.source == row.source
            and name in {target.entry_id, target.message_id, target.turn_id}
        ]
        if row.outcome == "cancel_applied" and all(t.outcome != "cancelled" for t in targets):
            yield Violation("cancel_wrong", (row.turn_id,), "applied, but nothing is cancelled")
        earlier = [t for t in targets if entry_order(t.entry_id) < entry_order(row.entry_id)]
        if row.outcome == "cancel_unknown" and earlier:
            yield Violation("cancel_wrong", (row.turn_id,), f"{earlier[0].turn_id} was known")
