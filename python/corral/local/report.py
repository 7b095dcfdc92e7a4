"""What a run says while it works and at its end: live on a terminal, plain lines elsewhere."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from corral.local.model import Summary
from corral.local.rules import Violation
from corral.local.supervisor import Event, Supervisor
from corral.local.workload import Board

EVENTS_SHOWN = 8
VIOLATIONS_SHOWN = 20
BAD = frozenset(
    {
        "lost",
        "duplicated",
        "order violations",
        "wakes lost",
        "keys with two messages",
        "mentions lost",
        "mentions told twice",
        "agents started twice for a mention",
        "mentions out of order",
    }
)  # must be 0; fmt: skip
REFRESH_PER_S = 8
PLAIN_INTERVAL_S = 2.0


def wants_live(stream: TextIO) -> bool:
    """Whether a display that is written over makes sense there."""
    return stream.isatty() and os.environ.get("CI", "") == "" and os.environ.get("TERM") != "dumb"


@dataclass
class Progress:
    """Shows a deployment while it runs, on standard error. Use as a context manager."""

    board: Board
    supervisors: list[Supervisor]
    total: int
    quiet: bool = False
    phase: str = "starting"
    more: list[Callable[[], str]] = field(default_factory=list)  # counts of other parts of the run
    began: float = field(default_factory=time.monotonic)
    _told: list[int] = field(default_factory=list)
    _shown_at: float = 0.0
    _live: Live | None = None

    def __enter__(self) -> Self:
        if not self.quiet and wants_live(sys.stderr):
            console = Console(file=sys.stderr)
            self._live = Live(
                self._picture(),
                console=console,
                refresh_per_second=REFRESH_PER_S,
                transient=True,
                get_renderable=self._picture,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def enter(self, phase: str) -> None:
        """A new part of the run begins."""
        self.phase = phase
        self._say(phase)

    def look(self) -> None:
        """Called often: plain output says what happened since, and now and then where it is."""
        if self.quiet or self._live is not None:
            return
        self._told += [0] * (len(self.supervisors) - len(self._told))
        for number, supervisor in enumerate(self.supervisors):
            for event in supervisor.timeline[self._told[number] :]:
                if worth_telling(event):
                    self._say(describe(event))
            self._told[number] = len(supervisor.timeline)
        if time.monotonic() - self._shown_at > PLAIN_INTERVAL_S:
            self._shown_at = time.monotonic()
            self._say(self._counts())

    def _say(self, line: str) -> None:
        if not self.quiet and self._live is None:
            took_s = time.monotonic() - self.began
            print(f"{took_s:5.1f} s  {line}", file=sys.stderr, flush=True)

    def _counts(self) -> str:
        counts = (
            f"sent {len(self.board.sent)} of {self.total}, "
            f"answers seen {len(self.board.seen)}, waiting {len(self.board.waiting)}"
        )
        return "; ".join([*(more() for more in self.more), counts])

    def _picture(self) -> Group:
        took_s = time.monotonic() - self.began
        lines = [Text(f"{took_s:5.1f} s  {self.phase}", style="bold"), Text(self._counts())]
        states = Text()
        for supervisor in self.supervisors:
            for name, service in supervisor.services.items():
                state, style = "down", "bold red"
                if service.running:
                    state, style = ("stopped", "yellow") if service.paused else ("up", "green")
                states.append(f"{name} ").append(state, style=style).append("   ")
        lines.append(states)
        happened = [event for one in self.supervisors for event in one.timeline]
        told = deque(
            filter(worth_telling, sorted(happened, key=lambda event: event.at_ms)),
            maxlen=EVENTS_SHOWN,
        )
        lines += [Text(f"  {describe(event)}", style="dim") for event in told]
        return Group(*lines)


def worth_telling(event: Event) -> bool:
    """Faults and unexpected ends; not every start, nor an end that was asked for."""
    return event.what != "started" and not (event.what == "ended" and event.code == 0)


def describe(event: Event) -> str:
    """An event in words."""
    words = {
        "killed": "SIGKILL",
        "paused": "SIGSTOP",
        "resumed": "SIGCONT",
        "ended": f"ended with status {event.code}:",
        "started": "started",
        "overdue": "did not end in time:",
    }[event.what]
    waiting = f", {event.in_flight} messages in flight" if event.what in {"killed", "ended"} else ""
    return f"{words} {event.process}{waiting}"


def rows(summary: Summary) -> list[tuple[str, str]]:
    """The table: what is counted, and how many."""
    slowest = summary.recovery_max_ms
    return [
        ("sent", str(summary.sent)),
        ("answered", str(summary.answered)),
        ("notices", str(summary.notices)),
        ("lost", str(summary.lost)),
        ("duplicated", str(summary.duplicated)),
        ("order violations", str(summary.order_violations)),
        ("kills", str(summary.kills)),
        ("kills that hit work in flight", str(summary.kills_in_flight)),
        ("slowest recovery", "none" if slowest is None else f"{slowest / 1000:.1f} s"),
        (
            "sent while nothing ran, answered after the start",
            f"{summary.answered_after_down} of {summary.sent_while_down}",
        ),
    ]


def print_table(
    rows: Sequence[tuple[str, str]], violations: Sequence[Violation], *, stream: TextIO
) -> None:
    """The table, then every violation."""
    if wants_live(stream):
        table = Table(show_header=False)
        for name, value in rows:
            fine = "bold green" if value == "0" else "bold red"
            table.add_row(name, Text(value, style=fine if name in BAD else ""))
        Console(file=stream).print(table)
    else:
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            print(f"{name:{width}}  {value}", file=stream)
    for violation in violations[:VIOLATIONS_SHOWN]:
        print(f"violation: {violation}", file=stream)
    if len(violations) > VIOLATIONS_SHOWN:
        print(f"and {len(violations) - VIOLATIONS_SHOWN} more", file=stream)
