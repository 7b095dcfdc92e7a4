"""The figures of `./corral bench tamq` as tables, and beside the bounds that the design sets."""

from collections.abc import Mapping
from typing import Any

from tests.bench.report import MIB, Bounds, judged, listed, show_bounds, show_disk

BOUNDS: Bounds = {
    "1 client, of litequeue": (("throughput", "ratios", "1 of litequeue"), 0.5, 0.35, True),
    "… p50, ms": (("throughput", "contenders", "TAMQ", "1", "p50_ms"), 1.0, None, False),
    "8 clients, of litequeue": (("throughput", "ratios", "8 of litequeue"), 1.5, 1.0, True),
    "64 clients, of litequeue": (("throughput", "ratios", "64 of litequeue"), 3.0, 1.6, True),
    "… p99, ms": (("throughput", "contenders", "TAMQ", "64", "p99_ms"), 15.0, 15.0, False),
    "resident memory, MiB": (
        ("throughput", "contenders", "TAMQ", "64", "resident_mib"), 60.0, 60.0, False,
    ),
    "SIGKILL to next message, s": (("after_a_kill_s", "max"), 1.0, 2.0, False),
    "send, in a large queue": (("growth", "send_ratio"), 1.3, 1.3, False),
    "claim, in a large queue": (("growth", "claim_ratio"), 1.3, 1.3, False),
}  # fmt: skip


def judge(figures: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each measured figure that has a bound: its goal, its bound, and whether it is kept."""
    for runs in figures["throughput"]["contenders"].values():
        for run in runs.values():
            run["resident_mib"] = run["resident_bytes"] / MIB
    return judged(figures, BOUNDS)


def show(figures: Mapping[str, Any]) -> None:
    """Print everything for a person."""
    show_disk(figures)
    print(
        f"{'contender':<16}{'clients':>8}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}"
        f"{'CPU µs':>8}{'MiB':>6}"
    )
    for name, runs in figures["throughput"]["contenders"].items():
        for clients, run in runs.items():
            cpu = f"{run['cpu_us']:.0f}" if "cpu_us" in run else ""
            print(
                f"{name:<16}{clients:>8}{run['per_s']:>9,.0f}{run['p50_ms']:>9.2f}"
                f"{run['p99_ms']:>9.2f}{cpu:>8}{run['resident_mib']:>6.0f}"
            )
    print()
    for name, ratio in figures["throughput"]["ratios"].items():
        print(f"TAMQ, clients: {name:<24}{ratio:>6.2f} ×")
    print()
    if "after_a_kill_s" in figures:
        print(f"SIGKILL to next message, s: {listed(figures['after_a_kill_s'])}")
    if "growth" in figures:
        print(f"cost of many stored messages: {listed(figures['growth'])}")
    show_bounds(figures["bounds"])
