"""Controls of a job that is held: what came from the room, and what the worker plans itself.

A `cancel` or `continuation` that is found prepared is ambiguous: its call is never made again.
Questions and progress are sent again under their transaction ids. Pins look at the room first, and
their failures are evidence, nothing more.
"""

from datetime import timedelta

from corral.bridge import audit, calls, domain, identities, points, posting
from corral.bridge.domain import OPTIONAL, ControlKind, ControlState, State
from corral.bridge.jobs import Control
from corral.bridge.machine import Machine, Released
from corral.bridge.ports import (
    AuthFailed,
    Canceled,
    MayHaveLeft,
    NeverLeft,
    NotCancelable,
    Pins,
    Place,
    Refused,
    Reply,
    Sent,
    Task,
    TaskGone,
)
from corral.bridge.posting import Undeliverable
from corral.core.crashpoints import crashpoint


async def drain(machine: Machine) -> None:
    """Does every open control, in order, until the job's state changes under it."""
    state = machine.job.state
    machine.held.wake.clear()  # what comes from now on cuts the next pause short
    for control in await machine.held.controls():
        if control.open:
            await _do(machine, control)
        if machine.job.state is not state:
            return


async def _do(machine: Machine, control: Control) -> None:
    if control.kind in domain.CALLS and control.state is ControlState.PREPARED:
        await _recovered(machine, control)
        return
    match control.kind:
        case ControlKind.CANCEL:
            await _cancel(machine, control)
        case ControlKind.CONTINUATION:
            await _continue(machine, control)
        case ControlKind.QUESTION | ControlKind.PROGRESS:
            await _say(machine, control)
        case ControlKind.PIN | ControlKind.UNPIN:
            await _pin(machine, control)


async def _recovered(machine: Machine, control: Control) -> None:
    if control.kind is ControlKind.CONTINUATION:
        await _answered(machine, control, ControlState.AMBIGUOUS, "recovered")
    else:
        await end(machine, control, ControlState.AMBIGUOUS, "recovered")


async def prepare(machine: Machine, control: Control) -> None:
    if control.state is ControlState.PENDING:
        await machine.held.change("control_prepare", control.control_id)
        crashpoint(points.CONTROL_PREPARED)


async def end(
    machine: Machine,
    control: Control,
    state: ControlState,
    code: str | None = None,
    event_id: str | None = None,
) -> None:
    code = None if code is None else domain.error_code(code)
    await machine.held.change("control_end", control.control_id, state.value, code, event_id)


# ---- what came from the room


async def _cancel(machine: Machine, control: Control) -> None:
    task_id = machine.job.task_id
    if task_id is None:  # the call is not over: nothing to cancel yet
        return
    await prepare(machine, control)
    audit.called(machine.job, "cancel", control.control_id)
    answer = await machine.agents.cancel(machine.job.ghost, task_id)
    crashpoint(points.CANCEL_CALLED)
    machine.pauses.heard(machine.job.ghost, answer)
    match answer:
        case Canceled():
            await end(machine, control, ControlState.APPLIED)
            # A task that is not over yet is polled on, until it says how it ended.
            await calls.over(machine, answer.view)
        case NotCancelable() | TaskGone():
            await end(machine, control, ControlState.DENIED, answer.code)
        case MayHaveLeft():
            await end(machine, control, ControlState.AMBIGUOUS, answer.code)
        case NeverLeft() | AuthFailed():
            await _again(machine, control, answer)
            await end(machine, control, ControlState.DEAD, answer.code)


async def _continue(machine: Machine, control: Control) -> None:
    job = machine.job
    if job.state is not State.AWAITING_INPUT or control.input_generation != job.input_generation:
        await end(machine, control, ControlState.DENIED, "stale")
        return
    await prepare(machine, control)
    ident = control.message_id or identities.control_message(control.control_id)
    submission = machine.submission(ident, control.payload, job.task_id)
    audit.called(job, "answer", ident)
    answer = await machine.agents.send(submission)
    crashpoint(points.ANSWER_CALLED)
    machine.pauses.heard(job.ghost, answer)
    match answer:
        case Task():
            await _answered(machine, control, ControlState.APPLIED)
            await calls.over(machine, answer.view)
        case Reply():
            await _answered(machine, control, ControlState.APPLIED)
            await machine.replied(answer)
        case Refused():
            await _answered(machine, control, ControlState.DENIED, answer.code)
        case MayHaveLeft():
            await _answered(machine, control, ControlState.AMBIGUOUS, answer.code)
        case NeverLeft() | AuthFailed():
            await _again(machine, control, answer)
            await _answered(machine, control, ControlState.DEAD, answer.code)


async def _again(machine: Machine, control: Control, answer: NeverLeft | AuthFailed) -> None:
    """What is proven not to have left waits, with its job, for the next try; returns only once the
    clock that runs is over, which nothing but an end follows."""
    clocks, policy = await machine.held.clocks(), machine.policy
    waits = machine.job.state is State.AWAITING_INPUT
    left_s = clocks.input_s if waits else clocks.task_s
    refused = isinstance(answer, AuthFailed)
    if refused:
        machine.pauses.pause(machine.job.ghost, policy.retry_max_s)
    if left_s is None or left_s <= 0:
        return
    pause = timedelta(seconds=policy.retry_max_s) if refused else machine.retry_pause()
    code = domain.error_code(answer.code)
    await machine.held.change("control_again", control.control_id, pause, int(not refused), code)
    raise Released


async def _answered(
    machine: Machine, control: Control, state: ControlState, code: str | None = None
) -> None:
    """The control ends and the task's clock goes on; what came of it is asked of the task."""
    code = None if code is None else domain.error_code(code)
    await machine.held.change("answered", control.control_id, state.value, code)


# ---- what is posted


async def _say(machine: Machine, control: Control) -> None:
    await prepare(machine, control)
    job = machine.job
    where = Place(job.room_id, job.primary_event_id or job.event_id, job.thread)
    txn_id = control.message_id or ""
    content = machine.contents.threaded(
        where, control.payload or "", kind=control.kind.value, our_id=txn_id
    )
    question = control.kind is ControlKind.QUESTION
    try:
        event_id = await posting.post(machine, txn_id, content, give_back=question)
    except Undeliverable as error:
        await end(machine, control, ControlState.DEAD, error.code)
        if question:
            await machine.end(error.reason, code=error.code)
        return
    crashpoint(points.QUESTION_SENT if question else points.PROGRESS_SENT)
    await end(machine, control, ControlState.APPLIED, None, event_id)


async def _pin(machine: Machine, control: Control) -> None:
    """Reads what is pinned first; any failure ends the control, never the job."""
    await prepare(machine, control)
    job, rooms = machine.job, machine.rooms
    primary, wanted = job.primary_event_id, control.kind is ControlKind.PIN
    pins = await posting.answered(machine, lambda: rooms.pins(job.ghost, job.room_id))
    if not isinstance(pins, Pins) or primary is None:
        await end(machine, control, ControlState.DEAD, getattr(pins, "code", "no_pins"))
        return
    others = [event for event in pins.event_ids if event != primary]
    if wanted is (primary in pins.event_ids):
        await end(machine, control, ControlState.APPLIED)
        return
    pinned = [*others, primary] if wanted else others
    answer = await posting.answered(machine, lambda: rooms.set_pins(job.ghost, job.room_id, pinned))
    crashpoint(points.PIN_SENT if wanted else points.UNPIN_SENT)
    if isinstance(answer, Sent):
        await end(machine, control, ControlState.APPLIED, None, answer.event_id)
    else:
        await end(machine, control, ControlState.DEAD, getattr(answer, "code", "limited"))


async def add(machine: Machine, kind: ControlKind, slot: int, payload: str | None = None) -> bool:
    """Plans a control of the worker's own; whether there was room for it."""
    held, limits = machine.held, machine.policy.limits
    controls = await held.controls()
    if not domain.control_fits(kind, len(controls), limits):
        return False
    control_id = identities.control(machine.job.job_id, kind, "", slot)
    mark = identities.fingerprint(kind, "", "", slot, payload or "")
    await held.change(
        "control_add", control_id, kind.value, slot, mark, payload,
        identities.control_txn(control_id),
        limits.control_capacity_per_job,
    )  # fmt: skip
    return True


async def progress(machine: Machine, text: str) -> None:
    """Posts what the agent says of its work, unless it said that before or said enough."""
    if not text or machine.job.primary_event_id is None:
        return
    text = domain.storable(text)
    said = [one for one in await machine.held.controls() if one.kind is ControlKind.PROGRESS]
    slot = len(said)
    if slot >= machine.policy.limits.progress_posts_max:
        return
    marks = {identities.fingerprint(ControlKind.PROGRESS, "", "", n, text) for n in range(slot)}
    if marks & {one.fingerprint for one in said}:
        return
    await add(machine, ControlKind.PROGRESS, slot, text)
    await _optional(machine)


async def _optional(machine: Machine) -> None:
    """Progress and pins now; trouble with them does not hold the job up."""
    for control in await machine.held.controls():
        if control.open and control.kind in OPTIONAL:
            await _do(machine, control)


async def question(machine: Machine) -> None:
    """The question that was committed with `awaiting_input` gets its control."""
    job = machine.job
    text = job.result or ""
    control_id = identities.control(job.job_id, ControlKind.QUESTION, "", job.input_generation)
    mark = identities.fingerprint(ControlKind.QUESTION, "", "", job.input_generation, text)
    await machine.held.change(
        "question", control_id, mark, text, identities.control_txn(control_id)
    )
    crashpoint(points.QUESTION)


async def placeholder(machine: Machine, *, give_back: bool = True) -> None:
    """Posts the placeholder, once; then it is pinned, if that is wanted."""
    if not machine.job.placeholder:
        await machine.held.change("placeholder_planned")
    if machine.job.primary_event_id is None:
        txn_id = posting.our_id(machine, identities.Stage.PRIMARY)
        content = machine.contents.placeholder(posting.place(machine), our_id=txn_id)
        event_id = await posting.post(machine, txn_id, content, give_back=give_back)
        crashpoint(points.PLACEHOLDER_SENT)
        await machine.held.change("primary_sent", event_id)
        crashpoint(points.PLACEHOLDER)
        if machine.policy.pin and await add(machine, ControlKind.PIN, 0):
            await _optional(machine)


async def unpin(machine: Machine) -> None:
    """Before the end: whatever became of the pin, the placeholder shall not stay pinned."""
    found = await machine.held.controls()
    if any(one.kind is ControlKind.PIN for one in found):
        if not any(one.kind is ControlKind.UNPIN for one in found):
            await add(machine, ControlKind.UNPIN, 0)
        await _optional(machine)
