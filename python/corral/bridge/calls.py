"""The call to the agent, which leaves at most once; and the one of which nobody knows."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Final

from corral.bridge import audit, domain, identities, points
from corral.bridge.domain import ControlKind, ControlState, Reason
from corral.bridge.machine import Machine, Released
from corral.bridge.ports import (
    AuthFailed,
    Card,
    MayHaveLeft,
    NeverLeft,
    Refused,
    Reply,
    SendAnswer,
    Submission,
    Task,
    TaskState,
    TaskView,
    Unreachable,
    Unsupported,
)
from corral.core.crashpoints import crashpoint

GIVE_UP_WAIT_S: Final = 5.0  # for the agent's word on a cancellation that nothing depends on


async def step(machine: Machine) -> None:
    """For `pending` and `a2a_prepared`: make the call, or find out about the one that was begun."""
    if machine.job.call_open:
        await _uncertain(machine, "recovered")
    else:
        await _attempt(machine)


async def _attempt(machine: Machine) -> None:
    job, policy = machine.job, machine.agent_policy
    if policy is None:
        await machine.end(Reason.AGENT_UNKNOWN)
        return
    if job.failures >= machine.policy.attempts_max:
        await machine.end(Reason.AGENT_UNREACHABLE)
        return
    for control in await machine.held.controls():
        if control.kind is ControlKind.CANCEL and control.state is ControlState.PENDING:
            await machine.end(Reason.CANCELED)
            return
    clocks = await machine.held.clocks()
    if clocks.task_s is not None and clocks.task_s <= 0:
        await machine.end(Reason.AGENT_UNREACHABLE, code="deadline")
        return
    await _check_card(machine, clocks.since_created_s)
    if machine.job.terminal or machine.job.reason is not None:
        return
    context_id = job.context_id or await machine.held.conversation()
    await machine.held.change(
        "prepare",
        timedelta(seconds=policy.task_timeout_s),
        context_id or identities.context(job.job_id),
    )
    crashpoint(points.PREPARED)
    answer = await _send(machine)
    crashpoint(points.CALLED)
    await _settle(machine, answer)


async def _check_card(machine: Machine, waited_s: float) -> None:
    """What can be known without a call: the agent is there, and we speak its protocol."""
    ghost = machine.job.ghost
    answer = await machine.agents.card(ghost)
    match answer:
        case Card():
            return
        case Unreachable():
            await machine.again(answer.code)
        case AuthFailed() if waited_s > domain.REFUSED_BUDGET_S:
            machine.pauses.pause(ghost, machine.policy.retry_max_s)
            await machine.end(Reason.AGENT_UNREACHABLE, code=answer.code)
        case AuthFailed():
            await machine.refused_us(ghost, answer.code)
        case Refused():
            await machine.end(Reason.AGENT_REFUSED, code=answer.code)


async def _send(machine: Machine) -> SendAnswer:
    audit.called(machine.job, "message", machine.job.message_id)
    return await machine.agents.send(_submission(machine))


def _submission(machine: Machine) -> Submission:
    return machine.submission(machine.job.message_id, machine.job.prompt, None)


async def _settle(machine: Machine, answer: SendAnswer) -> None:
    job = machine.job
    machine.pauses.heard(job.ghost, answer)
    match answer:
        case Task():
            await took(machine, answer.view)
        case Reply():
            await machine.replied(answer)
        case Refused():
            await machine.end(Reason.AGENT_REFUSED, code=answer.code)
        case NeverLeft(full=True):  # it waits for room until the time of its task is over
            await _never_left(
                machine, timedelta(seconds=machine.policy.retry_max_s), 0, answer.code
            )
        case NeverLeft():
            await _never_left(machine, machine.retry_pause(), 1, answer.code)
        case AuthFailed():
            pause_s = machine.policy.retry_max_s
            machine.pauses.pause(job.ghost, pause_s)
            await _never_left(machine, timedelta(seconds=pause_s), 0, answer.code)
        case MayHaveLeft():
            await _uncertain(machine, answer.code)


async def _never_left(machine: Machine, pause: timedelta, spent: int, code: str) -> None:
    await machine.held.change("never_left", pause, spent, domain.error_code(code))
    crashpoint(points.NEVER_LEFT)
    raise Released


async def took(machine: Machine, view: TaskView) -> None:
    """The agent has the task: its id is committed, or what already came of it."""
    if view.state is TaskState.INPUT_REQUIRED:
        await ask(machine, view)
    elif await over(machine, view):
        return
    else:
        await machine.held.change("task_known", view.task_id, view.context_id or None)
        crashpoint(points.TASK)


async def give_up(
    machine: Machine,
    reason: Reason,
    *,
    code: str | None = None,
    context_id: str | None = None,
    task_id: str | None = None,
) -> None:
    """Ends a job whose task is open. Once that is committed the agent is asked to stop, so that it
    keeps no place for an answer that nobody waits for; what it says to that changes nothing."""
    open_task = task_id or machine.job.task_id
    await machine.end(reason, code=code, context_id=context_id, task_id=task_id)
    if open_task is not None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GIVE_UP_WAIT_S):
                await machine.agents.cancel(machine.job.ghost, open_task)


async def ask(machine: Machine, view: TaskView) -> None:
    """The task waits for the one who asked; the question is committed with that."""
    controls = await machine.held.controls()
    if not domain.control_fits(ControlKind.QUESTION, len(controls), machine.policy.limits):
        await give_up(
            machine,
            Reason.CONTROLS_EXHAUSTED,
            context_id=view.context_id or None,
            task_id=view.task_id,
        )
        return
    await machine.held.change(
        "ask",
        view.task_id,
        view.context_id or machine.job.context_id,
        domain.storable(view.text) or "?",
        timedelta(seconds=machine.policy.input_wait_timeout_s),
    )
    crashpoint(points.ASKED)


ENDED = {
    TaskState.COMPLETED: Reason.ANSWERED,
    TaskState.FAILED: Reason.TASK_FAILED,
    TaskState.CANCELED: Reason.TASK_CANCELED,
    TaskState.REJECTED: Reason.TASK_REJECTED,
    TaskState.AUTH_REQUIRED: Reason.AUTH_REQUIRED,
}


async def over(machine: Machine, view: TaskView) -> bool:
    """Whether the task ended; then its end is committed. Credentials are never passed on."""
    reason = ENDED.get(view.state)
    if reason is None:
        return False
    shown = reason in {Reason.ANSWERED, Reason.TASK_FAILED}
    await machine.end(
        reason,
        text=view.text if shown else "",
        artifacts=view.artifacts if shown else (),
        context_id=view.context_id or None,
        task_id=view.task_id,
    )
    return True


async def _uncertain(machine: Machine, code: str) -> None:
    """A call may have left and nobody knows what came of it: never again, unless agreed."""
    policy = machine.agent_policy
    if policy is not None and policy.idempotent and await _repeat(machine):
        return
    if policy is not None and policy.reconcile and await _reconcile(machine):
        return
    await machine.end(Reason.CALL_UNCERTAIN, code=code)


async def _repeat(machine: Machine) -> bool:
    """The same message again, to an agent whose card says that it knows it again; whether that
    told anything. An agent that is away has not said otherwise: its card is asked for again, too.
    """
    loop, pause_s = asyncio.get_running_loop(), domain.POLL_FIRST_S
    until = loop.time() + machine.policy.reconcile_timeout_s
    while loop.time() < until:
        card = await machine.agents.card(machine.job.ghost)
        if isinstance(card, Refused) or (isinstance(card, Card) and not await _kept(machine, card)):
            return False
        if isinstance(card, Card):
            answer = await _send(machine)
            if isinstance(answer, Refused):  # of the repetition: the first may have been begun
                return False
            if not isinstance(answer, NeverLeft | MayHaveLeft | AuthFailed):
                await _settle(machine, answer)
                return True
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, machine.policy.retry_max_s)
    return False


async def _kept(machine: Machine, card: Card) -> bool:
    """Whether the agent still knows the message, by what it declares."""
    since_s = (await machine.held.clocks()).since_prepared_s or 0.0
    return card.idempotent_for_s is not None and since_s < card.idempotent_for_s


async def _reconcile(machine: Machine) -> bool:
    """Asks what the agent has. Found: that is our task. Not found proves nothing."""
    job, loop, pause_s = machine.job, asyncio.get_running_loop(), domain.POLL_FIRST_S
    until = loop.time() + machine.policy.reconcile_timeout_s
    while loop.time() < until:
        answer = await machine.agents.find(job.ghost, job.context_id or "", job.message_id)
        if isinstance(answer, Task):
            await took(machine, answer.view)
            return True
        if isinstance(answer, Unsupported | AuthFailed):
            return False
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, machine.policy.retry_max_s)
    return False
