"""The tables of messages and attempts. Each function runs in the transaction of its group.

A decision of `domain` is made from the row that the same transaction read, and written by an
update that is guarded by that row's state and generation.
"""

import json
import secrets
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corral.core.errors import GuardError
from corral.core.ids import new_uuid
from corral.core.sqlite import SqliteReader, SqliteWriter, load_sql, migrations
from corral.tamq import domain, rows
from corral.tamq.domain import AttemptOutcome, Progress, StaleError, State, Times, TransitionError
from corral.tamq.errors import (
    InvalidStateError,
    NotFoundError,
)
from corral.tamq.requests import MessageId, Page, Retry
from corral.tamq.rows import Endpoint, Message

APPLICATION_ID: Final = 0x5441_4D51  # says whose file it is; never changed
HISTORY_SCAN_MAX_ROWS: Final = 10_000  # looked at for one page
STANDING_MAX: Final = 3  # messages whose text may stand in one composer: looked for at most
DETAILS_MAX: Final = 50  # newest attempts and retries that one answer shows

_SQL = load_sql("corral.tamq", "sql/queue.sql")
MIGRATIONS = migrations("corral.tamq")


@dataclass(frozen=True, slots=True)
class Peer:
    """Who asks, as the kernel says. Pid 0: unknown (a process of another pid namespace)."""

    uid: int
    pid: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed (a stable code), and whether its text may be in the terminal."""

    reason: str
    typed: bool = True


@dataclass(frozen=True, slots=True)
class Unsure:
    """Former attempts whose text may still be in the composer; `unread`: or was not read yet."""

    attempts: tuple[int, ...]
    unread: bool

    @classmethod
    def of(cls, found: list[sqlite3.Row]) -> "Unsure":
        return cls(tuple(row["serial"] for row in found), any(row["unread"] for row in found))


def open_writer(path: Path) -> SqliteWriter:
    return SqliteWriter(path, application_id=APPLICATION_ID, migrations=MIGRATIONS)


def instance(conn: sqlite3.Connection, now_ms: int) -> str:
    """The id of this queue; made when the database is new."""
    row = one(conn, "instance", {})
    if row is not None:
        return str(row["uuid"])
    uuid = new_uuid()
    conn.execute(_SQL["found_instance"], {"uuid": uuid, "now_ms": now_ms})
    return uuid


# ---- progress ------------------------------------------------------------------------------


def lease(
    conn: sqlite3.Connection, ident: MessageId, endpoint: Endpoint, times: Times, now_ms: int
) -> tuple[Message, Unsure]:
    """Begin an attempt; with it the former attempts whose text may still be in the composer.

    `StaleError` when it is not to be attempted any more, or not here, or the endpoint is gone.
    """
    message = get(conn, ident)
    if message.endpoint != endpoint.row or not _is_live(conn, endpoint):
        raise StaleError
    try:
        now = domain.lease(message.progress, times, now_ms)
    except TransitionError:  # acknowledged, for example, since its lane looked at it
        raise StaleError from None
    advance(conn, message, now)
    params = {"id": ident.row, "serial": now.serial, "endpoint": message.endpoint}
    conn.execute(
        _SQL["begin_attempt"],
        {**params, "now_ms": now_ms, "lease_until_ms": now.lease_until_ms},
    )
    return get(conn, ident), Unsure.of(many(conn, "unsure_attempts", params))


def _is_live(conn: sqlite3.Connection, endpoint: Endpoint) -> bool:
    row = one(conn, "endpoint", {"endpoint_id": endpoint.endpoint_id})
    return row is not None and row["gone_at_ms"] is None


def unsure_attempts(conn: sqlite3.Connection, ident: MessageId) -> Unsure:
    """Attempts of the message into its endpoint that may have left text in the composer."""
    message = get(conn, ident)
    params = {"id": ident.row, "serial": message.progress.serial + 1, "endpoint": message.endpoint}
    return Unsure.of(many(conn, "unsure_attempts", params))


def newest_unsure(conn: sqlite3.Connection, endpoint: Endpoint, messages: list[int]) -> list[int]:
    """Which of these messages were typed into the endpoint last, newest first: `STANDING_MAX`."""
    params = {"messages": json.dumps(messages), "endpoint": endpoint.row, "limit": STANDING_MAX}
    return [row["message"] for row in many(conn, "newest_unsure", params)]


def written(
    conn: sqlite3.Connection, ident: MessageId, serial: int, times: Times, now_ms: int
) -> Message:
    """The attempt's text is in the terminal. `StaleError` when its lease is not open any more."""
    message = get(conn, ident)
    now = domain.written(message.progress, serial, times, now_ms)
    end_attempt(conn, message, AttemptOutcome.WRITTEN, None, now_ms)
    return advance(conn, message, now)


def attempt_failed(
    conn: sqlite3.Connection,
    ident: MessageId,
    serial: int,
    failure: Failure,
    times: Times,
    now_ms: int,
) -> Message:
    """The attempt failed, or its lease expired. `StaleError` as in `written`."""
    message = get(conn, ident)
    now = domain.attempt_failed(message.progress, serial, failure.reason, times, now_ms)
    end_attempt(conn, message, AttemptOutcome.FAILED, failure.reason, now_ms, typed=failure.typed)
    return advance(conn, message, now)


def ack_timed_out(conn: sqlite3.Connection, ident: MessageId, serial: int, now_ms: int) -> Message:
    """Nobody acknowledged in time. `StaleError` when somebody did, or that attempt is over."""
    message = get(conn, ident)
    now = domain.ack_timed_out(message.progress, serial, now_ms)
    params = {"id": ident.row, "serial": serial, "reason": domain.ACK_TIMEOUT}
    conn.execute(_SQL["unacknowledged"], params)
    return advance(conn, message, now)


def acknowledge(conn: sqlite3.Connection, ident: MessageId, now_ms: int) -> tuple[Message, State]:
    """An explicit acknowledgement, late or not; with it the state before."""
    message = get(conn, ident)
    was = message.progress
    if was.state is State.ACKNOWLEDGED:
        return message, was.state
    if was.leased:
        end_attempt(conn, message, AttemptOutcome.SUPERSEDED, None, now_ms)
    return advance(conn, message, domain.acknowledged(was, now_ms)), was.state


def retry(conn: sqlite3.Connection, request: Retry, peer: Peer, now_ms: int) -> Message:
    """An operator's decision about a failed message; recorded with who and why."""
    message = get(conn, request.message)
    ids = {"message_id": str(message.id)}
    if message.progress.state is not State.FAILED:
        raise InvalidStateError(
            f"the message is {message.progress.state}, only a failed one is retried", ids=ids
        )
    if message.body is None:
        raise InvalidStateError("the message's body is purged", hint="send it anew", ids=ids)
    values = {
        "id": message.id.row,
        "now_ms": now_ms,
        "uid": peer.uid,
        "pid": peer.pid,
        "actor": request.actor,
        "why": request.why,
    }
    conn.execute(_SQL["record_retry"], values)
    return advance(conn, message, domain.retried(message.progress, now_ms))


def waiting(conn: sqlite3.Connection, ident: MessageId, reason: str, now_ms: int) -> None:
    """Why a pending message is not attempted; the time is kept while the reason is the same."""
    conn.execute(_SQL["waiting"], {"id": ident.row, "reason": reason, "now_ms": now_ms})


def purge(conn: sqlite3.Connection, before_ms: int, limit: int) -> int:
    """Forget what terminal messages said that ended before a time; how many they were."""
    return conn.execute(_SQL["purge"], {"before_ms": before_ms, "limit": limit}).rowcount


# ---- reading -------------------------------------------------------------------------------


def get(conn: sqlite3.Connection, ident: MessageId) -> Message:
    """`NotFoundError` for an id that this queue never gave out."""
    row = one(conn, "message", {"id": ident.row})
    if row is None or not secrets.compare_digest(row["token"], ident.token):
        raise NotFoundError(
            f"there is no message {ident}",
            hint="see 'tamq history'",
            ids={"message_id": str(ident)},
        )
    return rows.message_of(row)


def details(conn: sqlite3.Connection, ident: MessageId) -> dict[str, object]:
    """The receipt of one message with its newest attempts and decisions about it, newest first."""
    params = {"id": ident.row, "limit": DETAILS_MAX}
    return {
        **rows.receipt(get(conn, ident), body=True),
        "attempts": [rows.attempt_fields(row) for row in many(conn, "attempts", params)],
        "retries": [rows.retry_fields(row) for row in many(conn, "retries", params)],
        "rebindings": [rows.rebinding_fields(row) for row in many(conn, "rebindings", params)],
    }


def open_messages(conn: sqlite3.Connection) -> list[Message]:
    """All that delivery still has to do something for, oldest first."""
    return [rows.message_of(row) for row in many(conn, "open_messages", {})]


async def history(reader: SqliteReader, page: Page) -> tuple[list[Message], int | None]:
    """Messages below the page's cursor, newest first, and the next cursor unless it is the end.

    Looks at `HISTORY_SCAN_MAX_ROWS` rows: a page may be short, even empty, and have a cursor.
    """
    newest = await reader.fetch(_SQL["newest"])
    before = min(page.before, int(newest[0][0]) + 1)
    lowest = max(1, before - HISTORY_SCAN_MAX_ROWS)
    params: dict[str, object] = {
        "before": before,
        "from": lowest,
        "limit": page.limit,
        "client_id": page.client_id,
        "target_repo": page.target_repo,
        "correlation_id": page.correlation_id,
        "state": page.state,
    }
    found = [rows.message_of(row) for row in await reader.fetch(_SQL["history"], params)]
    reached = found[-1].id.row if len(found) == page.limit else lowest
    return found, reached if reached > 1 else None


# ---- statements ----------------------------------------------------------------------------


def one(conn: sqlite3.Connection, name: str, params: Mapping[str, object]) -> sqlite3.Row | None:
    row: sqlite3.Row | None = _run(conn, name, params).fetchone()
    return row


def many(conn: sqlite3.Connection, name: str, params: Mapping[str, object]) -> list[sqlite3.Row]:
    return _run(conn, name, params).fetchall()


def advance(conn: sqlite3.Connection, message: Message, now: Progress) -> Message:
    """Write a decision. `GuardError` unless the row is still as the decision saw it."""
    was = message.progress
    values = {
        "id": message.id.row,
        "was_state": was.state.value,
        "was_generation": was.generation,
        **rows.progress_values(now),
    }
    if conn.execute(_SQL["advance"], values).rowcount != 1:
        raise guard(message)
    return get(conn, message.id)


def end_attempt(
    conn: sqlite3.Connection,
    message: Message,
    outcome: AttemptOutcome,
    reason: str | None,
    now_ms: int,
    *,
    typed: bool = True,
) -> None:
    """`typed`: whether the attempt's text may be in the terminal."""
    params = {
        "id": message.id.row,
        "serial": message.progress.serial,
        "outcome": outcome.value,
        "reason": reason,
        "typed": typed,
        "now_ms": now_ms,
    }
    if conn.execute(_SQL["end_attempt"], params).rowcount != 1:
        raise guard(message)


def guard(message: Message) -> GuardError:
    return GuardError(
        f"message {message.id} changed in the middle of a transaction",
        ids={"message_id": str(message.id)},
    )


def _run(conn: sqlite3.Connection, name: str, params: Mapping[str, Any]) -> sqlite3.Cursor:
    cursor = conn.cursor()
    cursor.row_factory = sqlite3.Row
    return cursor.execute(_SQL[name], params)
