"""A run as it should be, simulated without any service: the base of the model's own tests."""

import random
from dataclasses import replace

from corral.local.evidence import (
    Effect,
    Evidence,
    Happening,
    Note,
    Policy,
    Seen,
    Sent,
    TurnRow,
    sha,
)
from corral.local.plan import Mix, Planned, Planner
from corral.local.rules import OUTCOME_OF_ACTION, REPLIES

T0_MS = 1_700_000_000_000
SOURCES = {
    "a2a": Policy(),
    "chat": Policy(ack="reply", on_interrupt="resume"),
    "held": Policy(on_interrupt="hold"),
    "echo": Policy(runner="echo"),
}
FIXED = {
    "empty": "empty",
    "large": "content_too_large",
    "metadata": "metadata_invalid",
    "unknown": "kind_unknown",
    "cancel": "cancel_unknown",
}


class Simulation:
    """Plays a plan against perfect services, one message after the other."""

    def __init__(self, seed: int, count: int = 30) -> None:
        self.rng = random.Random(seed)
        self.evidence = Evidence(policies=dict(SOURCES))
        self.now_ms = T0_MS
        self.seq = 0
        self.turns: dict[tuple[str, str], str] = {}
        mix = Mix(sources=tuple(SOURCES), count=count, duration_s=5.0)
        died = self.rng.random() < 0.7
        for planned in Planner(self.rng, mix).plan():
            self.now_ms += self.rng.randrange(1, 50)
            self._play(planned, may_die=died)

    def _happening(self, process: str, what: str) -> None:
        self.evidence.happenings.append(
            Happening(self.now_ms, process, what, "random", -9, in_flight=1, lethal=True)
        )

    def entry_id(self) -> str:
        self.seq += 1
        return f"{self.now_ms}-{self.seq % 3}"

    def _play(self, planned: Planned, *, may_die: bool) -> None:
        cancels = b"1-1" if planned.label == "cancel" else b""
        sent = Sent(
            key=planned.key,
            source=planned.source,
            entry_id=self.entry_id(),
            label=planned.label,
            binding=planned.binding,
            said=planned.said(cancels),
            content=sha(planned.fields.get(b"content", b"")),
            at_ms=self.now_ms,
            action=planned.action,
            cancels=cancels.decode() or None,
        )
        self.evidence.sent.append(sent)
        turn_id = f"scout.{sent.source}.1.{sent.entry_id}"
        if planned.label in {"duplicate", "conflict"} and (sent.source, sent.said) in self.turns:
            self.evidence.notes.append(Note(sent.source, "duplicate", sent.entry_id))
            return
        self.turns[sent.source, sent.said] = turn_id
        policy = SOURCES[sent.source]
        outcome = FIXED.get(sent.label) or OUTCOME_OF_ACTION[sent.action]
        runs = 0
        if policy.runner == "echo" and sent.label not in FIXED:
            outcome = "completed"
        elif sent.label not in FIXED:
            runs = 1
            if may_die and self.rng.random() < 0.3:
                outcome, runs = self._interrupt(policy, outcome)
        for number in range(runs):
            self._run(sent, turn_id, resumed=number > 0)
        self._row(sent, turn_id, outcome, runs)
        if outcome != "empty":
            self._answer(sent, turn_id, outcome)

    def _interrupt(self, policy: Policy, outcome: str) -> tuple[str, int]:
        self._happening("runner", "killed")
        if policy.on_interrupt == "notify":
            return "interrupted", 1
        if policy.on_interrupt == "hold":
            return "held", 1
        runs = self.rng.randrange(2, policy.dispatch_attempts_max + 1)
        return (outcome if runs < policy.dispatch_attempts_max else "poisoned"), runs

    def _run(self, sent: Sent, turn_id: str, *, resumed: bool) -> None:
        self.seq += 1
        leader = self.seq
        for event in ("start", "beat", "beat", "end"):
            self.now_ms += 5
            self.evidence.effects.append(
                Effect(
                    event,
                    turn_id,
                    leader,
                    float(self.now_ms),
                    entry_id=sent.entry_id if event == "start" else None,
                    sender=sent.binding.sender,
                    channel=sent.binding.channel,
                    resumed="1" if resumed else "0",
                )
            )

    def _row(self, sent: Sent, turn_id: str, outcome: str, runs: int) -> None:
        state = {"empty": "empty", "held": "held", "poisoned": "dead"}.get(outcome, "done")
        self.evidence.rows.append(
            TurnRow(
                source=sent.source,
                turn_id=turn_id,
                entry_id=sent.entry_id,
                kind="cancel" if sent.label == "cancel" else "message",
                state=state,
                outcome=outcome,
                ack="acked",
                starts=runs,
                scrubbed=state != "held",
                message_id=sent.binding.message_id,
                channel=sent.binding.channel,
            )
        )

    def _answer(self, sent: Sent, turn_id: str, outcome: str) -> None:
        self.now_ms += 2
        content = f"answer {sent.content[:32]} {turn_id}" if outcome == "completed" else "Sorry."
        self.evidence.seen.append(
            Seen(
                source=sent.source,
                outbox_id=self.entry_id(),
                in_reply_to=sent.entry_id,
                turn_id=turn_id,
                outcome=outcome,
                slot="reply" if outcome in REPLIES else "notice",
                content=content,
                content_sha=sent.content,
                binding=sent.binding,
                seen_at_ms=self.now_ms,
            )
        )


def clean(seed: int = 1, count: int = 30) -> Evidence:
    """The evidence of a run in which every promise was kept."""
    return Simulation(seed, count).evidence


def changed(evidence: Evidence, **fields: object) -> Evidence:
    """The same evidence with some of its lists replaced."""
    return replace(evidence, **fields)  # type: ignore[arg-type]
