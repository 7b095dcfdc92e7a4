"""The control socket's part for one entry or turn: find it, cancel it, note that it was sent again.

What is read from the ledger is read on a connection of its own, from one snapshot, so that it
holds up no commit.
"""

import asyncio
import importlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from corral.core.errors import UsageError
from corral.core.sqlite import SqliteReader, load_sql
from corral.cowboy.domain import State, message_key, pack_id, parse_turn_id
from corral.cowboy.operations import describe
from corral.cowboy.store import turns_of

if TYPE_CHECKING:
    from corral.cowboy.daemon import Daemon
    from corral.cowboy.engine import Engine
    from corral.cowboy.operations import Operations

SQL = load_sql("corral.cowboy", "sql/inquiry.sql")
INCARNATIONS_MAX: Final = 100  # how far back an entry id is looked for
FOUND_MAX: Final = 20  # turns and notes that one answer has of each source
CANCEL_WAIT_S: Final = 8.0  # for the run of a cancelled turn to be over
CANCEL_LOOK_S: Final = 0.05
ENTRIES_MAX: Final = 200
NOTE_MAX_CHARS: Final = 500
_ENTRY = re.compile(r"[0-9]{1,20}-[0-9]{1,20}")

Request = Mapping[str, Any]


class Inquiry:
    """Handlers of the control socket beside those of `Operations`."""

    def __init__(self, daemon: "Daemon", operations: "Operations") -> None:
        self._daemon = daemon
        self._operations = operations

    def table(self) -> dict[str, Callable[[Request], Awaitable[Mapping[str, object]]]]:
        return {
            "find": self.find,
            "cancel": self.cancel,
            "integrity": self.integrity,
            "anomalies": self.anomalies,
            "unknown": self.unknown,
            "resubmitted": self.resubmitted,
        }

    # ------------------------------------------------------------ find

    async def find(self, request: Request) -> dict[str, object]:
        """What the ledger knows of an entry id, a turn id or a producer's message id.

        One part for each source of the agent (or for `source` alone), found or not. With `answer`
        an entry id is one of an outbox.
        """
        text = request.get("id")
        if not isinstance(text, str) or not text or not text.isprintable():
            raise UsageError("id is missing, or is no text")
        wanted = request.get("source")
        by, source = kind_of(text), wanted
        if by == "entry" and request.get("answer") is True:
            by = "answer"
        if by == "turn":
            engine, _ = self._operations.engine_of({"turn_id": text})
            source = engine.name
        engines = [e for e in self._daemon.engines.values() if source in (None, e.name)]
        await asyncio.to_thread(importlib.import_module, "aiosqlite")  # reads files
        async with SqliteReader(self._daemon.settings.ledger_path(self._daemon.agent)) as reader:
            found = [await self._of(reader, engine, by, text) for engine in engines]
        return {"by": by, "sources": found}

    async def _of(
        self, reader: SqliteReader, engine: "Engine", by: str, text: str
    ) -> dict[str, object]:
        entry, rows = b"", []
        if by == "message":
            key = message_key(text.encode())
            bounds = (engine.name, key + b"\0" * 16, key + b"\xff" * 16, FOUND_MAX)
            rows = await reader.fetch(SQL["turns_of_message"], bounds)
        elif by == "answer":
            rows = await reader.fetch(
                SQL["turns_of_answer"], (engine.name, text.encode(), FOUND_MAX)
            )
        else:
            incarnations = _incarnations(engine)
            if by == "turn":
                _, _, incarnation, entry = parse_turn_id(text)
                incarnations = range(incarnation, incarnation - 1, -1)
            else:
                entry = pack_id(text.encode())
            for number in incarnations:
                rows += await reader.fetch(SQL["turns_of_entry"], (engine.name, number, entry))
        notes = await reader.fetch(SQL["notes_of_entry"], (engine.name, entry, FOUND_MAX))
        return {
            "source": engine.name,
            "verified": engine.verified,
            "incarnation": engine.intake.incarnation,
            **engine.intake.describe(),
            "turns": [describe(turn) for turn in turns_of(rows)],
            "notes": [
                {"at_ms": n["at_ms"], "kind": n["kind"], "detail": n["detail"]} for n in notes
            ],
        }

    async def integrity(self, _request: Request) -> dict[str, object]:
        """SQLite's own check of the ledger: `ok`, or the first thing that is wrong."""
        await asyncio.to_thread(importlib.import_module, "aiosqlite")
        async with SqliteReader(self._daemon.settings.ledger_path(self._daemon.agent)) as reader:
            (row,) = await reader.fetch(SQL["integrity"])
        return {"integrity": str(row[0])}

    async def anomalies(self, request: Request) -> dict[str, object]:
        """What was noted since `since_ms`, for each source: kind, how often, when last."""
        since_ms = request.get("since_ms")
        if not isinstance(since_ms, int):
            raise UsageError("since_ms must be a number")
        await asyncio.to_thread(importlib.import_module, "aiosqlite")
        found: dict[str, object] = {}
        async with SqliteReader(self._daemon.settings.ledger_path(self._daemon.agent)) as reader:
            for name in self._daemon.engines:
                rows = await reader.fetch(SQL["anomalies_since"], (name, since_ms))
                found[name] = [dict(row) for row in rows]
        return {"sources": found}

    async def unknown(self, request: Request) -> dict[str, object]:
        """Which of these entries of a source the ledger never had, nor any note of them."""
        name, entries = request.get("source"), request.get("entries")
        engine = self._daemon.engines.get(str(name))
        if engine is None or not isinstance(entries, list) or len(entries) > ENTRIES_MAX:
            raise UsageError(f"'source' must be a source, 'entries' at most {ENTRIES_MAX} ids")
        if not all(isinstance(one, str) and kind_of(one) == "entry" for one in entries):
            raise UsageError("'entries' must be ids of entries")
        await asyncio.to_thread(importlib.import_module, "aiosqlite")
        async with SqliteReader(self._daemon.settings.ledger_path(self._daemon.agent)) as reader:
            known = {one for one in entries if await _is_known(reader, engine, one)}
        return {"source": engine.name, "unknown": [one for one in entries if one not in known]}

    # ------------------------------------------------------------ acts

    async def cancel(self, request: Request) -> dict[str, object]:
        """Cancel a turn; when it runs, wait a while for its run to be over.

        `cancelled` is false while its run is not over yet, and when the run ended by itself first.
        """
        engine, turn_id = self._operations.engine_of(request)
        _, _, incarnation, entry = parse_turn_id(turn_id)
        intake, machine = engine.intake, engine.machine
        await engine.command(
            lambda: machine.cancel_by_operator(intake.open_turn(incarnation, entry, engine.ledger))
        )
        clock = self._daemon.clock
        until_s = clock.mono_s() + CANCEL_WAIT_S
        turn = engine.machine.book.by_id.get(turn_id)
        while turn is not None and turn.state is State.DISPATCHED and clock.mono_s() < until_s:
            await clock.sleep(CANCEL_LOOK_S)
            turn = engine.machine.book.by_id.get(turn_id)
        shown: Any = (await self._operations.turn({"turn_id": turn_id}))["turn"]
        return {
            "turn_id": turn_id,
            "cancelled": shown["outcome"] == "cancelled",
            "state": shown["state"],
            "outcome": shown["outcome"],
        }

    async def resubmitted(self, request: Request) -> dict[str, object]:
        """Put on record that a turn was sent again as another entry, and why."""
        engine, turn_id = self._operations.engine_of(request)
        _, _, _, entry = parse_turn_id(turn_id)
        new, note = request.get("as"), request.get("note")
        if not isinstance(new, str) or not _ENTRY.fullmatch(new) or not isinstance(note, str):
            raise UsageError("'as' must be an entry id and 'note' a text")
        detail = f"as {new}: {note[:NOTE_MAX_CHARS]}"
        await engine.command(lambda: engine.machine.batch.note("resubmitted", entry, detail))
        return {"turn_id": turn_id, "as": new}


def _incarnations(engine: "Engine") -> range:
    """Those in which an entry is looked for, the present one first."""
    return range(engine.intake.incarnation, 0, -1)[:INCARNATIONS_MAX]


async def _is_known(reader: SqliteReader, engine: "Engine", entry_id: str) -> bool:
    entry = pack_id(entry_id.encode())
    for number in _incarnations(engine):
        if await reader.fetch(SQL["turns_of_entry"], (engine.name, number, entry)):
            return True
    notes = await reader.fetch(SQL["notes_of_entry"], (engine.name, entry, FOUND_MAX))
    return any(note["kind"] != "passed_over" for note in notes)  # such a one it never had


def kind_of(text: str) -> str:
    """What an id is by its form: `entry`, `turn`, or else the `message` id of a producer."""
    try:
        if _ENTRY.fullmatch(text):
            pack_id(text.encode())
            return "entry"
        parse_turn_id(text)
    except (ValueError, OverflowError):
        return "message"
    return "turn"
