"""The transaction of a send: admit, find what the key stands for, or rebind.

`(client_id, idempotency_key)` is one message for ever. Sender, target and body must be the same;
the endpoint may be any that the message was ever bound to. Another endpoint is a conflict while
the present one is live; when that is gone, an open message is rebound.
"""

import secrets
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from corral.core.sqlite import load_sql
from corral.tamq import domain, rows
from corral.tamq.domain import AttemptOutcome, State, Times
from corral.tamq.errors import (
    AmbiguousEndpointError,
    IdempotencyConflictError,
    InvalidStateError,
    TamqError,
    UnavailableTamqError,
)
from corral.tamq.requests import MessageId, Rebind, Send
from corral.tamq.rows import Endpoint, Message
from corral.tamq.store import Peer, advance, end_attempt, get, guard, many, one

_SQL = load_sql("corral.tamq", "sql/queue.sql")


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer to a send, and whether another endpoint took the message over."""

    message: Message
    deduplicated: bool
    rebound: bool = False


def send(
    conn: sqlite3.Connection,
    request: Send,
    peer: Peer,
    times: Times,
    now_ms: int,
    check: Callable[[], None],
) -> Admitted:
    """Admit, or find what the key stands for. `check` refuses what would be new."""
    known = one(
        conn,
        "message_by_key",
        {"client_id": request.client_id, "idempotency_key": request.idempotency_key},
    )
    if known is None:
        check()
        return Admitted(_admit(conn, request, peer, now_ms), deduplicated=False)
    message = rows.message_of(known)
    if message.digest != _digest(request):
        raise _conflict(message, "sender, target or body")
    if _same_endpoint(conn, message, request.endpoint_id):
        return Admitted(message, deduplicated=True)
    return _elsewhere(conn, request, message, known["gone_at_ms"] is not None, times, now_ms)


def _same_endpoint(conn: sqlite3.Connection, message: Message, endpoint_id: str | None) -> bool:
    if endpoint_id is None:
        return False
    if endpoint_id == message.endpoint_id:
        return True
    params = {"message": message.id.row, "endpoint_id": endpoint_id}
    return one(conn, "was_bound", params) is not None


def _elsewhere(
    conn: sqlite3.Connection,
    request: Send,
    message: Message,
    endpoint_gone: bool,
    times: Times,
    now_ms: int,
) -> Admitted:
    """Another endpoint than the message was ever bound to, or none in particular."""
    if not endpoint_gone:
        if request.endpoint_id is not None:
            raise _conflict(message, "endpoint")
        return Admitted(message, deduplicated=True)
    if not message.progress.is_open:
        return Admitted(message, deduplicated=True)
    try:
        endpoint = resolve(conn, request.target_repo, request.endpoint_id)
    except UnavailableTamqError:
        if request.endpoint_id is not None:
            raise
        return Admitted(message, deduplicated=True)  # it is durable and waits
    return Admitted(_rebind(conn, message, endpoint, times, now_ms), True, rebound=True)


def rebind(
    conn: sqlite3.Connection, request: Rebind, peer: Peer, times: Times, now_ms: int
) -> Admitted:
    """An operator's decision: an open message of an ended session goes to another; recorded.

    One whose session is live stays there. `InvalidStateError` when it is to go to another for all
    that, or is terminal; otherwise as `resolve`.
    """
    message = get(conn, request.message)
    ids = {"message_id": str(message.id), "endpoint_id": message.endpoint_id}
    if not message.progress.is_open:
        state = message.progress.state
        hint = "see 'tamq retry'" if state is State.FAILED else ""
        raise InvalidStateError(
            f"the message is {state}, only an open one is bound", hint=hint, ids=ids
        )
    bound = one(conn, "endpoint", {"endpoint_id": message.endpoint_id})
    if bound is not None and bound["gone_at_ms"] is None:
        if request.endpoint_id in {None, message.endpoint_id}:
            return Admitted(message, deduplicated=True)
        raise InvalidStateError(
            "the message's session is live: nothing is moved between two live ones",
            hint="end that session first, or 'tamq detach' it",
            ids=ids,
        )
    endpoint = resolve(conn, message.target_repo, request.endpoint_id)
    values = {
        "id": message.id.row, "now_ms": now_ms, "was_endpoint": message.endpoint,
        "endpoint": endpoint.row, "uid": peer.uid, "pid": peer.pid, "actor": request.actor,
        "why": request.why,
    }  # fmt: skip
    conn.execute(_SQL["record_rebinding"], values)
    return Admitted(_rebind(conn, message, endpoint, times, now_ms), True, rebound=True)


def _admit(conn: sqlite3.Connection, request: Send, peer: Peer, now_ms: int) -> Message:
    endpoint = resolve(conn, request.target_repo, request.endpoint_id)
    progress = domain.admitted(endpoint.policy, now_ms)
    token = secrets.token_bytes(16)
    values = {
        "token": token,
        "client_id": request.client_id,
        "idempotency_key": request.idempotency_key,
        "digest": _digest(request),
        "endpoint": endpoint.row,
        "sender_repo": request.sender_repo,
        "target_repo": request.target_repo,
        "sender_pid": peer.pid,
        "correlation_id": request.correlation_id,
        "provenance": request.provenance,
        "metadata": request.metadata,
        "body": request.body,
    }
    added = conn.execute(
        _SQL["admit"], {**values, "now_ms": now_ms, **rows.progress_values(progress)}
    )
    del values["token"]
    return Message(
        id=MessageId(int(added.lastrowid or 0), token),
        endpoint_id=endpoint.endpoint_id,
        admitted_at_ms=now_ms,
        waiting_reason=None,
        waiting_since_ms=None,
        progress=progress,
        **values,  # type: ignore[arg-type]
    )


def resolve(conn: sqlite3.Connection, repo: str, endpoint_id: str | None) -> Endpoint:
    """The one live endpoint that serves `repo`, or the named one if it does."""
    if endpoint_id is not None:
        row = one(conn, "endpoint", {"endpoint_id": endpoint_id})
        served = row is not None and one(conn, "serves", {"repo": repo, "endpoint": row["id"]})
        if row is None or row["gone_at_ms"] is not None or not served:
            raise UnavailableTamqError(
                f"endpoint {endpoint_id} is not live or does not serve {repo}",
                hint="see 'tamq endpoints'",
                ids={"endpoint_id": endpoint_id},
            )
        return rows.endpoint_of(row)
    found = many(conn, "serving", {"repo": repo})
    if not found:
        raise UnavailableTamqError(
            f"no live endpoint serves {repo}",
            hint=f"attach one: tamq run --repo {repo} -- COMMAND",
            ids={"target_repo": repo},
        )
    if len(found) > 1:
        raise AmbiguousEndpointError(
            f"several live endpoints serve {repo}",
            hint="name one: --endpoint (endpoint_id); 'tamq endpoints' lists them",
            ids={"target_repo": repo},
        )
    return rows.endpoint_of(found[0])


def _rebind(
    conn: sqlite3.Connection, message: Message, endpoint: Endpoint, times: Times, now_ms: int
) -> Message:
    was = message.progress
    now = domain.rebound(was, endpoint.policy, times, now_ms)
    if was.leased:
        end_attempt(conn, message, AttemptOutcome.FAILED, domain.ENDPOINT_GONE, now_ms)
    params = {
        "id": message.id.row,
        "was_endpoint": message.endpoint,
        "endpoint": endpoint.row,
        "now_ms": now_ms,
    }
    advance(conn, message, now)
    conn.execute(_SQL["former_endpoint"], params)
    if conn.execute(_SQL["rebind"], params).rowcount != 1:
        raise guard(message)
    return get(conn, message.id)


def _digest(request: Send) -> bytes:
    return rows.digest_of(request.sender_repo, request.target_repo, request.body)


def _conflict(message: Message, what: str) -> TamqError:
    return IdempotencyConflictError(
        f"the key was used before with another {what}",
        hint="use a new idempotency_key, or repeat the same request",
        ids={"message_id": str(message.id)},
    )
