"""One trial: a fresh server and ledger, a workload, faults, then the model's judgement."""

import asyncio
import io
import random
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from corral.local import run_page, wait
from corral.local.collect import collect, keep
from corral.local.deployment import DAEMON, REDIS, RUNNER, Deployment, Launch, Options
from corral.local.faults import Fault, inflict, resume_all
from corral.local.model import Summary, reconcile
from corral.local.page import Hop, Lane, Message
from corral.local.plan import Mix, Planned, Planner
from corral.local.rules import Report
from corral.local.topology import Rendered, SourcesEdit
from corral.local.workload import send_all
from tests.contract.proxy import Cut, Proxy
from tests.harness.armed import read_hits
from tests.harness.operator import Operator
from tests.harness.zygote import zygote

QUIET_TIMEOUT_S = 25.0
HIT_TIMEOUT_S = 20.0
TRIAL_MAX_S = 150.0
RELEASE_TIMEOUT_S = 3.0
PROXY_SOCKET = "cut.sock"

# Shorter than an operator would choose, so that a trial takes seconds.
QUICK: Mapping[str, object] = {
    "reclaim_idle_ms": 1500,
    "block_ms": 300,
    "trim_interval_ms": 50,
}


@dataclass(frozen=True)
class Cutting:
    """From `at_s` on, the next bytes of the daemon for Redis that have `needle` in them are cut."""

    at_s: float
    needle: bytes
    cut: Cut

    def __str__(self) -> str:
        return f"{self.at_s:.2f} s: cut {self.cut} at {self.needle.decode()}"


@dataclass(frozen=True)
class Trial:
    """What is tried. `arms` are crash points by process and by number of its start (from 0).

    `variant` gives each source, by its place, settings that replace those of the topology.
    """

    name: str
    seed: int
    server: str | None = None
    protocol: int = 3
    variant: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    sources: tuple[str, ...] = ("a2a", "chat", "echo")
    mix: Mix | None = None
    planned: tuple[Planned, ...] = ()
    before_start: int = 0  # how many of the first messages are sent while nothing runs
    faults: tuple[Fault, ...] = ()
    cuts: tuple[Cutting, ...] = ()
    arms: Mapping[str, Mapping[int, tuple[str, ...]]] = field(default_factory=dict)
    must_hit: bool = False  # the armed points must all have killed
    plant: str | None = None
    blockbuster: bool = False
    rendered: Rendered | None = None
    quiet_timeout_s: float = QUIET_TIMEOUT_S
    forked: bool = True  # services are forked from a zygote; else started from nothing
    keep_in: Path | None = None  # where a failed trial keeps its folder
    drawn: bool = False  # the result says what a page shows of it


@dataclass(frozen=True)
class Drawn:
    """What a page shows of a trial."""

    lanes: Sequence[Lane] = ()
    messages: Sequence[Message] = ()
    hops: Sequence[Hop] = ()


@dataclass
class Result:
    """What came of a trial."""

    trial: Trial
    report: Report[Summary]
    passed: set[str]
    kills: list[tuple[str, str]]
    took_s: float
    folder: Path | None = None
    drawn: Drawn | None = None

    @property
    def ok(self) -> bool:
        return self.report.ok


def edit_for(trial: Trial) -> SourcesEdit:
    """The change of `sources_json` that a trial asks for."""

    def edit(sources: dict[str, Any]) -> None:
        for name, source in sources["sources"].items():
            changes = {**QUICK, **trial.variant.get(name, {})}
            runner = changes.pop("runner", {})
            source.update(changes)
            if source["runner"]["kind"] == "exec" and isinstance(runner, dict):
                source["runner"].update(runner)

    return edit


def launch_for(trial: Trial, base: Path, agent: str = "scout") -> Launch:
    """The armed launcher as the command line of the deployment in `base`."""
    hits = base / "hits"
    hits.mkdir(exist_ok=True, mode=0o700)
    verbs = {DAEMON: "run", RUNNER: "runner"}

    def command(process: str, start: int) -> Sequence[str]:
        arms = trial.arms.get(process, {}).get(start, ())
        options = ["--hits", str(hits / f"{process}.hits"), "--pids", str(base / "pids")]
        if trial.plant is not None:
            options += ["--plant", trial.plant]
        if trial.blockbuster and process == DAEMON:
            options += ["--blockbuster"]
        launcher = [sys.executable, "-m", "tests.harness.armed"]
        return [*launcher, *options, *arms, "--", verbs[process], agent]

    return command


class Run:
    """A trial while it runs."""

    def __init__(self, trial: Trial, deployment: Deployment) -> None:
        self.trial = trial
        self.deployment = deployment
        self.board = deployment.board
        self.hits = deployment.base / "hits"
        self.rng = random.Random(trial.seed)
        self.proxy: Proxy | None = None
        self.operator = Operator(deployment, random.Random(f"operator:{trial.seed}"))

    def plan(self) -> list[Planned]:
        if self.trial.mix is None:
            return list(self.trial.planned)
        return Planner(self.rng, self.trial.mix).plan()

    async def play(self) -> bool:
        """The workload with its faults; whether everything came to rest afterwards."""
        planned = self.plan()
        first = [replace(item, at_s=0.0) for item in planned[: self.trial.before_start]]
        later = planned[self.trial.before_start :]
        async with asyncio.TaskGroup() as group:
            trim = self.trial.seed % 2 == 0
            readers = [
                self.deployment.reader(source, trim=trim) for source in self.deployment.sources
            ]
            for reader in readers:
                group.create_task(reader.run())
            group.create_task(self.operator.run())
            if first:
                await send_all(self.deployment.sender, first, time.monotonic())
            await self.deployment.start()
            await self.disturb(later)
            quiet = await self.settle()
            if quiet and self.proxy is not None and self.proxy.holds:
                await self.release(self.proxy)
                quiet = await self.settle()
            self.operator.stop()
            for reader in readers:
                reader.stop()
        return quiet

    async def disturb(self, planned: Sequence[Planned]) -> None:
        """Sends while the faults happen, and waits for the armed points."""
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(send_all(self.deployment.sender, planned, start_s))
            for fault in self.trial.faults:
                group.create_task(inflict(self.deployment.supervisor, fault, start_s))
            for cutting in self.trial.cuts:
                group.create_task(self.cut(cutting, start_s))
        if self.trial.must_hit:
            with suppress(wait.WaitTimeoutError):
                await wait.until_true(self.all_hit, HIT_TIMEOUT_S, "the armed points to kill")

    async def cut(self, cutting: Cutting, start_s: float) -> None:
        await wait.at(start_s + cutting.at_s)
        if self.proxy is not None:
            self.proxy.arm(cutting.needle, cutting.cut)

    @staticmethod
    async def release(proxy: Proxy) -> None:
        """Bytes of a connection that is long dead reach the server, if that is still the same."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(RELEASE_TIMEOUT_S):
                await proxy.release()

    async def settle(self) -> bool:
        """Liveness: with no more faults everything comes to rest within a bound."""
        resume_all(self.deployment.supervisor)
        quiet = await self.deployment.until_quiet(self.trial.quiet_timeout_s)
        while quiet and await self.operator.work():
            quiet = await self.deployment.until_quiet(self.trial.quiet_timeout_s)
        return quiet

    def armed(self) -> list[str]:
        return [
            text for starts in self.trial.arms.values() for arms in starts.values() for text in arms
        ]

    def all_hit(self) -> bool:
        _, kills = read_hits(self.hits)
        return len(kills) >= len(self.armed())


async def run_trial(trial: Trial) -> Result:
    """Plays a trial and judges it; a failed one keeps its folder under `keep_in`."""
    began = time.monotonic()
    options = Options(
        server=trial.server,
        protocol=trial.protocol,
        rendered=trial.rendered,
        edit=edit_for(trial),
        launch=partial(launch_for, trial),
        through=PROXY_SOCKET if trial.cuts else None,
    )
    async with Deployment(options) as deployment, AsyncExitStack() as stack:
        run = Run(trial, deployment)
        if trial.forked:
            forks = zygote()
            forks.attach()
            stack.callback(forks.detach)
            deployment.supervisor.spawner = forks.spawn
        if trial.cuts:
            proxy = Proxy(deployment.topology.redis_socket, deployment.base / PROXY_SOCKET)
            run.proxy = await stack.enter_async_context(proxy)
        trouble: list[str] = []
        quiet = False
        try:
            quiet = await run.play()
        except* wait.WaitTimeoutError as group:
            trouble += [str(error) for error in group.exceptions]
        evidence = await collect(deployment, quiet=quiet)
        passed, kills = read_hits(run.hits)
        if trial.must_hit and not run.all_hit():
            trouble.append(f"not every armed point killed: {run.armed()}, but {kills}")
        evidence.trouble += trouble
        if b"BlockingError" in deployment.supervisor.log_file(DAEMON).read_bytes():
            evidence.blocked_loop = True
        evidence.released, evidence.abandoned = run.operator.released, run.operator.abandoned
        report = reconcile(evidence)
        result = Result(trial, report, passed, kills, time.monotonic() - began)
        if trial.drawn:
            result.drawn = Drawn(
                run_page.lanes([deployment.supervisor.timeline]),
                run_page.messages(evidence),
                run_page.hops(evidence),
            )
        if not report.ok and trial.keep_in is not None:
            folder = trial.keep_in / trial.name
            shutil.rmtree(folder, ignore_errors=True)
            notes = [f"seed {trial.seed}", *map(str, trial.faults), *map(str, trial.cuts)]
            notes += [*run.armed(), "", *(str(violation) for violation in report.violations)]
            result.folder = keep(deployment, evidence, folder, notes)
        return result


class TrialHungError(Exception):
    """A trial did not end; the message says where each of its tasks was."""


async def _bounded(trial: Trial) -> Result:
    task = asyncio.create_task(run_trial(trial), name=trial.name)
    done, _ = await asyncio.wait({task}, timeout=TRIAL_MAX_S)
    if done:
        return task.result()
    places = io.StringIO()
    for each in asyncio.all_tasks():
        each.print_stack(file=places)
    task.cancel()
    await asyncio.wait({task}, timeout=TRIAL_MAX_S)
    raise TrialHungError(f"{trial.name} was not over after {TRIAL_MAX_S:g} s\n{places.getvalue()}")


def run_blocking(trial: Trial) -> Result:
    """`run_trial` for a worker process. Raises TrialHungError for one that does not end."""
    return asyncio.run(_bounded(trial))


PROCESSES = (DAEMON, RUNNER, REDIS)
