"""What `corral-gateway tasks` shows: ids, states and times, never content."""

import sqlite3
from typing import Any, Final

from corral.core.errors import UsageError
from corral.core.sqlite import SqliteReader
from corral.gateway import domain
from corral.gateway.domain import ENDED, State
from corral.gateway.upkeep import SQL

FOUND_MAX: Final = 50

Row = dict[str, Any]


class NoSuchTaskError(UsageError):
    """No task has that id, or it was forgotten."""

    code = "no_such_task"


async def listed(reader: SqliteReader, *, every: bool, count: int, now_ms: int) -> list[Row]:
    """The newest first; without `every` those that have not ended."""
    rows = await reader.fetch(SQL["newest_tasks"], {"open_only": not every, "count": count})
    return [_plain(row, now_ms) for row in rows]


async def shown(reader: SqliteReader, any_id: str, now_ms: int) -> list[Row]:
    """Tasks by their id, a message's or a context's, with what belongs to them.

    `NoSuchTaskError` when there is none.
    """
    rows = await reader.fetch(SQL["shown_task"], {"any_id": any_id, "count": FOUND_MAX})
    if not rows:
        raise NoSuchTaskError(
            f"no task has the id {any_id}",
            hint="ended tasks are forgotten in time; corral-gateway tasks --all shows the others",
        )
    return [await _whole(reader, row, now_ms) for row in rows]


async def _whole(reader: SqliteReader, row: sqlite3.Row, now_ms: int) -> Row:
    key = {"task": row["id"]}
    messages = [dict(one) for one in await reader.fetch(SQL["shown_messages"], key)]
    for one in messages:
        if one["role"] == "user":
            one["entry_key"] = domain.entry_key(row["client"], one["message_id"])
    return {
        **_plain(row, now_ms),
        "messages": messages,
        "deliveries": [dict(one) for one in await reader.fetch(SQL["shown_deliveries"], key)],
        "late": [dict(one) for one in await reader.fetch(SQL["shown_late"], key)],
    }


def _plain(row: sqlite3.Row, now_ms: int) -> Row:
    names = (
        "task_id", "agent", "client", "context_id", "state", "generation", "created_at_ms",
        "changed_at_ms", "read_at_ms",
    )  # fmt: skip
    found = {name: row[name] for name in names}
    found["content_kept"] = not row["cleared"]
    found["age_s"] = max(0.0, (now_ms - row["created_at_ms"]) / 1000)
    return found


def line(row: Row) -> str:
    """One task on one line."""
    words = (row["task_id"], row["state"], row["agent"], row["client"], f"{row['age_s']:.0f} s")
    return " ".join(words)


def explained(row: Row) -> list[str]:
    """What is certain about one task, and where to look on."""
    state = State(row["state"])
    lines = [
        f"Task {row['task_id']} of {row['client']}, for {row['agent']}: {state}.",
        f"It is in the context {row['context_id']}, and {row['age_s']:.0f} s old.",
    ]
    lines += [
        f"Its message {one['message_id']} is the entry {one['entry_key']}."
        for one in row["messages"]
        if "entry_key" in one
    ]
    taken = {one["kind"]: one["taken"] for one in row["deliveries"]}
    if "message" in taken:
        lines.append(
            "The agent may have its message, and the gateway does not know it yet."
            if taken["message"]
            else "The agent does not have its message yet: nothing of it was executed."
        )
    elif state is State.WORKING:
        lines.append(f"The agent has it: cowboy explain {row['agent']} ENTRY says what it does.")
    if "cancel" in taken:
        lines.append("The agent was not told of the end yet.")
    if row["late"]:
        lines.append(f"{len(row['late'])} answers came after its end, and were not shown.")
    if state in ENDED:
        lines.append(
            "Its client got the end."
            if row["read_at_ms"]
            else "Its client did not ask for the end."
        )
        if not row["content_kept"]:
            lines.append("Its content was removed.")
    return lines
