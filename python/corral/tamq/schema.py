"""The JSON Schema of the protocol: requests, answers, and the receipts in them."""

import json
from typing import Any, Final

from corral.tamq import requests, wire
from corral.tamq.domain import ATTEMPTS_MAX, ATTEMPTS_MIN, AckMode, AttemptOutcome, State
from corral.tamq.errors import CODES

_TIME: Final = {"type": ["string", "null"], "format": "date-time"}
_MESSAGE_ID: Final = {"type": "string", "pattern": "^[1-9][0-9]{0,17}-[0-9a-f]{32}$"}
_CURSOR: Final = {"type": ["string", "null"], "pattern": "^[0-9]{1,18}$"}


def _text(max_bytes: int, *, optional: bool = False) -> dict[str, Any]:
    return {
        "type": ["string", "null"] if optional else "string",
        "minLength": 1,
        "maxLength": max_bytes,
        "description": f"At most {max_bytes} bytes of UTF-8, no NUL.",
    }


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _request(op: str, properties: dict[str, Any], *required: str) -> dict[str, Any]:
    both = {"op": {"const": op}, "protocol": {"type": "string", "examples": [wire.PROTOCOL]}}
    return _object({**both, **properties}, "op", "protocol", *required)


_POLICY: Final = _object(
    {
        "delivery_max_attempts": {
            "type": "integer",
            "minimum": ATTEMPTS_MIN,
            "maximum": ATTEMPTS_MAX,
        },
        "delivery_ack_mode": {"enum": list(AckMode)},
    }
)
_TERMINAL: Final = {
    "type": "object",
    "description": f"Where the session is; at most {requests.TERMINAL_MAX_BYTES} bytes of JSON.",
}
_ENDPOINT_ID: Final = _text(wire.ID_MAX_BYTES)

REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "ping": _request("ping", {}),
    "endpoints": _request(
        "endpoints", {"repo": _text(wire.REPO_MAX_BYTES, optional=True), "cursor": _CURSOR}
    ),
    "register": _request(
        "register",
        {
            "repos": {
                "type": "array",
                "items": _text(wire.REPO_MAX_BYTES),
                "minItems": 1,
                "maxItems": requests.REPOS_MAX,
            },
            "terminal": _TERMINAL,
            "profile": _text(wire.ID_MAX_BYTES),
            "label": _text(requests.LABEL_MAX_BYTES, optional=True),
            "policy": _POLICY,
        },
        "repos",
        "terminal",
        "profile",
    ),
    "heartbeat": _request("heartbeat", {"endpoint_id": _ENDPOINT_ID}, "endpoint_id"),
    "unregister": _request("unregister", {"endpoint_id": _ENDPOINT_ID}, "endpoint_id"),
    "send": _request(
        "send",
        {
            "client_id": _text(wire.ID_MAX_BYTES),
            "idempotency_key": _text(wire.ID_MAX_BYTES),
            "correlation_id": _text(wire.ID_MAX_BYTES, optional=True),
            "sender_repo": _text(wire.REPO_MAX_BYTES),
            "target_repo": _text(wire.REPO_MAX_BYTES),
            "endpoint_id": _text(wire.ID_MAX_BYTES, optional=True),
            "provenance": _text(requests.PROVENANCE_MAX_BYTES, optional=True),
            "metadata": {
                "type": ["object", "null"],
                "description": f"At most {wire.METADATA_MAX_BYTES} bytes of JSON, no NUL.",
            },
            "body": _text(wire.BODY_MAX_BYTES),
        },
        "client_id",
        "idempotency_key",
        "sender_repo",
        "target_repo",
        "body",
    ),
    "message": _request("message", {"message_id": _MESSAGE_ID}, "message_id"),
    "history": _request(
        "history",
        {
            "limit": {"type": "integer", "minimum": 1, "maximum": requests.PAGE_MAX},
            "cursor": _CURSOR,
            "client_id": _text(wire.ID_MAX_BYTES, optional=True),
            "target_repo": _text(wire.REPO_MAX_BYTES, optional=True),
            "correlation_id": _text(wire.ID_MAX_BYTES, optional=True),
            "state": {"enum": [*State, None]},
            "bodies": {"type": "boolean"},
        },
    ),
    "ack": _request("ack", {"message_id": _MESSAGE_ID}, "message_id"),
    "retry": _request(
        "retry",
        {
            "message_id": _MESSAGE_ID,
            "actor": _text(wire.ID_MAX_BYTES),
            "why": _text(requests.WHY_MAX_BYTES),
        },
        "message_id",
        "actor",
        "why",
    ),
    "rebind": _request(
        "rebind",
        {
            "message_id": _MESSAGE_ID,
            "endpoint_id": _text(wire.ID_MAX_BYTES, optional=True),
            "actor": _text(wire.ID_MAX_BYTES),
            "why": _text(requests.WHY_MAX_BYTES),
        },
        "message_id",
        "actor",
        "why",
    ),
}

_STRING: Final = {"type": "string"}
_MAYBE: Final = {"type": ["string", "null"]}
_COUNT: Final = {"type": "integer", "minimum": 0}

RECEIPT: Final = _object(
    {
        "message_id": _MESSAGE_ID,
        "state": {"enum": list(State)},
        "terminal": {"type": "boolean"},
        "client_id": _STRING,
        "idempotency_key": _STRING,
        "correlation_id": _MAYBE,
        "sender_repo": _STRING,
        "target_repo": _STRING,
        "endpoint_id": _STRING,
        "provenance": _MAYBE,
        "attempt_count": _COUNT,
        "attempts_total": _COUNT,
        "delivery_max_attempts": _POLICY["properties"]["delivery_max_attempts"],
        "delivery_ack_mode": _POLICY["properties"]["delivery_ack_mode"],
        "admitted_at": _TIME,
        "next_attempt_at": _TIME,
        "lease_until": _TIME,
        "ack_deadline_at": _TIME,
        "last_failure_reason": _MAYBE,
        "waiting_reason": _MAYBE,
        "waiting_since": _TIME,
        "acknowledged_at": _TIME,
        "terminal_at": _TIME,
        "metadata": {"type": ["object", "null"]},
        "body": _MAYBE,
    },
    "message_id", "state", "terminal", "client_id", "idempotency_key", "sender_repo",
    "target_repo", "endpoint_id", "attempt_count", "attempts_total", "delivery_max_attempts",
    "delivery_ack_mode", "admitted_at",
)  # fmt: skip
ENDPOINT: Final = _object(
    {
        "endpoint_id": _STRING,
        "repos": {"type": "array", "items": _STRING},
        "profile": _STRING,
        "label": _STRING,
        "terminal": {"type": "object"},
        "policy": _POLICY,
        "registered_at": _TIME,
        "heartbeat_at": _TIME,
        "open_messages": _COUNT,
        "ready": _STRING,
        "ready_reason": _STRING,
        "ready_since": _TIME,
    },
    "endpoint_id", "repos", "profile", "terminal", "policy", "registered_at",
)  # fmt: skip
_ATTEMPT: Final = _object(
    {
        "attempt": _COUNT,
        "endpoint_id": _STRING,
        "leased_at": _TIME,
        "ended_at": _TIME,
        "outcome": {"enum": list(AttemptOutcome)},
        "reason": _MAYBE,
    },
    "attempt",
    "endpoint_id",
    "outcome",
)
_RETRY: Final = _object(
    {"at": _TIME, "uid": _COUNT, "pid": _COUNT, "actor": _STRING, "why": _STRING}, "at", "why"
)
_REBINDING: Final = _object(
    {**_RETRY["properties"], "from_endpoint_id": _STRING, "to_endpoint_id": _STRING},
    *("at", "why", "from_endpoint_id", "to_endpoint_id"),
)


def _answer(fields: dict[str, Any], *required: str) -> dict[str, Any]:
    return _object({"ok": {"const": True}, **fields}, "ok", *required)


def _receipt_with(fields: dict[str, Any]) -> dict[str, Any]:
    return _answer({**RECEIPT["properties"], **fields}, *RECEIPT["required"], *fields)


def _page(name: str, item: dict[str, Any]) -> dict[str, Any]:
    return _answer({name: {"type": "array", "items": item}, "cursor": _CURSOR}, name, "cursor")


ANSWERS: Final[dict[str, dict[str, Any]]] = {
    "ping": _answer(
        {
            "protocol": _STRING,
            "instance": _STRING,
            "capabilities": {"type": "array", "items": _STRING},
        },
        "protocol",
        "instance",
        "capabilities",
    ),
    "endpoints": _page("endpoints", ENDPOINT),
    "register": _answer(
        {**ENDPOINT["properties"], "existing": {"type": "boolean"}},
        *ENDPOINT["required"],
        "existing",
    ),
    "heartbeat": _answer({"endpoint_id": _STRING}, "endpoint_id"),
    "unregister": _answer({"endpoint_id": _STRING}, "endpoint_id"),
    "send": _receipt_with({"deduplicated": {"type": "boolean"}, "rebound": {"type": "boolean"}}),
    "message": _receipt_with({
        "attempts": {"type": "array", "items": _ATTEMPT},
        "retries": {"type": "array", "items": _RETRY},
        "rebindings": {"type": "array", "items": _REBINDING},
    }),
    "history": _page("messages", RECEIPT),
    "ack": _receipt_with({"state_before": {"enum": list(State)}}),
    "retry": _receipt_with({}),
    "rebind": _receipt_with({"rebound": {"type": "boolean"}}),
}  # fmt: skip
REFUSAL: Final = _object(
    {
        "ok": {"const": False},
        "error": _object(
            {
                "code": {"enum": sorted(CODES)},
                "message": _STRING,
                "retryable": {"type": "boolean"},
                "hint": _STRING,
                "ids": {"type": "object"},
            },
            "code",
            "message",
            "retryable",
        ),
    },
    "ok",
    "error",
)


def schema() -> dict[str, Any]:
    """One schema: `$defs` has `request.<op>` and `answer.<op>` of each operation, and `refusal`."""
    definitions = {f"request.{op}": value for op, value in REQUESTS.items()}
    definitions |= {f"answer.{op}": value for op, value in ANSWERS.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"TAMQ protocol {wire.PROTOCOL}",
        "description": f"One line each way, at most {wire.FRAME_MAX_BYTES} bytes.",
        "oneOf": [{"$ref": f"#/$defs/request.{op}"} for op in REQUESTS],
        "$defs": {**definitions, "refusal": REFUSAL},
    }


def schema_text() -> str:
    """The schema as it is published."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
