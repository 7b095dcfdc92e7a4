"""Rows of the ledger: written, changed and found, on a database in this thread."""

import dataclasses
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from corral.core.errors import GuardError
from corral.cowboy.book import Batch
from corral.cowboy.domain import Ack, Kind, Outcome, Slot, State, message_key
from corral.cowboy.store import Rows, SourceLedger, turns_of
from corral.cowboy.turn import Guard, Turn
from tests.unit.cowboy.driver import open_database
from tests.unit.cowboy.samples import SOURCE, entry_id, turn

NOW_MS = 1_700_000_000_000
COLUMNS = [field.name for field in dataclasses.fields(Turn)]

FULL = turn(
    kind=Kind.CANCEL, state=State.REPLYING, intent=State.DEAD, generation=9, ack=Ack.FORGOTTEN,
    ack_attempts=5, attempt=4, starts=3, started_at_ms=NOW_MS - 7, release=True, parked=True,
    identity=bytes(range(32)), cancels=b"5-0", sender=b"ann\xff", channel=b"", thread=b"t\0",
    message_id=b"m", traceparent=b"00", content=b"\0\xff" * 900, outcome=Outcome.OUTBOX_REFUSED,
    slot=Slot.NOTICE, detail="exit status 3", body=b"", dead_copy=True, effect=2,
    effect_attempts=11, outbox_id=b"7-0", dead_id=b"8-0",
)  # fmt: skip


def as_row(of: Turn) -> dict[str, Any]:
    return {name: getattr(of, name) for name in COLUMNS}


def row(number: int, **changes: Any) -> Turn:
    entry = changes.pop("entry", entry_id(number))
    return turn(row=number, id=f"turn {number}", entry=entry, content=b"x", **changes)


def parked(number: int, **changes: Any) -> Turn:
    return replace(row(number, parked=True, **changes), content=None)


def ended(number: int, **changes: Any) -> Turn:
    fate: dict[str, Any] = {
        "state": State.DONE,
        "ack": Ack.ACKED,
        "terminal_at_ms": NOW_MS,
        "content": None,
    }
    return replace(row(number), **(fate | changes))


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


def keep(ledger: SourceLedger, *turns: Turn) -> None:
    ledger.write(Batch(NOW_MS, created=list(turns)))


def change(ledger: SourceLedger, now: Turn, state: State, generation: int) -> None:
    guards = {now.row: Guard(state, generation)}
    ledger.write(Batch(NOW_MS, changed={now.row: now}, guards=guards))


def stored(conn: sqlite3.Connection) -> dict[int, Turn]:
    return {of.row: of for of in turns_of(conn.execute("SELECT * FROM turns ORDER BY id"))}


@pytest.mark.parametrize(
    "written",
    [FULL, turn(), turn(entry=b"\xff" * 16, content=b""), ended(1, outbox_id=b"3-1")],
    ids=["full", "new", "last id", "ended"],
)
def test_a_turn_is_read_as_it_was_written(
    ledger: SourceLedger, conn: sqlite3.Connection, written: Turn
) -> None:
    keep(ledger, written)
    assert as_row(stored(conn)[1]) == as_row(written)


def test_an_update_writes_all_that_may_change(
    ledger: SourceLedger, conn: sqlite3.Connection
) -> None:
    was = turn()
    keep(ledger, was)
    fixed = ("kind", "identity", "cancels", "sender", "channel", "thread", "message_id",
             "traceparent")  # fmt: skip
    now = replace(FULL, **{name: getattr(was, name) for name in fixed})
    change(ledger, now, State.RECEIVED, 0)
    assert as_row(stored(conn)[1]) == as_row(now)


@pytest.mark.parametrize("ack", list(Ack))
def test_the_short_update_at_the_end_scrubs_and_keeps_the_binding(
    ledger: SourceLedger, conn: sqlite3.Connection, ack: Ack
) -> None:
    before = replace(FULL, parked=False, release=False, ack=Ack.UNACKED)
    keep(ledger, before)
    now = replace(
        before, state=State.DEAD, intent=None, generation=10, ack=ack, terminal_at_ms=NOW_MS,
        content=None, body=None, outbox_id=b"9-0", dead_id=b"9-1", ack_attempts=6,
        effect_attempts=12,
    )  # fmt: skip
    change(ledger, now, State.REPLYING, 9)
    assert as_row(stored(conn)[1]) == as_row(now)


def test_open_turns_come_in_the_order_of_their_entries(ledger: SourceLedger) -> None:
    keep(
        ledger,
        row(1, entry=entry_id(9)),
        row(2, entry=entry_id(3)),
        row(3, entry=entry_id(1), incarnation=2),
        parked(4),
        ended(5),
        ended(6, ack=Ack.FORGOTTEN),
    )
    assert [of.row for of in ledger.open_turns()] == [2, 6, 1, 3]


def test_parked_turns_by_channel(ledger: SourceLedger) -> None:
    lanes = [b"red", None, b"", b"red", b"blue"]
    keep(
        ledger,
        *(parked(number, channel=lane) for number, lane in enumerate(lanes, 1)),
        row(6, channel=b"red"),
        parked(7, channel=b"red", incarnation=2),
    )
    assert ledger.parked_counts() == {b"red": 3, b"": 2, b"blue": 1}
    assert [of.row for of in ledger.parked(b"", 9)] == [2, 3], "no channel is as an empty one"
    assert [of.row for of in ledger.parked(b"red", 2)] == [1, 4]
    assert ledger.parked(b"red", 0) == []
    assert [of.row for of in ledger.parked_elsewhere(2)] == [1, 2, 3, 4, 5]


def test_messages_are_found_by_their_id(ledger: SourceLedger) -> None:
    key, other = message_key(b"m"), message_key(b"n")
    low, high = key + b"\0" * 16, key + b"\xff" * 16
    keep(
        ledger,
        row(1, identity=low),
        row(2, identity=high),
        row(3, identity=other + b"\0" * 16),
        row(4, identity=key + b"\x01" * 16, kind=Kind.CANCEL),
    )

    def newest(message_id: bytes, before_row: int) -> int | None:
        found = ledger.by_message(message_id, before_row)
        return found.row if found else None

    assert newest(b"m", 99) == 2, "a cancel entry is no message"
    assert newest(b"m", 2) == 1
    assert newest(b"m", 1) is None
    assert newest(b"n", 99) == 3
    assert newest(b"o", 99) is None
    asked = [low, high, key + b"\x02" * 16, message_key(b"o") + b"\0" * 16]
    assert [ledger.same_message(identity) for identity in asked] == [
        (True, True), (True, True), (False, True), (False, False),
    ]  # fmt: skip


def test_turns_are_found_by_entry_and_incarnation(ledger: SourceLedger) -> None:
    keep(ledger, row(1), row(2, entry=entry_id(1), incarnation=2), ended(3))
    found = ledger.by_entries(1, [entry_id(1), entry_id(3), entry_id(4)])
    assert {entry: of.row for entry, of in found.items()} == {entry_id(1): 1, entry_id(3): 3}
    assert ledger.by_entries(2, [entry_id(1)])[entry_id(1)].row == 2
    assert ledger.by_entries(1, []) == {}


def test_the_first_open_turn_of_an_incarnation(ledger: SourceLedger) -> None:
    assert ledger.first_open(1) is None
    keep(ledger, ended(1), row(5), parked(4), row(2, incarnation=2))
    assert ledger.first_open(1) == entry_id(4)
    keep(ledger, ended(3, ack=Ack.UNACKED))
    assert ledger.first_open(1) == entry_id(3)


def test_a_position_moves_from_the_incarnation_it_was_in_only(ledger: SourceLedger) -> None:
    ledger.move(1, entry_id(1), entry_id(5), 0)
    with pytest.raises(GuardError, match="incarnation is not 0 any more"):
        ledger.move(2, entry_id(0), entry_id(0), 0)
    position = ledger.attach()
    expected = (1, entry_id(1), entry_id(5))
    assert (position.incarnation, position.watermark, position.last_taken) == expected
    ledger.move(2, entry_id(0), entry_id(0), 1)


def test_the_sequence_only_rises(ledger: SourceLedger) -> None:
    assert [ledger.raise_sequence(least) for least in (0, 0, 10, 5, 12)] == [1, 2, 10, 11, 12]
    assert ledger.attach().sequence == 12


def test_notes_are_listed_newest_first_and_tallies_add_up(
    ledger: SourceLedger, conn: sqlite3.Connection
) -> None:
    for number in range(3):
        batch = Batch(NOW_MS + number)
        batch.note("empty", entry_id(number + 1), f"detail {number}")
        batch.note("ack_short", None)
        batch.count("entries", 5)
        ledger.write(batch)
    notes = ledger.notes(3)
    assert [(note.at_ms - NOW_MS, note.kind, note.entry, note.detail) for note in notes] == [
        (2, "ack_short", None, ""), (2, "empty", "3-0", "detail 2"), (1, "ack_short", None, ""),
    ]  # fmt: skip
    assert ledger.tallies() == {"empty": 3, "ack_short": 3, "entries": 15}
    other = SourceLedger("mail", Rows())
    other.use(conn)
    other.attach()
    assert (other.notes(9), other.tallies()) == ([], {})


def test_outside_a_transaction_the_ledger_does_not_answer() -> None:
    with pytest.raises(GuardError, match="outside a transaction"):
        SourceLedger(SOURCE, Rows()).open_turns()
