"""What a run left, as the page that shows it. Pure but for `write`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from corral.core.errors import UnavailableError
from corral.local.evidence import Effect, Evidence, Seen, Sent
from corral.local.page import Hop, Lane, Message, Page, render
from corral.local.supervisor import Event

NOTHING_DUE: Final = frozenset({"duplicate", "empty"})


def write(page: Page, path: Path) -> None:
    """Blocks. UnavailableError when the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(page), encoding="utf-8")
    except OSError as error:
        raise UnavailableError(
            f"cannot write the report {path}: {error.strerror}", hint="name another file"
        ) from error


def lanes(timelines: Iterable[Sequence[Event]]) -> list[Lane]:
    """One for each process, in the order in which they first ran."""
    events = sorted((one for each in timelines for one in each), key=lambda one: one.at_ms)
    last_ms = events[-1].at_ms if events else 0
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    kills: dict[str, list[int]] = defaultdict(list)
    born: dict[str, int] = {}
    for event in events:
        if event.what == "started":
            born[event.process] = event.at_ms
            spans[event.process] += []
        elif event.what in {"killed", "ended"} and event.process in born:
            spans[event.process].append((born.pop(event.process), event.at_ms))
        if event.lethal:
            kills[event.process].append(event.at_ms)
    for name, at_ms in born.items():
        spans[name].append((at_ms, last_ms))
    return [Lane(name, found, kills[name]) for name, found in spans.items()]


def messages(evidence: Evidence) -> list[Message]:
    """What senders put into inboxes, by source and channel."""
    finals = _finals(evidence)
    found = []
    for sent in evidence.sent:
        seen = finals.get((sent.source, sent.entry_id))
        end_ms: float | None = None
        outcome = "nothing came back"
        if seen is not None:
            end_ms = seen.seen_at_ms
            outcome = "answered" if seen.slot == "reply" else f"notice: {seen.outcome}"
        elif sent.label in NOTHING_DUE:
            end_ms, outcome = sent.at_ms, f"{sent.label}: no answer is due"
        found.append(
            Message(
                name=sent.binding.message_id or sent.entry_id,
                group=f"{sent.source} {sent.binding.channel or ''}".strip(),
                sent_ms=sent.at_ms,
                end_ms=end_ms,
                outcome=outcome,
            )
        )
    return found


def hops(evidence: Evidence) -> list[Hop]:
    """Of the messages that were answered after one run, so that each has one time for each hop."""
    ran: dict[str, list[Effect]] = defaultdict(list)
    for effect in evidence.effects:
        ran[effect.turn].append(effect)
    finals = _finals(evidence)
    took: dict[str, list[float]] = defaultdict(list)
    for sent in evidence.sent:
        seen = finals.get((sent.source, sent.entry_id))
        if seen is None or seen.slot != "reply":
            continue
        starts = [one.at_ms for one in ran[seen.turn_id] if one.ev == "start"]
        ends = [one.at_ms for one in ran[seen.turn_id] if one.ev == "end"]
        if len(starts) == len(ends) == 1:
            for name, ms in _legs(sent, starts[0], ends[0], seen):
                took[name].append(ms)
    return [Hop(name, times) for name, times in took.items()]


def _legs(sent: Sent, start_ms: float, end_ms: float, seen: Seen) -> list[tuple[str, float]]:
    entered_ms = float(sent.entry_id.partition("-")[0])
    return [
        ("inbox to the agent's start", max(0.0, start_ms - entered_ms)),
        ("the agent at work", end_ms - start_ms),
        ("the agent's end to the outbox", max(0.0, seen.added_ms - end_ms)),
        ("outbox to its reader", max(0.0, seen.seen_at_ms - seen.added_ms)),
        ("sent to answered", max(0.0, seen.seen_at_ms - sent.at_ms)),
    ]


def _finals(evidence: Evidence) -> dict[tuple[str, str], Seen]:
    """The entry that ended each message, by source and inbox entry."""
    found: dict[tuple[str, str], Seen] = {}
    for seen in evidence.seen:
        if seen.outcome != "held":
            found.setdefault((seen.source, seen.in_reply_to), seen)
    return found
