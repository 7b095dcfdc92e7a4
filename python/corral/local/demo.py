"""`./corral demo [--seed N] [--messages N] [--json]`: messages flow while everything is killed.

A real server with the generated ACL file, agent `scout` with its daemon and runner, three senders
in five channels, and an agent that starts children, takes its time and writes an effect log.
Daemon, runner and server are killed with SIGKILL by a seeded schedule. Then the model reconciles
what the senders saw with the ledger and the effect log. Exit status 0 only if the guarantees hold.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from corral.core.errors import CorralError
from corral.local import wait
from corral.local.collect import collect, keep
from corral.local.deployment import DAEMON, REDIS, RUNNER, Deployment, Options
from corral.local.faults import Fault, inflict
from corral.local.model import Report, reconcile
from corral.local.plan import Mix, Planned, Planner
from corral.local.report import Progress, print_table
from corral.local.workload import send_all

SOURCES = ("a2a", "chat")
SENDERS = ("ada", "grace", "edsger")
CHANNELS = ("ops", "build", "docs", "alerts", "lab")
MESSAGES = 60
MESSAGES_MAX = 2000
SENT_WHILE_DOWN = 5
SENDING_S = 13.0
KILLS: tuple[tuple[str, ...], ...] = (
    (DAEMON,),
    (RUNNER,),
    (REDIS,),
    (DAEMON,),
    (RUNNER,),
    (REDIS,),
    (DAEMON, RUNNER, REDIS),
)
KILLS_FROM_S = 1.0
QUIET_TIMEOUT_S = 20.0
LOOK_S = 0.1
KEEP_IN = Path(".corral") / "demo"
SEED_MAX = 2**31


@dataclass(frozen=True)
class Settings:
    """What the command line asks for."""

    seed: int
    messages: int = MESSAGES
    json: bool = False
    server: str | None = None
    keep: Path = KEEP_IN

    @property
    def command(self) -> str:
        more = f" --messages {self.messages}" if self.messages != MESSAGES else ""
        more += f" --server {self.server}" if self.server else ""
        return f"./corral demo --seed {self.seed}{more}"


def planned_messages(settings: Settings, rng: random.Random) -> list[Planned]:
    """The messages: most take a few hundred milliseconds, some take seconds."""
    count = settings.messages
    slow = max(1, count // 12)
    duration_s = SENDING_S * max(1.0, count / (MESSAGES * 4))
    plans: list[Planned] = []
    for amount, work_s in ((count - slow, (0.2, 0.8)), (slow, (1.5, 2.5))):
        mix = Mix(SOURCES, amount, duration_s, SENDERS, CHANNELS, work_s=work_s, plain=True)
        plans += Planner(rng, mix, prefix=f"demo{len(plans)}").plan()
    ordered = sorted(plans, key=lambda planned: planned.at_s)
    return [replace(planned, key=key) for key, planned in enumerate(ordered)]


def planned_kills(rng: random.Random, end_s: float) -> list[Fault]:
    """Every process is killed several times, alone and together, in a drawn order."""
    order = list(KILLS)
    rng.shuffle(order)
    step_s = (end_s - KILLS_FROM_S) / len(order)
    return [
        Fault(KILLS_FROM_S + step_s * (number + rng.uniform(0.0, 0.6)), "kill", processes)
        for number, processes in enumerate(order)
    ]


async def play(settings: Settings, deployment: Deployment, progress: Progress) -> bool:
    """The whole run up to its rest; whether it came to rest in time."""
    rng = random.Random(f"demo:{settings.seed}")
    planned = planned_messages(settings, rng)
    early = [replace(item, at_s=0.0) for item in planned[:SENT_WHILE_DOWN]]
    later = planned[SENT_WHILE_DOWN:]
    kills = planned_kills(rng, max(SENDING_S, later[-1].at_s if later else 0.0))
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(progress))
        readers = [deployment.reader(source, trim=True) for source in deployment.sources]
        try:
            for reader in readers:
                group.create_task(reader.run())
            quiet = await _send_and_kill(deployment, progress, early, later, kills)
        finally:
            watching.cancel()
            for reader in readers:
                reader.stop()
    return quiet


async def _send_and_kill(
    deployment: Deployment,
    progress: Progress,
    early: Sequence[Planned],
    later: Sequence[Planned],
    kills: Sequence[Fault],
) -> bool:
    progress.enter(f"sending {len(early)} messages while nothing runs")
    await send_all(deployment.sender, early, time.monotonic())
    progress.enter("starting daemon and runner")
    await deployment.start()
    progress.enter(f"sending {len(later)} messages while processes are killed")
    start_s = time.monotonic()
    async with asyncio.TaskGroup() as work:
        work.create_task(send_all(deployment.sender, later, start_s))
        for fault in kills:
            work.create_task(inflict(deployment.supervisor, fault, start_s))
    progress.enter("no more kills: waiting for the last answers")
    return await deployment.until_quiet(QUIET_TIMEOUT_S)


async def watch(progress: Progress) -> None:
    while True:
        progress.look()
        await wait.at(time.monotonic() + LOOK_S)


async def demo(settings: Settings) -> tuple[Report, Path | None]:
    """Runs it; the report, and the folder that a failed run keeps."""
    async with Deployment(Options(server=settings.server)) as deployment:
        board, supervisor = deployment.board, deployment.supervisor
        with Progress(board, supervisor, settings.messages, quiet=settings.json) as progress:
            progress.enter(f"{deployment.server_kind} with the generated ACL file, agent scout")
            trouble: list[str] = []
            quiet = False
            try:
                quiet = await play(settings, deployment, progress)
            except* wait.WaitTimeoutError as group:
                trouble += [str(error) for error in group.exceptions]
            progress.enter("reconciling")
            evidence = await collect(deployment, quiet=quiet)
        evidence.trouble += trouble
        report = reconcile(evidence)
        if report.ok:
            return report, None
        notes = [settings.command, "", *(str(violation) for violation in report.violations)]
        return report, keep(deployment, evidence, settings.keep / f"seed-{settings.seed}", notes)


def parse(argv: Sequence[str]) -> Settings:
    parser = argparse.ArgumentParser(prog="./corral demo", allow_abbrev=False)
    parser.add_argument("--seed", type=int, help="of the messages and kills; default: by chance")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N")
    parser.add_argument("--json", action="store_true", help="the report as JSON, no progress")
    parser.add_argument("--server", choices=["redis", "valkey"], help="default: what is found")
    parser.add_argument("--keep", type=Path, default=KEEP_IN, help="where a failed run is kept")
    given = parser.parse_args(argv)
    if not SENT_WHILE_DOWN < given.messages <= MESSAGES_MAX:
        parser.error(f"--messages must be {SENT_WHILE_DOWN + 1} to {MESSAGES_MAX}")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(SEED_MAX)
    return Settings(seed, given.messages, given.json, given.server, given.keep)


async def _interruptible(settings: Settings) -> tuple[Report, Path | None]:
    """SIGTERM ends the run as Ctrl-C does: everything that was started is ended."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await demo(settings)


def main(argv: Sequence[str]) -> int:
    try:
        settings = parse(argv)
    except SystemExit as error:
        return 64 if error.code else 0
    print(f"seed {settings.seed}", file=sys.stderr, flush=True)
    began = time.monotonic()
    try:
        report, folder = asyncio.run(_interruptible(settings))
    except CorralError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: everything that was started is ended", file=sys.stderr)
        return 130
    if settings.json:
        print(json.dumps({"seed": settings.seed, **report.as_dict()}, indent=2))
    else:
        print_table(report, stream=sys.stdout)
        verdict = "the guarantees hold" if report.ok else "a guarantee is broken"
        print(f"\n{verdict} (seed {settings.seed}, {time.monotonic() - began:.0f} s)")
    if not report.ok:
        print(f"kept in {folder}\nrepeat: {settings.command}", file=sys.stderr)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
