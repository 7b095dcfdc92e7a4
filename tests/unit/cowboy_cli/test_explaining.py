"""What `explain` concludes, as a table: each row is a situation, and words that must be said."""

from dataclasses import replace

import pytest

from corral.cowboy.domain import TERMINAL, TRANSITIONS, Outcome, State
from corral.cowboy.explaining import NOTHING, explain
from corral.cowboy.facts import Delivery, Known, Pending, Seen
from tests.unit.cowboy_cli.cases import (
    ABSENT,
    ENTRY,
    OUTBOX,
    PENDING,
    PRESENT,
    RECLAIM_IDLE_MS,
    TURN,
    UNREAD,
    answered,
    known,
    note,
    turn,
)

DOWN = Known(why_not="no daemon listens at control.sock")
NO_REDIS = Seen(refused=("no connection to Redis",))

# situation: facts, verdict, then words of what is certain, of what is not, and of what to do
SITUATIONS = {
    "interrupted": (
        (answered("interrupted", "notice"), known("done", "interrupted")),
        ("interrupted", "outcome is uncertain", "what its run did", "resubmit"),
    ),
    "acknowledged, unanswered": (
        (PRESENT, known("dispatched")),
        ("acknowledged_unanswered", "Redis will not offer it again", "its run has begun", "cancel"),
    ),
    "running, not acknowledged": (
        (PENDING, known("dispatched", ack="unacked")),
        ("running", "its start is committed", "has done so far", "never send it again"),
    ),
    "handed over, not started": (
        (PRESENT, known("dispatched", started_at_ms=None, starts=0)),
        ("starting", "certainly not started", "when the runner", "wait"),
    ),
    "poisoned": (
        (answered("poisoned", "notice"), known("dead", "poisoned", starts=3, dead_id="9-1")),
        ("poisoned", "dead letter is kept as 9-1", "what its run did", "resubmit"),
    ),
    "held": (
        (answered("held", "notice", base=PRESENT), known("held", "held")),
        ("held", "an operator decides", "interrupted run did", f"'cowboy turns abandon' {TURN}"),
    ),
    "released": (
        (PRESENT, known("held", "held", released=True)),
        ("released", "an operator released it", "interrupted run did", "wait"),
    ),
    "never read": (
        (UNREAD, Known()),
        ("never_read", "nobody has read it, so nothing ran", "when it will be read", "wait"),
    ),
    "never read, and its source does not work": (
        (UNREAD, Known(unhealthy="Redis did not answer in time")),
        ("never_read", "nothing ran", "when", "Redis did not answer in time"),
    ),
    "no group at all": (
        (replace(PRESENT, last_delivered=None), Known()),
        ("never_read", "nobody has read it", "when", "wait"),
    ),
    "trimmed before it was read": (
        (ABSENT, Known(notes=(note("trimmed"),))),
        ("trimmed", "removed from the stream before it was read", "what it said", "sender"),
    ),
    "gone, and nobody knows of it": (
        (ABSENT, Known()),
        ("trimmed", "neither the ledger nor the outbox", "whether it ever was", "its effects"),
    ),
    "gone, but the outbox has an answer": (
        (answered(), Known()),
        ("answered", OUTBOX, "whether the platform", "destination"),
    ),
    "healthy": (
        (answered(), known("done", "completed")),
        ("answered", f"{OUTBOX}, which its reader has acknowledged", "platform", "nothing is left"),
    ),
    "healthy, not read by its reader": (
        (answered(delivery=Delivery.UNREAD), known("done", "completed")),
        ("answered", "has not read yet", "when its reader takes it", "not a delivered one"),
    ),
    "healthy, read but not acknowledged by its reader": (
        (answered(delivery=Delivery.READ), known("done", "completed")),
        ("answered", "read and not acknowledged", "platform", "not a delivered one"),
    ),
    "healthy, without a reader": (
        (answered(delivery=Delivery.NO_READER), known("done", "completed")),
        ("answered", "nobody reads yet", "platform", "start the reader"),
    ),
    "healthy, trimmed from the outbox": (
        (ABSENT, known("done", "completed")),
        ("answered", "trimmed since", "platform", "nothing is left"),
    ),
    "waiting": (
        (PENDING, known("received", starts=0, started_at_ms=None, ack="unacked")),
        ("waiting", "nothing has run", "when its turn comes", "turns list"),
    ),
    "parked": (
        (PENDING, known("received", parked=True)),
        ("waiting", "parked", "when", "wait"),
    ),
    "replying": (
        (PRESENT, known("replying", "completed", outbox_id=None)),
        ("replying", "until the outbox has confirmed", "confirms it", "wait"),
    ),
    "replying, and in the outbox already": (
        (answered(base=PRESENT), known("replying", "completed", outbox_id=None)),
        ("replying", f"outbox has it as {OUTBOX}", "confirms", "wait"),
    ),
    "the instant of an interruption": (
        (PRESENT, known("interrupted")),
        ("interrupted", "over without a result", "what that run did", "wait a moment"),
    ),
    "timeout": (
        (answered("timeout", "notice"), known("done", "timeout")),
        ("noticed", "its time was over", "what its run did", "resubmit"),
    ),
    "cancelled before it ran": (
        (answered("cancelled", "notice"), known("cancelled", "cancelled", starts=0)),
        ("cancelled", "cancelled", "it never ran", "resubmit"),
    ),
    "refused by the outbox": (
        (ABSENT, known("dead", "outbox_refused", dead_id="9-1", outbox_id=None)),
        ("outbox_refused", "dead letter", "notice", "give the dead letter's answer"),
    ),
    "empty": (
        (ABSENT, known("empty", "empty", outbox_id=None, starts=0)),
        ("empty", "no usable content", NOTHING, "what it meant"),
    ),
    "too large": (
        (answered("content_too_large", "notice"), known("done", "content_too_large", starts=0)),
        ("content_too_large", "ended without a run", "seen the notice", "sender"),
    ),
    "a request to cancel": (
        (answered("cancel_applied", "notice"), known("done", "cancel_applied", starts=0)),
        ("cancel_applied", "a turn, which is cancelled", "seen the notice", "that it cancelled"),
    ),
    "a request that came too late": (
        (answered("cancel_too_late", "notice"), known("done", "cancel_too_late", starts=0)),
        ("cancel_too_late", "had ended before", "seen the notice", "explain the message"),
    ),
    "a request for what is not there": (
        (answered("cancel_unknown", "notice"), known("done", "cancel_unknown", starts=0)),
        ("cancel_unknown", "does not have", "seen the notice", "may still run"),
    ),
    "duplicate": (
        (PRESENT, Known(notes=(note("duplicate"),))),
        ("duplicate", "never started", NOTHING, "message_id"),
    ),
    "read, not recorded, young": (
        (PENDING, Known()),
        ("read_not_recorded", "5 s ago by harness-a2a", "another consumer", "reclaimed in 595 s"),
    ),
    "read by a ghost, old": (
        (replace(PRESENT, pending=Pending("ghost", RECLAIM_IDLE_MS, 2)), Known()),
        ("read_not_recorded", "delivered 2 times", "former ledger", "can be reclaimed now"),
    ),
    "passed over": (
        (PRESENT, Known()),
        ("passed_over", "the group has gone past it", "former ledger", "set to '$'"),
    ),
    "Redis cannot be read, the ledger knows": (
        (NO_REDIS, known("done", "completed")),
        ("answered", f"its place in the outbox, {OUTBOX}", "platform", "destination"),
    ),
    "Redis cannot be read, the ledger knows nothing": (
        (NO_REDIS, Known()),
        ("unknown", "no turn", "no connection to Redis", "cowboy doctor"),
    ),
    "another ledger's turn": (
        (ABSENT, replace(known("done", "interrupted"), verified=False, unhealthy="of ledger b")),
        ("interrupted", "its sender was told", "the right ledger (of ledger b)", "cowboy doctor"),
    ),
    "the daemon is down, an answer is there": (
        (answered(), DOWN),
        ("answered", OUTBOX, "what the ledger knows", "start the daemon (no daemon listens"),
    ),
    "the daemon is down, a notice is there": (
        (answered("held", "notice", base=PRESENT), DOWN),
        ("noticed", "(held)", "ledger", "start the daemon"),
    ),
    "the daemon is down, pending": (
        (PENDING, DOWN),
        ("pending", "too young to be reclaimed", "whether it started", "start the daemon"),
    ),
    "the daemon is down, pending for long": (
        (replace(PRESENT, pending=Pending("harness-a2a", 700_000, 1)), DOWN),
        ("pending", "no poll reaches it", "ledger", "start the daemon"),
    ),
    "the daemon is down, never read": (
        (UNREAD, DOWN),
        ("never_read", "nothing ran", NOTHING, "start the daemon"),
    ),
    "the daemon is down, acknowledged": (
        (PRESENT, DOWN),
        ("acknowledged_unanswered", "no answer was found", "what its run did", "start the daemon"),
    ),
    "the daemon is down, the outbox is long": (
        (replace(PRESENT, searched_all=False), DOWN),
        ("acknowledged_unanswered", "as far as it was searched", "ledger", "start the daemon"),
    ),
    "the daemon is down, gone": (
        (ABSENT, DOWN),
        ("trimmed", "the outbox does not know of it", "ledger", "start the daemon"),
    ),
    "neither answers": (
        (NO_REDIS, DOWN),
        ("unknown", NOTHING, "everything", "repair both"),
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_situation(name: str) -> None:
    (seen, facts), (verdict, certain, uncertain, todo) = SITUATIONS[name]
    told = explain(ENTRY, seen, facts, RECLAIM_IDLE_MS)
    assert told.verdict == verdict
    assert certain in told.certain
    assert uncertain in told.uncertain
    assert todo in told.todo
    assert told.sentence == (
        f"Certain: {told.certain}; not certain: {told.uncertain}; do: {told.todo}."
    )
    assert "\n" not in told.sentence


def test_an_id_that_the_stream_never_gave() -> None:
    told = explain("1732936000000-0", ABSENT, Known(), RECLAIM_IDLE_MS)
    assert told.verdict == "unknown_id"
    assert "whether Redis was emptied" in told.uncertain


@pytest.mark.parametrize("idle_ms", [RECLAIM_IDLE_MS - 1, RECLAIM_IDLE_MS])
def test_reclaim_at_its_limit(idle_ms: int) -> None:
    seen = replace(PRESENT, pending=Pending("ghost", idle_ms, 1))
    told = explain(ENTRY, seen, Known(), RECLAIM_IDLE_MS)
    assert ("can be reclaimed now" in told.todo) == (idle_ms == RECLAIM_IDLE_MS)
    down = explain(ENTRY, seen, DOWN, RECLAIM_IDLE_MS)
    assert ("no poll reaches it" in down.certain) == (idle_ms == RECLAIM_IDLE_MS)


@pytest.mark.parametrize("state", State)
def test_every_state_and_outcome_is_explained(state: State) -> None:
    """No combination raises, and a run that may have acted always names what to look at."""
    for outcome in [None, *Outcome]:
        for starts in (0, 1):
            facts = Known(turn=turn(state, outcome, starts=starts))
            for seen in (ABSENT, PRESENT, PENDING, answered(str(outcome)), NO_REDIS):
                told = explain(ENTRY, seen, facts, RECLAIM_IDLE_MS)
                assert told.certain
                assert told.uncertain
                assert told.todo
    assert set(TRANSITIONS) == set(State)


@pytest.mark.parametrize("outcome", ["interrupted", "poisoned", "timeout", "exit_nonzero"])
def test_what_a_run_may_have_done_is_to_be_looked_at(outcome: str) -> None:
    ran = explain(ENTRY, ABSENT, known("done", outcome), RECLAIM_IDLE_MS)
    assert any("files" in each for each in ran.check)
    assert any("rebuilds" in each for each in ran.check)
    never = explain(ENTRY, ABSENT, known("done", outcome, starts=0), RECLAIM_IDLE_MS)
    assert never.check == ()


def test_a_running_turn_is_never_said_to_be_safe_to_repeat() -> None:
    for state in set(State) - TERMINAL:
        told = explain(ENTRY, PRESENT, known(state, "held"), RECLAIM_IDLE_MS)
        assert "resubmit" not in told.todo
