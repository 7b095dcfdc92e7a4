"""`./corral demo [--seed N] [--messages N] [--report FILE]`: messages flow, all is killed.

Three people mention two agents in six rooms of a real Synapse: bridge, gateway and cowboy carry
each mention to `scout`, a program that starts children, takes its time and writes an effect log, or
through TAMQ to `pilot`, a live session in a terminal, and the answers back. Others write to scout's
inbox directly, and TAMQ wakes two more sessions, one in tmux and one on a pty. Every process is
killed with SIGKILL by a seeded schedule. Then models reconcile what people saw with the ledgers and
the effect logs. Exit status 0 only if the guarantees hold.
"""

import argparse
import asyncio
import json
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from corral.core.errors import CorralError
from corral.local import mentions_model, pilot, run_page, wait
from corral.local.collect import collect, keep
from corral.local.deployment import DAEMON, REDIS, RUNNER, Deployment, Options
from corral.local.evidence import Evidence
from corral.local.faults import Fault, inflict
from corral.local.mentions import Mentions, add_turns
from corral.local.mentions_model import MentionEvidence, MentionSummary
from corral.local.model import Summary, reconcile
from corral.local.page import Page
from corral.local.plan import Mix, Planned, Planner
from corral.local.report import Progress, print_table, rows
from corral.local.rules import Report, Violation
from corral.local.supervisor import Supervisor
from corral.local.wakes import TAMQ, Wakes
from corral.local.wakes_model import WakeEvidence, WakeSummary, judge
from corral.local.workload import send_all

SOURCES = ("chat",)
SENDERS = ("ada", "grace", "edsger")
CHANNELS = ("ops", "build", "docs", "alerts", "lab")
MESSAGES = 30
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
WAKES = "wakes"  # the folder of TAMQ, in the deployment's
SEED_MAX = 2**31


@dataclass(frozen=True)
class Settings:
    """What the command line asks for."""

    seed: int
    messages: int = MESSAGES
    json: bool = False
    server: str | None = None
    keep: Path = KEEP_IN
    report: Path | None = None  # of the page that shows the run
    rooms: bool = True  # mentions in rooms, too

    @property
    def command(self) -> str:
        more = f" --messages {self.messages}" if self.messages != MESSAGES else ""
        more += f" --server {self.server}" if self.server else ""
        more += "" if self.rooms else " --no-rooms"
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


async def play(
    settings: Settings,
    deployment: Deployment,
    wakes: Wakes,
    mentions: Mentions | None,
    progress: Progress,
) -> bool:
    """The whole run up to its rest; whether it came to rest in time."""
    rng = random.Random(f"demo:{settings.seed}")
    planned = planned_messages(settings, rng)
    early = [replace(item, at_s=0.0) for item in planned[:SENT_WHILE_DOWN]]
    later = planned[SENT_WHILE_DOWN:]
    kills = planned_kills(rng, max(SENDING_S, later[-1].at_s if later else 0.0))
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(progress))
        waking = group.create_task(wakes.play())
        readers = [deployment.reader(source, trim=True) for source in SOURCES]
        try:
            for reader in readers:
                group.create_task(reader.run())
            asking = group.create_task(mentions.play()) if mentions else None
            quiet = await _send_and_kill(deployment, progress, early, later, kills)
            progress.enter("waiting for the last wakes")
            await waking
            if asking is not None:
                progress.enter("waiting for the last mentions")
                await asking
                quiet = await deployment.until_quiet(QUIET_TIMEOUT_S)
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


@dataclass(frozen=True)
class Reports:
    """Of the parts of a run: entries and their answers, wakes and their sessions, mentions."""

    inbound: Report[Summary]
    wakes: Report[WakeSummary]
    mentions: Report[MentionSummary] | None
    page: Page

    @property
    def ok(self) -> bool:
        return not self.violations

    @property
    def violations(self) -> list[Violation]:
        mentions = [] if self.mentions is None else self.mentions.violations
        return [*self.inbound.violations, *self.wakes.violations, *mentions]

    def as_dict(self) -> dict[str, object]:
        mentions = None if self.mentions is None else self.mentions.as_dict()
        parts = {"wakes": self.wakes.as_dict(), "mentions": mentions}
        return {**self.inbound.as_dict(), "ok": self.ok, **parts}


@dataclass
class Found:
    """What each part of a run left."""

    inbound: Evidence
    wakes: WakeEvidence
    mentions: MentionEvidence | None


async def demo(settings: Settings) -> tuple[Reports, Path | None]:
    """Runs it; the reports, and the folder that a failed run keeps."""
    others = {mentions_model.LIVE: pilot.woken_in(WAKES)}
    async with Deployment(Options(server=settings.server, others=others)) as deployment:
        supervisors = [deployment.supervisor]
        drawn = random.Random(f"wakes:{settings.seed}")
        wakes = Wakes(deployment.base / WAKES, drawn, repos=[pilot.REPO])
        mentions = None
        if settings.rooms:
            live = pilot.Pilot(deployment, wakes.environment)
            mentions = Mentions(deployment, live, random.Random(f"mentions:{settings.seed}"))
        with Progress(
            deployment.board, supervisors, settings.messages, quiet=settings.json
        ) as progress:
            progress.enter(f"{deployment.server_kind} with the generated ACL file")
            found = await _run(settings, deployment, wakes, mentions, progress)
        reports = _judged(settings, found, supervisors)
        if reports.ok:
            return reports, None
        notes = [settings.command, "", *(str(violation) for violation in reports.violations)]
        folder = keep(deployment, found.inbound, settings.keep / f"seed-{settings.seed}", notes)
        wakes.keep(found.wakes, folder / WAKES)
        if found.mentions is not None:
            found.mentions.save(folder / "mentions.json")
        return reports, folder


async def _run(
    settings: Settings,
    deployment: Deployment,
    wakes: Wakes,
    mentions: Mentions | None,
    progress: Progress,
) -> Found:
    trouble: list[str] = []
    quiet = False
    asked = None
    progress.enter("TAMQ, with a session in tmux and one on a pty")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(wakes)
        progress.supervisors.append(wakes.supervisor)
        progress.more = [wakes.counts]
        if mentions is not None:
            progress.supervisors.append(mentions.supervisor)
            progress.enter("gateway, PostgreSQL, Synapse, bridge, pilot; people join rooms")
            await stack.enter_async_context(mentions)
            progress.more.append(mentions.counts)
        try:
            quiet = await play(settings, deployment, wakes, mentions, progress)
        except* wait.WaitTimeoutError as group:
            trouble += [str(error) for error in group.exceptions]
        progress.enter("reconciling")
        woken = await wakes.evidence()
        if mentions is not None:
            asked = await mentions.evidence()
            logs = deployment.supervisor.logs
            mentions.keep_logs(logs)
            shutil.copy(wakes.supervisor.log_file(TAMQ), logs)  # mentions went through it, too
    evidence = await collect(deployment, quiet=quiet)
    evidence.trouble += trouble
    if asked is not None:
        add_turns(asked, evidence)
    return Found(evidence, woken, asked)


def _judged(settings: Settings, found: Found, supervisors: Sequence[Supervisor]) -> Reports:
    inbound, wakes = reconcile(found.inbound), judge(found.wakes)
    mentions = None if found.mentions is None else mentions_model.judge(found.mentions)
    table = [*rows(inbound.summary), *wakes.summary.rows()]
    violations = [*inbound.violations, *wakes.violations]
    messages, hops = run_page.messages(found.inbound), run_page.hops(found.inbound)
    if found.mentions is not None and mentions is not None:
        table = [*mentions.summary.rows(), *table]
        violations += mentions.violations
        messages = [*mentions_model.messages(found.mentions), *messages]
        hops = [*mentions_model.hops(found.mentions), *hops]
    page = Page(
        title=f"Corral's demo, seed {settings.seed}",
        ok=not violations,
        command=settings.command,
        rows=table,
        violations=[str(one) for one in violations],
        lanes=run_page.lanes([one.timeline for one in supervisors]),
        messages=messages,
        hops=hops,
    )
    return Reports(inbound, wakes, mentions, page)


def parse(argv: Sequence[str]) -> Settings:
    parser = argparse.ArgumentParser(prog="./corral demo", allow_abbrev=False)
    parser.add_argument("--seed", type=int, help="of the messages and kills; default: by chance")
    parser.add_argument("--messages", type=int, default=MESSAGES, metavar="N")
    parser.add_argument("--json", action="store_true", help="the report as JSON, no progress")
    parser.add_argument("--server", choices=["redis", "valkey"], help="default: what is found")
    parser.add_argument("--keep", type=Path, default=KEEP_IN, help="where a failed run is kept")
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write a page (HTML) that shows the run"
    )
    parser.add_argument(
        "--no-rooms", action="store_true", help="without Synapse, PostgreSQL, bridge and gateway"
    )
    given = parser.parse_args(argv)
    if not SENT_WHILE_DOWN < given.messages <= MESSAGES_MAX:
        parser.error(f"--messages must be {SENT_WHILE_DOWN + 1} to {MESSAGES_MAX}")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(SEED_MAX)
    return Settings(
        seed, given.messages, given.json, given.server, given.keep, given.report,
        rooms=not given.no_rooms,
    )  # fmt: skip


async def _interruptible(settings: Settings) -> tuple[Reports, Path | None]:
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
        reports, folder = asyncio.run(_interruptible(settings))
        if settings.report is not None:
            run_page.write(reports.page, settings.report)
    except CorralError as error:
        print(f"demo: {error}", file=sys.stderr)
        return error.exit_code
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("interrupted: everything that was started is ended", file=sys.stderr)
        return 130
    if settings.json:
        print(json.dumps({"seed": settings.seed, **reports.as_dict()}, indent=2))
    else:
        print_table(reports.page.rows, reports.violations, stream=sys.stdout)
        verdict = "the guarantees hold" if reports.ok else "a guarantee is broken"
        print(f"\n{verdict} (seed {settings.seed}, {time.monotonic() - began:.0f} s)")
    if settings.report is not None:
        print(f"the run as a page: {settings.report}", file=sys.stderr)
    if not reports.ok:
        print(f"kept in {folder}\nrepeat: {settings.command}", file=sys.stderr)
    return 0 if reports.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
