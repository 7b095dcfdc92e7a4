"""What the gateway does to tasks by itself: open ones end in time, ended ones are forgotten.

| of a task | when |
| --- | --- |
| its end | `task_timeout_s` after it last moved, a question `input_timeout_s` after it was asked |
| its content | `content_kept_s` after its client first got the end |
| its row and ids | `retention_s` after its end |

The agent is told of an end that it did not make, as of a cancellation. A row that the agent has
yet to be told of is kept.
"""

import sqlite3
from dataclasses import dataclass
from typing import Final

from corral.core.sqlite import load_sql
from corral.gateway import store
from corral.gateway.domain import Limits, State

ANSWERS_KEPT_S: Final = 86_400.0  # the outbox has them no more
BATCH: Final = 200

SQL: Final = load_sql("corral.gateway", "sql/upkeep.sql")
UNANSWERED: Final = "no answer came in time; what may come later is not shown"
UNASKED: Final = "nobody answered the question in time"


@dataclass(frozen=True, slots=True)
class Done:
    """What one round did: tasks that ended, ids in `ended`; and how many rows of each kind."""

    ended: tuple[str, ...] = ()
    cleared: int = 0
    forgotten: int = 0
    answers: int = 0

    def __add__(self, other: "Done") -> "Done":
        return Done(
            self.ended + other.ended,
            self.cleared + other.cleared,
            self.forgotten + other.forgotten,
            self.answers + other.answers,
        )

    @property
    def more(self) -> bool:
        """Whether something may be left for another round."""
        return BATCH in {len(self.ended), self.cleared, self.forgotten, self.answers}


def sweep(conn: sqlite3.Connection, limits: Limits, now_ms: int) -> Done:
    """One round, of at most `BATCH` rows of each kind."""
    return Done(
        ended=_end(conn, limits, now_ms),
        cleared=_clear(conn, _before(now_ms, limits.content_kept_s)),
        forgotten=_forget(conn, _before(now_ms, limits.retention_s)),
        answers=conn.execute(
            SQL["forget_answers"],
            {"before_ms": _before(now_ms, ANSWERS_KEPT_S), "count": BATCH},
        ).rowcount,
    )


def _before(now_ms: int, seconds: float) -> int:
    return now_ms - round(seconds * 1000)


def _end(conn: sqlite3.Connection, limits: Limits, now_ms: int) -> tuple[str, ...]:
    values = {
        "task_before_ms": _before(now_ms, limits.task_timeout_s),
        "input_before_ms": _before(now_ms, limits.input_timeout_s),
        "count": BATCH,
    }
    overdue = [row[0] for row in conn.execute(SQL["overdue"], values).fetchall()]
    for task_id in overdue:
        row = store.row_of(conn, task_id)
        asked = row["state"] == State.INPUT_REQUIRED
        state, text = (State.CANCELED, UNASKED) if asked else (State.FAILED, UNANSWERED)
        store.end(conn, row, state, text, now_ms)
    return tuple(overdue)


def mark_read(conn: sqlite3.Connection, task_id: str, now_ms: int) -> None:
    """The client got the end of a task. Only the first time counts."""
    conn.execute(SQL["mark_read"], {"task_id": task_id, "now_ms": now_ms})


def _clear(conn: sqlite3.Connection, before_ms: int) -> int:
    values = {"before_ms": before_ms, "count": BATCH}
    rows = [{"task": row[0]} for row in conn.execute(SQL["to_clear"], values).fetchall()]
    for name in ("clear_messages", "clear_task"):
        conn.executemany(SQL[name], rows)
    return len(rows)


def _forget(conn: sqlite3.Connection, before_ms: int) -> int:
    values = {"before_ms": before_ms, "count": BATCH}
    rows = [{"task": row[0]} for row in conn.execute(SQL["to_forget"], values).fetchall()]
    for name in ("forget_late", "forget_messages", "forget_task"):
        conn.executemany(SQL[name], rows)
    return len(rows)
