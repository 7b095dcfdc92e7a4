"""Claims jobs for this worker, keeps their leases, tells denied ones, forgets old evidence.

The coordinator is a transaction, not a process: whoever claims holds an advisory lock, counts the
unexpired leases of all workers, and takes what is due.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from corral.bridge import audit, identities, points, worker
from corral.bridge.counts import Counts
from corral.bridge.database import Ledger
from corral.bridge.domain import LIMITED_MAX_S, PROJECTION_BUDGET_S, State, error_code
from corral.bridge.errors import LedgerError
from corral.bridge.identities import Stage
from corral.bridge.jobs import Held, Job
from corral.bridge.machine import Machine, Pauses, Policy
from corral.bridge.ports import (
    Agents,
    AuthFailed,
    Contents,
    Forbidden,
    Joined,
    Place,
    PostAnswer,
    Rooms,
    Sent,
    TooLarge,
    Unreachable,
)
from corral.bridge.posting import MESSAGE
from corral.bridge.session import SQL, Session, dead_workers
from corral.core import logs
from corral.core.crashpoints import crashpoint

FORGET_EVERY_S: Final = 600.0
COUNT_EVERY_S: Final = 5.0
FORGET_BATCH: Final = 1_000
CLOCK_SLACK: Final = timedelta(seconds=1)
CANCEL_GRACE_S: Final = 5.0  # what ends a cancelled job is a rollback
NOTICE_BATCH: Final = 16
# What a worker knows it writes when the database is back, fenced, however long its lease is over.
WRITE_PATIENCE_S: Final = 3_600.0

_log = logs.get("bridge.coordinator")


@dataclass(slots=True)
class Running:
    """A job in work. `expires`: when our lease ends at the latest, by the loop's clock."""

    held: Held
    task: asyncio.Task[bool]
    expires: float


@dataclass(frozen=True, slots=True)
class Sides:
    """What a job's work needs besides the ledger."""

    agents: Agents
    rooms: Rooms
    contents: Contents


class Coordinator:
    """The worker of one process: up to `concurrency` jobs at once, and never more leases in all."""

    def __init__(
        self,
        ledger: Ledger,
        session_of: Callable[[Callable[[str], None]], Session],
        sides: Sides,
        policy: Policy,
        *,
        concurrency: int = 16,
        claim_interval_s: float = 1.0,
        retention_h: float = 24.0,
        rng: random.Random | None = None,
        counts: Counts | None = None,
    ) -> None:
        self.pauses = Pauses()
        self.session = session_of(self._heard)
        self._ledger = ledger
        self._counts = counts
        self._sides = sides
        self._policy = policy
        self._concurrency = concurrency
        self._interval_s = claim_interval_s
        self._retention = timedelta(hours=retention_h)
        self._rng = rng or random.Random()
        self._running: dict[str, Running] = {}
        self._woken = asyncio.Event()
        self._draining = False
        self._unsure = False  # whether we hold more than we run

    @property
    def running(self) -> int:
        return len(self._running)

    async def run(self) -> None:
        """Until it is cancelled; see `drain` for a graceful end before that."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.session.run())
            group.create_task(self._claims())
            group.create_task(self._leases())
            group.create_task(self._every(self._interval_s, self._take_over))
            group.create_task(self._every(self._interval_s, self._look_at_clock))
            group.create_task(self._every(self._interval_s, self._notices))
            group.create_task(self._every(FORGET_EVERY_S, self._forget))
            group.create_task(self._every(COUNT_EVERY_S, self._count))

    async def drain(self, timeout_s: float) -> None:
        """Claims nothing more; waits for what runs; gives back what has no call under way."""
        self._draining = True
        tasks = {one.task for one in self._running.values()}
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        await asyncio.gather(*map(self._give_back, list(self._running.values())))

    async def _give_back(self, one: Running) -> None:
        """Stops a job between two changes: of one cut off in the middle nobody would know."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_GRACE_S):
                await one.held.between_changes()
        if one.task.done():
            return
        quiet = not one.held.job.call_open and not one.held.writing
        one.task.cancel()
        await asyncio.wait({one.task}, timeout=CANCEL_GRACE_S)
        if quiet and one.task.done():
            with contextlib.suppress(Exception):
                await one.held.release(0.0)

    # ---- claims

    def _heard(self, job_id: str) -> None:
        found = self._running.get(job_id)
        if found is not None:
            found.held.wake.set()
        else:
            self._woken.set()

    async def _claims(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._woken.wait()
                crashpoint(points.CLAIMING)
            self._woken.clear()
            if self._draining or not self.session.may_claim:
                continue
            try:
                await self._claim()
            except LedgerError as error:
                self._unsure = True
                _log.warning("claims wait for the database", code=error.code)

    async def _claim(self) -> None:
        paused = self.pauses.paused()
        room = self._concurrency - len(self._running)
        if room <= 0 or Pauses.MATRIX in paused:
            return
        lease = timedelta(seconds=self._policy.lease_s)
        expires = asyncio.get_running_loop().time() + self._policy.lease_s
        async with self._ledger.connection() as connection:
            await connection.execute(SQL["begin_claim"])
            if self._unsure:
                mine = (self.session.worker_id, list(self._running))
                await connection.execute(SQL["disown"], *mine)
            rows = await connection.fetch(
                SQL["claim"], self.session.worker_id, lease, room, self._concurrency,
                paused, list(self._running),
            )  # fmt: skip
            await connection.execute(SQL["commit"])
        self._unsure = False
        if rows:
            crashpoint(points.CLAIMED)
        for row in rows:
            if self._counts is not None and row["recovered"]:
                self._counts.recovered()
        for row in sorted(rows, key=lambda one: int(one["seq"])):
            self._start(row, expires)

    def _start(self, row: Any, expires: float) -> None:
        held = Held(
            self._ledger,
            self.session.worker_id,
            row,
            WRITE_PATIENCE_S,
            self._changed,
        )
        sides = self._sides
        machine = Machine(
            held, sides.agents, sides.rooms, sides.contents, self._policy, self.pauses, self._rng
        )
        task = asyncio.get_running_loop().create_task(worker.run(machine), name=held.job.job_id)
        self._running[held.job.job_id] = Running(held, task, expires)
        task.add_done_callback(lambda _: self._done(held.job.job_id))

    def _done(self, job_id: str) -> None:
        done = self._running.pop(job_id, None)
        # What was left, or stopped in the middle, may be ours still: the next claim finds out.
        if done is None or done.task.cancelled() or done.task.result():
            self._unsure = True
        self._woken.set()

    # ---- leases

    async def _leases(self) -> None:
        """Renews every third of the lease; cancels what may not be ours any more."""
        loop, third = asyncio.get_running_loop(), self._policy.lease_s / 3
        while True:
            await asyncio.sleep(min(third, 1.0))
            due = [one for one in self._running.values() if one.expires - loop.time() < 2 * third]
            if due:
                try:
                    await self._renew(due)
                except LedgerError as error:
                    _log.warning("leases wait for the database", code=error.code)
            for one in list(self._running.values()):
                # What is written is fenced: it may go on, and tell.
                if one.expires <= loop.time() and not one.held.busy:
                    one.task.cancel()

    async def _renew(self, due: list[Running]) -> None:
        lease_s = self._policy.lease_s
        expires = asyncio.get_running_loop().time() + lease_s
        names = [one.held.job.job_id for one in due]
        rows = await self._ledger.fetch(
            SQL["renew"], self.session.worker_id, timedelta(seconds=lease_s), names
        )
        kept = {row["job_id"] for row in rows}
        for one in due:
            if one.held.job.job_id in kept:
                one.expires = expires

    async def _take_over(self) -> None:
        """The leases of workers whose session ended end early, where that is safe."""
        if not self.session.alive.is_set():
            return
        rows = await self._ledger.fetch(SQL["workers"], self.session.worker_id)
        if not rows:
            return
        ended, gone = await asyncio.to_thread(dead_workers, rows)
        if not ended:
            return
        taken = await self._ledger.fetch(SQL["take_over"], ended, gone)
        await self._ledger.execute(SQL["forget_workers"], ended)
        if taken:
            _log.info("taken over", jobs=len(taken), workers=len(ended))
            self._woken.set()

    async def _look_at_clock(self) -> None:
        """All times are the database's, whose clock may go back: then nothing waits for longer."""
        longest_s = (self._policy.retry_max_s, LIMITED_MAX_S, self._policy.lease_s)
        longest = (timedelta(seconds=seconds) + CLOCK_SLACK for seconds in longest_s)
        moved = await self._ledger.fetch(SQL["clock_went_back"], *longest)
        if moved:
            _log.warning("the database's clock went back", jobs=len(moved))
            self._woken.set()

    # ---- denied jobs, old evidence

    async def _notices(self) -> None:
        if self._draining or Pauses.MATRIX in self.pauses.paused():
            return
        pause = timedelta(seconds=self._policy.retry_max_s)
        rows = await self._ledger.fetch(SQL["notices"], pause, NOTICE_BATCH)
        for row in rows:
            await self._notice(row)

    async def _notice(self, row: Any) -> None:
        """The pause in the ledger is the retry; the transaction id makes it one event."""
        job_id, late, faulty = row["job_id"], row["age_s"] > PROJECTION_BUDGET_S, False
        try:
            answer = await self._say(row)
        except Exception as error:  # it must not hold up the others, which come after it
            _log.error("fault", job_id=job_id, **logs.fault(error))
            answer, faulty = Unreachable("fault"), True
        self.pauses.heard(Pauses.MATRIX, answer)
        if isinstance(answer, AuthFailed):
            self.pauses.pause(Pauses.MATRIX, self._policy.retry_max_s)
        if isinstance(answer, Sent):
            crashpoint(points.NOTICE_SENT)
            await self._ledger.execute(SQL["notice_sent"], job_id, answer.event_id, None)
            txn_id = identities.matrix_txn(Stage.NOTICE, 0, job_id, row["ghost"])
            audit.posted(job_id, row["room_id"], answer.event_id, txn_id)
        elif isinstance(answer, Forbidden | TooLarge):
            code = error_code(answer.code)
            await self._ledger.execute(SQL["notice_sent"], job_id, None, code)
        elif late and (faulty or self.pauses.serves(Pauses.MATRIX)):
            await self._ledger.execute(SQL["notice_sent"], job_id, None, "budget")

    async def _say(self, row: Any) -> PostAnswer:
        ghost, room_id = row["ghost"], row["room_id"]
        txn_id = identities.matrix_txn(Stage.NOTICE, 0, row["job_id"], ghost)
        where = Place(room_id, row["event_id"], row["thread_root"])
        content = self._sides.contents.notice(where, row["notice_pending"], our_id=txn_id)
        rooms = self._sides.rooms
        answer = await rooms.send(ghost, room_id, txn_id, MESSAGE, content)
        if isinstance(answer, Forbidden) and isinstance(await rooms.join(ghost, room_id), Joined):
            answer = await rooms.send(ghost, room_id, txn_id, MESSAGE, content)
        return answer

    async def _forget(self) -> None:
        for name in ("forget_jobs", "forget_transactions"):
            gone = FORGET_BATCH
            while gone == FORGET_BATCH:
                gone = len(await self._ledger.fetch(SQL[name], self._retention, FORGET_BATCH))
        await self._ledger.execute(SQL["forget_markers"])

    def _changed(self, before: State, job: Job) -> None:
        if self._counts is not None:
            self._counts.changed(before, job)

    async def _count(self) -> None:
        if self._counts is not None:
            await self._counts.refresh(self._ledger)

    async def _every(self, seconds: float, act: Callable[[], Any]) -> None:
        """Trouble with the database, or a fault in one round, does not end the rounds."""
        while True:
            try:
                await act()
            except LedgerError as error:
                _log.debug("waits for the database", code=error.code)
            except Exception as error:
                _log.error("fault", **logs.fault(error))
            await asyncio.sleep(seconds)
