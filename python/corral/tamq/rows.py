"""Rows of the queue as values, and how they are shown in answers. Pure: no I/O.

A row that no rule of ours could have written is a damaged disk, and not shown: `DamagedError`.
"""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, Protocol

from corral.core.errors import StorageError
from corral.core.ids import digest
from corral.tamq import wire
from corral.tamq.domain import ENDPOINT_GONE, AckMode, Policy, Progress, State
from corral.tamq.requests import MessageId

_DIGEST_TAG: Final = "corral.tamq.message"

PROGRESS: Final = (
    "attempt_count",
    "serial",
    "next_attempt_at_ms",
    "lease_until_ms",
    "ack_deadline_at_ms",
    "last_failure_reason",
    "acknowledged_at_ms",
    "terminal_at_ms",
)


class DamagedError(StorageError):
    """A row is not as it was written."""

    code: ClassVar[str] = "damaged"


class Row(Protocol):
    """A row by the names of its columns."""

    def __getitem__(self, key: str, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `endpoint` is the row, `endpoint_id` the name of what it is bound to."""

    id: MessageId
    endpoint: int
    endpoint_id: str
    client_id: str
    idempotency_key: str
    digest: bytes
    sender_repo: str
    target_repo: str
    sender_pid: int
    correlation_id: str | None
    provenance: str | None
    metadata: str | None
    body: str | None
    admitted_at_ms: int
    waiting_reason: str | None
    waiting_since_ms: int | None
    progress: Progress


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One registered session; live while `gone_at_ms` is None."""

    row: int
    endpoint_id: str
    terminal: str
    repos: tuple[str, ...]
    profile: str
    label: str
    policy: Policy
    registered_at_ms: int
    heartbeat_at_ms: int
    gone_at_ms: int | None
    gone_reason: str | None


def digest_of(sender_repo: str, target_repo: str, body: str) -> bytes:
    """What makes two sends with one key the same; and by which a stored text is known again."""
    return digest(_DIGEST_TAG, sender_repo, target_repo, body)


@contextmanager
def _readable(what: str, row: Row) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{what} {row['id']!r} is not as it was written: the database is damaged",
            hint="stop the service, then restore a backup of queue.db or move it away",
        ) from error


def progress_of(row: Row) -> Progress:
    policy = Policy(row["max_attempts"], AckMode(row["ack_mode"]))
    values = {name: row[name] for name in PROGRESS}
    return Progress(State(row["state"]), row["generation"], policy, **values)


def message_of(row: Row) -> Message:
    """A row of `messages` with `endpoint_id` and `gone_at_ms` of its endpoint.

    What is pending for a session that ended waits for that, whatever it waited for before.
    """
    names = (
        "endpoint", "endpoint_id", "client_id", "idempotency_key", "digest", "sender_repo",
        "target_repo", "sender_pid", "correlation_id", "provenance", "metadata", "body",
        "admitted_at_ms",
    )  # fmt: skip
    with _readable("message", row):
        body = row["body"]
        if body is not None and row["digest"] != digest_of(
            row["sender_repo"], row["target_repo"], body
        ):
            raise ValueError("its digest is another")
        waits = row["waiting_reason"], row["waiting_since_ms"]
        if row["gone_at_ms"] is not None and row["state"] == State.PENDING.value:
            waits = ENDPOINT_GONE, row["gone_at_ms"]
        return Message(
            id=MessageId(row["id"], row["token"]),
            waiting_reason=waits[0],
            waiting_since_ms=waits[1],
            progress=progress_of(row),
            **{name: row[name] for name in names},
        )


def endpoint_of(row: Row) -> Endpoint:
    names = (
        "endpoint_id", "terminal", "profile", "label", "registered_at_ms", "heartbeat_at_ms",
        "gone_at_ms", "gone_reason",
    )  # fmt: skip
    with _readable("endpoint", row):
        return Endpoint(
            row=row["id"],
            repos=tuple(json.loads(row["repos"])),
            policy=Policy(row["max_attempts"], AckMode(row["ack_mode"])),
            **{name: row[name] for name in names},
        )


def progress_values(progress: Progress) -> dict[str, object]:
    """What a guarded update sets."""
    return {
        "state": progress.state.value,
        "generation": progress.generation,
        "max_attempts": progress.policy.max_attempts,
        "ack_mode": progress.policy.ack_mode.value,
        **{name: getattr(progress, name) for name in PROGRESS},
    }


@functools.lru_cache(maxsize=64)
def moment(at_ms: int | None) -> str | None:
    """A time as answers show it: RFC 3339, UTC, milliseconds."""
    if at_ms is None:
        return None
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def receipt(message: Message, *, body: bool) -> dict[str, object]:
    """What a client learns about a message. `body` and `metadata` are None once purged."""
    progress = message.progress
    fields: dict[str, object] = {
        "message_id": str(message.id),
        "state": progress.state.value,
        "terminal": not progress.is_open,
        "client_id": message.client_id,
        "idempotency_key": message.idempotency_key,
        "correlation_id": message.correlation_id,
        "sender_repo": message.sender_repo,
        "target_repo": message.target_repo,
        "endpoint_id": message.endpoint_id,
        "provenance": message.provenance,
        "attempt_count": progress.attempt_count,
        "attempts_total": progress.serial,
        "delivery_max_attempts": progress.policy.max_attempts,
        "delivery_ack_mode": progress.policy.ack_mode.value,
        "admitted_at": moment(message.admitted_at_ms),
        "next_attempt_at": moment(progress.next_attempt_at_ms),
        "lease_until": moment(progress.lease_until_ms),
        "ack_deadline_at": moment(progress.ack_deadline_at_ms),
        "last_failure_reason": progress.last_failure_reason,
        "waiting_reason": message.waiting_reason,
        "waiting_since": moment(message.waiting_since_ms),
        "acknowledged_at": moment(progress.acknowledged_at_ms),
        "terminal_at": moment(progress.terminal_at_ms),
        "metadata": None if message.metadata is None else json.loads(message.metadata),
    }
    if body:
        fields["body"] = message.body
    return fields


def admitted_frame(message: Message) -> bytes:
    """The answer to a send that was admitted: what `wire` makes of `receipt`, without the detour.

    Most of a new message's receipt is the same for all; a test compares the two.
    """
    quoted = wire.quoted
    policy = message.progress.policy
    admitted = moment(message.admitted_at_ms)
    return (
        f'{{"ok":true,"deduplicated":false,"rebound":false,"message_id":"{message.id}",'
        f'"state":"pending","terminal":false,"client_id":{quoted(message.client_id)},'
        f'"idempotency_key":{quoted(message.idempotency_key)},'
        f'"correlation_id":{_quoted_or_null(message.correlation_id)},'
        f'"sender_repo":{quoted(message.sender_repo)},"target_repo":{quoted(message.target_repo)},'
        f'"endpoint_id":{quoted(message.endpoint_id)},'
        f'"provenance":{_quoted_or_null(message.provenance)},'
        f'"attempt_count":0,"attempts_total":0,"delivery_max_attempts":{policy.max_attempts},'
        f'"delivery_ack_mode":"{policy.ack_mode.value}","admitted_at":"{admitted}",'
        f'"next_attempt_at":"{admitted}","lease_until":null,"ack_deadline_at":null,'
        '"last_failure_reason":null,"waiting_reason":null,"waiting_since":null,'
        '"acknowledged_at":null,"terminal_at":null,'
        f'"metadata":{message.metadata or "null"}}}\n'
    ).encode()


def _quoted_or_null(text: str | None) -> str:
    return "null" if text is None else wire.quoted(text)


def endpoint_fields(endpoint: Endpoint) -> dict[str, object]:
    """What a client learns about an endpoint."""
    return {
        "endpoint_id": endpoint.endpoint_id,
        "repos": list(endpoint.repos),
        "profile": endpoint.profile,
        "label": endpoint.label,
        "terminal": json.loads(endpoint.terminal),
        "policy": {
            "delivery_max_attempts": endpoint.policy.max_attempts,
            "delivery_ack_mode": endpoint.policy.ack_mode.value,
        },
        "registered_at": moment(endpoint.registered_at_ms),
        "heartbeat_at": moment(endpoint.heartbeat_at_ms),
    }


def attempt_fields(row: Row) -> dict[str, object]:
    return {
        "attempt": row["serial"],
        "endpoint_id": row["endpoint_id"],
        "leased_at": moment(row["leased_at_ms"]),
        "ended_at": moment(row["ended_at_ms"]),
        "outcome": row["outcome"],
        "reason": row["reason"],
    }


def retry_fields(row: Row) -> dict[str, object]:
    return {
        "at": moment(row["at_ms"]),
        "uid": row["uid"],
        "pid": row["pid"],
        "actor": row["actor"],
        "why": row["why"],
    }


def rebinding_fields(row: Row) -> dict[str, object]:
    return {
        **retry_fields(row),
        "from_endpoint_id": row["from_endpoint_id"],
        "to_endpoint_id": row["to_endpoint_id"],
    }
