"""The table of endpoints. Each function runs in the transaction of its group."""

import sqlite3
from collections.abc import Sequence
from typing import Final

from corral.core.ids import new_uuid
from corral.core.sqlite import load_sql
from corral.tamq import domain, rows, store, wire
from corral.tamq.domain import AttemptOutcome, Times
from corral.tamq.errors import BusyError, InvalidStateError, NotFoundError
from corral.tamq.requests import Register
from corral.tamq.rows import Endpoint, Message

ENDPOINTS_MAX: Final = 256  # live at once
UNREGISTERED: Final = "unregistered"

_SQL = load_sql("corral.tamq", "sql/queue.sql")


def register(
    conn: sqlite3.Connection, request: Register, now_ms: int, endpoints_max: int = ENDPOINTS_MAX
) -> tuple[Endpoint, bool]:
    """A live endpoint for this terminal, and whether it was there already.

    Registering the same live session again keeps its id and takes the new repositories, profile
    and policy for messages to come. `BusyError` at the limit.
    """
    terminal = wire.compact(dict(sorted(request.terminal.items())))
    known = store.one(conn, "endpoint_at", {"terminal": terminal})
    values: dict[str, object] = {
        "repos": wire.compact(list(request.repos)),
        "profile": request.profile,
        "label": request.label,
        "max_attempts": request.policy.max_attempts,
        "ack_mode": request.policy.ack_mode.value,
        "now_ms": now_ms,
    }
    if known is not None:
        row, endpoint_id = int(known["id"]), str(known["endpoint_id"])
        conn.execute(_SQL["register_again"], {**values, "id": row})
    else:
        count = store.one(conn, "live_endpoint_count", {})
        if count is not None and count[0] >= endpoints_max:
            raise BusyError(f"{endpoints_max} endpoints are live", hint="end one, then try again")
        endpoint_id = new_uuid()
        added = conn.execute(
            _SQL["register"], {**values, "endpoint_id": endpoint_id, "terminal": terminal}
        )
        row = int(added.lastrowid or 0)
    conn.execute(_SQL["serve_nothing"], {"endpoint": row})
    for repo in request.repos:
        conn.execute(_SQL["serve_repo"], {"repo": repo, "endpoint": row})
    return get(conn, endpoint_id), known is not None


def get(conn: sqlite3.Connection, endpoint_id: str) -> Endpoint:
    """A live endpoint. `NotFoundError` when there is none of that id."""
    row = store.one(conn, "endpoint", {"endpoint_id": endpoint_id})
    if row is None or row["gone_at_ms"] is not None:
        raise _not_found(endpoint_id)
    return rows.endpoint_of(row)


def live(conn: sqlite3.Connection) -> list[Endpoint]:
    """All live endpoints, in order of registration."""
    return [rows.endpoint_of(row) for row in store.many(conn, "live_endpoints", {})]


def heartbeat(conn: sqlite3.Connection, endpoint_id: str, now_ms: int) -> Endpoint:
    """The session's host is alive. `NotFoundError` when the endpoint is gone.

    `InvalidStateError` when somebody detached it: its host is not to register it again.
    """
    params = {"endpoint_id": endpoint_id, "now_ms": now_ms}
    if conn.execute(_SQL["heartbeat"], params).rowcount != 1:
        row = store.one(conn, "endpoint", {"endpoint_id": endpoint_id})
        if row is not None and row["gone_reason"] == UNREGISTERED:
            raise InvalidStateError("was detached", ids={"endpoint_id": endpoint_id})
        raise _not_found(endpoint_id)
    return get(conn, endpoint_id)


def gone(
    conn: sqlite3.Connection, endpoint_id: str, reason: str, times: Times, now_ms: int
) -> Sequence[Message]:
    """The session is no more: its open leases end as failed attempts, its messages stay.

    Answers the messages that changed. `NotFoundError` when it is gone already.
    """
    endpoint = get(conn, endpoint_id)
    params = {"id": endpoint.row, "endpoint": endpoint.row, "reason": reason, "now_ms": now_ms}
    conn.execute(_SQL["endpoint_gone"], params)
    conn.execute(_SQL["serve_nothing"], params)
    changed = []
    for row in store.many(conn, "leased_of_endpoint", params):
        message = rows.message_of(row)
        serial = message.progress.serial
        now = domain.attempt_failed(message.progress, serial, domain.ENDPOINT_GONE, times, now_ms)
        store.end_attempt(conn, message, AttemptOutcome.FAILED, domain.ENDPOINT_GONE, now_ms)
        changed.append(store.advance(conn, message, now))
    return changed


def _not_found(endpoint_id: str) -> NotFoundError:
    return NotFoundError(
        f"there is no live endpoint {endpoint_id}",
        hint="see 'tamq endpoints', or register again",
        ids={"endpoint_id": endpoint_id},
    )
