"""The tables of the gateway. The functions run in the transaction of the writer's group.

A decision is made from the row that the same transaction read, and written by an update that is
guarded by that row's state and generation.
"""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corral.core.database import Schema
from corral.core.errors import GuardError
from corral.core.sqlite import SqliteReader, SqliteWriter, load_sql, migrations
from corral.gateway import domain
from corral.gateway.domain import Answer, Delivery, Limits, Message, Send, State, Task
from corral.gateway.errors import (
    InvalidParamsError,
    MessageConflictError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TasksFullError,
    UnsupportedOperationError,
)

APPLICATION_ID: Final = 0x4741_5445  # says whose file it is; never changed
_SQL: Final = load_sql("corral.gateway", "sql/tasks.sql")
MIGRATIONS: Final = migrations("corral.gateway")
SCHEMA: Final = Schema(APPLICATION_ID, tuple(MIGRATIONS))
_NO_FINGERPRINT: Final = bytes(32)  # of messages of the agent


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks which agent."""

    client: str
    agent: str


@dataclass(frozen=True, slots=True)
class Page:
    """A page of tasks, the token of the next one ("" for none), and how many there are in all."""

    tasks: tuple[Task, ...]
    next_token: str
    total: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks are listed. `before`: rows older than that one."""

    count: int
    before: int = 2**62
    context_id: str | None = None
    state: State | None = None
    since_ms: int = 0


def open_writer(path: Path) -> SqliteWriter:
    return SqliteWriter(path, application_id=APPLICATION_ID, migrations=MIGRATIONS)


# ---- what clients do ------------------------------------------------------------------------


def send(
    conn: sqlite3.Connection, caller: Caller, message: Send, limits: Limits, now_ms: int
) -> str:
    """Takes a message, once; the id of its task. A message that comes again has the task it had.

    `MessageConflictError`, `TasksFullError`; of a message that continues a task
    `TaskNotFoundError`, `UnsupportedOperationError`, `InvalidParamsError`.
    """
    fingerprint = domain.fingerprint(caller.agent, message)
    key = {"client": caller.client, "message_id": message.message_id}
    known = _one(conn, "message_of", key)
    if known is not None:
        if bytes(known["fingerprint"]) != fingerprint:
            raise MessageConflictError("the message id was used for another message", ids=dict(key))
        return str(known["task_id"])
    if message.task_id is not None:
        row = _continue(conn, caller, message, now_ms)
    else:
        row = _begin(conn, caller, message, limits, now_ms)
    values = key | {
        "task": row["id"], "role": "user", "fingerprint": fingerprint, "text": message.text,
        "user": message.user, "traceparent": message.traceparent, "now_ms": now_ms,
    }  # fmt: skip
    made = conn.execute(_SQL["insert_message"], values).lastrowid
    delivery = {"task": row["id"], "kind": "message", "message": made}
    conn.execute(_SQL["insert_delivery"], delivery)
    return str(row["task_id"])


def _begin(
    conn: sqlite3.Connection, caller: Caller, message: Send, limits: Limits, now_ms: int
) -> sqlite3.Row:
    open_tasks = _all(conn, "count_open", {"client": caller.client})[0]["open"]
    if _all(conn, "is_full", {"tasks_max": limits.tasks_max})[0]["full"]:
        raise TasksFullError(
            f"the gateway knows {limits.tasks_max} tasks, which is all that it may",
            hint="try again when old ones are forgotten",
        )
    if open_tasks >= limits.open_tasks_max:
        raise TasksFullError(
            f"{open_tasks} tasks of this client have not ended, which is all that it may have",
            hint="try again when one has ended",
        )
    made = domain.task_id(caller.client, message.message_id)
    named = message.context_id or domain.context_id(caller.client, message.message_id)
    values = {
        "task_id": made, "agent": caller.agent, "client": caller.client, "context_id": named,
        "now_ms": now_ms,
    }  # fmt: skip
    conn.execute(_SQL["insert_task"], values)
    return row_of(conn, made)


def _continue(conn: sqlite3.Connection, caller: Caller, message: Send, now_ms: int) -> sqlite3.Row:
    row = _own(conn, caller, message.task_id or "")
    if message.context_id not in {None, row["context_id"]}:
        raise InvalidParamsError("the task belongs to another context", ids=_ids(row))
    if row["state"] != State.INPUT_REQUIRED:
        raise UnsupportedOperationError("the task does not wait for an answer", ids=_ids(row))
    _move(conn, row, State.SUBMITTED, "", now_ms)
    return row


def cancel(conn: sqlite3.Connection, caller: Caller, task_id: str, now_ms: int) -> None:
    """Ends a task. What was not passed on yet never is; else the agent is told.

    `TaskNotFoundError`, `TaskNotCancelableError`.
    """
    row = _own(conn, caller, task_id)
    if not domain.may(State(row["state"]), State.CANCELED):
        raise TaskNotCancelableError(f"the task is {row['state']}", ids=_ids(row))
    end(conn, row, State.CANCELED, "", now_ms)


def end(conn: sqlite3.Connection, row: sqlite3.Row, state: State, text: str, now_ms: int) -> None:
    """Ends a task without its agent, which is told if it may have heard of the task."""
    _move(conn, row, state, text, now_ms)
    untaken = conn.execute(_SQL["delete_untaken"], {"task": row["id"]}).rowcount
    messages = _all(conn, "messages", {"task": row["id"]})
    if untaken < len(messages):  # the agent may have heard of the task
        values = {"task": row["id"], "kind": "cancel", "message": None}
        conn.execute(_SQL["insert_delivery"], values)


# ---- what the agent's side does -------------------------------------------------------------


def take(conn: sqlite3.Connection, agent: str, count: int) -> list[Delivery]:
    """What is to be passed on to an agent, in order; from now on the agent may have it.

    What was taken before and not `published` comes again: passing on must be idempotent.
    """
    found = _all(conn, "deliveries", {"agent": agent, "count": count})
    for row in found:
        conn.execute(_SQL["take_delivery"], {"delivery": row["id"]})
    return [_delivery(conn, row) for row in found]


def _delivery(conn: sqlite3.Connection, row: sqlite3.Row) -> Delivery:
    found = row_of(conn, row["task_id"])
    task = _task(conn, found)
    newest = domain.entry_key(task.client, _newest(conn, found))
    own = row["message_id"]
    return Delivery(
        key=row["id"],
        task=task,
        kind=row["kind"],
        entry_key=domain.entry_key(task.client, own) if own else domain.cancel_key(task.task_id),
        message_key=newest,
        text=row["text"] or "",
        user=row["user"] or "",
        traceparent=row["traceparent"] or "",
    )


def unrecorded(conn: sqlite3.Connection, agent: str) -> frozenset[str]:
    """The entry keys of what is not `published` yet, of which an entry may be there."""
    found = _all(conn, "taken", {"agent": agent})
    return frozenset(
        domain.entry_key(row["client"], row["message_id"])
        if row["message_id"]
        else domain.cancel_key(row["task_id"])
        for row in found
    )


def _newest(conn: sqlite3.Connection, row: sqlite3.Row) -> str:
    return str(_all(conn, "newest_message", {"task": row["id"]})[0]["message_id"])


def published(conn: sqlite3.Connection, delivery: Delivery, now_ms: int) -> None:
    """It was passed on. `GuardError` when it had been already."""
    gone = conn.execute(_SQL["delete_delivery"], {"delivery": delivery.key}).rowcount
    if gone != 1:
        raise GuardError("the delivery is not there any more", ids=_ids_of(delivery.task))
    row = row_of(conn, delivery.task.task_id)
    if delivery.kind == "message" and row["state"] == State.SUBMITTED:
        _move(conn, row, State.WORKING, "", now_ms)


def answered(conn: sqlite3.Connection, answer: Answer, now_ms: int) -> bool:
    """An entry of an outbox, counted once. False: it changed nothing.

    It must answer the newest message of a task of that agent; an answer to a cancellation, to an
    earlier message or to what we do not know changes nothing.
    """
    seen = {"agent": answer.agent, "outbox_id": answer.outbox_id, "now_ms": now_ms}
    if conn.execute(_SQL["insert_answer"], seen).rowcount == 0:
        return False
    row = _one(conn, "task", {"task_id": answer.task_id})
    if row is None or row["agent"] != answer.agent:
        return False
    if answer.entry_key != domain.entry_key(row["client"], _newest(conn, row)):
        return False
    return settle(conn, answer.task_id, answer.state, answer.text, now_ms)


def settle(conn: sqlite3.Connection, task_id: str, state: State, text: str, now_ms: int) -> bool:
    """What became of a task, by the agent. False: it had ended, so that is only recorded."""
    row = row_of(conn, task_id)
    if not domain.may(State(row["state"]), state):
        values = {"task": row["id"], "state": state.value, "now_ms": now_ms}
        conn.execute(_SQL["insert_late"], values)
        return False
    _move(conn, row, state, text, now_ms)
    if text:
        values = {
            "task": row["id"], "client": row["client"], "role": "agent",
            "message_id": f"{task_id}-{row['generation'] + 1}", "fingerprint": _NO_FINGERPRINT,
            "text": text, "user": "", "traceparent": "", "now_ms": now_ms,
        }  # fmt: skip
        conn.execute(_SQL["insert_message"], values)
    return True


# ---- looking --------------------------------------------------------------------------------


async def look(reader: SqliteReader, caller: Caller, task_id: str) -> Task:
    """A task of this client and agent; `TaskNotFoundError`."""
    rows = await reader.fetch(_SQL["task"], {"task_id": task_id})
    if not rows or (rows[0]["client"], rows[0]["agent"]) != (caller.client, caller.agent):
        raise TaskNotFoundError("no such task", ids={"task_id": task_id})
    return _made(rows[0], await reader.fetch(_SQL["messages"], {"task": rows[0]["id"]}))


async def page(reader: SqliteReader, caller: Caller, wanted: Wanted) -> Page:
    """Tasks of this client and agent, the newest first."""
    values: dict[str, Any] = {
        "client": caller.client, "agent": caller.agent, "context_id": wanted.context_id,
        "state": wanted.state.value if wanted.state else None, "since_ms": wanted.since_ms,
    }  # fmt: skip
    rows = await reader.fetch(
        _SQL["list_tasks"], values | {"before": wanted.before, "count": wanted.count + 1}
    )
    total = (await reader.fetch(_SQL["count_tasks"], values))[0]["total"]
    shown = rows[: wanted.count]
    tasks = [_made(row, await reader.fetch(_SQL["messages"], {"task": row["id"]})) for row in shown]
    more = len(rows) > wanted.count
    return Page(tuple(tasks), str(shown[-1]["id"]) if more else "", int(total))


# ---- rows -----------------------------------------------------------------------------------


def _all(conn: sqlite3.Connection, name: str, values: Mapping[str, Any]) -> list[sqlite3.Row]:
    cursor = conn.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(_SQL[name], values).fetchall()


def _one(conn: sqlite3.Connection, name: str, values: Mapping[str, Any]) -> sqlite3.Row | None:
    return next(iter(_all(conn, name, values)), None)


def _own(conn: sqlite3.Connection, caller: Caller, task_id: str) -> sqlite3.Row:
    row = _one(conn, "task", {"task_id": task_id})
    if row is None or (row["client"], row["agent"]) != (caller.client, caller.agent):
        raise TaskNotFoundError("no such task", ids={"task_id": task_id})
    return row


def row_of(conn: sqlite3.Connection, task_id: str) -> sqlite3.Row:
    """`TaskNotFoundError` when there is none."""
    row = _one(conn, "task", {"task_id": task_id})
    if row is None:
        raise TaskNotFoundError("no such task", ids={"task_id": task_id})
    return row


def _move(conn: sqlite3.Connection, row: sqlite3.Row, to: State, text: str, now_ms: int) -> None:
    values = {
        "task": row["id"], "from": row["state"], "generation": row["generation"],
        "to": to.value, "text": text, "now_ms": now_ms,
    }  # fmt: skip
    if conn.execute(_SQL["move"], values).rowcount != 1:
        raise GuardError(f"the task was not {row['state']} any more", ids=_ids(row))


def _task(conn: sqlite3.Connection, row: sqlite3.Row) -> Task:
    return _made(row, _all(conn, "messages", {"task": row["id"]}))


def _made(row: sqlite3.Row, messages: list[sqlite3.Row]) -> Task:
    return Task(
        task_id=row["task_id"],
        agent=row["agent"],
        client=row["client"],
        context_id=row["context_id"],
        state=State(row["state"]),
        generation=row["generation"],
        text=row["text"],
        created_at_ms=row["created_at_ms"],
        changed_at_ms=row["changed_at_ms"],
        messages=tuple(Message(**_fields(one)) for one in messages if not row["cleared"]),
        read=row["read_at_ms"] is not None,
    )


def _fields(row: sqlite3.Row) -> Mapping[str, Any]:
    return {key: row[key] for key in row.keys()}  # noqa: SIM118  a row iterates over its values


def _ids(row: sqlite3.Row) -> dict[str, str]:
    return {"task_id": row["task_id"], "agent": row["agent"]}


def _ids_of(task: Task) -> dict[str, str]:
    return {"task_id": task.task_id, "agent": task.agent}
