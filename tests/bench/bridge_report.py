"""The figures of `./corral bench bridge` as tables, and beside the bounds that the design sets."""

from collections.abc import Mapping
from typing import Any

from tests.bench.report import MIB, Bounds, judged, listed, show_bounds, show_disk

RATIOS = ("throughput", "ratios")
BOUNDS: Bounds = {
    "1 event, of a bare insert": ((*RATIOS, "1 of bare insert"), 0.4, 0.28, True),
    "100 events, of a bare insert": ((*RATIOS, "100 of bare insert"), 0.4, 0.3, True),
    "100 events, of mautrix": ((*RATIOS, "100 of plain mautrix"), 1.8, 1.4, True),
    "full queue, resident MiB": (("when_full", "resident_mib"), 120.0, 120.0, False),
    "SIGKILL to next job, s": (("after_a_kill_s", "max"), 1.0, 2.0, False),
    "… to all that were held, s": (("after_a_kill_s", "all_taken_max"), 1.0, 2.0, False),
    "claim, in a large ledger": (("growth", "claim_ratio"), 1.3, 1.3, False),
    "admission, likewise": (("growth", "admission_ratio"), 1.3, None, False),
    "10 x 10 mentions, s": (("rooms", "load_s"), 25.0, 39.0, False),
    "mention to answer, p50 ms": (("rooms", "alone_ms", "p50"), 150.0, 250.0, False),
}


def judge(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each measured figure that has a bound: its goal, its bound, and whether it is kept."""
    if "when_full" in figures:
        full = figures["when_full"]
        full |= {f"{name}_mib": full[name] / MIB for name in ("idle", "resident", "peak")}
    return judged(figures, BOUNDS)


def show(figures: Mapping[str, Any]) -> None:
    """Print everything for a person."""
    show_disk(figures)
    print(
        f"{'contender':<22}{'events':>7}{'transactions/s':>16}{'events/s':>10}"
        f"{'p50 ms':>8}{'p99 ms':>8}{'CPU µs':>8}"
    )
    for name, runs in figures["throughput"]["contenders"].items():
        for size, run in runs.items():
            cpu = f"{run['cpu_us']:.0f}" if run["cpu_us"] else ""
            print(
                f"{name:<22}{size:>7}{run['transactions_per_s']:>16,.0f}"
                f"{run['events_per_s']:>10,.0f}{run['p50_ms']:>8.2f}{run['p99_ms']:>8.2f}{cpu:>8}"
            )
    print()
    for name, ratio in figures["throughput"]["ratios"].items():
        print(f"the bridge, events: {name:<28}{ratio:>6.2f} ×")
    print()
    _show_rest(figures)
    show_bounds(figures["bounds"])


def _show_rest(figures: Mapping[str, Any]) -> None:
    if "drain" in figures:
        print(f"drain of a full queue: {listed(figures['drain'])}")
    if "when_full" in figures:
        full = figures["when_full"]
        parts = {name: full[f"{name}_mib"] for name in ("idle", "resident", "peak")}
        print(f"memory, MiB, with a full queue: {listed(parts)}")
    if "after_a_kill_s" in figures:
        print(f"SIGKILL to next job, s: {listed(figures['after_a_kill_s'])}")
    if "growth" in figures:
        print(f"cost of many ended jobs: {listed(figures['growth'])}")
    if "rooms" in figures:
        rooms = figures["rooms"]
        print(f"{rooms['jobs']} mentions in Synapse's rooms: {rooms['load_s']:.1f} s")
        print(f"one mention at a time, ms: {listed(rooms['alone_ms'])}")
