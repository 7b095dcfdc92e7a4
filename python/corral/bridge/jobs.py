"""Jobs and controls as a worker sees them, and the job that it holds: every change is fenced."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from corral.bridge.database import Ledger
from corral.bridge.domain import (
    CONTROL_TERMINAL,
    TERMINAL,
    ControlKind,
    ControlState,
    Reason,
    State,
)
from corral.bridge.errors import LeaseLostError, LedgerError
from corral.core.backoff import Backoff
from corral.core.sqlfiles import load_sql

SQL: Final = load_sql("corral.bridge", "sql/jobs.sql")
# After these the row has no owner any more.
RELEASING: Final = frozenset({"release", "failed", "never_left", "finish", "control_again"})
# They end controls, too: with a snapshot that is taken when nobody can add one any more.
LOCKING: Final = frozenset({"finish"})

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Job:
    """One row of `bridge_delegations`, as of its generation."""

    job_id: str
    event_id: str
    room_id: str
    ghost: str
    sender: str
    thread_root: str | None
    traceparent: str | None
    state: State
    intended: State | None
    reason: Reason | None
    generation: int
    due_at: datetime
    failures: int
    faults: int
    prompt: str | None
    result: str | None
    artifacts: bytes | None
    message_id: str
    attempts: int
    never_left: int
    context_id: str | None
    task_id: str | None
    input_generation: int
    placeholder: bool
    primary_event_id: str | None
    edit_event_id: str | None
    part_event_ids: tuple[str, ...]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Job":
        intended, reason = row["intended"], row["reason"]
        return cls(
            job_id=row["job_id"],
            event_id=row["event_id"],
            room_id=row["room_id"],
            ghost=row["ghost"],
            sender=row["sender"],
            thread_root=row["thread_root"],
            traceparent=row["traceparent"],
            state=State(row["state"]),
            intended=None if intended is None else State(intended),
            reason=None if reason is None else Reason(reason),
            generation=row["generation"],
            due_at=row["due_at"],
            failures=row["failures"],
            faults=row["faults"],
            prompt=row["prompt"],
            result=row["result"],
            artifacts=row["artifacts"],
            message_id=row["a2a_message_id"],
            attempts=row["attempts"],
            never_left=row["never_left"],
            context_id=row["context_id"],
            task_id=row["task_id"],
            input_generation=row["input_generation"],
            placeholder=row["placeholder"],
            primary_event_id=row["primary_event_id"],
            edit_event_id=row["edit_event_id"],
            part_event_ids=tuple(row["part_event_ids"]),
        )

    @property
    def call_open(self) -> bool:
        """Whether an attempt was begun of which nobody knows that it never left."""
        return self.state is State.A2A_PREPARED and self.attempts > self.never_left

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def thread(self) -> str:
        """The root of the thread for what is said beside the answer."""
        return self.thread_root or self.primary_event_id or self.event_id


@dataclass(frozen=True, slots=True)
class Control:
    """One row of `bridge_delegation_controls`."""

    control_id: str
    kind: ControlKind
    state: ControlState
    slot: int
    sender: str
    input_generation: int
    fingerprint: bytes
    payload: str | None
    message_id: str | None
    event_id: str | None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> "Control":
        return cls(
            control_id=row["control_id"],
            kind=ControlKind(row["kind"]),
            state=ControlState(row["state"]),
            slot=row["slot"],
            sender=row["sender"],
            input_generation=row["input_generation"],
            fingerprint=row["fingerprint"],
            payload=row["payload"],
            message_id=row["message_id"],
            event_id=row["event_id"],
        )

    @property
    def open(self) -> bool:
        return self.state not in CONTROL_TERMINAL


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds by the database's clock; None where a clock does not run."""

    task_s: float | None
    input_s: float | None
    since_created_s: float
    since_prepared_s: float | None
    since_task_s: float | None
    since_reply_s: float | None


class Held:
    """A job under our lease. All changes go through `change`."""

    def __init__(
        self,
        rows: Ledger,
        owner: str,
        row: Any,
        patience_s: float,
        changed: Callable[[State, Job], None] = lambda _before, _job: None,
    ) -> None:
        self.job = Job.of(row)
        self.wake = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self._reading = False
        self._rows = rows
        self._owner = owner
        self._patience_s = patience_s
        self._changed = changed
        self._first_due = self.job.due_at

    @property
    def writing(self) -> bool:
        """Whether a change is under way."""
        return not self._written.is_set()

    async def between_changes(self) -> None:
        """Returns when no change is under way, at once if none is."""
        while self.writing:
            await self._written.wait()

    @property
    def busy(self) -> bool:
        """Whether the database is asked: for a change, or for what one depends on."""
        return self.writing or self._reading

    async def change(self, name: str, *args: Any) -> Job:
        """One fenced transition; the job as it is then.

        When the connection breaks nobody knows whether it was committed: the row tells, since only
        the owner can have raised the generation. `LeaseLostError` when the fence does not hold,
        `LedgerError` when the database does not come back while the patience lasts.
        """
        job, unknown = self.job, False
        give_up = time.monotonic() + self._patience_s
        backoff = Backoff(0.05, 1.0)
        self._written.clear()
        try:
            while True:
                try:
                    row = await (self._read(name) if unknown else self._write(name, args))
                except LedgerError:
                    if time.monotonic() > give_up:
                        raise
                    unknown = True
                    await asyncio.sleep(backoff.next_s())
                    continue
                if row is not None:
                    self.job = Job.of(row)
                    self._changed(job.state, self.job)
                    return self.job
                if not unknown:
                    raise LeaseLostError(
                        f"job {job.job_id} is not ours any more", ids={"job_id": job.job_id}
                    )
                unknown = False  # it was not committed: once more
        finally:
            self._written.set()

    async def _write(self, name: str, args: tuple[Any, ...]) -> Any:
        job = self.job
        fenced = (job.job_id, self._owner, job.generation, *args)
        if name not in LOCKING:
            return await self._rows.fetchrow(SQL[name], *fenced)
        async with self._rows.connection() as connection, connection.transaction():
            await connection.execute(SQL["lock"], job.job_id)
            return await connection.fetchrow(SQL[name], *fenced)

    async def _read(self, name: str) -> Any:
        """The row, if it has our change; None if it is as it was before."""
        row = await self._rows.fetchrow(SQL["read"], self.job.job_id)
        if row is not None:
            steps = row["generation"] - self.job.generation
            ours = row["lease_owner"] == self._owner
            if (steps == 1 and ours) or (steps >= 1 and name in RELEASING):
                return row
            if steps == 0 and ours:
                return None
        raise LeaseLostError(
            f"job {self.job.job_id} is not ours any more", ids={"job_id": self.job.job_id}
        )

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What is read between an answer and the change that records it is waited for as well."""
        give_up = time.monotonic() + self._patience_s
        backoff = Backoff(0.05, 1.0)
        self._reading = True
        try:
            while True:
                try:
                    return await ask()
                except LedgerError:
                    if time.monotonic() > give_up:
                        raise
                await asyncio.sleep(backoff.next_s())
        finally:
            self._reading = False

    async def release(self, pause_s: float) -> None:
        """Gives the lease back; due again after the pause, or at once if a control came."""
        await self.change("release", timedelta(seconds=pause_s), self._first_due)

    async def controls(self) -> list[Control]:
        ask = self._rows.fetch
        rows = await self._patiently(lambda: ask(SQL["controls"], self.job.job_id))
        return [Control.of(row) for row in rows]

    async def clocks(self) -> Clocks:
        ask = self._rows.fetchrow
        row = await self._patiently(lambda: ask(SQL["clocks"], self.job.job_id))
        return Clocks(**dict(row))

    async def conversation(self) -> str | None:
        """The context id of this room's conversation with the agent."""
        found: str | None = await self._rows.fetchval(
            SQL["conversation"], self.job.room_id, self.job.ghost
        )
        return found
