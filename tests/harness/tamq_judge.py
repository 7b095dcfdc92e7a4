"""The rules of the contract, on what the store has in the end and what sessions were shown."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.tamq.domain import TRANSITIONS, State
from corral.tamq.rows import Row

Shown = Mapping[str, list[int]]  # message id -> the numbers of the attempts, in order


def shown_in(files: Iterable[Path]) -> Shown:
    """What the sessions wrote down."""
    shown: dict[str, list[int]] = defaultdict(list)
    for file in files:
        for line in file.read_text().splitlines():
            one = json.loads(line)
            shown[one["message_id"]].append(one["attempt"])
    return shown


def violations(database: Path, sent: Mapping[str, Mapping[str, Any]], shown: Shown) -> list[str]:
    """Of a whole trial. `sent` has the first answer to each key."""
    conn = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    conn.row_factory = sqlite3.Row
    try:
        messages = conn.execute("SELECT * FROM messages").fetchall()
        attempts = conn.execute("SELECT * FROM attempts ORDER BY serial").fetchall()
        retries = Counter(row["message"] for row in conn.execute("SELECT message FROM retries"))
        problem = conn.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        conn.close()
    found = [] if problem == "ok" else [f"the database: {problem}"]
    by_key = {row["idempotency_key"]: row for row in messages}
    if len(messages) != len(by_key) or set(by_key) != set(sent):
        found.append("rows and answered sends differ")
    ids = {f"{row['id']}-{row['token'].hex()}": row for row in messages}
    found += [f"{ident} was shown, and nobody sent it" for ident in shown if ident not in ids]
    for key, answer in sent.items():
        row = by_key.get(key)
        if row is None:
            found.append(f"{key} was answered and is lost")
            continue
        made = [one for one in attempts if one["message"] == row["id"]]
        ident = answer["message_id"]
        problems = of_message(row, made, retries[row["id"]], shown.get(ident, []))
        if ids.get(ident) is not row:
            problems.append("its id changed")
        found += [f"{key}: {problem}" for problem in problems]
    return found


def of_message(row: Row, attempts: Sequence[Row], retried: int, shown: list[int]) -> list[str]:
    """What is wrong with one message."""
    found = []
    state, most = State(row["state"]), row["max_attempts"]
    serials = [one["serial"] for one in attempts]
    if state in {State.PENDING, State.AWAITING_ACK} or not TRANSITIONS[state] <= set(State):
        found.append(f"is {state} in the end")
    if len(serials) != row["serial"] or serials != list(range(1, len(serials) + 1)):
        found.append("attempts and their count differ")
    if len(serials) > most * (1 + retried):
        found.append(f"{len(serials)} attempts, at most {most} were allowed")
    if retried > 1:
        found.append("was retried twice")
    outcomes = Counter(one["outcome"] for one in attempts)
    if outcomes["open"]:
        found.append("an attempt is open in the end")
    if state is State.INJECTED and outcomes["written"] != 1:
        found.append(f"injected, with {outcomes['written']} writes")
    if state is State.FAILED and row["attempt_count"] != most:
        found.append("failed before its attempts were used")
    if row["body"] != f"body of {row['idempotency_key']}":
        found.append("its body changed")
    if len(set(shown)) != len(shown) or not set(shown) <= set(serials):
        found.append(f"attempts {serials} were made, {shown} were shown")
    written = sum(one["outcome"] == "written" or one["reason"] == "ack_timeout" for one in attempts)
    if written > len(shown):
        found.append(f"{written} attempts are recorded as written, {len(shown)} were shown")
    return found


def counted(database: Path) -> tuple[int, int]:
    """Messages and attempts."""
    conn = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    try:
        messages, attempts = (
            int(conn.execute(query).fetchone()[0])
            for query in ("SELECT count(*) FROM messages", "SELECT count(*) FROM attempts")
        )
    finally:
        conn.close()
    return messages, attempts
