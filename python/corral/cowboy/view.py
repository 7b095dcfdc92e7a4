"""The operator's commands as text for people: aligned tables, safe to print on a terminal.

The values come from daemons and from Redis, so control characters are escaped. A program reads
`--json` instead.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Fields = Mapping[str, Any]


def printable(value: object) -> str:
    """One line without control characters; None is a dash."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else str(value)
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Columns aligned at the left, two spaces apart, without trailing spaces."""
    cells = [list(headings), *([printable(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "\n".join(lines)


def duration(seconds: object) -> str:
    """`0.2 s`, `3 min`, `5 h`, `2 d`: enough to judge an age."""
    if not isinstance(seconds, int | float):
        return "-"
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s"


def agent_status(report: Fields) -> str:
    """The part of `cowboy status` about one agent; `report` is its part of `--json`."""
    agent, sources, error = printable(report["agent"]), report["sources"], report["error"]
    if error is None:
        parts = [f"agent {agent}: {'healthy' if report['healthy'] else 'UNHEALTHY'}"]
        parts.append(table(_SOURCE_HEADINGS, [_source_row(of) for of in sources]))
        parts += [
            f"{printable(of.get('source'))}: {printable(of['reason'])}"
            for of in sources
            if of.get("reason")
        ]
        parts += [_events(of) for of in sources if of.get("events")]
    else:
        parts = [f"agent {agent}: NO STATUS: {printable(error['message'])}"]
        if error["hint"]:
            parts.append(f"hint: {printable(error['hint'])}")
    if report.get("redis") is not None:
        parts.append("what Redis knows (lag: not read yet; pending: read, not acknowledged):")
        parts.append(table(_REDIS_HEADINGS, [_redis_row(of) for of in report["redis"]]))
        parts += [f"{printable(of['source'])}: {printable(text)}"
                  for of in report["redis"] for text in of["refused"]]  # fmt: skip
    if report.get("redis_error"):
        error = report["redis_error"]
        why = [printable(text) for text in (error["message"], error["hint"]) if text]
        parts.append(f"Redis: {'; '.join(why)}")
    return "\n".join(parts)


_SOURCE_HEADINGS = (
    "SOURCE", "STATE", "HEALTHY", "LAST POLL", "OPEN", "PARKED", "UNACKED", "OLDEST UNANSWERED",
    "TURNS",
)  # fmt: skip
_REDIS_HEADINGS = ("SOURCE", "LAG", "PENDING", "OLDEST IDLE", "OUTBOX", "OUTBOX READERS", "DEAD")


def _source_row(source: Fields) -> list[object]:
    oldest = source.get("oldest_unanswered")
    return [
        source.get("source"),
        source.get("state"),
        "yes" if source.get("healthy") else "NO",
        duration(source.get("last_poll_age_s")),
        source.get("open"),
        source.get("parked"),
        source.get("unacked"),
        f"{duration(oldest.get('age_s'))} {oldest.get('turn_id')}" if oldest else None,
        ", ".join(f"{count} {state}" for state, count in (source.get("turns") or {}).items())
        or "none",
    ]


def _redis_row(source: Fields) -> list[object]:
    inbox, outbox = source["inbox"], source["outbox"]
    idle_ms = inbox["oldest_pending_idle_ms"]
    readers = ", ".join(
        f"{name}: lag {printable(of['lag'])}, pending {printable(of['pending'])}"
        for name, of in outbox["readers"].items()
    )
    return [
        source["source"],
        inbox["lag"],
        inbox["pending"],
        duration(None if idle_ms is None else idle_ms / 1000),
        outbox["length"],
        readers or "none",
        source["dead"],
    ]


def _events(source: Fields) -> str:
    lines = [f"{printable(source.get('source'))}: last anomalies:"]
    for event in source["events"]:
        words = [instant(event.get("at_ms")), event.get("kind"), event.get("entry")]
        words.append(event.get("detail"))
        lines.append("  " + " ".join(printable(word) for word in words if word))
    return "\n".join(lines)


def instant(at_ms: object) -> str:
    """UTC, to the second."""
    if not isinstance(at_ms, int):
        return "-"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_TURN_COLUMNS = ("turn_id", "state", "ack", "starts", "outcome", "channel", "sender")


def turns(rows: Sequence[Fields], now_ms: int) -> str:
    """A table of turns in the order given, each with its age at `now_ms`."""
    if not rows:
        return "no turns"
    cells = [
        [*(row.get(name) for name in _TURN_COLUMNS), _age(row.get("received_at_ms"), now_ms)]
        for row in rows
    ]
    return table([*(name.replace("_", " ").upper() for name in _TURN_COLUMNS), "AGE"], cells)


def _age(at_ms: object, now_ms: int) -> str:
    return duration(max(now_ms - at_ms, 0) / 1000) if isinstance(at_ms, int) else "-"


def fields(of: Fields) -> str:
    """One `name  value` line per field."""
    width = max((len(name) for name in of), default=0)
    return "\n".join(f"{name.ljust(width)}  {printable(value)}" for name, value in of.items())
