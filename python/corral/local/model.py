"""Reconciles what was sent, seen, done and remembered: violations and a summary. Pure.

`python -m corral.local.model EVIDENCE.json` judges the evidence of a kept run again.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from corral.local.evidence import Evidence
from corral.local.rules import Case, Report, Violation
from corral.local.rules_runs import RULES, runs_of

LOST_RULES = {"lost", "unanswered", "not_terminal"}
DUPLICATE_RULES = {"duplicated_turn", "answered_twice", "reply_twice", "started_again"}
ORDER_RULES = {"order", "overlap"}


@dataclass
class Summary:
    """The numbers of the table. Times are milliseconds; counts are of messages or kills."""

    sent: int = 0
    answered: int = 0
    notices: int = 0
    no_answer_due: int = 0  # duplicates and empty entries: recorded, not answered
    lost: int = 0
    duplicated: int = 0
    order_violations: int = 0
    starts: int = 0
    interrupted: int = 0
    resumed: int = 0
    repeated_sends: int = 0
    sent_while_down: int = 0
    answered_after_down: int = 0
    kills: int = 0
    kills_in_flight: int = 0
    recovery_max_ms: int | None = None

    def add(self, other: "Summary") -> None:
        """Sums two runs; the slowest recovery is the slower of both."""
        slowest = [v for v in (self.recovery_max_ms, other.recovery_max_ms) if v is not None]
        for name, value in asdict(other).items():
            if name != "recovery_max_ms":
                setattr(self, name, getattr(self, name) + value)
        self.recovery_max_ms = max(slowest, default=None)


def reconcile(evidence: Evidence) -> Report[Summary]:
    """Judges a run by every rule."""
    case = Case(evidence)
    violations = [violation for rule in RULES for violation in rule(case)]
    return Report(violations, _summary(case, violations))


def _count(violations: list[Violation], rules: set[str]) -> int:
    return sum(violation.rule in rules for violation in violations)


def _summary(case: Case, violations: list[Violation]) -> Summary:
    evidence = case.evidence
    finals = [entry for turn in case.seen for entry in case.finals(turn)]
    answered = {(entry.source, entry.in_reply_to) for entry in finals}
    down = [sent for sent in evidence.sent if sent.while_down]
    kills = [happening for happening in evidence.happenings if happening.lethal]
    recoveries = recovery_times_ms(evidence)
    runs = runs_of(case)
    return Summary(
        sent=len(evidence.sent),
        answered=sum(entry.slot == "reply" for entry in finals),
        notices=sum(entry.slot == "notice" for entry in finals),
        no_answer_due=sum(
            (sent.source, sent.entry_id) not in answered
            and (
                sent.label == "empty"
                or "duplicate" in case.notes.get((sent.source, sent.entry_id), [])
            )
            for sent in evidence.sent
        ),
        lost=_count(violations, LOST_RULES),
        duplicated=_count(violations, DUPLICATE_RULES),
        order_violations=_count(violations, ORDER_RULES),
        starts=len(runs),
        interrupted=sum(row.outcome in {"interrupted", "held"} for row in evidence.rows),
        resumed=len(runs) - len({run.row.turn_id for run in runs}),
        repeated_sends=sum(sent.lost_answers for sent in evidence.sent),
        sent_while_down=len(down),
        answered_after_down=sum((sent.source, sent.entry_id) in answered for sent in down),
        kills=len(kills),
        kills_in_flight=sum(kill.in_flight > 0 for kill in kills),
        recovery_max_ms=max(recoveries, default=None),
    )


def recovery_times_ms(evidence: Evidence) -> list[int]:
    """For each kill with work in flight: how long until the next answer was in the outbox."""
    added = sorted(entry.added_ms for entry in evidence.seen)
    times = []
    for kill in evidence.happenings:
        if not kill.lethal or kill.in_flight == 0:
            continue
        later = [at_ms for at_ms in added if at_ms > kill.at_ms]
        if later:
            times.append(later[0] - kill.at_ms)
    return times


def main(argv: list[str]) -> int:
    """Judges a kept evidence file; prints the report as JSON."""
    report = reconcile(Evidence.load(Path(argv[1])))
    print(json.dumps(report.as_dict(), indent=2))
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))
