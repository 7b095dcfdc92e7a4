"""Judges the demo's wakes: what was sent, what the sessions were shown, what TAMQ says. Pure."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from corral.local.rules import Report, Violation

ACKNOWLEDGED = "acknowledged"


@dataclass(frozen=True)
class Wake:
    """A wake whose `send` was answered: every id that it was ever answered with, in order."""

    key: str
    repo: str
    body: str
    message_ids: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """A message as the session of `repo` was shown it."""

    repo: str
    message_id: str
    attempt: int
    body: str
    at_ms: int


@dataclass(frozen=True)
class Receipt:
    """What TAMQ says of a message in the end. `attempts` are the numbers of those it recorded."""

    message_id: str
    key: str
    state: str
    attempt_count: int
    attempts_max: int
    attempts: tuple[int, ...]


@dataclass
class WakeEvidence:
    """Of one run. `sessions`: by repository, whether its processes are the ones that were there."""

    planned: int = 0
    wakes: list[Wake] = field(default_factory=list)
    shown: list[Shown] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)
    kills_ms: list[int] = field(default_factory=list)
    sessions: dict[str, bool] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class WakeSummary:
    """The numbers of the table. `redelivered`: shown with more than one attempt number."""

    sent: int
    acknowledged: int
    lost: int
    doubled_keys: int
    redelivered: int
    killed_between: int
    kills: int
    sessions: int
    sessions_alive: int

    def rows(self) -> list[tuple[str, str]]:
        """What is counted, and how many."""
        return [
            ("wakes sent to live sessions (tmux, pty)", str(self.sent)),
            ("wakes acknowledged", str(self.acknowledged)),
            ("wakes lost", str(self.lost)),
            ("keys with two messages", str(self.doubled_keys)),
            ("wakes redelivered", str(self.redelivered)),
            ("redelivered across a kill of TAMQ", str(self.killed_between)),
            ("kills of TAMQ", str(self.kills)),
            ("sessions that outlived them", f"{self.sessions_alive} of {self.sessions}"),
        ]


def judge(evidence: WakeEvidence) -> Report[WakeSummary]:
    """Judges a run by every rule, and by what it was meant to show."""
    violations = [violation for rule in RULES for violation in rule(evidence)]
    seen = _shown(evidence)
    summary = WakeSummary(
        sent=len(evidence.wakes),
        acknowledged=sum(one.state == ACKNOWLEDGED for one in evidence.receipts),
        lost=len({one.ids for one in violations if one.rule == "wake_lost"}),
        doubled_keys=len({one.ids for one in violations if one.rule == "wake_key"}),
        redelivered=sum(len(shown) > 1 for shown in seen.values()),
        killed_between=_killed_between(evidence),
        kills=len(evidence.kills_ms),
        sessions=len(evidence.sessions),
        sessions_alive=sum(evidence.sessions.values()),
    )
    return Report(violations, summary)


def _shown(evidence: WakeEvidence) -> dict[str, list[Shown]]:
    found: dict[str, list[Shown]] = defaultdict(list)
    for one in sorted(evidence.shown, key=lambda shown: shown.at_ms):
        found[one.message_id].append(one)
    return found


def _killed_between(evidence: WakeEvidence) -> int:
    """Messages that were shown, and shown again after TAMQ had been killed."""
    return sum(
        any(shown[0].at_ms < at_ms < shown[-1].at_ms for at_ms in evidence.kills_ms)
        for shown in _shown(evidence).values()
    )


def _nothing_is_lost(evidence: WakeEvidence) -> Iterator[Violation]:
    if len(evidence.wakes) < evidence.planned:
        text = f"{evidence.planned - len(evidence.wakes)} wakes were never answered"
        yield Violation("wake_unanswered", (), text)
    receipts = {one.message_id: one for one in evidence.receipts}
    seen = _shown(evidence)
    for wake in evidence.wakes:
        ids = (wake.key, wake.message_ids[0])
        receipt = receipts.get(wake.message_ids[0])
        if receipt is None or receipt.key != wake.key:
            yield Violation("wake_lost", ids, "was answered, and TAMQ does not know it")
        elif receipt.state != ACKNOWLEDGED:
            yield Violation("wake_state", ids, f"is {receipt.state} in the end")
        if not seen[wake.message_ids[0]]:
            yield Violation("wake_lost", ids, "was answered, and no session was shown it")


def _a_key_is_one_message(evidence: WakeEvidence) -> Iterator[Violation]:
    for wake in evidence.wakes:
        if len(set(wake.message_ids)) > 1:
            yield Violation("wake_key", (wake.key,), f"has {len(set(wake.message_ids))} messages")
    keys = [one.key for one in evidence.receipts]
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        yield Violation("wake_key", (key,), "has more than one row")


def _attempts_are_counted_and_bounded(evidence: WakeEvidence) -> Iterator[Violation]:
    seen = _shown(evidence)
    for one in evidence.receipts:
        ids = (one.key, one.message_id)
        if one.attempt_count > one.attempts_max:
            yield Violation("wake_attempts", ids, f"{one.attempt_count} attempts were made")
        if sorted(one.attempts) != list(range(1, one.attempt_count + 1)):
            yield Violation("wake_attempts", ids, f"counted, but not recorded: {one.attempts}")
        numbers = [shown.attempt for shown in seen[one.message_id]]
        if len(set(numbers)) != len(numbers) or not set(numbers) <= set(one.attempts):
            yield Violation("wake_attempts", ids, f"attempts {numbers} were shown")


def _sessions_see_what_was_sent(evidence: WakeEvidence) -> Iterator[Violation]:
    sent = {ident: wake for wake in evidence.wakes for ident in wake.message_ids}
    for one in evidence.shown:
        wake = sent.get(one.message_id)
        if wake is None or wake.repo != one.repo or wake.body != one.body:
            yield Violation("wake_invented", (one.message_id,), f"{one.repo} saw {one.body!r}")


def _sessions_outlive_tamq(evidence: WakeEvidence) -> Iterator[Violation]:
    for repo, alive in evidence.sessions.items():
        if not alive:
            yield Violation("session_ended", (repo,), "did not outlive TAMQ")


def _it_shows_what_it_is_for(evidence: WakeEvidence) -> Iterator[Violation]:
    for text in evidence.trouble:
        yield Violation("wake_trouble", (), text)
    if not evidence.kills_ms or not _killed_between(evidence):
        yield Violation("wake_not_shown", (), "no wake was redelivered across a kill of TAMQ")


RULES = (
    _nothing_is_lost,
    _a_key_is_one_message,
    _attempts_are_counted_and_bounded,
    _sessions_see_what_was_sent,
    _sessions_outlive_tamq,
    _it_shows_what_it_is_for,
)
