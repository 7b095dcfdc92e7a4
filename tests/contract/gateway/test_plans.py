"""What the gateway asks its database again and again costs nothing for what has ended."""

import contextlib
import re
import sqlite3

import pytest

from corral.core.sqlite import load_sql
from corral.gateway import store
from corral.gateway.upkeep import SQL

OFTEN = ["overdue", "mark_read", "to_clear", "to_forget", "forget_answers", "gauge_tasks"]
TASKS = load_sql("corral.gateway", "sql/tasks.sql")


@pytest.mark.parametrize("name", [*OFTEN, *TASKS])
def test_plan(name: str) -> None:
    statement = {**SQL, **TASKS}[name]
    values = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    with contextlib.closing(sqlite3.connect(":memory:")) as conn:
        for migration in store.MIGRATIONS:
            conn.executescript(migration)
        plan = [str(row[3]) for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
    open_ones = ("open_tasks", "open_by_age")
    for line in plan:
        whole = re.match(r"SCAN (tasks|messages|answers|late|t|m)\b", line)
        # Only when the rows are near their limit are they counted.
        assert not whole or name == "is_full" or line.endswith(open_ones), plan
