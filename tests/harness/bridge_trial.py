"""One trial of the bridge: two workers on one ledger, a workload, kills, then the reckoning.

The agent and the rooms live in this process and see every call. Workers are killed by us, and kill
themselves at crash points; PostgreSQL is killed, too. Everything is drawn from the seed.
"""

import asyncio
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.bridge.database import Ledger, Target
from corral.bridge.domain import Limits
from corral.bridge.errors import LedgerError
from corral.bridge.incoming import Cancel, Conflict, Continuation
from corral.core.errors import CorralError
from corral.local.postgres import PostgresServer
from corral.local.wait import at, until_true
from tests.contract.bridge.kit import ALICE, mention
from tests.harness import postgres
from tests.harness.armed import read_hits
from tests.harness.bridge_judge import ANSWER, told, violations
from tests.harness.bridge_process import BridgeProcess, ledger, over
from tests.harness.bridge_world import World

OPEN_MAX = 120  # paced below the capacity
LOOK_EVERY_S = 0.02
TELL_EVERY_S = 30.0
START_S = 120.0
CANCELLED = "task 1.5 {n}"
TEXTS = (
    "reply {n}", "reply {n}", "task 0.05 {n}", "task 0.4 {n}", "task 0.8 {n}", "artifacts 1 {n}",
    "down 1 {n}", "fail", "progress 0.6 {n}", "ask {n}", CANCELLED,
)  # fmt: skip
FAULTS = ("one", "two", "both", "postgres", "pause")
FAULT_WEIGHTS = (30, 30, 15, 15, 10)
PAUSE_S = (0.05, 0.5)  # far below the lease
LEASE_S = 8.0
SMALL_ROOM = 2  # jobs, in some of the trials
SMALL_ROOM_SHARE = 0.3
ARMED_STARTS = 3  # the first of each worker; then nothing kills it but us
NTH_MAX = 3


@dataclass(frozen=True)
class Trial:
    """`arms`: crash points at which workers kill themselves."""

    seed: int
    jobs: int = 60
    rooms: int = 8
    every_s: float = 1.0  # a fault, in the mean
    faults: int = 6
    concurrency: int = 8
    arms: tuple[str, ...] = ()


@dataclass
class Result:
    trial: Trial
    violations: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    passed: set[str] = field(default_factory=set)
    killed_at: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    kills_in_flight: int = 0
    took_s: float = 0.0
    folder: Path | None = None  # of a trial that failed

    @property
    def ok(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        return (
            f"seed {self.trial.seed}: {dict(self.ends)}, faults {dict(self.faults)}, "
            f"{self.kills} kills ({self.kills_in_flight} into work in flight; at points "
            f"{dict(self.killed_at)}), {self.took_s:.1f} s, {len(self.violations)} violations"
        )


class Run:
    """`restarts` has one thread: PostgreSQL ends with the thread that started it."""

    def __init__(
        self,
        trial: Trial,
        server: PostgresServer,
        target: Target,
        folder: Path,
        restarts: ThreadPoolExecutor,
    ) -> None:
        self.trial = trial
        self.server = server
        self.restarts = restarts
        self.ledger = target
        self.folder = folder
        self.rng = random.Random(f"bridge:{trial.seed}")
        self.world = World()
        self.result = Result(trial)
        policy: dict[str, Any] = {"lease_s": LEASE_S, "placeholder_after_s": 0.2, "pin": True}
        if self.rng.random() < SMALL_ROOM_SHARE:
            policy["limits"] = Limits(room_queue_capacity=SMALL_ROOM)
        self.workers = [
            BridgeProcess(
                folder, target, folder / "world.sock", policy, name=name,
                concurrency=trial.concurrency,
            )
            for name in ("one", "two")
        ]  # fmt: skip
        self.arms = {worker.name: self._arms() for worker in self.workers}
        self.texts = [self.rng.choice(TEXTS) for _ in range(trial.jobs)]
        self.mentions = [
            mention(f"m{n}", text=text.format(n=n), room=f"!r{n % trial.rooms}")
            for n, text in enumerate(self.texts)
        ]
        self.acknowledged: list[str] = []
        self.cancelled: set[str] = set()

    def _arms(self) -> list[str]:
        """A point for each of the first starts."""
        points = self.trial.arms
        return [
            f"{self.rng.choice(points)}:{self.rng.randint(1, NTH_MAX)}"
            for _ in range(ARMED_STARTS if points else 0)
        ]

    async def play(self) -> Result:
        began = time.monotonic()
        await postgres.empty(self.ledger)
        serving = await self.world.serve(self.folder / "world.sock")
        try:
            for worker in self.workers:
                self.start(worker)
            async with asyncio.TaskGroup() as group:
                beside = [group.create_task(self.person()), group.create_task(self.tell())]
                beside += [group.create_task(self.keep(worker)) for worker in self.workers]
                disturbing = group.create_task(self.disturb())
                await self.send()
                await disturbing
                rows, controls = await over(self.ledger, self.trial.jobs)
                for task in beside:
                    task.cancel()
            self.result.ends = Counter(str(row["reason"]) for row in rows)
            self.result.violations += violations(
                self.mentions, frozenset(self.cancelled), self.world, rows, controls
            )
        except* CorralError as errors:
            self.result.violations += [f"did not come to rest: {one}" for one in errors.exceptions]
            await self.note_rows()
        finally:
            for worker in self.workers:
                worker.kill()
            serving.close()
        self.result.passed, at_points = read_hits(self.folder / "hits")
        self.result.killed_at = Counter(point for point, _ in at_points)
        self.result.took_s = time.monotonic() - began
        return self.result

    async def tell(self) -> None:
        """A long trial says how far it is."""
        while True:
            await at(time.monotonic() + TELL_EVERY_S)
            ended = sum(map(bool, told(self.world).values()))
            print(
                f"seed {self.trial.seed}: {len(self.acknowledged)} of {self.trial.jobs} mentions "
                f"taken, {ended} ended, {self.result.kills} kills",
                file=sys.stderr,
                flush=True,
            )

    async def note_rows(self) -> None:
        """For whoever looks for the cause."""
        with contextlib.suppress(LedgerError):
            rows, controls = await ledger(self.ledger)
            lines = [repr(dict(row)) for row in (*rows, *controls)]
            (self.folder / "ledger.txt").write_text("\n".join(lines))

    # ------------------------------------------------------------ the workload

    async def send(self) -> None:
        """In order, in transactions of one to five, each until it is answered; as long as the
        faults go on, so that they hit work."""
        left, rng = list(self.mentions), random.Random(f"send:{self.trial.seed}")
        pause_s = 2 * self.trial.faults * self.trial.every_s / (len(left) / 3)
        async with Ledger(self.ledger, 1) as rows:
            while left:
                size = rng.randint(1, 5)
                batch, left = left[:size], left[size:]
                # One worker takes transactions: order in a room is the order of delivery.
                answer = await self.workers[0].deliver(*batch)
                if isinstance(answer, Conflict):
                    self.result.violations.append(f"{batch[0].event_id} was taken for another")
                self.acknowledged += [one.event_id for one in batch]
                await at(time.monotonic() + rng.uniform(0.0, pause_s))
                while await self.opened(rows) > OPEN_MAX:
                    await at(time.monotonic() + 0.05)

    async def opened(self, rows: Ledger) -> int:
        with contextlib.suppress(LedgerError):
            return int(
                await rows.fetchval(
                    "SELECT count(*) FROM bridge_delegations WHERE terminal_at IS NULL"
                )
            )
        return 0

    async def person(self) -> None:
        """Answers questions; cancels what is to be cancelled, sooner or later."""
        rng = random.Random(f"person:{self.trial.seed}")
        answers = 0
        due = {
            one.event_id: (one, rng.uniform(0.0, 0.8))
            for one, text in zip(self.mentions, self.texts, strict=True)
            if text == CANCELLED
        }
        began: dict[str, float] = {}
        looked = 0
        while True:
            await at(time.monotonic() + LOOK_EVERY_S)
            new = self.world.rooms.events[looked:]
            looked += len(new)
            for event in new:
                if event.text.startswith("QUESTION "):
                    answers += 1
                    root, reply = str(event.content["thread"]), f"$answer{answers}"
                    await self.workers[0].deliver(
                        Continuation(reply, event.room_id, ALICE, root, ANSWER, 0)
                    )
            for name in self.acknowledged:
                began.setdefault(name, time.monotonic())
            for name, (one, after_s) in list(due.items()):
                if time.monotonic() >= began.get(name, time.monotonic()) + after_s:
                    del due[name]
                    self.cancelled.add(name)
                    cancel = Cancel(f"$cancel-{name[1:]}", one.room_id, ALICE, name, 0)
                    await self.workers[0].deliver(cancel)

    # ------------------------------------------------------------ the faults

    def start(self, worker: BridgeProcess) -> None:
        arms = self.arms[worker.name]
        worker.start(*([arms.pop(0)] if arms else []))

    def count(self) -> None:
        """A kill: into work in flight, if a mention was acknowledged whose end nobody has seen."""
        self.result.kills += 1
        seen = told(self.world)
        self.result.kills_in_flight += any(not seen[one] for one in self.acknowledged)

    async def keep(self, worker: BridgeProcess) -> None:
        """Starts it again when it has killed itself at a point."""
        while True:
            await at(time.monotonic() + LOOK_EVERY_S)
            code = worker.ended()
            if code is None:
                continue
            if code != -signal.SIGKILL:
                self.result.violations.append(f"worker {worker.name} ended with status {code}")
            self.count()
            self.start(worker)

    async def disturb(self) -> None:
        """From the first mention on: nothing is at work before."""
        await until_true(lambda: self.acknowledged, START_S, "the first mention to be taken")
        for _ in range(self.trial.faults):
            await at(time.monotonic() + self.rng.uniform(0.3, 2 * self.trial.every_s))
            fault = self.rng.choices(FAULTS, FAULT_WEIGHTS)[0]
            self.result.faults[fault] += 1
            await self.inflict(fault)

    async def inflict(self, fault: str) -> None:
        if fault == "postgres":
            self.count()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self.restarts, self.server.kill)
            await loop.run_in_executor(self.restarts, self.server.start)
        elif fault == "pause":
            worker = self.rng.choice(self.workers)
            with worker.paused():
                await at(time.monotonic() + self.rng.uniform(*PAUSE_S))
        else:
            for worker in self.workers:
                if fault in {worker.name, "both"}:
                    self.count()
                    worker.kill()
                    self.start(worker)


def run_trial(
    trial: Trial,
    server: PostgresServer,
    target: Target,
    restarts: ThreadPoolExecutor,
    keep_in: Path | None = None,
) -> Result:
    """In a folder of its own; a trial that fails leaves its logs in one below `keep_in`."""
    with tempfile.TemporaryDirectory(prefix="corral-bridge-") as name:
        folder = Path(name)
        result = asyncio.run(Run(trial, server, target, folder, restarts).play())
        if not result.ok and keep_in is not None:
            result.folder = keep_in / f"bridge-{trial.seed}"
            shutil.rmtree(result.folder, ignore_errors=True)
            shutil.copytree(folder, result.folder, ignore=shutil.ignore_patterns("*.sock"))
    return result
