"""The job and control machines against the tables: any order of statements, stale ones too.

Hypothesis draws what two workers, the intake and the clock do. A plain model says which statement
must take hold and which must not: a lost lease, a stale generation, a state that does not allow it.
The database is real; the statements are those of the program.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from corral.bridge import domain, identities
from corral.bridge.admission import SQL as INTAKE
from corral.bridge.admission import LedgerAdmission
from corral.bridge.database import Ledger, Target
from corral.bridge.domain import CONTROL_TERMINAL, OPEN, ControlState, Limits, State
from corral.bridge.jobs import SQL as JOBS
from corral.bridge.session import SQL as WORK
from tests.contract.bridge.kit import incoming, mention
from tests.harness import postgres

LIMITS = Limits(room_queue_capacity=3, global_queue_capacity=6)
CONCURRENCY = 3
HOUR = timedelta(hours=1)
NOW = timedelta(0)
EXAMPLES = 25


@dataclass
class Model:
    """What a job is, as far as the guards look at it."""

    job_id: str
    room: str
    state: State = State.PENDING
    owner: str | None = None
    expired: bool = False
    generation: int = 1
    attempts: int = 0
    never_left: int = 0
    task: bool = False
    primary: bool = False
    question: bool = False  # its temporary copy
    intended: State = State.DELIVERED
    controls: dict[str, ControlState] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        return self.state in OPEN


STATEMENTS = (
    "prepare", "never_left", "task_known", "polled", "ask", "question", "result", "primary_sent",
    "finish", "failed", "control_add", "control_prepare", "control_end", "answered",
)  # fmt: skip


class Machines(RuleBasedStateMachine):
    """The connections are the same for all examples: making them would be what takes the time."""

    loop: asyncio.AbstractEventLoop
    ledger: Ledger
    admission: LedgerAdmission
    done: Counter[str]  # which statements took hold, in all examples

    @initialize()
    def begin(self) -> None:
        self.loop.run_until_complete(self.ledger.execute(f"TRUNCATE {postgres.TABLES} CASCADE"))
        self.jobs: list[Model] = []
        self.count = 0

    def ask(self, sql: str, *args: Any) -> list[Any]:
        return self.loop.run_until_complete(self.ledger.fetch(sql, *args))

    # ---- the intake

    @rule(room=st.sampled_from("abc"))
    def admit(self, room: str) -> None:
        self.count += 1
        one = mention(f"m{self.count}", room=room)
        self.loop.run_until_complete(self.admission.admit(incoming(str(self.count), one)))
        opened = [job for job in self.jobs if job.open]
        in_room = sum(job.room == room for job in opened)
        full = in_room >= LIMITS.room_queue_capacity or len(opened) >= LIMITS.global_queue_capacity
        state = State.DENIED if full else State.PENDING
        self.jobs.append(Model(identities.job(one.event_id, "scout"), room, state))

    @rule(pick=st.integers(0))
    def cancel_queued(self, pick: int) -> None:
        job = self.pick(pick)
        if job is None:
            return
        rows = self.ask(INTAKE["cancel_queued"], [job.job_id], ["operator"])
        wanted = job.state is State.PENDING and job.owner is None
        assert bool(rows) is wanted
        if wanted:
            job.state, job.generation = State.REPLY_PENDING, job.generation + 1
            job.intended = State.DENIED

    def pick(self, pick: int) -> Model | None:
        """The newest are the likeliest to have work left."""
        return self.jobs[-1 - pick % len(self.jobs)] if self.jobs else None

    # ---- the workers

    @rule(worker=st.sampled_from(["one", "two"]), most=st.integers(1, 3))
    def claim(self, worker: str, most: int) -> None:
        leases = sum(job.owner is not None and not job.expired for job in self.jobs if job.open)
        heads, rooms = [], set()
        for job in self.jobs:
            if job.open and job.room not in rooms:
                rooms.add(job.room)
                if job.owner is None or job.expired:
                    heads.append(job)
        wanted = heads[: max(0, min(most, CONCURRENCY - leases))]
        rows = self.ask(WORK["claim"], worker, HOUR, most, CONCURRENCY, [], [])
        assert sorted(row["job_id"] for row in rows) == sorted(job.job_id for job in wanted)
        for job in wanted:
            job.owner, job.expired, job.generation = worker, False, job.generation + 1

    @rule(pick=st.integers(0, 5))
    def expire(self, pick: int) -> None:
        job = self.pick(pick)
        if job is not None and job.open and job.owner is not None:
            self.ask(
                "UPDATE bridge_delegations SET lease_expires_at = now() - interval '1 s'"
                " WHERE job_id = $1 RETURNING 1",
                job.job_id,
            )
            job.expired = True

    @rule(pick=st.integers(0, 5), name=st.sampled_from(STATEMENTS))
    def change(self, pick: int, name: str) -> None:
        """Any statement on any job: mostly one that must not take hold."""
        job = self.pick(pick)
        if job is not None:
            self.step(job, name)

    @rule(data=st.data(), steps=st.integers(4, 10))
    def work_on(self, data: st.DataObject, steps: int) -> None:
        """The same once more: half of what is drawn shall be work."""
        self.work(data, steps)

    @rule(data=st.data(), steps=st.integers(4, 10))
    def work(self, data: st.DataObject, steps: int) -> None:
        """What a worker does with a job that it holds."""
        if not any(job.open and job.owner is not None for job in self.jobs):
            self.admit(str(self.count))
            self.claim("one", 1)
        held = [job for job in self.jobs if job.open and job.owner is not None]
        if not held:
            return
        job = data.draw(st.sampled_from(held))
        for _ in range(steps):
            if job.owner is not None:
                names = [name for name in STATEMENTS if self.allowed(job, name)]
                self.step(job, data.draw(st.sampled_from(names)))

    def step(self, job: Model, name: str) -> None:
        owner = job.owner or "one"
        stranger = "two" if owner == "one" else "one"
        allowed = job.owner == owner and self.allowed(job, name)
        sql, args = JOBS[name], self.arguments(job, name)
        # Never of a stranger, nor by who knows another generation: no row is changed.
        for who, generation in (
            (stranger, job.generation), (owner, job.generation - 1), (owner, job.generation + 1)
        ):  # fmt: skip
            assert self.ask(sql, job.job_id, who, generation, *args) == [], (name, job)
        rows = self.ask(sql, job.job_id, owner, job.generation, *args)
        assert bool(rows) is allowed, (name, job)
        if allowed:
            self.done[name] += 1
            before = job.state
            self.apply(job, name, args)
            row = rows[0]
            assert (row["state"], row["generation"]) == (job.state.value, job.generation)
            assert job.state is before or domain.may(before, job.state)

    def control(self, job: Model, state: ControlState) -> str:
        for control_id, found in job.controls.items():
            if found is state:
                return control_id
        return next(iter(job.controls), "none")

    def allowed(self, job: Model, name: str) -> bool:
        state, calling = job.state, job.attempts > job.never_left
        held = set(job.controls.values())
        match name:
            case "prepare":
                return state in {State.PENDING, State.A2A_PREPARED} and not calling
            case "never_left":
                return state is State.A2A_PREPARED and calling
            case "task_known":
                return state is State.A2A_PREPARED
            case "polled":
                return state is State.AWAITING_TASK
            case "ask":
                return state in {State.A2A_PREPARED, State.AWAITING_TASK}
            case "question":
                return state is State.AWAITING_INPUT and job.question
            case "result":
                return state in OPEN - {State.REPLY_PENDING}
            case "primary_sent":
                return not job.primary
            case "finish":
                return state is State.REPLY_PENDING
            case "control_prepare":
                return ControlState.PENDING in held
            case "control_end":
                chosen = self.control(job, ControlState.PREPARED)
                return job.controls.get(chosen) in {ControlState.PENDING, ControlState.PREPARED}
            case "answered":
                return state is State.AWAITING_INPUT and ControlState.PREPARED in held
        return True

    def arguments(self, job: Model, name: str) -> tuple[Any, ...]:
        mark = bytes(32)
        match name:
            case "prepare":
                return (HOUR, "context")
            case "never_left":
                return (NOW, 1, "code")
            case "failed":
                return (NOW, 1, "code", 1)
            case "task_known":
                return ("task", "context")
            case "ask":
                return ("task", "context", "question?", HOUR)
            case "question":
                return (f"{job.job_id[:8]}q{job.generation}", mark, "question?", "txn")
            case "result":
                return ("delivered", "answered", "text", None, None, None, None)
            case "primary_sent":
                return ("$event",)
            case "control_add":
                return (f"{job.job_id[:8]}c{job.generation}", "progress", job.generation, mark,
                        "text", "txn", 100)  # fmt: skip
            case "control_prepare":
                return (self.control(job, ControlState.PENDING),)
            case "control_end":
                return (self.control(job, ControlState.PREPARED), "applied", None, None)
            case "answered":
                return (self.control(job, ControlState.PREPARED), "ambiguous", "code")
        return ()

    def apply(self, job: Model, name: str, args: tuple[Any, ...]) -> None:  # noqa: PLR0912
        job.generation += 1
        match name:
            case "prepare":
                job.state, job.attempts = State.A2A_PREPARED, job.attempts + 1
            case "never_left":
                job.never_left, job.owner = job.attempts, None
            case "failed":
                job.owner = None
            case "task_known":
                job.state, job.task = State.AWAITING_TASK, True
            case "ask":
                job.state, job.task, job.question = State.AWAITING_INPUT, True, True
            case "question":
                job.question = False
                job.controls[args[0]] = ControlState.PENDING
            case "result":
                job.state = State.REPLY_PENDING
            case "primary_sent":
                job.primary = True
            case "finish":
                job.state, job.owner = job.intended, None
                for one, state in job.controls.items():
                    if state not in CONTROL_TERMINAL:
                        job.controls[one] = ControlState.DEAD
            case "control_add":
                job.controls[args[0]] = ControlState.PENDING
            case "control_prepare":
                job.controls[args[0]] = ControlState.PREPARED
            case "control_end":
                job.controls[args[0]] = ControlState.APPLIED
            case "answered":
                job.state, job.question = State.AWAITING_TASK, False
                job.controls[args[0]] = ControlState.AMBIGUOUS

    # ---- always

    @invariant()
    def the_tables_say_what_the_model_says(self) -> None:
        if not hasattr(self, "jobs"):
            return
        rows = self.ask("SELECT * FROM bridge_delegations ORDER BY seq")
        assert [row["job_id"] for row in rows] == [job.job_id for job in self.jobs]
        for row, job in zip(rows, self.jobs, strict=True):
            assert (row["state"], row["lease_owner"]) == (job.state.value, job.owner)
            assert (row["attempts"], row["never_left"]) == (job.attempts, job.never_left)
            if not job.open:
                assert (row["prompt"], row["result"], row["artifacts"]) == (None, None, None)
        controls = self.ask("SELECT * FROM bridge_delegation_controls")
        states = {row["control_id"]: row["state"] for row in controls}
        assert states == {
            one: state.value for job in self.jobs for one, state in job.controls.items()
        }
        ended = [row for row in controls if row["state"] in CONTROL_TERMINAL]
        assert [row["payload"] for row in ended] == [None] * len(ended)


async def opened(target: Target) -> tuple[Ledger, LedgerAdmission]:
    return await Ledger(target, 1).__aenter__(), LedgerAdmission(target, LIMITS)


async def closed(ledger: Ledger, admission: LedgerAdmission) -> None:
    await admission.close()
    await ledger.__aexit__(None, None, None)


@pytest.mark.timeout(900)  # thousands of statements, on a machine that may be busy
def test_the_machines_agree_with_the_tables(one_target: Target) -> None:
    with asyncio.Runner() as runner:
        Machines.loop = runner.get_loop()
        Machines.ledger, Machines.admission = runner.run(opened(one_target))
        Machines.done = Counter()
        try:
            run_state_machine_as_test(
                Machines,
                settings=settings(
                    max_examples=EXAMPLES,
                    stateful_step_count=15,
                    deadline=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(closed(Machines.ledger, Machines.admission))
    assert {"prepare", "result", "finish"} <= set(Machines.done), Machines.done
