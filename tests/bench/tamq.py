"""`./corral bench tamq`: sends to TAMQ beside two queues in one process and a bare socket server.

    python -m tests.bench.tamq [--operations N] [--rounds N] [--quick] [--check] [--json]

Every operation is a connection, one request, one answer, and durable when it is answered
(`synchronous=FULL`). The clients are processes of their own. Runs are interleaved, and a ratio is
taken within a round: on a shared machine nothing else can be compared. Exit status: 0; 1 when
`--check` was given and a figure is past its bound; 69 when something could not be run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from corral.core.errors import CorralError, UnavailableError
from corral.local.topology import base_environment
from corral.local.wait import until
from tests.bench import queue_growth, queue_report
from tests.bench.contenders import peers_python
from tests.bench.figures import disk
from tests.bench.inbound import Progress
from tests.bench.queue_stand import START_S, BareStand, TamqStand
from tests.bench.report import finish

CLIENTS = (1, 8, 64)
PEERS = ("litequeue", "persist-queue")
SHARES = {1: 5, 8: 2, 64: 1}  # few clients get a part of the operations
PEER_TIMEOUT_S = 600


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./corral bench tamq", allow_abbrev=False)
    parser.add_argument(
        "--operations", type=int, default=10_000, help="per run of 64 clients (fewer: a part)"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--messages", type=int, default=1_000_000, help="in the large queue")
    parser.add_argument("--quick", action="store_true", help="throughput alone")
    parser.add_argument("--check", action="store_true", help="exit 1 past a bound")
    parser.add_argument("--json", action="store_true")
    found = parser.parse_args(arguments)
    for name in ("operations", "rounds", "kills", "messages"):
        if getattr(found, name) < (100 if name == "operations" else 1):
            parser.error(f"--{name} is too small")
    return found


def peer(name: str, count: int) -> dict[str, float]:
    """A library that puts, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as folder:
        argv = [peers_python(), "-P", "-m", "tests.bench.queue_peers", name, folder, str(count)]
        done = subprocess.run(
            argv, env=base_environment(), capture_output=True, text=True,
            timeout=PEER_TIMEOUT_S, check=False,
        )  # fmt: skip
    if done.returncode:
        raise UnavailableError(f"{name}: {done.stderr.strip()[-600:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def sends(stand: TamqStand | BareStand, operations: int, clients: Sequence[int]) -> dict[str, Any]:
    """Runs of each number of clients against one server."""
    with stand:
        return {
            str(count): asdict(
                stand.server.load(count, max(operations // SHARES[count], 10), f"c{count}")
            )
            for count in clients
        }


def throughput(asked: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    """Each contender, round by round, and the ratios within rounds."""
    rounds: list[dict[str, Any]] = []
    for number in range(1, asked.rounds + 1):
        found: dict[str, Any] = {
            name: {"1": peer(name, asked.operations // SHARES[1])} for name in PEERS
        }
        found["bare server"] = sends(BareStand(), asked.operations, CLIENTS)
        found["TAMQ"] = sends(TamqStand(), asked.operations, CLIENTS)
        rounds.append(found)
        progress(
            f"round {number}: "
            + "; ".join(
                f"{name} " + ", ".join(f"{run['per_s']:,.0f}/s" for run in runs.values())
                for name, runs in found.items()
            )
        )
    return {"contenders": middle(rounds), "ratios": ratios(rounds)}


def middle(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of each figure, by contender and number of clients."""
    return {
        name: {
            clients: {
                figure: statistics.median(found[name][clients][figure] for found in rounds)
                for figure in run
            }
            for clients, run in runs.items()
        }
        for name, runs in rounds[0].items()
    }


def ratios(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """TAMQ's sends over the puts of each library, and over the bare server's, by clients."""

    def of(name: str, clients: str, theirs: str) -> float:
        return statistics.median(
            float(found["TAMQ"][clients]["per_s"] / found[name][theirs]["per_s"])
            for found in rounds
        )

    result: dict[str, float] = {}
    for clients in rounds[0]["TAMQ"]:
        for name in PEERS:
            result[f"{clients} of {name}"] = of(name, clients, "1")
        result[f"{clients} of bare server"] = of("bare server", clients, clients)
    return result


def after_a_kill(kills: int) -> dict[str, float]:
    """Seconds from SIGKILL to the next message that is admitted; restarted at once."""
    took, spent = [], []
    with TamqStand() as stand:
        for number in range(kills):
            stand.server.load(8, 100, f"kill-{number}")
            stand.server.kill()
            began = time.perf_counter()
            stand.server.start()
            until(
                lambda number=number: stand.send(str(number)),  # type: ignore[misc]
                START_S, "a message to be admitted",
            )  # fmt: skip
            took.append(time.perf_counter() - began)
            spent.append(stand.server.usage().cpu_s)
    return {
        "median": statistics.median(took),
        "max": max(took),
        "cpu_median": statistics.median(spent),
    }


def measure(asked: argparse.Namespace, progress: Progress) -> dict[str, Any]:
    figures: dict[str, Any] = {"load_before": os.getloadavg()[0], "disk": disk()}
    figures["throughput"] = throughput(asked, progress)
    if not asked.quick:
        progress(f"{asked.kills} kills")
        figures["after_a_kill_s"] = after_a_kill(asked.kills)
        progress(f"a queue of {asked.messages:,} messages beside one of {queue_growth.SMALL:,}")
        figures["growth"] = queue_growth.compare(
            asked.messages, asked.operations // 2, asked.rounds, progress
        )
    figures["load_after"] = os.getloadavg()[0]
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    asked = options(arguments)
    try:
        figures = measure(asked, Progress())
    except CorralError as error:
        print(f"corral: {error}", file=sys.stderr)
        return error.exit_code
    figures["bounds"] = queue_report.judge(figures)
    return finish(asked, figures, queue_report.show)


if __name__ == "__main__":
    sys.exit(main())
