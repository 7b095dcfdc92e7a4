"""The figures as tables, and beside the bounds that the design sets."""

from collections.abc import Mapping
from typing import Any

MIB = 1024 * 1024

# name: where the figure is, what is aimed at, what it must not be past, whether more is better
BOUNDS: Mapping[str, tuple[tuple[str, ...], float, float, bool]] = {
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
    found: dict[str, dict[str, Any]] = {}
    for name, (path, goal, bound, more) in BOUNDS.items():
        value: Any = figures
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is not None:
            kept = value >= bound if more else value <= bound
            reached = value >= goal if more else value <= goal
            found[name] = {
                "value": value, "goal": goal, "bound": bound, "reached": reached, "kept": kept,
            }  # fmt: skip
    return found


def show(figures: Mapping[str, Any]) -> None:
    """Print everything for a person."""
    rates = figures["disk"]
    print(
        f"disk: {rates['append_and_fsync_per_s']:,.0f} flushes/s, "
        f"{rates['sqlite_full_commits_per_s']:,.0f} SQLite commits/s (synchronous=FULL)\n"
    )
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
    if figures["bounds"]:
        print(f"\n{'figure':<28}{'value':>8}{'goal':>7}{'bound':>7}")
    for name, bound in figures["bounds"].items():
        word = "" if bound["reached"] else "  below the goal" if bound["kept"] else "  MISSED"
        print(f"{name:<28}{bound['value']:>8.2f}{bound['goal']:>7.2f}{bound['bound']:>7.2f}{word}")


def _show_rest(figures: Mapping[str, Any]) -> None:
    titles = {
        "latency_alone_ms": "latency of one at a time, ms",
        "latency_paced_ms": "latency at a pace, ms",
        "after_a_kill_s": "SIGKILL to next answer, s",
    }
    print()
    for key, title in titles.items():
        if key in figures:
            print(f"{title}: {_listed(figures[key])}")
    if "growth" in figures:
        growth = figures["growth"]
        print(
            f"ledger of {growth['turns']:,} turns, {growth['file_mib']:,.0f} MiB, beside a small:"
        )
        print(f"  without message ids: {_listed(growth['plain'])}")
        print(f"  with message ids:    {_listed(growth['named'])}")


def _listed(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:,.2f}" for name, value in values.items())
