"""`./corral bench inbound`: cowboy beside a bare loop, a naive ledger and two message libraries.

    python -m tests.bench.inbound [--messages N] [--rounds N] [--only NAME…] [--quick] [--json]

Each run has a fresh server (append-only file, flushed always), the same messages and the same read
count. Runs are interleaved, and a ratio is taken within a round: on a shared machine nothing else
can be compared. Exit status: 0; 1 when `--check` was given and a figure is past its bound; 69 when
something could not be run.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corral.core.errors import CorralError
from tests.bench import growth, pace
from tests.bench.contenders import BARE, COWBOY, NAIVE, OWN, PEERS
from tests.bench.figures import Run, disk, fresh_backlog
from tests.bench.report import finish, judge, show

SLOW_SHARE = 5  # the slow ones get a fifth of the messages
ALL = (*OWN, *PEERS)


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./corral bench inbound", allow_abbrev=False)
    parser.add_argument(
        "--messages", type=int, default=20_000, help="per run (the slow ones: a fifth)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=[one.name for one in ALL], metavar="NAME")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pace", type=int, default=500, help="messages per second")
    parser.add_argument("--turns", type=int, default=1_000_000, help="in the large ledger")
    parser.add_argument("--quick", action="store_true", help="throughput alone")
    parser.add_argument("--check", action="store_true", help="exit 1 past a bound")
    parser.add_argument("--json", action="store_true")
    found = parser.parse_args(arguments)
    for name in ("messages", "rounds", "kills", "pace", "turns"):
        if getattr(found, name) < (100 if name == "messages" else 1):
            parser.error(f"--{name} is too small")
    return found


class Progress:
    """What is being done, on standard error."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def __call__(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:5.0f} s] {text}", file=sys.stderr, flush=True)


def throughput(asked: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Runs of every contender, round by round, and the ratios within rounds."""
    contenders = [one for one in ALL if not asked.only or one.name in asked.only]
    rounds: list[dict[str, Run]] = []
    for number in range(1, asked.rounds + 1):
        runs: dict[str, Run] = {}
        for one in contenders:
            slow = one.is_peer or one is NAIVE
            count = max(asked.messages // (SLOW_SHARE if slow else 1), 100)
            runs[one.name] = fresh_backlog(one, count)
            progress(f"round {number}: {one.name} {runs[one.name].per_s:,.0f}/s")
        rounds.append(runs)
    result: dict[str, Any] = {
        one.name: {
            field: statistics.median(getattr(runs[one.name], field) for runs in rounds)
            for field in asdict(rounds[0][one.name])
        }
        for one in contenders
    }
    return {"contenders": result, "ratios": ratios(rounds)}


def ratios(rounds: Sequence[dict[str, Run]]) -> dict[str, float]:
    """Cowboy's speed over the others', the middle of the rounds; and the same by CPU time.

    A message's CPU time is that of the process and of the server. It says what a busy machine
    hides: who overlaps work waits less there.
    """
    found: dict[str, float] = {}
    for name, others in (
        ("of_bare", [BARE.name]),
        ("of_naive", [NAIVE.name]),
        ("of_best_peer", [one.name for one in PEERS]),
    ):
        whole = [runs for runs in rounds if all(one in runs for one in (COWBOY.name, *others))]
        if not whole:
            continue
        found[name] = statistics.median(
            runs[COWBOY.name].per_s / max(runs[one].per_s for one in others) for runs in whole
        )
        found[f"{name}_by_cpu"] = statistics.median(
            min(_cpu_us(runs[one]) for one in others) / _cpu_us(runs[COWBOY.name]) for runs in whole
        )
    return found


def _cpu_us(run: Run) -> float:
    return run.cpu_us + run.server_cpu_us


def one_channel(asked: argparse.Namespace, progress: Progress) -> dict[str, float]:
    """All messages in one channel: the order of that channel is all there is."""
    runs = [fresh_backlog(COWBOY, asked.messages, channels=1) for _ in range(asked.rounds)]
    figure = statistics.median(run.per_s for run in runs)
    progress(f"one channel: {figure:,.0f}/s")
    return {"per_s": figure, "cpu_us": statistics.median(run.cpu_us for run in runs)}


def measure(asked: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    figures: dict[str, Any] = {"disk": disk(), "throughput": throughput(asked, progress)}
    if asked.quick or (asked.only and COWBOY.name not in asked.only):
        return figures
    figures["one_channel"] = one_channel(asked, progress)
    progress("latency, one at a time")
    figures["latency_alone_ms"] = pace.one_at_a_time(300)
    progress(f"latency at {asked.pace} messages per second")
    figures["latency_paced_ms"] = pace.at_a_pace(asked.pace, 10.0)
    progress(f"{asked.kills} kills")
    figures["after_a_kill_s"] = pace.after_a_kill(asked.kills)
    progress(f"a ledger of {asked.turns:,} turns beside one of {growth.SMALL:,}")
    figures["growth"] = growth.compare(asked.turns, asked.messages, asked.rounds, progress)
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    asked = options(arguments)
    try:
        figures = measure(asked, Progress())
    except CorralError as error:
        print(f"corral: {error}", file=sys.stderr)
        return error.exit_code
    figures["bounds"] = judge(figures)
    return finish(asked, figures, show)


if __name__ == "__main__":
    sys.exit(main())
