"""What the room is told in the end: the reply or edit, further parts, artifacts; then the end."""

import contextlib
from collections.abc import Sequence

from corral.bridge import controls, domain, points
from corral.bridge.domain import ENDS, Reason
from corral.bridge.identities import Stage
from corral.bridge.machine import Machine, intended, unpack
from corral.bridge.ports import Artifact, Content, Uploaded
from corral.bridge.posting import Problem, Undeliverable, insist, our_id, place, post
from corral.core.crashpoints import crashpoint

TOLD_BY_TEXT = frozenset({Reason.ANSWERED, Reason.TASK_FAILED})


async def project(machine: Machine) -> None:
    """For `reply_pending`: everything that is missing in the room, in order; then the end."""
    try:
        await _tell(machine)
    except Undeliverable as error:
        await _replaced(machine, error)
    await controls.unpin(machine)
    crashpoint(points.FINISHING)
    await machine.held.change("finish")
    crashpoint(points.FINISHED)


async def _replaced(machine: Machine, error: Undeliverable) -> None:
    """The result cannot be shown: a notice in its place, if the room takes that."""
    if machine.job.reason is error.reason:  # neither does it take the notice
        return
    job = machine.job
    shown = job.edit_event_id or (job.primary_event_id and not job.placeholder)
    await _replace(machine, error)
    if error.reason is Reason.ROOM_REFUSED:
        return
    with contextlib.suppress(Undeliverable):
        if shown:  # a part of it is missing: what the room has stays
            txn_id = our_id(machine, Stage.NOTICE)
            notice = machine.contents.notice(place(machine), error.reason.value, our_id=txn_id)
            await post(machine, txn_id, notice)
        else:
            await _tell(machine)


async def _replace(machine: Machine, error: Undeliverable) -> None:
    await machine.held.change(
        "replaced", ENDS[error.reason].value, error.reason.value, domain.error_code(error.code)
    )


async def _tell(machine: Machine) -> None:
    if machine.job.placeholder and machine.job.primary_event_id is None:
        # It may be in the room: this finds out which event it is, or makes it.
        await controls.placeholder(machine)
    if machine.job.placeholder:
        rest = await _edit(machine)
    else:
        rest = await _reply(machine)
    artifacts = unpack(machine.job.artifacts)
    done = len(machine.job.part_event_ids)
    for slot in range(done, len(rest) + len(artifacts)):
        if slot < len(rest):
            txn_id, content = our_id(machine, Stage.PART, slot), rest[slot]
        else:
            txn_id = our_id(machine, Stage.ARTIFACT, slot - len(rest))
            content = await _artifact(machine, artifacts[slot - len(rest)], txn_id)
        event_id = await post(machine, txn_id, content)
        crashpoint(points.PART_SENT)
        await machine.held.change("part_sent", event_id, slot)
        crashpoint(points.PART)


async def _reply(machine: Machine) -> Sequence[Content]:
    txn_id = our_id(machine, Stage.PRIMARY)
    first, *rest = _contents(machine, txn_id)
    if machine.job.primary_event_id is None:
        event_id = await post(machine, txn_id, first)
        crashpoint(points.REPLY_SENT)
        await machine.held.change("primary_sent", event_id)
        crashpoint(points.REPLY)
    return rest


async def _edit(machine: Machine) -> Sequence[Content]:
    txn_id = our_id(machine, Stage.EDIT)
    first, *rest = _edits(machine, txn_id)
    if machine.job.edit_event_id is None:
        event_id = await post(machine, txn_id, first)
        crashpoint(points.EDIT_SENT)
        await machine.held.change("edit_sent", event_id)
        crashpoint(points.REPLY)
    return rest


def _contents(machine: Machine, txn_id: str) -> Sequence[Content]:
    _, reason = intended(machine.job)
    text, where = machine.job.result, place(machine)
    if reason in TOLD_BY_TEXT and (text or reason is Reason.ANSWERED):
        failed = reason is Reason.TASK_FAILED
        return machine.contents.answer(where, text or "", failed=failed, our_id=txn_id)
    return [machine.contents.notice(where, reason.value, our_id=txn_id)]


def _edits(machine: Machine, txn_id: str) -> Sequence[Content]:
    _, reason = intended(machine.job)
    text, where, primary = machine.job.result, place(machine), machine.job.primary_event_id or ""
    if reason in TOLD_BY_TEXT and (text or reason is Reason.ANSWERED):
        failed = reason is Reason.TASK_FAILED
        return machine.contents.edit(where, primary, text or "", failed=failed, our_id=txn_id)
    return [machine.contents.edit_notice(where, primary, reason.value, our_id=txn_id)]


async def _artifact(machine: Machine, artifact: Artifact, txn_id: str) -> Content:
    """The upload may happen twice: only the event that names it is sent once."""
    uri, data = None, artifact.data
    if data is None and artifact.text is not None and not machine.contents.fits(artifact):
        data = artifact.text.encode("utf-8", "replace")
    if data is not None:

        async def upload() -> Uploaded | Problem:
            ghost = machine.job.ghost
            return await machine.rooms.upload(ghost, data, artifact.media_type, artifact.name)

        uri = (await insist(machine, upload)).uri
    return machine.contents.artifact(place(machine), artifact, uri, our_id=txn_id)
