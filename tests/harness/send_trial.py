"""One trial of killed sends: a bridge and a real agent behind HTTP, killed around their calls.

Mentions come in batches, each in a room of its own. Meanwhile the bridge and the other side (the
gateway, with Redis and cowboy behind it, or an agent of the official SDK) kill themselves at points
around the call, or are killed at any time, one or both. A send counts as killed when its call was
open, by the ledger, at a kill. Everything is drawn from the seed.
"""

import asyncio
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.bridge import points
from corral.bridge.database import Ledger, Target
from corral.bridge.domain import Reason
from corral.core.errors import CorralError
from corral.local.postgres import find_postgres
from corral.local.wait import at, until_async, until_true
from tests.contract.bridge.kit import mention
from tests.harness import postgres
from tests.harness.a2a_peers import accepts
from tests.harness.armed_process import PATIENCE_S, ArmedProcess
from tests.harness.bridge_judge import told, told_once
from tests.harness.bridge_process import BridgeProcess, over
from tests.harness.bridge_world import World
from tests.harness.send_sides import SIDES

LOOK_EVERY_S: Final = 0.01
BATCH: Final = 16  # mentions, and the calls that are open at once
ROUNDS_MAX: Final = 3  # for each send that is to be killed: far more than it takes
KILL_AFTER_S: Final = (0.0, 0.6)  # what does not kill itself
OPEN_WANTED_MAX: Final = 12  # calls; more than are ever open in most of the batches
JOBS_OPEN_MAX: Final = 64
ARMED_SHARE: Final = 0.8
AWAY_SHARE: Final = 0.2  # of the batches meet an agent that is not there yet
BOTH_SHARE: Final = 0.25
NTH_MAX: Final = 8
AROUND: Final = (points.PREPARED, points.CALLED, points.TASK)
# Who is away for a second or two is waited for, so that each mention has its call.
POLICY: Final[Mapping[str, Any]] = {
    "attempts_max": 1_000, "lease_s": 8.0, "retry_max_s": 0.5, "placeholder_after_s": 1.0,
}  # fmt: skip
OPEN: Final = (
    "SELECT event_id FROM bridge_delegations WHERE state = 'a2a_prepared' AND attempts > never_left"
)
UNENDED: Final = "SELECT count(*) FROM bridge_delegations WHERE terminal_at IS NULL"


@dataclass(frozen=True)
class Trial:
    """`to`: one of `SIDES`. `sends`: so many are killed."""

    to: str
    seed: int
    sends: int = 40
    plant: str = ""


@dataclass
class Result:
    """`begun`: how often the agent began, by what it was asked."""

    trial: Trial
    killed: set[str] = field(default_factory=set)  # events whose call was open at a kill
    kills: Counter[str] = field(default_factory=Counter)  # by process
    points: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    killed_ends: Counter[str] = field(default_factory=Counter)  # of the killed sends only
    begun: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.violations

    def __str__(self) -> str:
        most = max(self.begun.values(), default=0)
        return (
            f"{self.trial.to}, seed {self.trial.seed}: {len(self.killed)} killed sends "
            f"{dict(self.killed_ends)} of {sum(self.ends.values())} mentions {dict(self.ends)}; "
            f"kills {dict(self.kills)}, at points {dict(self.points)}; "
            f"started at most {most} times; {self.took_s:.0f} s, {len(self.violations)} violations"
        )


class Run:
    def __init__(self, trial: Trial, target: Target, folder: Path) -> None:
        self.trial = trial
        self.ledger = target
        self.folder = folder
        self.rng = random.Random(f"sends:{trial.to}:{trial.seed}")
        self.world = World()
        self.result = Result(trial)
        self.side = SIDES[trial.to](folder)
        self.texts: dict[str, str] = {}  # by event
        self.delivering: list[asyncio.Task[Any]] = []
        self.points: dict[ArmedProcess, Sequence[str]] = {}

    async def play(self) -> Result:
        began = time.monotonic()
        await postgres.empty(self.ledger)
        serving = await self.world.serve(self.folder / "world.sock")
        async with self.side.live():
            bridge = BridgeProcess(
                self.folder, self.ledger, self.folder / "world.sock",
                {**POLICY, "reconcile_timeout_s": self.side.reconcile_timeout_s},
                http=self.side.http, agent=self.side.agent, concurrency=BATCH,
                plant=self.trial.plant,
            )  # fmt: skip
            self.points = {bridge: AROUND, self.side.process: self.side.points}
            try:
                await self.rounds(bridge)
                await asyncio.gather(*self.delivering)
                rows, _ = await over(self.ledger, len(self.texts))
                self.judge(rows)
            except CorralError as error:
                self.result.violations.append(f"did not come to rest: {error}")
            finally:
                for task in self.delivering:
                    task.cancel()
                for process in self.points:
                    process.kill()
                    self.result.points.update(process.kills())
                serving.close()
        self.result.took_s = time.monotonic() - began
        return self.result

    # ---- the kills

    async def rounds(self, bridge: BridgeProcess) -> None:
        """Until enough sends were killed; then everything may come to its end."""
        async with Ledger(self.ledger, 1) as rows:
            for _ in range(ROUNDS_MAX * self.trial.sends):
                for process in self.points:
                    if process.process is None or process.ended() is not None:
                        process.start(*self.arms(process))
                await until_async(lambda: self.paced(rows), PATIENCE_S, "jobs to end")
                if self.rng.random() > AWAY_SHARE:
                    await until_true(self.ready, PATIENCE_S, "the agent to listen")
                if not self.killed():
                    self.delivering.append(asyncio.ensure_future(self.mention(bridge)))
                await self.kill(rows)
                if len(self.result.killed) >= self.trial.sends:
                    break
            else:
                self.result.violations.append(f"only {len(self.result.killed)} sends were killed")
        for process in self.points:
            process.kill()
            process.start()

    def arms(self, process: ArmedProcess) -> list[str]:
        if not self.points[process] or self.rng.random() > ARMED_SHARE:
            return []
        return [f"{self.rng.choice(self.points[process])}:{self.rng.randint(1, NTH_MAX)}"]

    def killed(self) -> bool:
        """Whether a process has killed itself already, in what went before."""
        return any(one.ended() is not None for one in self.points)

    def ready(self) -> bool:
        return accepts(self.side.place) or self.killed()

    async def paced(self, rows: Ledger) -> bool:
        """Far below the capacity of the queue, with what is on its way to it."""
        if self.killed():
            return True
        on_the_way = any(not one.done() for one in self.delivering)
        return not on_the_way and int(await rows.fetchval(UNENDED)) <= JOBS_OPEN_MAX

    async def mention(self, bridge: BridgeProcess) -> None:
        """A batch, each in a room of its own."""
        numbers = range(len(self.texts), len(self.texts) + BATCH)
        made = [mention(f"m{n}", text=f"say <{n}>", room=f"!r{n}") for n in numbers]
        self.texts |= {one.event_id: one.text for one in made}
        await bridge.deliver(*made)

    async def kill(self, rows: Ledger) -> None:
        """Waits until a process has killed itself, or kills one, when as many calls are open as it
        likes or soon; notes whose call was open then."""
        wanted, patience_s = self.rng.randint(1, OPEN_WANTED_MAX), self.rng.uniform(*KILL_AFTER_S)
        until = None
        while not self.killed():
            await at(time.monotonic() + LOOK_EVERY_S)
            if until is None and all(one.done() for one in self.delivering):
                until = time.monotonic() + patience_s
            if len(await rows.fetch(OPEN)) >= wanted or (until and time.monotonic() >= until):
                break
        victims = [one for one in self.points if one.ended() is not None]
        victims = victims or [self.rng.choice(list(self.points))]
        if self.rng.random() < BOTH_SHARE:
            victims = list(self.points)
        for one in victims:
            one.kill()
            self.result.kills[one.name] += 1
            if one.ended() != -signal.SIGKILL:
                self.result.violations.append(f"{one.name} ended with status {one.ended()}")
        self.result.killed |= {row["event_id"] for row in await rows.fetch(OPEN)}

    # ---- the reckoning

    def judge(self, rows: Sequence[Any]) -> None:
        result, seen = self.result, told(self.world)
        result.ends = Counter(row["reason"] for row in rows)
        result.killed_ends = Counter(
            row["reason"] for row in rows if row["event_id"] in result.killed
        )
        result.begun = self.side.begun(rows, self.texts)
        found = result.violations
        if sorted(row["event_id"] for row in rows) != sorted(self.texts):
            found.append("jobs and mentions differ")
        found += [f"{one} was begun, and nobody asked" for one in result.begun if one not in seen]
        events = self.world.rooms.events
        shown = {str(one.content.get("edits", one.event_id)): one.text for one in events}
        said: dict[str, str] = {
            str(one.content["reply_to"]): shown[one.event_id] for one in events if told_once(one)
        }
        for row in rows:
            name = row["event_id"]
            found += self.judge_one(name, Reason(row["reason"]), said.get(name, ""))
        found += [f"{name} was told {count} times" for name, count in seen.items() if count != 1]

    def judge_one(self, name: str, reason: Reason, said: str) -> list[str]:
        found, began = [], self.result.begun[name]
        if reason not in self.side.ends:
            found.append(f"{name} ended {reason.value}")
        if began > 1:
            found.append(f"{name} was begun {began} times")
        if said == "PLACEHOLDER":
            found.append(f"{name} has a placeholder still")
        if reason is Reason.ANSWERED:
            wanted = self.texts[name].partition(" ")[2]
            if not began or not said.endswith(wanted):
                found.append(f"{name} was begun {began} times and got {said!r}, not {wanted}")
        return found


def run_trial(trial: Trial, keep_in: Path | None = None) -> Result:
    """With a PostgreSQL of its own. Of a trial that fails all is kept in a folder of `keep_in`."""
    with (
        postgres.server(max(find_postgres())) as server,
        tempfile.TemporaryDirectory(prefix="corral-sends-") as name,
    ):
        folder = Path(name)

        async def play() -> Result:
            return await Run(trial, await postgres.create(server, "ledger"), folder).play()

        result = asyncio.run(play())
        if not result.ok and keep_in is not None:
            kept = keep_in / f"sends-{trial.to}-{trial.seed}"
            shutil.rmtree(kept, ignore_errors=True)
            unwanted = shutil.ignore_patterns("*.sock", "agent", "socket", "token")
            shutil.copytree(folder, kept, ignore=unwanted)
            (kept / "violations").write_text("\n".join(result.violations))
    return result
