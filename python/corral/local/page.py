"""A run as one static page: who was killed when, what waited meanwhile, and how long each hop took.

The page needs nothing but itself: no script, no font, no file beside it. It has no content of
messages, only their names and times.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Final

WIDTH: Final = 1000  # of a picture, in its own units
LEFT: Final = 130  # of the time axis
LANE: Final = 22
ROW_MIN: Final = 5
ROWS_HEIGHT: Final = 420  # of all messages together
TICKS: Final = 8
STEPS_S: Final = (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600)
FINE: Final = frozenset({"answered", "acknowledged"})


@dataclass(frozen=True)
class Lane:
    """A process. `up` are the spans in which it ran, `kills` the instants at which it was killed;
    all in wall-clock milliseconds."""

    name: str
    up: Sequence[tuple[int, int]]
    kills: Sequence[int]


@dataclass(frozen=True)
class Message:
    """One message: `end_ms` is None when nothing came back, `sent_ms` when nothing had to."""

    name: str
    group: str
    sent_ms: float
    end_ms: float | None
    outcome: str


@dataclass(frozen=True)
class Hop:
    """A part of the way, and how long each message took for it, in milliseconds."""

    name: str
    took_ms: Sequence[float]


@dataclass(frozen=True)
class Page:
    """What is shown. `rows` is the run's table, `command` repeats the run."""

    title: str
    ok: bool
    command: str
    rows: Sequence[tuple[str, str]]
    violations: Sequence[str] = ()
    lanes: Sequence[Lane] = ()
    messages: Sequence[Message] = ()
    hops: Sequence[Hop] = ()
    notes: Sequence[str] = field(default=())


def render(page: Page) -> str:
    """The whole document."""
    verdict = "the guarantees hold" if page.ok else "a guarantee is broken"
    kind = "ok" if page.ok else "bad"
    parts = [
        f"<h1>{escape(page.title)}</h1>",
        f'<p class="verdict {kind}">{verdict}</p>',
        f"<p>Repeat it: <code>{escape(page.command)}</code></p>",
        *(f"<p>{escape(note)}</p>" for note in page.notes),
    ]
    if page.violations:
        items = "".join(f"<li>{escape(one)}</li>" for one in page.violations)
        parts.append(f"<h2>Violations</h2><ul class='bad'>{items}</ul>")
    parts += ["<h2>What came of it</h2>", _table(page.rows)]
    if page.lanes or page.messages:
        parts += ["<h2>When</h2>", _legend(), _picture(page)]
    if any(hop.took_ms for hop in page.hops):
        parts += ["<h2>How long each hop took</h2>", _hops(page.hops)]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(page.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><main>\n{body}\n</main></body></html>\n"
    )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    lines = "".join(
        f"<tr><th scope='row'>{escape(name)}</th><td>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table>{lines}</table>"


def _legend() -> str:
    return (
        '<p class="legend"><span class="key up"></span> process runs '
        '<span class="key kill"></span> SIGKILL '
        '<span class="key fine"></span> message, from sent to answered '
        '<span class="key notice"></span> ended with a notice '
        '<span class="key none"></span> no answer was due '
        '<span class="key lost"></span> nothing came back. '
        "Point at a bar for its name and times.</p>"
    )


# ---- the picture ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    first_ms: float
    last_ms: float

    def x(self, at_ms: float) -> float:
        share = (at_ms - self.first_ms) / (self.last_ms - self.first_ms)
        return round(LEFT + share * (WIDTH - LEFT - 10), 1)

    def s(self, at_ms: float) -> str:
        return f"{(at_ms - self.first_ms) / 1000:.2f} s"


def _picture(page: Page) -> str:
    axis = _axis(page)
    top = 24
    shapes: list[str] = []
    for lane in page.lanes:
        shapes += _lane(lane, axis, top)
        top += LANE
    top += 14
    groups = list(dict.fromkeys(one.group for one in page.messages))
    step = max(ROW_MIN, min(12, ROWS_HEIGHT // max(1, len(page.messages))))
    for group in groups:
        mine = sorted(
            (one for one in page.messages if one.group == group), key=lambda one: one.sent_ms
        )
        shapes.append(_label(group, top + step * len(mine) / 2 + 4))
        for one in mine:
            shapes.append(_bar(one, axis, top, step))
            top += step
        top += 8
    height = top + 10
    drawn = _grid(axis, height) + "".join(shapes)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'aria-label="Processes and messages over time">{drawn}</svg>'
    )


def _axis(page: Page) -> _Axis:
    times: list[float] = [at for lane in page.lanes for span in lane.up for at in span]
    times += [at for lane in page.lanes for at in lane.kills]
    times += [one.sent_ms for one in page.messages]
    times += [one.end_ms for one in page.messages if one.end_ms is not None]
    first = min(times, default=0.0)
    return _Axis(first, max(max(times, default=0.0), first + 1))


def _grid(axis: _Axis, height: float) -> str:
    length_s = (axis.last_ms - axis.first_ms) / 1000
    step_s = next((one for one in STEPS_S if length_s / one <= TICKS), STEPS_S[-1])
    lines = []
    for number in range(math.floor(length_s / step_s) + 1):
        x = axis.x(axis.first_ms + number * step_s * 1000)
        lines.append(
            f'<line class="grid" x1="{x}" x2="{x}" y1="16" y2="{height:g}"/>'
            f'<text class="tick" x="{x}" y="11">{number * step_s:g} s</text>'
        )
    return "".join(lines)


def _label(name: str, y: float) -> str:
    return f'<text x="4" y="{y:g}">{escape(name)}</text>'


def _lane(lane: Lane, axis: _Axis, top: float) -> list[str]:
    shapes = [_label(lane.name, top + 14)]
    for began, ended in lane.up:
        x, until = axis.x(began), axis.x(ended)
        said = f"{lane.name}: {axis.s(began)} to {axis.s(ended)}"
        shapes.append(_rect("up", x, top + 4, max(0.5, until - x), LANE - 10, said))
    for at in lane.kills:
        said = f"SIGKILL {lane.name}: {axis.s(at)}"
        shapes.append(_rect("kill", axis.x(at) - 1, top + 1, 2.5, LANE - 4, said))
    return shapes


def _bar(one: Message, axis: _Axis, top: float, step: float) -> str:
    end_ms = axis.last_ms if one.end_ms is None else one.end_ms
    x, until = axis.x(one.sent_ms), axis.x(end_ms)
    kind = "fine" if one.outcome in FINE else "lost" if one.end_ms is None else "notice"
    if one.end_ms == one.sent_ms:
        kind = "none"
    took = "no end" if one.end_ms is None else f"{end_ms - one.sent_ms:.0f} ms"
    said = f"{one.name}: {one.outcome}, sent at {axis.s(one.sent_ms)}, {took}"
    return _rect(kind, x, top, max(1.5, until - x), max(2.0, step - 2), said)


def _rect(kind: str, x: float, y: float, width: float, height: float, said: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}">'
        f"<title>{escape(said)}</title></rect>"
    )


# ---- hops -------------------------------------------------------------------------------------


def percentile(sample: Sequence[float], share: float) -> float:
    """The smallest value that `share` of the sample does not exceed."""
    ordered = sorted(sample)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _hops(hops: Sequence[Hop]) -> str:
    titles = ("hop", "messages", "median", "p99", "slowest")
    lines = ["<tr>" + "".join(f"<th scope='col'>{one}</th>" for one in titles) + "</tr>"]
    for hop in hops:
        if hop.took_ms:
            numbers = (
                statistics.median(hop.took_ms),
                percentile(hop.took_ms, 0.99),
                max(hop.took_ms),
            )
            cells = "".join(f"<td>{one:.1f} ms</td>" for one in numbers)
            name = f"<th scope='row'>{escape(hop.name)}</th>"
            lines.append(f"<tr>{name}<td>{len(hop.took_ms)}</td>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


STYLE: Final = """
:root { color-scheme: light dark; --text: #1d2330; --paper: #fbfbfa; --line: #d7d9de;
  --up: #7fb69a; --kill: #c2255c; --fine: #3b7dd8; --notice: #d9930d; --lost: #c92a2a;
  --none: #8a8f9a; }
@media (prefers-color-scheme: dark) { :root { --text: #e6e7ea; --paper: #16181d; --line: #363a44;
  --up: #3d7a5c; --kill: #ff6b9a; --fine: #6aa5f5; --notice: #e5b34f; --lost: #ff6b6b;
  --none: #8a8f9a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--paper);
  margin: 0; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; } th, td { padding: .2rem .8rem; text-align: left;
  border-bottom: 1px solid var(--line); font-weight: normal; }
td { text-align: right; font-variant-numeric: tabular-nums; }
.verdict { font-weight: 600; } .verdict.ok { color: var(--fine); }
.bad { color: var(--lost); }
svg { width: 100%; height: auto; font: 12px system-ui, sans-serif; }
svg text { fill: var(--text); } .tick { text-anchor: middle; opacity: .7; }
.grid { stroke: var(--line); stroke-width: 1; }
rect.up, .key.up { fill: var(--up); background: var(--up); }
rect.kill, .key.kill { fill: var(--kill); background: var(--kill); }
rect.fine, .key.fine { fill: var(--fine); background: var(--fine); }
rect.notice, .key.notice { fill: var(--notice); background: var(--notice); }
rect.lost, .key.lost { fill: var(--lost); background: var(--lost); }
rect.none, .key.none { fill: var(--none); background: var(--none); }
.key { display: inline-block; width: .9em; height: .9em; margin: 0 .2em 0 .8em;
  vertical-align: -.1em; } .legend { font-size: .9rem; } code { overflow-wrap: anywhere; }
"""
