"""The audit records: a line of the log for each decision and each effect, by ids, never by content.

They are written after what they tell is committed. A kill in between leaves one out: the ledger is
what counts, and has the same evidence (`a2a-bridge jobs show`).
"""

import os
from collections.abc import Iterable

from corral.bridge.intake import Plan
from corral.bridge.jobs import Job
from corral.core import logs

_log = logs.get("bridge.audit")


def decided(txn_id: str, plan: Plan) -> None:
    """What a transaction came to."""
    for job in plan.jobs:
        mention = job.mention
        about = {
            "job_id": job.job_id, "event_id": mention.event_id, "room_id": mention.room_id,
            "agent": mention.ghost, "by": mention.sender, "txn_id": txn_id,
        }  # fmt: skip
        if job.reason is None:
            _log.info("admitted", **about)
        else:
            _log.info("denied", reason=job.reason.value, **about)
    for control in plan.canceled:
        canceled(control.job_id, control.sender, control.source_event)
    for control in plan.controls:
        _log.info(
            "control admitted", what=control.kind.value, control_id=control.control_id,
            job_id=control.job_id, event_id=control.source_event, by=control.sender,
        )  # fmt: skip


def canceled(job_id: str, by: str, event_id: str = "") -> None:
    _log.info("canceled", job_id=job_id, by=by, event_id=event_id)


def redacted(job_ids: Iterable[str]) -> None:
    for job_id in job_ids:
        _log.info("redacted", job_id=job_id)


def operated(what: str, job_id: str, by: str, *, before: str, after: str) -> None:
    """An operator did something to a job. `by` is who they say they are; `uid` is the process's.
    Their note is in the ledger alone: it may quote."""
    _log.info(
        f"operator {what}", job_id=job_id, by=by, uid=os.getuid(), before=str(before), after=after
    )


def conflict(txn_id: str, answer: str) -> None:
    _log.warning("transaction conflict", txn_id=txn_id, answer=answer)


def called(job: Job, what: str, message_id: str) -> None:
    """A call to the agent is begun: a message, an answer of the room's, or a cancel."""
    _log.info(
        "agent called", what=what, job_id=job.job_id, agent=job.ghost, message_id=message_id,
        attempt=job.attempts,
    )  # fmt: skip


def posted(job_id: str, room_id: str, event_id: str, txn_id: str) -> None:
    _log.info("posted", job_id=job_id, room_id=room_id, event_id=event_id, our_id=txn_id)


def ended(job: Job) -> None:
    _log.info(
        "job ended", job_id=job.job_id, state=job.state.value, reason=job.reason,
        event_id=job.event_id, message_id=job.message_id, task_id=job.task_id,
        primary_event_id=job.primary_event_id, attempts=job.attempts,
    )  # fmt: skip
