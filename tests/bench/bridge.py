"""`./corral bench bridge`: admission, drain, memory, kills, growth, and a load in Synapse's rooms.

    python -m tests.bench.bridge [--transactions N] [--rounds N] [--quick] [--no-synapse] …

The bridge is the whole service, with PostgreSQL that flushes at every commit. Beside it, in the
same rounds: a plain mautrix appservice that stores nothing, and asyncpg that only inserts. A ratio
is taken within a round: on a shared machine nothing else can be compared. Exit status: 0; 1 when
`--check` was given and a figure is past its bound; 69 when something could not be run.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from typing import Any

from corral.core.errors import CorralError
from tests.bench import bridge_growth, bridge_rates, bridge_report, bridge_rooms, bridge_work
from tests.bench.bridge_stand import BridgeStand
from tests.bench.figures import disk
from tests.bench.inbound import Progress
from tests.bench.report import finish


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./corral bench bridge", allow_abbrev=False)
    parser.add_argument(
        "--transactions", type=int, default=2_000, help="of one event, per run (of 100: a tenth)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="that have ended, in the large")
    parser.add_argument("--alone", type=int, default=20, help="mentions one at a time")
    parser.add_argument("--quick", action="store_true", help="throughput alone")
    parser.add_argument("--no-synapse", action="store_true", help="without the load in rooms")
    parser.add_argument("--check", action="store_true", help="exit 1 past a bound")
    parser.add_argument("--json", action="store_true")
    found = parser.parse_args(arguments)
    least = {"transactions": 100, "rounds": 1, "kills": 1, "jobs": 100, "alone": 2}
    for name, bound in least.items():
        if getattr(found, name) < bound:
            parser.error(f"--{name} is too small")
    return found


async def throughput(asked: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    async with BridgeStand() as stand:
        stand.start()
        return await bridge_rates.throughput(stand, asked.transactions, asked.rounds, progress)


async def measure(asked: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    figures: dict[str, Any] = {"load_before": os.getloadavg()[0], "disk": disk()}
    figures["throughput"] = await throughput(asked, progress)
    if not asked.quick:
        progress("memory with a full queue")
        figures["when_full"] = await bridge_work.resident_when_full()
        progress("drains of a full queue")
        figures["drain"] = await bridge_work.drain(asked.rounds)
        progress(f"{asked.kills} kills")
        figures["after_a_kill_s"] = await bridge_work.after_a_kill(asked.kills)
        progress(f"a ledger of {asked.jobs:,} jobs beside one of {bridge_growth.SMALL:,}")
        figures["growth"] = await bridge_growth.compare(asked.jobs, 200, progress)
        if not asked.no_synapse:
            progress("rooms of a real Synapse")
            figures["rooms"] = await bridge_rooms.measure(asked.alone, progress)
    figures["load_after"] = os.getloadavg()[0]
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    asked = options(arguments)
    try:
        figures = asyncio.run(measure(asked, Progress()))
    except CorralError as error:
        print(f"corral: {error}", file=sys.stderr)
        return error.exit_code
    figures["bounds"] = bridge_report.judge(figures)
    return finish(asked, figures, bridge_report.show)


if __name__ == "__main__":
    sys.exit(main())
