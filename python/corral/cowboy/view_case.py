"""How `cowboy explain` shows a case: as fields for programs, as a few lines for people."""

from typing import Any

from corral.cowboy import view
from corral.cowboy.explaining import times
from corral.cowboy.facts import Queued
from corral.cowboy.investigate import Case


def fields(case: Case, *, content: bool) -> dict[str, Any]:
    """The case for `--json`; ids, states and times, and the content only when asked for."""
    seen, known, told = case.evidence.seen, case.known, case.explanation
    shown: dict[str, Any] = {
        "source": case.source.source,
        "entry": case.entry,
        "verdict": told.verdict,
        "sentence": told.sentence,
        "certain": told.certain,
        "uncertain": told.uncertain,
        "do": told.todo,
        "check": list(told.check),
        "daemon": known.why_not or None,
        "turn": known.turn,
        "notes": list(known.notes),
        "redis": {
            "in_stream": seen.present,
            "pending": None
            if seen.pending is None
            else {
                "consumer": seen.pending.consumer,
                "idle_ms": seen.pending.idle_ms,
                "deliveries": seen.pending.deliveries,
                "reclaim_idle_ms": case.source.reclaim_idle_ms,
            },
            "outbox": [_queued(queued) for queued in seen.answers],
            "outbox_searched_all": seen.searched_all,
            "dead": list(seen.dead),
            "refused": list(seen.refused),
        },
        "resubmitted_as": case.evidence.resubmitted_as,
    }
    if content:
        shown["content"] = _content(case)
    return shown


def _queued(queued: Queued) -> dict[str, str]:
    return {
        "outbox_id": queued.outbox_id,
        "outcome": queued.outcome,
        "slot": queued.slot,
        "delivery": queued.delivery,
    }


def text(case: Case, *, content: bool) -> str:
    told, known = case.explanation, case.known
    turn = known.turn
    named = f", turn {view.printable(turn['turn_id'])}" if turn else ""
    rows = [
        ("redis", _redis(case)),
        ("ledger", _ledger(case)),
        ("outbox", _outbox(case)),
    ]
    if case.evidence.seen.dead:
        rows.append(("dead letter", ", ".join(case.evidence.seen.dead)))
    if case.evidence.resubmitted_as:
        rows.append(("sent again", f"as {case.evidence.resubmitted_as}"))
    if told.check:
        rows.append(("also check", "; ".join(told.check)))
    if content:
        rows.append(("content", _content(case) or "gone"))
    lines = [f"  {name.ljust(11)}  {view.printable(value)}" for name, value in rows]
    head = f"entry {case.entry} of {case.source.stream}{named}: {told.verdict}"
    return "\n".join([head, told.sentence, *lines])


def _redis(case: Case) -> str:
    seen = case.evidence.seen
    if seen.present is None:
        return f"not read: {'; '.join(seen.refused)}"
    parts = ["in the stream" if seen.present else "not in the stream"]
    if seen.pending is not None:
        parts.append(
            f"pending with {seen.pending.consumer}, idle {seen.pending.idle_ms} ms, delivered "
            f"{times(seen.pending.deliveries)}, reclaimed after {case.source.reclaim_idle_ms} ms"
        )
    else:
        parts.append("not pending")
    return ", ".join([*parts, *seen.refused])


def _ledger(case: Case) -> str:
    known = case.known
    if known.why_not:
        return f"not asked: {known.why_not}"
    parts = [f"{note['kind']} ({view.instant(note['at_ms'])})" for note in known.notes]
    if known.turn is None:
        return ", ".join(["no turn", *parts])
    turn = known.turn
    outcome = f", {turn['outcome']}" if turn["outcome"] else ""
    detail = f" ({turn['detail']})" if turn["detail"] else ""
    state = f"{turn['state']}{outcome}{detail}, {turn['ack']}, started {times(turn['starts'])}"
    return ", ".join([state, f"received {view.instant(turn['received_at_ms'])}", *parts])


def _outbox(case: Case) -> str:
    seen = case.evidence.seen
    if seen.present is None:
        return "not read"
    parts = [f"{q.outbox_id} {q.slot} {q.outcome}, {q.delivery}" for q in seen.answers]
    if not parts:
        parts.append("nothing about it")
    if not seen.searched_all:
        parts.append("not searched to its end")
    return "; ".join(parts)


def _content(case: Case) -> str | None:
    for found in (case.evidence.fields, case.evidence.dead):
        if found and b"content" in found:
            return found[b"content"].decode(errors="backslashreplace")
    return None
