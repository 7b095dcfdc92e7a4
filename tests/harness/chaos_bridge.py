"""`./corral chaos bridge`: two workers on one ledger, killed at random with PostgreSQL, at length.

    python -m tests.harness.chaos_bridge --seeds N [--seed S] [--jobs J] [--rooms R] [--faults F]
                                         [--at-once A] [--many] [--json]
    python -m tests.harness.chaos_bridge --sends N [--to SIDE]… [--seed S]

Trials run side by side, each on a PostgreSQL of its own. No message leaves twice, nothing is
executed twice, each room keeps its order, every mention is told one end, and nothing of what was
said is left. `--many` is one size for a night: 10,000 jobs in 100 rooms. With `--sends` a bridge
calls real agents instead, and so many calls are killed for each (see `send_trial`). Exit status: 0
when no rule was broken, there was a kill, and half of them hit work in flight; 1 otherwise, 64 for
bad usage, 130 when it was interrupted.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.local.postgres import find_postgres
from tests.harness import postgres, send_trial
from tests.harness.armed import known_points
from tests.harness.bridge_trial import Result, Trial, run_trial
from tests.harness.pool import default_jobs
from tests.harness.send_sides import SIDES

SEED_MAX = 2**31
KEEP_IN = Path(".corral") / "chaos"
IN_FLIGHT_SHARE_MIN = 0.5
TELL_EVERY_S = 10.0
MANY: Final[Mapping[str, Any]] = {
    "jobs": 10_000,
    "rooms": 100,
    "faults": 60,
    "every_s": 3.0,
    "concurrency": 32,
}


def arms() -> tuple[str, ...]:
    """The points at which a worker may kill itself."""
    return tuple(sorted(point for point in known_points("bridge") if point.startswith("bridge.")))


def run_trials(
    trials: Sequence[Trial],
    at_once: int = 1,
    told: Callable[[Result], None] = lambda _: None,
    keep_in: Path | None = None,
) -> list[Result]:
    """So many at once, each lane on a server of its own; `told` hears of each as it ends.

    An interruption lets the trials that run come to their end, and no others.
    """
    left, lock, stop = iter(trials), threading.Lock(), threading.Event()

    def following() -> Iterator[Trial]:
        while not stop.is_set():
            with lock:
                trial = next(left, None)
            if trial is None:
                return
            yield trial

    results: list[Result] = []

    def lane() -> None:
        with ThreadPoolExecutor(1) as restarts, postgres.server(max(find_postgres())) as server:
            target = asyncio.run(postgres.create(server, "ledger"))
            for trial in following():
                result = run_trial(trial, server, target, restarts, keep_in)
                with lock:
                    results.append(result)
                    told(result)

    with ThreadPoolExecutor(at_once) as pool:
        lanes: list[Future[None]] = [pool.submit(lane) for _ in range(min(at_once, len(trials)))]
        try:
            for one in as_completed(lanes):
                one.result()
        except KeyboardInterrupt:
            print("interrupted: waiting for the trials that run", file=sys.stderr, flush=True)
        finally:
            stop.set()
    return results


@dataclass
class Total:
    """What all seeds came to, told as they end."""

    seeds: int
    points: tuple[str, ...]
    began: float = field(default_factory=time.monotonic)
    results: list[Result] = field(default_factory=list)
    shown: float = 0.0

    def add(self, result: Result) -> None:
        self.results.append(result)
        if not result.ok:
            print(f"FAILED {result}", *result.violations[:10], sep="\n  ", flush=True)
            print(f"  repeat: {repeat_command(result.trial)}; kept in {result.folder}", flush=True)
        if time.monotonic() - self.shown >= TELL_EVERY_S or len(self.results) == self.seeds:
            self.shown = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    @property
    def failed(self) -> list[int]:
        return [one.trial.seed for one in self.results if not one.ok]

    @property
    def killed_at(self) -> Counter[str]:
        return sum((one.killed_at for one in self.results), Counter())

    @property
    def ends(self) -> Counter[str]:
        return sum((one.ends for one in self.results), Counter())

    @property
    def kills(self) -> int:
        return sum(one.kills for one in self.results)

    @property
    def in_flight_share(self) -> float:
        hit = sum(one.kills_in_flight for one in self.results)
        return hit / self.kills if self.kills else 0.0

    @property
    def ok(self) -> bool:
        return not self.failed and self.in_flight_share >= IN_FLIGHT_SHARE_MIN

    def line(self) -> str:
        done = len(self.results)
        left_s = (time.monotonic() - self.began) / done * (self.seeds - done)
        return (
            f"{done}/{self.seeds} seeds, {len(self.failed)} failed, "
            f"{sum(self.ends.values())} jobs, {self.kills} kills "
            f"({self.in_flight_share:.0%} into work in flight), "
            f"{len(self.killed_at)}/{len(self.points)} crash points, {left_s:.0f} s left"
        )

    def as_dict(self) -> dict[str, object]:
        passed = set().union(*(one.passed for one in self.results))
        return {
            "ok": self.ok,
            "seeds": len(self.results),
            "failed": self.failed,
            "jobs": sum(self.ends.values()),
            "ends": dict(self.ends.most_common()),
            "kills": self.kills,
            "kills_in_flight_share": round(self.in_flight_share, 3),
            "faults": dict(sum((one.faults for one in self.results), Counter())),
            "crash_points": {
                "registered": len(self.points),
                "killed_at": dict(sorted(self.killed_at.items())),
                "never_killed_at": sorted(set(self.points) - set(self.killed_at)),
                "never_passed": sorted(set(self.points) - passed),
            },
            "took_s": round(time.monotonic() - self.began, 1),
        }


def repeat_command(trial: Trial) -> str:
    """What differs from the defaults is said."""
    default = Trial(trial.seed)
    names = ("jobs", "rooms", "faults")
    extra = [
        f" --{name} {getattr(trial, name)}"
        for name in names
        if getattr(trial, name) != getattr(default, name)
    ]
    if trial.concurrency == MANY["concurrency"]:
        extra = [" --many"]
    return f"./corral chaos bridge --seeds 1 --seed {trial.seed}{''.join(extra)}"


def report(total: Total) -> None:
    found = total.as_dict()
    points: object = found.pop("crash_points")
    assert isinstance(points, dict)
    print(
        f"{found['seeds']} seeds in {found['took_s']} s: {found['jobs']} jobs {found['ends']}\n"
        f"{found['kills']} kills, {total.in_flight_share:.0%} into work in flight; "
        f"faults {found['faults']}\n"
        f"{sum(points['killed_at'].values())} of them at {len(points['killed_at'])} of "
        f"{points['registered']} crash points; never at: "
        f"{' '.join(points['never_killed_at']) or 'none'}\n"
        f"{len(total.failed)} failed"
    )


def options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./corral chaos bridge", allow_abbrev=False)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seeds", type=int, metavar="N")
    what.add_argument("--sends", type=int, metavar="N", help="kill so many calls to real agents")
    parser.add_argument("--to", action="append", choices=SIDES, help="whom; default: each of them")
    parser.add_argument("--seed", type=int, metavar="S", help="the first seed; default: by chance")
    parser.add_argument("--jobs", type=int, default=60, help="mentions of a seed")
    parser.add_argument("--rooms", type=int, default=8)
    parser.add_argument("--faults", type=int, default=6)
    parser.add_argument("--at-once", type=int, default=default_jobs(), help="trials side by side")
    parser.add_argument("--many", action="store_true", help="10,000 mentions in 100 rooms a seed")
    parser.add_argument("--json", action="store_true")
    found = parser.parse_args(argv)
    for name in ("seeds", "sends", "jobs", "rooms", "at_once"):
        value = getattr(found, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    return found


def drawn(asked: argparse.Namespace, first: int, points: tuple[str, ...]) -> list[Trial]:
    names = ("jobs", "rooms", "faults")
    size = MANY if asked.many else {name: getattr(asked, name) for name in names}
    return [
        Trial((first + number) % SEED_MAX, arms=points, **size) for number in range(asked.seeds)
    ]


def sends(trials: Sequence[send_trial.Trial]) -> int:
    """One after another. Status 0 when no rule was broken, else 1."""
    good = True
    for trial in trials:
        print(f"killing calls: {trial.to}, seed {trial.seed}", file=sys.stderr, flush=True)
        result = send_trial.run_trial(trial, KEEP_IN)
        print(result, *result.violations[:10], sep="\n  ", flush=True)
        if not result.ok:
            again = f"--sends {trial.sends} --to {trial.to} --seed {trial.seed}"
            print(f"  repeat: ./corral chaos bridge {again}; kept below {KEEP_IN}", flush=True)
        good = good and result.ok
    return 0 if good else 1


def main(argv: Sequence[str]) -> int:
    try:
        asked = options(argv)
    except SystemExit as error:
        return 64 if error.code else 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    first = asked.seed if asked.seed is not None else random.SystemRandom().randrange(SEED_MAX)
    if asked.sends:
        return sends([send_trial.Trial(to, first, asked.sends) for to in asked.to or SIDES])
    last = first + asked.seeds - 1
    print(f"seeds {first} to {last}, {asked.at_once} at once", file=sys.stderr, flush=True)
    points = arms()
    total = Total(asked.seeds, points)
    results = run_trials(drawn(asked, first, points), asked.at_once, total.add, KEEP_IN)
    if asked.json:
        print(json.dumps(total.as_dict()))
    elif results:
        report(total)
    if len(results) < asked.seeds:
        print(f"interrupted: {asked.seeds - len(results)} seeds not tried", file=sys.stderr)
        return 130
    return 0 if total.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
