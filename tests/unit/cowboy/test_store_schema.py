"""Rows that cannot be: the schema refuses what a fault in cowboy might write."""

import sqlite3
from collections.abc import Iterator

import pytest

from corral.cowboy.book import Batch
from corral.cowboy.store import Rows, SourceLedger
from tests.unit.cowboy.driver import open_database
from tests.unit.cowboy.samples import SOURCE, entry_id, turn

IMPOSSIBLE = {
    "an unknown state": "state = 'sleeping'",
    "a part of a state": "state = 'rec'",
    "an unknown kind": "kind = ''",
    "an unknown acknowledgement": "ack = 'perhaps'",
    "replying without intent": "state = 'replying'",
    "an intent without replying": "intent = 'done'",
    "an intent that is no end": "state = 'replying', intent = 'received'",
    "ended at no time": "state = 'done', content = NULL",
    "not ended at some time": "terminal_at_ms = 1, content = NULL",
    "ended with content": "state = 'done', terminal_at_ms = 1",
    "ended with an answer": "state = 'dead', terminal_at_ms = 1, content = NULL, body = x'00'",
    "closed and not ended": "closed = 1, ack = 'acked'",
    "closed and not acknowledged": (
        "closed = 1, state = 'empty', terminal_at_ms = 1, content = NULL"
    ),
    "not closed though it is over": (
        "ack = 'acked', state = 'cancelled', terminal_at_ms = 1, content = NULL"
    ),
    "a short entry id": "entry = x'00'",
    "a source that is not there": "source_id = 99",
    "a number that is a text": "starts = 'many'",
    "no acknowledgement at all": "ack = NULL",
    "the entry of another turn": "entry = (SELECT entry FROM turns WHERE id = 2)",
    "the identity of another turn": "identity = (SELECT identity FROM turns WHERE id = 2)",
}

SECOND_SOURCE = """
INSERT INTO sources (id, name, incarnation, sequence, watermark, last_taken)
VALUES (9, 'a2a', 0, 0, zeroblob(16), zeroblob(16))
"""


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    """A ledger with two turns."""
    conn = open_database()
    ledger = SourceLedger(SOURCE, Rows())
    ledger.use(conn)
    ledger.attach()
    second = turn(row=2, id="turn 2", entry=entry_id(2), identity=b"i" * 32)
    ledger.write(Batch(1, created=[turn(content=b"x"), second]))
    yield conn
    conn.close()


@pytest.mark.parametrize("change", list(IMPOSSIBLE.values()), ids=list(IMPOSSIBLE))
def test_an_impossible_row_is_refused(conn: sqlite3.Connection, change: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute(f"UPDATE turns SET {change} WHERE id = 1")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO ledger (one, uuid, agent, created_at_ms) VALUES (2, 'u', 'scout', 0)",
        "INSERT INTO ledger (one, uuid, agent, created_at_ms) VALUES (1, 'u', 'scout', 0)",
        "UPDATE ledger SET agent = NULL",
        "UPDATE sources SET watermark = x''",
        "UPDATE sources SET last_taken = zeroblob(17)",
        SECOND_SOURCE,
        "INSERT INTO notes (source_id, at_ms, kind, detail) VALUES (99, 0, 'k', '')",
        "DELETE FROM sources",
    ],
)
def test_other_impossible_contents_are_refused(conn: sqlite3.Connection, sql: str) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        conn.execute(sql)


@pytest.mark.parametrize(
    "change",
    [
        "state = 'dispatched'",
        "state = 'interrupted'",
        "state = 'held', ack = 'acked'",
        "state = 'replying', intent = 'held', body = x'00'",
        "state = 'done', terminal_at_ms = 1, content = NULL, ack = 'forgotten'",
        "state = 'cancelled', terminal_at_ms = 1, content = NULL, ack = 'acked', closed = 1",
        "identity = NULL",
    ],
)
def test_the_rows_beside_them_are_possible(conn: sqlite3.Connection, change: str) -> None:
    assert conn.execute(f"UPDATE turns SET {change} WHERE id = 1").rowcount == 1
