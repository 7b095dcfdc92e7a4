"""The short statements for common turns: they write what the long ones would, or are not used."""

import dataclasses
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from corral.core.errors import GuardError
from corral.core.sqlfiles import statements
from corral.core.sqlite import migrations
from corral.cowboy import columns
from corral.cowboy.book import Batch
from corral.cowboy.domain import Ack, Kind, Outcome, Slot, State
from corral.cowboy.store import Rows, SourceLedger, open_ledger, turns_of
from corral.cowboy.turn import Guard, Turn
from tests.unit.cowboy.driver import open_database
from tests.unit.cowboy.samples import AGENT, SOURCE, entry_id, turn

NOW_MS = 1_700_000_000_000
ANSWERED: dict[str, Any] = {
    "state": State.REPLYING,
    "intent": State.DONE,
    "generation": 1,
    "outcome": Outcome.COMPLETED,
    "slot": Slot.REPLY,
    "effect": 1,
    "ack_attempts": 1,
    "identity": bytes(range(32)),
    "sender": b"ann",
    "channel": b"c",
    "thread": b"t",
    "message_id": b"m",
    "traceparent": b"00",
    "content": b"asked",
    "body": b"answered",
}
# Every field of a turn with another value than the common one; those of its binding aside.
OTHERWISE: dict[str, Any] = {
    "kind": Kind.CANCEL,
    "intent": State.HELD,
    "generation": 2,
    "ack": Ack.FORGOTTEN,
    "ack_attempts": 4,
    "attempt": 1,
    "starts": 1,
    "started_at_ms": 5,
    "release": True,
    "parked": True,
    "cancels": b"1-0",
    "outcome": Outcome.FAILED,
    "slot": Slot.NOTICE,
    "detail": "exit status 3",
    "dead_copy": True,
    "effect": 2,
    "effect_attempts": 3,
    "outbox_id": b"7-0",
    "dead_id": b"8-0",
    "body": None,
    "content": None,
    "identity": None,
    "sender": None,
    "channel": None,
    "thread": None,
    "message_id": None,
    "traceparent": None,
}
FIXED = {"row", "id", "incarnation", "entry", "received_at_ms", "state", "terminal_at_ms"}
FIELDS = [field.name for field in dataclasses.fields(Turn)]
END: dict[str, Any] = {
    "state": State.DONE,
    "intent": None,
    "generation": 2,
    "ack": Ack.ACKED,
    "outbox_id": b"9-1",
    "terminal_at_ms": NOW_MS,
    "content": None,
    "body": None,
}


@pytest.fixture
def conn() -> Iterator[sqlite3.Connection]:
    conn = open_database()
    yield conn
    conn.close()


@pytest.fixture
def ledger(conn: sqlite3.Connection) -> SourceLedger:
    ledger = SourceLedger(SOURCE, Rows())
    ledger.use(conn)
    ledger.attach()
    return ledger


def stored(conn: sqlite3.Connection) -> dict[str, Any]:
    (found,) = turns_of(conn.execute("SELECT * FROM turns"))
    return {name: getattr(found, name) for name in FIELDS}


def values(of: Turn) -> dict[str, Any]:
    return {name: getattr(of, name) for name in FIELDS}


def test_the_table_of_other_values_has_every_field() -> None:
    assert set(OTHERWISE) | FIXED == set(FIELDS)


def test_the_common_turn_is_written_by_the_short_statement(
    ledger: SourceLedger, conn: sqlite3.Connection
) -> None:
    new = turn(**ANSWERED)
    assert columns.is_answered(new)
    ledger.write(Batch(NOW_MS, created=[new]))
    assert stored(conn) == values(new)


@pytest.mark.parametrize("name", list(OTHERWISE))
def test_a_new_turn_with_another_value_is_written_whole(
    ledger: SourceLedger, conn: sqlite3.Connection, name: str
) -> None:
    new = turn(**(ANSWERED | {name: OTHERWISE[name]}))
    ledger.write(Batch(NOW_MS, created=[new]))
    assert stored(conn) == values(new)


def test_common_and_other_turns_are_written_in_one_batch(
    ledger: SourceLedger, conn: sqlite3.Connection
) -> None:
    turns = [
        turn(row=n, id=f"turn {n}", entry=entry_id(n), **(ANSWERED | {"identity": None}))
        for n in (1, 2, 3)
    ]
    turns[1] = replace(turns[1], outcome=Outcome.FAILED)
    ledger.write(Batch(NOW_MS, created=turns))
    found = turns_of(conn.execute("SELECT * FROM turns ORDER BY id"))
    assert [values(one) for one in found] == [values(one) for one in turns]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"state": State.DEAD, "outcome": Outcome.OUTBOX_REFUSED},
        {"state": State.CANCELLED, "outcome": Outcome.CANCELLED},
        {"ack": Ack.UNACKED},
        {"ack": Ack.FORGOTTEN},
        {"generation": 5},
        {"ack_attempts": 3},
        {"ack_attempts": 1},
        {"effect_attempts": 2},
        {"dead_id": b"8-0"},
        {"outbox_id": None},
    ],
    ids=lambda changes: "-".join(changes) or "common",
)
@pytest.mark.parametrize(
    "before",
    [{}, {"ack_attempts": 0}, {"effect_attempts": 2, "dead_id": b"8-0"}],
    ids=["asked", "not asked", "refused"],
)
def test_an_end_is_written_whole(
    ledger: SourceLedger,
    conn: sqlite3.Connection,
    changes: dict[str, Any],
    before: dict[str, Any],
) -> None:
    """What the row had before matters, too: a turn is acknowledged with its answer or before."""
    was = turn(**(ANSWERED | before))
    ledger.write(Batch(NOW_MS, created=[replace(was)]))
    now = replace(was, **(END | changes))
    if now.outcome is not was.outcome:  # the long update at the end leaves it alone
        conn.execute("UPDATE turns SET outcome = ?", (str(now.outcome),))
    guards = {now.row: Guard(State.REPLYING, 1)}
    ledger.write(Batch(NOW_MS, changed={now.row: now}, guards=guards))
    assert stored(conn) == values(now)


@pytest.mark.parametrize("guard", [Guard(State.REPLYING, 0), Guard(State.REPLYING, 2)])
def test_the_short_end_is_guarded(
    ledger: SourceLedger, conn: sqlite3.Connection, guard: Guard
) -> None:
    was = turn(**ANSWERED)
    ledger.write(Batch(NOW_MS, created=[replace(was)]))
    now = replace(was, **(END | {"generation": guard.generation + 1}))
    assert columns.is_done(now, guard)
    with pytest.raises(GuardError, match="finish_done touched 0 rows of 1"):
        ledger.write(Batch(NOW_MS, changed={now.row: now}, guards={now.row: guard}))
    assert stored(conn) == values(was)


# ---------------------------------------------------------------- migration 2

OLD_ROWS = [
    {},
    {"state": State.DISPATCHED, "attempt": 1, "starts": 1, "started_at_ms": 3},
    ANSWERED,
    ANSWERED | END,
    {"state": State.HELD, "ack": Ack.ACKED, "content": b"x"},
    {"parked": True, "channel": b"c"},
    {"kind": Kind.CANCEL, "cancels": b"1-0"},
]


def apply(conn: sqlite3.Connection, text: str) -> None:
    for statement in statements(text):
        conn.execute(statement)


def indexes(conn: sqlite3.Connection) -> set[str]:
    found = conn.execute("SELECT sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL")
    return {row[0] for row in found}


def test_cheaper_checks_keep_rows_and_indexes() -> None:
    first, second = migrations("corral.cowboy")[:2]
    conn = sqlite3.connect("", isolation_level=None)
    apply(conn, first)
    open_ledger(conn, AGENT, 1)
    ledger = SourceLedger(SOURCE, Rows())
    ledger.use(conn)
    ledger.attach()
    turns = [
        turn(row=n, id=f"turn {n}", entry=entry_id(n), **(changes | {"identity": bytes([n]) * 32}))
        for n, changes in enumerate(OLD_ROWS, 1)
    ]
    ledger.write(Batch(NOW_MS, created=turns))
    before = (conn.execute("SELECT * FROM turns").fetchall(), indexes(conn))
    apply(conn, second)
    assert (conn.execute("SELECT * FROM turns").fetchall(), indexes(conn)) == before
    assert ledger.first_open(1) == turns[0].entry
    conn.close()
