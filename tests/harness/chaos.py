"""`./corral chaos inbound`: many seeds of workload and faults against the real services.

    python -m tests.harness.chaos inbound --seeds N [--seed S] [--jobs J]
                                          [--server redis|valkey] [--protocol 2|3] [--json]
                                          [--report FILE]

Each seed gets a fresh server and ledger. A seed that fails keeps its folder, and the command that
repeats it is printed. Exit status: 0 when no promise was broken, the kills hit work in flight at
least half of the time, and there was at least one kill; 1 otherwise; 64 for bad usage.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from corral.core.errors import CorralError
from corral.local import run_page
from corral.local.model import Summary
from corral.local.report import rows
from corral.local.servers import find_servers
from corral.local.topology import load_rendered
from tests.harness.armed import known_points
from tests.harness.chaos_page import Collected
from tests.harness.draw import draw
from tests.harness.pool import Pool, default_jobs
from tests.harness.trial import Result, Trial

KEEP_IN = Path(".corral") / "chaos"
SEED_MAX = 2**31
IN_FLIGHT_SHARE_MIN = 0.5


@dataclass
class Total:
    """What all seeds came to."""

    points: dict[str, str]
    seeds: int = 0
    failed: list[int] = field(default_factory=list)
    summary: Summary = field(default_factory=Summary)
    passed: set[str] = field(default_factory=set)
    killed_at: dict[str, int] = field(default_factory=dict)
    violations: int = 0

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.summary.add(result.report.summary)
        self.passed |= result.passed
        for point, _ in result.kills:
            self.killed_at[point] = self.killed_at.get(point, 0) + 1
        self.violations += len(result.report.violations)
        if not result.ok:
            self.failed.append(result.trial.seed)

    @property
    def in_flight_share(self) -> float:
        return self.summary.kills_in_flight / self.summary.kills if self.summary.kills else 0.0

    @property
    def ok(self) -> bool:
        return not self.failed and self.in_flight_share >= IN_FLIGHT_SHARE_MIN

    def as_dict(self) -> dict[str, object]:
        return {
            "ok": self.ok,
            "seeds": self.seeds,
            "failed": self.failed,
            "violations": self.violations,
            "summary": asdict(self.summary),
            "kills_in_flight_share": round(self.in_flight_share, 3),
            "crash_points": {
                "registered": len(self.points),
                "passed": sorted(self.passed),
                "killed_at": dict(sorted(self.killed_at.items())),
                "never_killed_at": sorted(set(self.points) - set(self.killed_at)),
            },
        }


def trials(options: argparse.Namespace, first: int, points: Sequence[str]) -> Iterator[Trial]:
    servers = sorted(find_servers())
    rendered = load_rendered(options.topology)
    for number in range(options.seeds):
        trial = draw(
            (first + number) % SEED_MAX,
            points,
            server=options.server,
            protocol=options.protocol,
            servers=servers,
        )
        yield replace(
            trial, rendered=rendered, keep_in=options.keep, forked=not options.from_nothing,
            drawn=options.report is not None,
        )  # fmt: skip


class Progress:
    """One line that is written over on a terminal; now and then a line elsewhere."""

    def __init__(self, seeds: int, *, quiet: bool) -> None:
        self.seeds = seeds
        self.quiet = quiet
        self.live = sys.stderr.isatty()
        self.began = time.monotonic()
        self.shown = 0.0

    def show(self, total: Total) -> None:
        if self.quiet:
            return
        now = time.monotonic()
        last = total.seeds == self.seeds
        if not last and now - self.shown < (0.2 if self.live else 10.0):
            return
        self.shown = now
        left_s = (now - self.began) / total.seeds * (self.seeds - total.seeds)
        text = (
            f"{total.seeds}/{self.seeds} seeds, {len(total.failed)} failed, "
            f"{total.summary.sent} messages, {total.summary.kills} kills "
            f"({total.in_flight_share:.0%} into work in flight), "
            f"{len(total.killed_at)}/{len(total.points)} crash points, {left_s:.0f} s left"
        )
        end = "\n" if last or not self.live else ""
        print(f"\r\033[K{text}" if self.live else text, end=end, file=sys.stderr, flush=True)


def repeat_command(options: argparse.Namespace, seed: int) -> str:
    extra = f" --server {options.server}" if options.server else ""
    extra += f" --protocol {options.protocol}" if options.protocol else ""
    return f"./corral chaos inbound --seeds 1 --seed {seed}{extra}"


def report_failure(options: argparse.Namespace, result: Result) -> None:
    out = sys.stderr if options.json else sys.stdout
    print(f"\nseed {result.trial.seed} failed ({result.trial.server}):", file=out)
    for violation in result.report.violations[:10]:
        print(f"  {violation}", file=out)
    more = len(result.report.violations) - 10
    if more > 0:
        print(f"  and {more} more", file=out)
    print(f"  kept in {result.folder}", file=out)
    print(f"  repeat: {repeat_command(options, result.trial.seed)}", file=out, flush=True)


def report(total: Total, took_s: float) -> None:
    summary = total.summary
    never = sorted(set(total.points) - set(total.killed_at))
    slowest = summary.recovery_max_ms
    print(
        f"sent {summary.sent} · answered {summary.answered} · notices {summary.notices} · "
        f"no answer due {summary.no_answer_due} · sent again {summary.repeated_sends}\n"
        f"lost {summary.lost} · duplicated {summary.duplicated} · "
        f"order violations {summary.order_violations} · starts {summary.starts} "
        f"({summary.resumed} resumed, {summary.interrupted} interrupted)\n"
        f"kills {summary.kills}, {summary.kills_in_flight} into work in flight "
        f"({total.in_flight_share:.0%}) · slowest recovery "
        f"{'none' if slowest is None else f'{slowest / 1000:.1f} s'}\n"
        f"crash points: killed at {len(total.killed_at)} of {len(total.points)}, "
        f"passed {len(total.passed & set(total.points))}"
        + (f"; never killed at: {', '.join(never)}" if never else "")
    )
    verdict = "the guarantees hold" if total.ok else _why(total)
    print(f"{total.seeds} seeds in {took_s:.0f} s, {len(total.failed)} failed: {verdict}")


def _why(total: Total) -> str:
    if total.failed:
        return f"{total.violations} violations, seeds {', '.join(map(str, total.failed[:20]))}"
    return "too few kills fell into work in flight to prove anything"


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./corral chaos", allow_abbrev=False)
    parser.add_argument("part", choices=["inbound"])
    parser.add_argument("--seeds", type=int, default=20, metavar="N")
    parser.add_argument("--seed", type=int, metavar="S", help="the first seed; default: by chance")
    parser.add_argument("--jobs", type=int, default=default_jobs(), metavar="J")
    parser.add_argument("--server", choices=["redis", "valkey"])
    parser.add_argument("--protocol", type=int, choices=[2, 3])
    parser.add_argument(
        "--from-nothing",
        action="store_true",
        help="start each process from nothing, not from one that has imported its libraries",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write a page (HTML), too")
    parser.add_argument("--keep", type=Path, default=KEEP_IN, help="where failed seeds are kept")
    parser.add_argument("--topology", type=Path, help="a rendered topology; default: the demo's")
    options = parser.parse_args(argv)
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be at least 1")
    return options


def main(argv: Sequence[str]) -> int:
    try:
        options = parse(argv)
    except SystemExit as error:
        return 64 if error.code else 0
    first = options.seed if options.seed is not None else random.SystemRandom().randrange(SEED_MAX)
    points = known_points()
    total, collected = Total(points), Collected()
    began = time.monotonic()
    print(f"seeds {first} to {first + options.seeds - 1}, {options.jobs} jobs", file=sys.stderr)
    progress = Progress(options.seeds, quiet=options.json)
    try:
        with Pool(options.jobs) as pool:
            for result in pool.run(trials(options, first, sorted(points))):
                total.add(result)
                collected.add(result)
                if not result.ok:
                    report_failure(options, result)
                progress.show(total)
    except CorralError as error:
        print(f"chaos: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    if options.report is not None:
        command = f"./corral chaos inbound --seeds {options.seeds} --seed {first}"
        table = [("seeds", str(total.seeds)), *rows(total.summary)]
        run_page.write(collected.page(table, ok=total.ok, command=command), options.report)
    if options.json:
        print(json.dumps(total.as_dict(), indent=2))
    else:
        report(total, time.monotonic() - began)
    return 0 if total.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
