"""While the agent works, and while it waits for an answer from the room."""

import contextlib

from corral.bridge import calls, controls, domain, points
from corral.bridge.domain import Reason, State
from corral.bridge.machine import Machine, Released
from corral.bridge.ports import (
    AuthFailed,
    GetAnswer,
    Task,
    TaskGone,
    TaskState,
    Unreachable,
)
from corral.bridge.posting import Undeliverable
from corral.core.crashpoints import crashpoint


async def poll(machine: Machine) -> None:
    """For `awaiting_task`: asks for the task until it is over, or its time is."""
    failures = 0
    while _working(machine):
        clocks = await machine.held.clocks()
        since_s = clocks.since_task_s or 0.0
        if since_s < domain.POLL_FIRST_S:
            await machine.pause(domain.POLL_FIRST_S)
        await _beside(machine, since_s)
        if not _working(machine):
            return
        answer = await machine.agents.get(machine.job.ghost, machine.job.task_id or "")
        crashpoint(points.POLLED)
        failures = failures + 1 if isinstance(answer, Unreachable) else 0
        # The agent has the last word: it may have been done while nobody could ask.
        left_s = 0.0 if clocks.task_s is None else clocks.task_s
        if isinstance(answer, AuthFailed) and left_s <= 0:
            machine.pauses.pause(machine.job.ghost, machine.policy.retry_max_s)
            await machine.end(Reason.TASK_TIMEOUT, code=answer.code)
            return
        await _heard(machine, answer)
        if _working(machine) and left_s <= 0:
            await calls.give_up(machine, Reason.TASK_TIMEOUT)
        elif _working(machine):
            await machine.pause(min(_pause_s(machine, since_s, failures), left_s))


def _working(machine: Machine) -> bool:
    return machine.job.state is State.AWAITING_TASK


def _pause_s(machine: Machine, since_s: float, failures: int) -> float:
    policy, rng = machine.policy, machine.rng
    if failures:
        return domain.retry_pause_s(failures, policy.retry_initial_s, policy.retry_max_s, rng)
    return domain.poll_pause_s(since_s, rng)


async def _heard(machine: Machine, answer: GetAnswer) -> None:
    machine.pauses.heard(machine.job.ghost, answer)
    match answer:
        case Task(view) if view.state is TaskState.INPUT_REQUIRED:
            await calls.ask(machine, view)
        case Task(view):
            if not await calls.over(machine, view):
                await machine.held.change("polled")
                await controls.progress(machine, view.text)
        case TaskGone():
            await machine.end(Reason.TASK_LOST, code=answer.code)
        case Unreachable():
            await machine.held.change("poll_failed", domain.error_code(answer.code))
        case AuthFailed():
            await machine.refused_us(machine.job.ghost, answer.code)


async def _beside(machine: Machine, since_s: float) -> None:
    """What the room is told and asks for meanwhile. Trouble with a placeholder stops nothing."""
    job = machine.job
    wanted = job.placeholder or since_s >= machine.policy.placeholder_after_s
    if wanted and job.primary_event_id is None:
        with contextlib.suppress(Undeliverable):
            await controls.placeholder(machine, give_back=False)
    await controls.drain(machine)


async def for_input(machine: Machine) -> None:
    """For `awaiting_input`: posts the question, takes the answer, or gives the job back to wait."""
    try:
        if machine.job.primary_event_id is None:
            await controls.placeholder(machine)
        if machine.job.result is not None:
            await controls.question(machine)
        await controls.drain(machine)
    except Undeliverable as error:
        await calls.give_up(machine, error.reason, code=error.code)
    if machine.job.state is not State.AWAITING_INPUT:
        return
    clocks = await machine.held.clocks()
    left_s = 0.0 if clocks.input_s is None else clocks.input_s
    if left_s <= 0:
        await calls.give_up(machine, Reason.INPUT_TIMEOUT)
        return
    await machine.held.release(left_s)
    raise Released
