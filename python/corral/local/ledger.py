"""Reads a ledger whose daemon has ended: the only place of the harness that knows the schema."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from corral.core.sqlfiles import load_sql
from corral.local.evidence import Effect, Note, TurnRow, text

SQL = load_sql("corral.local", "sql/ledger.sql")


def _id(packed: bytes | None) -> str | None:
    """A packed entry id as `<ms>-<seq>`; written anew here so that a fault there is not shared."""
    if packed is None:
        return None
    return f"{int.from_bytes(packed[:8], 'big')}-{int.from_bytes(packed[8:], 'big')}"


def copy_ledger(ledger: Path, directory: Path) -> Path:
    """A copy of the ledger's files, so that reading it changes nothing. Returns the copy."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for suffix in ("", "-wal", "-shm"):
        part = ledger.with_name(ledger.name + suffix)
        if part.exists():
            shutil.copyfile(part, directory / part.name)
    return directory / ledger.name


def read_ledger(copy: Path) -> tuple[list[TurnRow], list[Note], list[str]]:
    """Turns, notes and faults of a ledger's copy."""
    with closing(sqlite3.connect(copy)) as conn:
        faults = [row[0] for row in conn.execute(SQL["integrity"]) if row[0] != "ok"]
        faults += [f"foreign key: {row}" for row in conn.execute(SQL["foreign_keys"])]
        rows = [_turn(row) for row in conn.execute(SQL["turns"])]
        notes = [
            Note(source, kind, _id(entry)) for source, kind, entry in conn.execute(SQL["notes"])
        ]
    return rows, notes, faults


def _turn(row: tuple[Any, ...]) -> TurnRow:
    source, turn_id, entry, kind, state, outcome, ack, starts, scrubbed, message_id, channel = row
    return TurnRow(
        source=source,
        turn_id=turn_id,
        entry_id=_id(entry) or "",
        kind=kind,
        state=state,
        outcome=outcome,
        ack=ack,
        starts=starts,
        scrubbed=bool(scrubbed),
        message_id=text(message_id),
        channel=text(channel),
    )


def read_effects(path: Path) -> list[Effect]:
    """The lines of the agents' effect log, in the order in which they were appended."""
    if not path.exists():
        return []
    lines = path.read_bytes().splitlines()
    return [Effect(**json.loads(line)) for line in lines]
