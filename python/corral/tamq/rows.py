"""Rows of the queue as values, and how they are shown in answers. Pure: no I/O."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from corral.tamq.domain import AckMode, Policy, Progress, State
from corral.tamq.requests import MessageId

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


def progress_of(row: Row) -> Progress:
    policy = Policy(row["max_attempts"], AckMode(row["ack_mode"]))
    values = {name: row[name] for name in PROGRESS}
    return Progress(State(row["state"]), row["generation"], policy, **values)


def message_of(row: Row) -> Message:
    names = (
        "endpoint", "endpoint_id", "client_id", "idempotency_key", "digest", "sender_repo",
        "target_repo", "sender_pid", "correlation_id", "provenance", "metadata", "body",
        "admitted_at_ms", "waiting_reason", "waiting_since_ms",
    )  # fmt: skip
    return Message(
        id=MessageId(row["id"], row["token"]),
        progress=progress_of(row),
        **{name: row[name] for name in names},
    )


def endpoint_of(row: Row) -> Endpoint:
    names = (
        "endpoint_id", "terminal", "profile", "label", "registered_at_ms", "heartbeat_at_ms",
        "gone_at_ms", "gone_reason",
    )  # fmt: skip
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
