"""What an operator asks of the ledger, and does to a job: content-free, never a second send."""

import os
import pwd
from typing import Any, Final

from corral.bridge import audit, identities
from corral.bridge.database import Ledger
from corral.bridge.domain import TERMINAL, ControlKind, State
from corral.bridge.errors import JobStateError, NoSuchJobError
from corral.core.sqlfiles import load_sql

SQL: Final = load_sql("corral.bridge", "sql/operator.sql")
INTAKE: Final = load_sql("corral.bridge", "sql/intake.sql")
WORK: Final = load_sql("corral.bridge", "sql/work.sql")
NOTE_MAX_CHARS: Final = 500
OPERATOR: Final = "operator"
NAME_MAX_CHARS: Final = 64

Row = dict[str, Any]


async def listed(ledger: Ledger, states: list[str] | None, most: int) -> list[Row]:
    """The newest first; without states what is open, and what ended uncertain or dead."""
    return [_plain(row) for row in await ledger.fetch(SQL["list"], states, most)]


async def find(ledger: Ledger, any_id: str) -> str:
    """The job that an id belongs to: its own, an event's, a message's, a task's, a control's, or
    that of the homeserver's transaction that brought it.

    `NoSuchJobError` when there is none, `JobStateError` when there are several.
    """
    found = [row["job_id"] for row in await ledger.fetch(SQL["find"], any_id)]
    if not found:
        raise NoSuchJobError(
            f"no job has the id {any_id}",
            hint="a2a-bridge jobs list shows the open ones; delivered ones are forgotten in time",
        )
    if len(found) > 1:
        raise JobStateError(
            f"{len(found)} jobs belong to {any_id}", hint=f"choose one: {', '.join(found)}"
        )
    return str(found[0])


async def shown(ledger: Ledger, job_id: str) -> Row:
    """Everything but content, with its `controls`. `NoSuchJobError`.

    `worker_seen`: whether who holds it has a session in the database; None behind a pooler of
    transactions, where nobody has one.
    """
    row = await ledger.fetchrow(SQL["show"], job_id)
    if row is None:
        raise NoSuchJobError(f"there is no job {job_id}", ids={"job_id": job_id})
    controls = [_plain(one) for one in await ledger.fetch(SQL["controls"], job_id)]
    seen = None if ledger.pooled else await _has_session(ledger, row["lease_owner"])
    return {**_plain(row), "worker_seen": seen, "controls": controls}


async def _has_session(ledger: Ledger, worker: str | None) -> bool:
    workers = await ledger.fetch(WORK["workers"], "") if worker else ()
    return any(one["alive"] and one["worker_id"] == worker for one in workers)


def whoami() -> str:
    """Who asks, as the ledger keeps it: the account, or the one that became root."""
    try:
        name = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = str(os.getuid())
    return f"{OPERATOR}:{name[:NAME_MAX_CHARS]}"


async def resolve(ledger: Ledger, job_id: str, note: str, *, by: str = OPERATOR) -> None:
    """Closes an uncertain or dead job with what was found out. Nothing is sent."""
    state = await ledger.fetchval(SQL["resolve"], job_id, note[:NOTE_MAX_CHARS], by)
    if state is None:
        row = await shown(ledger, job_id)
        state = "resolved" if row["resolved_at"] else row["state"]
        raise JobStateError(
            f"job {job_id} is {state}: only what ended ambiguous or dead is resolved",
            hint=f"see a2a-bridge jobs explain {job_id}",
            ids={"job_id": job_id},
        )
    audit.operated("resolved", job_id, by, before=state, after="resolved")


async def cancel(ledger: Ledger, job_id: str, *, by: str = OPERATOR) -> str:
    """As the one who asked could: `ended` if it was queued, `asked` if a worker has to do it."""
    if await ledger.fetch(INTAKE["cancel_queued"], [job_id], [by]):
        audit.operated("canceled", job_id, by, before=State.PENDING, after=State.REPLY_PENDING)
        return "ended"
    row = await shown(ledger, job_id)
    if State(row["state"]) in TERMINAL | {State.REPLY_PENDING}:
        raise JobStateError(
            f"job {job_id} is {row['state']}: there is nothing to cancel", ids={"job_id": job_id}
        )
    kind, generation = ControlKind.CANCEL, row["input_generation"]
    control_id = identities.control(job_id, kind, OPERATOR, 0)
    mark = identities.fingerprint(kind, OPERATOR, OPERATOR, generation, "")
    columns = (control_id, job_id, kind.value, OPERATOR, by, generation, mark, None, None)
    await ledger.fetchrow(INTAKE["control"], *([column] for column in columns))
    audit.operated("canceled", job_id, by, before=row["state"], after="cancel asked")
    return "asked"


def explained(row: Row) -> list[str]:
    """What is certain about a job, what is not, and what to do: a line each."""
    lines = [f"Job {row['job_id']}, for {row['ghost']} in {row['room_id']}: {row['state']}."]
    if row["waits_for"]:
        lines.append(f"It waits for the older job {row['waits_for']} of its room.")
    lines += _of_call(row)
    if row["terminal_at"] is None:
        lines += _of_work(row)
    else:
        lines += _of_end(row)
    return lines


def _of_call(row: Row) -> list[str]:
    if row["attempts"] == 0:
        return ["The agent was not called: nothing of it was executed."]
    if row["attempts"] == row["never_left"]:
        return [f"Of {row['attempts']} attempts none left this machine, or found room there."]
    if row["task_id"]:
        return [f"The agent has it as task {row['task_id']}; it was asked {row['polls']} times."]
    if row["state"] == State.A2A_PREPARED:
        return ["A call is under way, or was when its worker ended: nobody knows yet."]
    if row["reason"] == "call_uncertain":
        return [
            "One call may have reached the agent, and it is not known whether it did.",
            f"Look for the message id {row['a2a_message_id']} (context {row['context_id']}) in",
            "the agent's own log. It will not be sent again.",
        ]
    return ["The agent answered the call."]


def _of_work(row: Row) -> list[str]:
    lines = []
    if row["lease_owner"]:
        lines.append(f"Worker {row['lease_owner']} {_of_lease(row)}.")
    elif row["due_in_s"] > 0:
        lines.append(f"It is due again in {row['due_in_s']:.0f} s.")
    else:
        lines.append("It is due: a worker takes it when its turn has come.")
    if row["error_code"]:
        lines.append(f"Last trouble: {row['error_code']}, {row['failures']} failures in a row.")
    if row["state"] == State.AWAITING_INPUT:
        lines.append(f"{row['sender']} was asked for something, until {row['input_deadline_at']}.")
    return lines


def _of_lease(row: Row) -> str:
    if not row["lease_valid"]:
        return "had it; its lease is over"
    if row["worker_seen"] is None:
        return "has it in work, or has ended: behind a pooler that shows when the lease is over"
    if not row["worker_seen"]:
        return "holds it, and has no session in the database: it has ended, or is cut off"
    return "has it in work"


def _of_end(row: Row) -> list[str]:
    lines = [f"It ended {row['terminal_at']}: {row['reason']}."]
    if row["canceled_by"]:
        lines.append(f"It was canceled by {row['canceled_by']}, before the agent was called.")
    shown_as = row["edit_event_id"] or row["primary_event_id"] or row["notice_event_id"]
    if shown_as:
        lines.append(f"The room was told in {shown_as}.")
    elif row["notice_pending"]:
        lines.append("The room was not told yet; that is tried again.")
    else:
        lines.append("The room was not told.")
    if row["resolved_at"]:
        who = row["resolved_by"] or OPERATOR
        lines.append(f"Resolved {row['resolved_at']} by {who}: {row['resolved_note']}")
    elif row["state"] in {State.AMBIGUOUS, State.DEAD}:
        lines.append(
            f"When you know what came of it: a2a-bridge resolve {row['job_id']} --note TEXT"
        )
    return lines


def _plain(row: Any) -> Row:
    """As JSON can have it."""
    return {
        key: value.isoformat() if hasattr(value, "isoformat") else value
        for key, value in dict(row).items()
    }
