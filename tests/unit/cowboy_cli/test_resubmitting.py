"""When a message may be sent again, and with what: every refusal says why."""

from dataclasses import replace

import pytest

from corral.core.errors import UsageError
from corral.cowboy.facts import Known, Seen
from corral.cowboy.resubmitting import (
    RECONCILED_MAX_BYTES,
    ResubmitRefusedError,
    check_note,
    decide,
)
from tests.unit.cowboy_cli.cases import (
    ABSENT,
    ENTRY,
    PENDING,
    PRESENT,
    answered,
    evidence,
    known,
    note,
    turn,
)

NOTE = "nothing was written"
INTERRUPTED = known("done", "interrupted")

REFUSED = {
    "the daemon is down": (Known(why_not="no daemon listens"), evidence(), "cannot be asked"),
    "Redis is down": (INTERRUPTED, evidence(Seen(refused=("gone",))), "could not be read"),
    "another ledger's": (
        replace(INTERRUPTED, verified=False, unhealthy="served by ledger b"),
        evidence(),
        "may not be the right ledger (served by ledger b)",
    ),
    "waiting": (known("received"), evidence(), "has not run yet"),
    "running": (known("dispatched"), evidence(), "may still be going on"),
    "interrupted, undecided": (known("interrupted"), evidence(), "not decided yet"),
    "replying": (known("replying", "completed"), evidence(), "on the way to the outbox"),
    "held": (known("held", "held"), evidence(), "held and could still run"),
    "released": (known("held", "held", released=True), evidence(), "released"),
    "completed": (known("done", "completed"), evidence(), "has a reply (completed)"),
    "a question": (known("done", "input_required"), evidence(), "has a reply"),
    "failed": (known("done", "failed"), evidence(), "has a reply"),
    "a reply in the outbox": (INTERRUPTED, evidence(answered()), "has a reply"),
    "a reply in the dead letter": (
        known("dead", "outbox_refused"),
        evidence(dead={b"content": b"do it", b"reply": b"done"}),
        "reply is in its dead letter",
    ),
    "sent again, in the inbox": (INTERRUPTED, evidence(resubmitted_as="9-0"), "already, as 9-0"),
    "sent again, on record": (
        replace(INTERRUPTED, notes=(note("resubmitted", "as 9-0: nothing"),)),
        evidence(),
        "already, as 9-0",
    ),
    "a cancellation": (known("done", "cancel_applied", kind="cancel"), evidence(), "to cancel"),
    "empty": (known("empty", "empty", slot=None), evidence(), "no content"),
    "duplicate": (Known(notes=(note("duplicate"),)), evidence(), "duplicate"),
    "pending": (Known(), evidence(PENDING), "pending and could still run"),
    "never read": (Known(), evidence(), "could still run"),
    "forgotten": (Known(), evidence(answered()), "has an answer"),
    "unknown": (Known(), evidence(ABSENT), "neither the ledger nor Redis"),
    "content gone": (INTERRUPTED, evidence(ABSENT), "content is gone"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    facts, found, words = REFUSED[name]
    with pytest.raises(ResubmitRefusedError, match="is not sent again") as caught:
        decide(ENTRY, facts, found, NOTE, None)
    assert words in caught.value.message.replace("\n", " ")
    assert caught.value.hint
    assert caught.value.ids == {"entry": ENTRY}
    assert (caught.value.code, caught.value.exit_code) == ("resubmit_refused", 64)


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        ("done", "interrupted"),
        ("done", "timeout"),
        ("done", "exit_nonzero"),
        ("done", "start_failed"),
        ("done", "payload_lost"),
        ("dead", "poisoned"),
        ("dead", "abandoned"),
        ("dead", "outbox_refused"),
        ("cancelled", "cancelled"),
    ],
)
def test_sent_again_with_what_routes_the_reply(state: str, outcome: str) -> None:
    again = decide(ENTRY, known(state, outcome), evidence(), NOTE, None)
    fields = again.fields()
    table = dict(zip(fields[::2], fields[1::2], strict=True))
    assert table == {
        "content": b"do it",
        "message_id": again.message_id,
        "sender": b"anna",
        "channel": b"ops",
        "resubmit_of": ENTRY,
        "reconciled": NOTE,
    }


def test_one_turn_is_always_sent_again_under_one_message_id() -> None:
    first = decide(ENTRY, INTERRUPTED, evidence(), NOTE, None)
    second = decide(ENTRY, INTERRUPTED, evidence(), "another note", None)
    other = decide(
        ENTRY, known("done", "timeout", turn_id="scout.a2a.2.1-0"), evidence(), NOTE, None
    )
    assert first.message_id == second.message_id != other.message_id
    assert len(first.message_id) <= 64  # the smallest metadata_max_bytes


def test_from_the_dead_letter_and_from_the_ledger() -> None:
    dead = {b"content": b"do it", b"sender": b"\xc3\xa9", b"entry": ENTRY.encode()}
    again = decide(ENTRY, known("dead", "poisoned"), evidence(ABSENT, dead=dead), NOTE, None)
    assert again.content == b"do it"
    assert again.kept == {"sender": b"\xc3\xa9", "channel": b"ops"}
    given = decide(ENTRY, INTERRUPTED, evidence(ABSENT), NOTE, b"as its sender said")
    assert given.content == b"as its sender said"
    assert given.kept == {"sender": b"anna", "channel": b"ops"}


def test_an_operators_copy_must_be_the_original_where_that_is_there() -> None:
    assert decide(ENTRY, INTERRUPTED, evidence(), NOTE, b"do it").content == b"do it"
    with pytest.raises(ResubmitRefusedError, match="differs from yours"):
        decide(ENTRY, INTERRUPTED, evidence(), NOTE, b"do something else")


def test_thread_and_trace_are_kept() -> None:
    facts = Known(turn=turn("done", "timeout", thread="t", traceparent="00-1"))
    kept = decide(ENTRY, facts, evidence(PRESENT), NOTE, None).kept
    assert kept == {"sender": b"anna", "channel": b"ops", "thread": b"t", "traceparent": b"00-1"}


@pytest.mark.parametrize("text", ["", "  ", "two\nlines", "x" * (RECONCILED_MAX_BYTES + 1)])
def test_notes_that_say_nothing_or_too_much(text: str) -> None:
    with pytest.raises(UsageError, match="--reconciled"):
        check_note(text)


def test_a_note_at_its_limit() -> None:
    assert check_note("x" * RECONCILED_MAX_BYTES)
