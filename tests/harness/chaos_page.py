"""Many trials as one page: the table of all, every hop of all, and one trial as it went."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from corral.local.page import Hop, Page
from tests.harness.trial import Drawn, Result

VIOLATIONS_MAX = 100


@dataclass
class Collected:
    """Keeps the first trial that failed, else the one with the most kills."""

    hops: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    violations: list[str] = field(default_factory=list)
    shown: Result | None = None

    def add(self, result: Result) -> None:
        for hop in result.drawn.hops if result.drawn else ():
            self.hops[hop.name] += hop.took_ms
        name = result.trial.name
        self.violations += [f"{name}: {one}" for one in result.report.violations]
        if self.shown is None or _telling(result) > _telling(self.shown):
            self.shown = result

    def page(self, table: Sequence[tuple[str, str]], *, ok: bool, command: str) -> Page:
        """`table`: the rows of all trials together."""
        drawn = (self.shown.drawn if self.shown else None) or Drawn()
        notes = [f"Drawn is {self.shown.trial.name}."] if self.shown else []
        return Page(
            title="Corral under chaos",
            ok=ok,
            command=command,
            rows=table,
            violations=self.violations[:VIOLATIONS_MAX],
            lanes=drawn.lanes,
            messages=drawn.messages,
            hops=[Hop(name, times) for name, times in self.hops.items()],
            notes=notes,
        )


def _telling(result: Result) -> tuple[bool, int]:
    return not result.ok, result.report.summary.kills if result.ok else 0
