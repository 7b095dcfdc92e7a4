"""The figures as tables, and beside the bounds that the design sets."""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

MIB = 1024 * 1024

# name: where the figure is, what is aimed at, what it must not be past, whether more is better
Bounds = Mapping[str, tuple[tuple[str, ...], float, float | None, bool]]

BOUNDS: Bounds = {
    "of the bare loop": (("throughput", "ratios", "of_bare"), 0.5, 0.35, True),
    "the same by CPU time": (("throughput", "ratios", "of_bare_by_cpu"), 0.5, 0.35, True),
    "of the best library": (("throughput", "ratios", "of_best_peer"), 5.0, 3.0, True),
    "resident memory, MiB": (
        ("throughput", "contenders", "cowboy", "resident_mib"), 80.0, 80.0, False,
    ),
    "SIGKILL to next answer, s": (("after_a_kill_s", "max"), 1.0, 2.0, False),
    "cost in a large ledger": (("growth", "plain", "ratio"), 1.3, 1.3, False),
    "the same, with message ids": (("growth", "named", "ratio"), 1.3, 1.3, False),
}  # fmt: skip


def judge(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each measured figure that has a bound: its goal, its bound, and whether it is kept."""
    for run in figures["throughput"]["contenders"].values():
        run["resident_mib"] = run["resident_bytes"] / MIB
        run["peak_mib"] = run["peak_bytes"] / MIB
    return judged(figures, BOUNDS)


def judged(figures: Mapping[str, Any], bounds: Bounds) -> dict[str, dict[str, Any]]:
    """Of the figures that are there. A figure without a bound is always kept."""
    found: dict[str, dict[str, Any]] = {}
    for name, (path, goal, bound, more) in bounds.items():
        value: Any = figures
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            kept = bound is None or (value >= bound if more else value <= bound)
            reached = value >= goal if more else value <= goal
            found[name] = {
                "value": value, "goal": goal, "bound": bound, "reached": reached, "kept": kept,
            }  # fmt: skip
    return found


def finish(
    asked: argparse.Namespace, figures: dict[str, Any], show: Callable[[Mapping[str, Any]], None]
) -> int:
    """Prints the judged figures as `asked` for; the exit status."""
    if asked.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)
    missed = any(not bound["kept"] for bound in figures["bounds"].values())
    return 1 if asked.check and missed else 0


def show_disk(figures: Mapping[str, Any]) -> None:
    """What the disk gave, and how busy the machine was, where that was looked at."""
    rates = figures["disk"]
    load = ""
    if "load_before" in figures:
        load = f"; load {figures['load_before']:.1f} before, {figures['load_after']:.1f} after"
    print(
        f"disk: {rates['append_and_fsync_per_s']:,.0f} flushes/s, "
        f"{rates['sqlite_full_commits_per_s']:,.0f} SQLite commits/s (synchronous=FULL){load}\n"
    )


def show(figures: Mapping[str, Any]) -> None:
    """Print everything for a person."""
    show_disk(figures)
    print(f"{'contender':<14}{'messages/s':>12}{'CPU µs':>9}{'server µs':>11}{'MiB':>6}{'peak':>6}")
    for name, run in figures["throughput"]["contenders"].items():
        print(
            f"{name:<14}{run['per_s']:>12,.0f}{run['cpu_us']:>9.1f}{run['server_cpu_us']:>11.1f}"
            f"{run['resident_mib']:>6.0f}{run['peak_mib']:>6.0f}"
        )
    if "one_channel" in figures:
        one = figures["one_channel"]
        print(f"{'cowboy, one channel':<19}{one['per_s']:>7,.0f}{one['cpu_us']:>9.1f}")
    _show_rest(figures)
    show_bounds(figures["bounds"])


def show_bounds(bounds: Mapping[str, Mapping[str, Any]]) -> None:
    """As a table."""
    if bounds:
        print(f"\n{'figure':<28}{'value':>8}{'goal':>7}{'bound':>7}")
    for name, one in bounds.items():
        word = "" if one["reached"] else "  below the goal" if one["kept"] else "  MISSED"
        bound = "" if one["bound"] is None else f"{one['bound']:.2f}"
        print(f"{name:<28}{one['value']:>8.2f}{one['goal']:>7.2f}{bound:>7}{word}")


def _show_rest(figures: Mapping[str, Any]) -> None:
    titles = {
        "latency_alone_ms": "latency of one at a time, ms",
        "latency_paced_ms": "latency at a pace, ms",
        "after_a_kill_s": "SIGKILL to next answer, s",
    }
    print()
    for key, title in titles.items():
        if key in figures:
            print(f"{title}: {listed(figures[key])}")
    if "growth" in figures:
        growth = figures["growth"]
        print(
            f"ledger of {growth['turns']:,} turns, {growth['file_mib']:,.0f} MiB, beside a small:"
        )
        print(f"  without message ids: {listed(growth['plain'])}")
        print(f"  with message ids:    {listed(growth['named'])}")


def listed(values: Mapping[str, float]) -> str:
    """In one line."""
    return ", ".join(f"{name} {value:,.2f}" for name, value in values.items())
