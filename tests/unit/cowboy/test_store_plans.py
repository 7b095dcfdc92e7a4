"""How SQLite finds the rows of each statement that a tick may run: never by walking all of them.

A plan does not depend on how many rows there are here (nothing runs ANALYZE), so an empty ledger
shows what a large one would do.
"""

import sqlite3
from collections.abc import Iterator

import pytest

from corral.cowboy.store import SQL
from tests.unit.cowboy.driver import open_database

BY_ROW = "INTEGER PRIMARY KEY (rowid=?)"
BY_ENTRY = "(source_id=? AND incarnation=? AND entry=?)"
IDENTITIES = "(source_id=? AND identity>? AND identity<?)"
# Statement -> what its search must be bounded by, where it reads or changes turns.
BOUNDED = {
    "update_turn": BY_ROW,
    "finish_done": BY_ROW,
    "finish_turn": BY_ROW,
    "open_turns": "USING INDEX turns_open (source_id=?)",
    "parked_counts": "USING INDEX turns_parked (source_id=?)",
    "parked_of_channel": "USING INDEX turns_parked (source_id=? AND <expr>=?)",
    "by_entry": BY_ENTRY,
    "by_message": IDENTITIES,
    "same_message": IDENTITIES,
    "first_open": "USING INDEX turns_open (source_id=? AND incarnation=?)",
    "purge_turns": "INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
}


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    conn = open_database()
    yield conn
    conn.close()


def plan(conn: sqlite3.Connection, statement: str) -> list[str]:
    values = [0] * statement.count("?")
    return [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


@pytest.mark.parametrize("name", list(BOUNDED))
def test_turns_are_found_by_what_bounds_them(conn: sqlite3.Connection, name: str) -> None:
    steps = [step for step in plan(conn, SQL[name]) if " turns" in step]
    assert any(BOUNDED[name] in step for step in steps), steps
    assert [step for step in steps if step.startswith("SCAN")] == []
    others = {BOUNDED[name], BY_ROW}  # a change finds each row of its list by its number
    assert all(any(other in step for other in others) for step in steps), steps


def test_every_statement_that_reads_turns_is_in_the_table() -> None:
    others = {"insert_turn", "insert_answered", "last_row", "parked_of_other_incarnations"}
    reads = {name for name, text in SQL.items() if " turns" in text}
    assert reads - others == set(BOUNDED)


def test_the_walk_that_was_met_would_be_seen(conn: sqlite3.Connection) -> None:
    """Without its plus the purge walks an index of the source: 0.1 s at a million turns."""
    walked = plan(conn, SQL["purge_turns"].replace("+source_id", "source_id"))
    assert not any(BOUNDED["purge_turns"] in step for step in walked)
