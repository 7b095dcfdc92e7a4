"""The model finds nothing in a clean run, and each kind of fault in a spoilt one."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.local.evidence import Effect, Evidence, Happening, Leftovers, Seen, TurnRow
from corral.local.model import reconcile, recovery_times_ms
from corral.local.rules import CERTAINLY_RAN, NEVER_RAN
from tests.unit.local.simulated import clean

Spoil = Callable[[Evidence, random.Random], None]


def rules(evidence: Evidence) -> set[str]:
    return {violation.rule for violation in reconcile(evidence).violations}


def completed(evidence: Evidence, rng: random.Random) -> TurnRow:
    """A turn with exactly one run and a reply."""
    return rng.choice(
        [
            row
            for row in evidence.rows
            if row.outcome == "completed" and row.starts == 1 and row.source != "echo"
        ]
    )


def seen_of(evidence: Evidence, row: TurnRow) -> Seen:
    return next(seen for seen in evidence.seen if seen.turn_id == row.turn_id)


def replace_seen(evidence: Evidence, old: Seen, **fields: object) -> None:
    evidence.seen[evidence.seen.index(old)] = replace(old, **fields)  # type: ignore[arg-type]


def replace_row(evidence: Evidence, old: TurnRow, **fields: object) -> None:
    evidence.rows[evidence.rows.index(old)] = replace(old, **fields)  # type: ignore[arg-type]


def replace_effects(evidence: Evidence, row: TurnRow, shift_ms: float, events: set[str]) -> None:
    evidence.effects[:] = [
        replace(effect, at_ms=effect.at_ms + shift_ms)
        if effect.turn == row.turn_id and effect.ev in events
        else effect
        for effect in evidence.effects
    ]


def drop_everything(evidence: Evidence, rng: random.Random) -> None:
    row = completed(evidence, rng)
    evidence.rows.remove(row)
    evidence.effects[:] = [e for e in evidence.effects if e.turn != row.turn_id]
    evidence.seen[:] = [s for s in evidence.seen if s.turn_id != row.turn_id]


def drop_duplicate_note(evidence: Evidence, rng: random.Random) -> None:
    evidence.notes.remove(rng.choice([n for n in evidence.notes if n.kind == "duplicate"]))


def trimmed_unread(evidence: Evidence, rng: random.Random) -> None:
    note = rng.choice([n for n in evidence.notes if n.kind == "duplicate"])
    evidence.notes[evidence.notes.index(note)] = replace(note, kind="trimmed")


def drop_answer(evidence: Evidence, rng: random.Random) -> None:
    evidence.seen.remove(seen_of(evidence, completed(evidence, rng)))


def answer_again(evidence: Evidence, rng: random.Random) -> None:
    seen = seen_of(evidence, completed(evidence, rng))
    evidence.seen.append(replace(seen, outbox_id="1800000000000-0"))


def notice_after_reply(evidence: Evidence, rng: random.Random) -> None:
    seen = seen_of(evidence, completed(evidence, rng))
    notice = replace(seen, outbox_id="1600000000000-0", slot="notice", outcome="interrupted")
    evidence.seen.append(notice)


def start_again(evidence: Evidence, rng: random.Random) -> None:
    row = rng.choice([r for r in evidence.rows if r.starts == 1 and r.source == "a2a"])
    first = next(e for e in evidence.effects if e.turn == row.turn_id)
    evidence.effects.append(replace(first, run=10**6, at_ms=first.at_ms + 10, resumed="1"))
    replace_row(evidence, row, starts=2)


def start_unrecorded(evidence: Evidence, rng: random.Random) -> None:
    replace_row(evidence, completed(evidence, rng), starts=0)


def run_refused(evidence: Evidence, rng: random.Random) -> None:
    row = rng.choice([row for row in evidence.rows if row.outcome in NEVER_RAN])
    evidence.effects.append(Effect("start", row.turn_id, 10**6, 1.0, entry_id=row.entry_id))


def answer_without_run(evidence: Evidence, rng: random.Random) -> None:
    row = rng.choice(
        [row for row in evidence.rows if row.outcome in CERTAINLY_RAN and row.source != "echo"]
    )
    evidence.effects[:] = [e for e in evidence.effects if e.turn != row.turn_id]


def later_first(evidence: Evidence, rng: random.Random) -> None:
    del rng
    rows = [row for row in evidence.rows if row.starts == 1 and row.source == "a2a"]
    lanes: dict[str | None, TurnRow] = {}
    for row in rows:
        earlier = lanes.setdefault(row.channel, row)
        if earlier is not row:
            replace_effects(evidence, row, -1e9, {"start", "beat", "end"})
            return
    raise AssertionError("the simulation has no two turns in one channel")


def work_on(evidence: Evidence, rng: random.Random) -> None:
    """The child of a run goes on after its turn was answered (and into the next run)."""
    del rng
    rows = [row for row in evidence.rows if row.starts == 1 and row.source == "a2a"]
    lanes: dict[str | None, TurnRow] = {}
    for row in rows:
        earlier = lanes.setdefault(row.channel, row)
        if earlier is not row:
            late = [e for e in evidence.effects if e.turn == row.turn_id][-1].at_ms
            evidence.effects.append(
                Effect("beat", earlier.turn_id, _leader(evidence, earlier), late)
            )
            return
    raise AssertionError("the simulation has no two turns in one channel")


def _leader(evidence: Evidence, row: TurnRow) -> int:
    return next(e.run for e in evidence.effects if e.turn == row.turn_id)


def wrong_words(evidence: Evidence, rng: random.Random) -> None:
    seen = seen_of(evidence, completed(evidence, rng))
    replace_seen(evidence, seen, content="answer to something else")


def wrong_sender(evidence: Evidence, rng: random.Random) -> None:
    seen = seen_of(evidence, completed(evidence, rng))
    replace_seen(evidence, seen, binding=replace(seen.binding, sender="mallory"))


def wrong_target(evidence: Evidence, rng: random.Random) -> None:
    replace_seen(evidence, seen_of(evidence, completed(evidence, rng)), in_reply_to="9-9")


def wrong_slot(evidence: Evidence, rng: random.Random) -> None:
    replace_seen(evidence, seen_of(evidence, completed(evidence, rng)), slot="notice")


def wrong_outcome(evidence: Evidence, rng: random.Random) -> None:
    row = completed(evidence, rng)
    replace_seen(evidence, seen_of(evidence, row), outcome="timeout", slot="notice")
    replace_row(evidence, row, outcome="timeout")


def two_stories(evidence: Evidence, rng: random.Random) -> None:
    replace_row(evidence, completed(evidence, rng), outcome="exit_nonzero")


def two_turns(evidence: Evidence, rng: random.Random) -> None:
    row = completed(evidence, rng)
    sent = next(s for s in evidence.sent if (s.source, s.entry_id) == (row.source, row.entry_id))
    other = replace(sent, entry_id="1600000000000-7", label="duplicate")
    evidence.sent.append(other)
    evidence.rows.append(replace(row, entry_id=other.entry_id, turn_id="scout.x.1.other"))


def stranger(evidence: Evidence, rng: random.Random) -> None:
    row = completed(evidence, rng)
    evidence.rows.append(
        replace(row, entry_id="5-5", turn_id="scout.a2a.1.5-5", message_id="nobody's")
    )


def unknown_answer(evidence: Evidence, rng: random.Random) -> None:
    seen = seen_of(evidence, completed(evidence, rng))
    evidence.seen.append(replace(seen, turn_id="scout.a2a.1.6-6", outbox_id="1600000000000-1"))


def unknown_run(evidence: Evidence, rng: random.Random) -> None:
    del rng
    evidence.effects.append(Effect("start", "scout.a2a.1.7-7", 1, 1.0, entry_id="7-7"))


def stuck(evidence: Evidence, rng: random.Random) -> None:
    replace_row(evidence, completed(evidence, rng), state="replying")


def content_kept(evidence: Evidence, rng: random.Random) -> None:
    replace_row(evidence, completed(evidence, rng), scrubbed=False)


def applied_to_nothing(evidence: Evidence, rng: random.Random) -> None:
    row = rng.choice([row for row in evidence.rows if row.kind == "cancel"])
    replace_seen(evidence, seen_of(evidence, row), outcome="cancel_applied")
    replace_row(evidence, row, outcome="cancel_applied")


def resumed_untold(evidence: Evidence, rng: random.Random) -> None:
    row = rng.choice([r for r in evidence.rows if r.starts > 1])
    evidence.effects[:] = [
        replace(e, resumed="0") if e.turn == row.turn_id else e for e in evidence.effects
    ]


def left(evidence: Evidence, rng: random.Random) -> None:
    del rng
    evidence.leftovers = Leftovers(pending={"a2a": 1})


def denied(evidence: Evidence, rng: random.Random) -> None:
    del rng
    evidence.leftovers = Leftovers(acl_log=["agent-scout xpending"])


def logged(evidence: Evidence, rng: random.Random) -> None:
    del rng
    evidence.leftovers = Leftovers(words_in_logs=["daemon.log"])


def crashed(evidence: Evidence, rng: random.Random) -> None:
    del rng
    evidence.happenings.append(Happening(1, "daemon", "ended", "", 70, in_flight=0, lethal=False))


def blocked(evidence: Evidence, rng: random.Random) -> None:
    del rng
    evidence.blocked_loop = True


def restless(evidence: Evidence, rng: random.Random) -> None:
    del rng
    evidence.quiet = False


SPOILS: dict[Spoil, str] = {
    drop_everything: "lost",
    drop_duplicate_note: "lost",
    trimmed_unread: "lost",
    drop_answer: "unanswered",
    answer_again: "reply_twice",
    notice_after_reply: "answered_twice",
    start_again: "started_again",
    start_unrecorded: "start_not_recorded",
    run_refused: "ran_although",
    answer_without_run: "no_run",
    later_first: "order",
    work_on: "overlap",
    wrong_words: "answer_wrong",
    wrong_sender: "binding_wrong",
    wrong_target: "binding_wrong",
    wrong_slot: "slot_wrong",
    wrong_outcome: "outcome_wrong",
    two_stories: "outcome_differs",
    two_turns: "duplicated_turn",
    stranger: "invented_turn",
    unknown_answer: "invented_answer",
    unknown_run: "invented_run",
    stuck: "not_terminal",
    content_kept: "content_kept",
    applied_to_nothing: "cancel_wrong",
    resumed_untold: "resumed_wrong",
    left: "left_behind",
    denied: "acl_log",
    logged: "words_in_log",
    crashed: "process_failed",
    restless: "not_quiet",
    blocked: "blocked_loop",
}
SEED_WITH_EVERYTHING = 3


@given(st.integers(0, 2**32), st.integers(1, 60))
@settings(max_examples=150, deadline=None)
def test_clean_runs_have_no_violation(seed: int, count: int) -> None:
    evidence = clean(seed, count)
    report = reconcile(evidence)
    assert report.violations == []
    summary = report.summary
    held = sum(row.state == "held" for row in evidence.rows)
    answers = summary.answered + summary.notices + summary.no_answer_due + held
    assert answers == summary.sent == count


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_each_fault_is_found(spoil: Spoil) -> None:
    evidence = clean(SEED_WITH_EVERYTHING, 120)
    assert rules(evidence) == set()
    spoil(evidence, random.Random(0))
    assert SPOILS[spoil] in rules(evidence)


@given(st.integers(0, 2**32), st.sampled_from(sorted(SPOILS, key=lambda spoil: spoil.__name__)))
@settings(max_examples=150, deadline=None)
def test_faults_are_found_in_any_run(seed: int, spoil: Spoil) -> None:
    evidence = clean(seed, 150)
    try:
        spoil(evidence, random.Random(seed))
    except (IndexError, AssertionError):
        return  # this run has nothing that could be spoilt in this way
    assert SPOILS[spoil] in rules(evidence)


def test_child_that_outlives_its_answer_is_found() -> None:
    evidence = clean(SEED_WITH_EVERYTHING, 120)
    row = completed(evidence, random.Random(0))
    answer = seen_of(evidence, row)
    leader = _leader(evidence, row)
    evidence.effects.append(Effect("beat", row.turn_id, leader, answer.added_ms + 6.5))
    assert "still_working" in rules(evidence)
    evidence.effects[-1] = replace(evidence.effects[-1], at_ms=answer.added_ms + 5.5)
    assert "still_working" not in rules(evidence)


def test_lost_answer_may_have_made_the_entry() -> None:
    evidence = clean(SEED_WITH_EVERYTHING, 60)
    row = completed(evidence, random.Random(1))
    sent = next(s for s in evidence.sent if s.entry_id == row.entry_id)
    again = replace(sent, entry_id="1800000000000-0", lost_answers=1)
    evidence.sent[evidence.sent.index(sent)] = again
    assert rules(evidence) == {"lost"}, "the entry that was answered needs a record of its own"
    evidence.notes.append(type(evidence.notes[0])(row.source, "duplicate", again.entry_id))
    assert rules(evidence) == set()
    assert reconcile(evidence).summary.repeated_sends == 1
    evidence.sent[evidence.sent.index(again)] = replace(again, lost_answers=0)
    assert "invented_turn" in rules(evidence)


def test_removed_by_hand_is_no_loss() -> None:
    evidence = clean(SEED_WITH_EVERYTHING, 60)
    trimmed_unread(evidence, random.Random(0))
    note = next(note for note in evidence.notes if note.kind == "trimmed")
    assert rules(evidence) == {"lost"}
    evidence.removed.append(f"{note.source}/{note.entry_id}")
    assert rules(evidence) == set()


def test_interruption_needs_a_dead_runner() -> None:
    evidence = clean(SEED_WITH_EVERYTHING, 120)
    assert any(row.outcome == "interrupted" for row in evidence.rows)
    evidence.happenings.clear()
    assert rules(evidence) == {"outcome_wrong", "started_again"}
    end = Happening(10**15, "runner", "ended", "", 0, in_flight=0, lethal=False)
    evidence.happenings.append(end)
    assert rules(evidence) == {"outcome_wrong", "started_again"}


def test_recovery_counts_only_kills_with_work_in_flight() -> None:
    evidence = Evidence()
    evidence.seen = [_answer_at(100), _answer_at(250)]
    for at_ms, in_flight in ((90, 0), (120, 2), (240, 1), (300, 3)):
        evidence.happenings.append(
            Happening(at_ms, "daemon", "killed", "random", None, in_flight, lethal=True)
        )
    assert recovery_times_ms(evidence) == [130, 10]
    summary = reconcile(evidence).summary
    assert (summary.kills, summary.kills_in_flight, summary.recovery_max_ms) == (4, 3, 130)


def _answer_at(at_ms: int) -> Seen:
    seen = clean(1, 5).seen[0]
    return replace(seen, outbox_id=f"{at_ms}-0")


def test_evidence_survives_its_file(tmp_path: Path) -> None:
    evidence = clean(5, 80)
    evidence.save(tmp_path / "evidence.json")
    again = Evidence.load(tmp_path / "evidence.json")
    assert again == evidence
    assert reconcile(again).as_dict() == reconcile(evidence).as_dict()


def test_every_rule_has_a_spoil() -> None:
    source = (Path(__file__).parents[3] / "python/corral/local").glob("rules*.py")
    named = {
        part.split('"')[1]
        for path in source
        for part in path.read_text().split("Violation(")[1:]
        if '"' in part
    }
    assert named - set(SPOILS.values()) - {"still_working", "ledger_fault", "harness"} == set()
