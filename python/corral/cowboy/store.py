"""The durable turn ledger of one agent, on SQLite.

Every function here runs inside a transaction of `corral.core.sqlite.SqliteWriter`, in its thread.
A turn changes only by a guarded update: zero rows touched raises `GuardError` and the tick is
rolled back. The statements are in `sql/ledger.sql`, the schema in `sql/migrations`.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from corral.core.errors import GuardError
from corral.core.ids import new_uuid
from corral.core.sqlite import load_sql
from corral.cowboy import columns
from corral.cowboy.book import Batch
from corral.cowboy.domain import State, message_key, unpack_id
from corral.cowboy.turn import Turn

APPLICATION_ID = 0x434F5742  # "COWB"
SQL = load_sql("corral.cowboy", "sql/ledger.sql")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which ledger this is, and whose."""

    uuid: str
    agent: str


@dataclass(frozen=True, slots=True)
class Position:
    """Where a source stands in its stream."""

    source_id: int
    incarnation: int
    watermark: bytes
    last_taken: bytes
    sequence: int


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened to an entry without a turn, or another anomaly."""

    at_ms: int
    kind: str
    entry: str | None
    detail: str


def open_ledger(conn: sqlite3.Connection, agent: str, now_ms: int) -> Identity:
    """The ledger's identity, created at the first call. A ledger of another agent is refused."""
    conn.execute(SQL["create_ledger"], (new_uuid(), agent, now_ms))
    uuid, owner = conn.execute(SQL["read_ledger"]).fetchone()
    if owner != agent:
        raise GuardError(
            f"the ledger belongs to agent {owner}, not {agent}",
            hint="point state_dir at this agent's own directory",
        )
    return Identity(uuid, owner)


class Rows:
    """Row numbers for new turns: one counter for all sources, as there is one writer."""

    def __init__(self) -> None:
        self._last = -1

    def last(self, conn: sqlite3.Connection) -> int:
        if self._last < 0:
            self._last = int(conn.execute(SQL["last_row"]).fetchone()[0])
        return self._last

    def next(self, conn: sqlite3.Connection) -> int:
        self._last = self.last(conn) + 1
        return self._last


class SourceLedger:
    """The part of the ledger that one source reads and writes, bound to a transaction by `use`."""

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self.source_id = 0
        self._rows = rows
        self._conn: sqlite3.Connection | None = None

    def use(self, conn: sqlite3.Connection) -> None:
        self._conn = conn

    @property
    def conn(self) -> sqlite3.Connection:
        if self._conn is None:
            raise GuardError(f"source {self.name}: the ledger was asked outside a transaction")
        return self._conn

    # ------------------------------------------------------------ reading

    def attach(self) -> Position:
        """The source's position; its row is made at the first call."""
        self.conn.execute(SQL["create_source"], (self.name,))
        row = self.conn.execute(SQL["read_source"], (self.name,)).fetchone()
        self.source_id = row[0]
        return Position(*row)

    def open_turns(self) -> list[Turn]:
        """Every turn that is not closed, parked ones aside, in the order of their entries."""
        return [
            columns.turn_of(row) for row in self.conn.execute(SQL["open_turns"], (self.source_id,))
        ]

    def parked_counts(self) -> dict[bytes, int]:
        return dict(self.conn.execute(SQL["parked_counts"], (self.source_id,)).fetchall())

    def parked(self, lane: bytes, limit: int) -> list[Turn]:
        rows = self.conn.execute(SQL["parked_of_channel"], (self.source_id, lane, limit))
        return [columns.turn_of(row) for row in rows]

    def parked_elsewhere(self, incarnation: int) -> list[Turn]:
        """Parked turns of earlier incarnations: their content went with their stream."""
        found = self.conn.execute(
            SQL["parked_of_other_incarnations"], (self.source_id, incarnation)
        )
        return [columns.turn_of(row) for row in found]

    def tallies(self) -> dict[str, int]:
        return dict(self.conn.execute(SQL["read_tallies"], (self.source_id,)).fetchall())

    def notes(self, limit: int) -> list[Note]:
        rows = self.conn.execute(SQL["read_notes"], (self.source_id, limit))
        return [
            Note(at_ms, kind, unpack_id(entry).decode() if entry else None, detail)
            for at_ms, kind, entry, detail in rows
        ]

    def last_row(self) -> int:
        return self._rows.last(self.conn)

    # the Lookup of `intake`

    def next_row(self) -> int:
        return self._rows.next(self.conn)

    def by_entries(self, incarnation: int, entries: Sequence[bytes]) -> Mapping[bytes, Turn]:
        found: dict[bytes, Turn] = {}
        for entry in entries:
            row = self.conn.execute(
                SQL["by_entry"], (self.source_id, incarnation, entry)
            ).fetchone()
            if row is not None:
                found[entry] = columns.turn_of(row)
        return found

    def by_message(self, message_id: bytes, before_row: int) -> Turn | None:
        """The newest message turn below a row number that carries this producer's id."""
        key = message_key(message_id)
        bounds = (self.source_id, key + b"\0" * 16, key + b"\xff" * 16, before_row)
        row = self.conn.execute(SQL["by_message"], bounds).fetchone()
        return columns.turn_of(row) if row is not None else None

    def same_message(self, identity: bytes) -> tuple[bool, bool]:
        key = identity[:16]
        bounds = (self.source_id, key + b"\0" * 16, key + b"\xff" * 16)
        known = self.conn.execute(SQL["same_message"], bounds).fetchall()
        if not known:  # as nearly always
            return False, False
        same = (identity,) in known
        return same, len(known) > same

    # ------------------------------------------------------------ writing

    def write(self, batch: Batch) -> None:
        """Everything a tick changed. Raises GuardError when a row was not what the tick thought."""
        conn = self.conn
        source = self.source_id
        answered = [
            columns.answered(source, turn) for turn in batch.created if columns.is_answered(turn)
        ]
        if answered:
            conn.executemany(SQL["insert_answered"], answered)
        if len(answered) < len(batch.created):
            others = (turn for turn in batch.created if not columns.is_answered(turn))
            conn.executemany(SQL["insert_turn"], [columns.values(source, turn) for turn in others])
        done: list[tuple[object, ...]] = []
        finished: list[tuple[object, ...]] = []
        updates: list[tuple[object, ...]] = []
        for row, turn in batch.changed.items():
            guard = batch.guards[row]
            if guard.state is not State.REPLYING or not turn.terminal:
                updates.append(columns.update(turn, guard))
            elif columns.is_done(turn, guard):
                done.append((turn.outbox_id, turn.terminal_at_ms, turn.row, guard.generation))
            else:
                finished.append(columns.finish(turn, guard))
        self._guarded("finish_done", done)
        self._guarded("finish_turn", finished)
        self._guarded("update_turn", updates)
        for kind, entry, detail in batch.notes:
            conn.execute(SQL["add_note"], (self.source_id, batch.now_ms, kind, entry, detail))
        for name, count in batch.tallies.items():
            conn.execute(SQL["count"], (self.source_id, name, count))

    def _guarded(self, name: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        changed = self.conn.executemany(SQL[name], rows).rowcount
        if changed != len(rows):
            raise GuardError(
                f"source {self.name}: {name} touched {changed} rows of {len(rows)}",
                hint="another writer has this ledger open, or this is a fault in cowboy",
            )

    def raise_sequence(self, at_least: int = 0) -> int:
        """Count this commit; the new number. `at_least` lifts it over what Redis has seen."""
        row = self.conn.execute(SQL["raise_sequence"], (at_least, self.source_id)).fetchone()
        return int(row[0])

    def first_open(self, incarnation: int) -> bytes | None:
        row = self.conn.execute(SQL["first_open"], (self.source_id, incarnation)).fetchone()
        return row[0] if row is not None else None

    def move(self, incarnation: int, watermark: bytes, last_taken: bytes, before: int) -> None:
        """Record the position; `before` is the incarnation that it replaces."""
        values = (incarnation, watermark, last_taken, self.source_id, before)
        if self.conn.execute(SQL["move_source"], values).rowcount != 1:
            raise GuardError(f"source {self.name}: its incarnation is not {before} any more")

    def purge(self, position: Position, first: int, last: int, before_ms: int) -> int:
        """Delete old tombstones with row numbers in (first, last]; how many went."""
        values = (first, last, before_ms, self.source_id, position.incarnation, position.watermark)
        gone = self.conn.execute(SQL["purge_turns"], values).rowcount
        self.conn.execute(SQL["purge_notes"], (self.source_id, self.source_id, before_ms, 500))
        return gone


def turns_of(rows: Iterable[Sequence[object]]) -> list[Turn]:
    """Turns from whole rows that another connection read (status, tests)."""
    return [columns.turn_of(row) for row in rows]
