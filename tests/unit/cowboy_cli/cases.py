"""Facts about entries, as `explain` and `resubmit` get them, for their tables."""

from dataclasses import replace
from typing import Any

from corral.cowboy.facts import Delivery, Evidence, Known, Pending, Queued, Seen

ENTRY = "1732935482123-0"
TURN = f"scout.a2a.1.{ENTRY}"
OUTBOX = "1732935489000-0"
RECLAIM_IDLE_MS = 600_000

ABSENT = Seen(present=False, last_id="1732935999999-0", last_delivered="1732935999999-0")
PRESENT = replace(ABSENT, present=True)
UNREAD = replace(PRESENT, last_delivered="1732935482122-9")
PENDING = replace(PRESENT, pending=Pending("harness-a2a", 5_000, 1))


def turn(state: str, outcome: str | None = None, **changes: Any) -> dict[str, Any]:
    """A turn as the daemon describes it."""
    reply = outcome in ("completed", "input_required", "failed")
    return {
        "turn_id": TURN,
        "entry": ENTRY,
        "kind": "message",
        "state": state,
        "intent": None,
        "ack": "acked",
        "starts": 1,
        "started_at_ms": 1_732_935_483_000,
        "received_at_ms": 1_732_935_482_500,
        "terminal_at_ms": None,
        "outcome": outcome,
        "detail": None,
        "slot": None if outcome is None else "reply" if reply else "notice",
        "outbox_id": None if outcome is None else OUTBOX,
        "dead_id": None,
        "channel": "ops",
        "sender": "anna",
        "thread": None,
        "traceparent": None,
        "message_id": None,
        "released": False,
        "parked": False,
        **changes,
    }


def known(state: str, outcome: str | None = None, **changes: Any) -> Known:
    return Known(turn=turn(state, outcome, **changes))


def note(kind: str, detail: str = "") -> dict[str, Any]:
    return {"at_ms": 1_732_935_482_600, "kind": kind, "detail": detail}


def answered(
    outcome: str = "completed",
    slot: str = "reply",
    delivery: Delivery = Delivery.ACKNOWLEDGED,
    base: Seen = ABSENT,
) -> Seen:
    return replace(base, answers=(Queued(OUTBOX, outcome, slot, delivery),))


def evidence(seen: Seen = PRESENT, **changes: Any) -> Evidence:
    fields = {b"content": b"do it", b"sender": b"anna", b"channel": b"ops"}
    return replace(Evidence(seen, fields if seen.present else None), **changes)
