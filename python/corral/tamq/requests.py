"""From the fields of a request to something that is checked. Pure: no I/O.

Every refusal is an `InvalidRequestError` (or the two errors of size) that begins with the field.
Fields that are not known are ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.tamq import wire
from corral.tamq.domain import ATTEMPTS_DEFAULT, ATTEMPTS_MAX, ATTEMPTS_MIN, AckMode, Policy, State
from corral.tamq.errors import BodyTooLargeError, InvalidRequestError, MetadataTooLargeError

LOCAL_SENDER: Final = "local"
PROVENANCE_MAX_BYTES: Final = 64
LABEL_MAX_BYTES: Final = 128
WHY_MAX_BYTES: Final = 512
REPOS_MAX: Final = 32  # of one endpoint
TERMINAL_MAX_BYTES: Final = 2_048  # of compact JSON
PAGE_MAX: Final = 100
PAGE_DEFAULT: Final = 20

_MESSAGE_ID = re.compile(r"([1-9][0-9]{0,17})-([0-9a-f]{32})\Z")

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MessageId:
    """A row and the random token that makes it unguessable: `42-<32 hex digits>`."""

    row: int
    token: bytes

    def __str__(self) -> str:
        return f"{self.row}-{self.token.hex()}"

    @classmethod
    def parse(cls, value: object, field: str = "message_id") -> "MessageId":
        found = _MESSAGE_ID.match(value) if isinstance(value, str) else None
        if found is None:
            raise InvalidRequestError(f"{field}: is not a message id", hint="as 42-<32 hex digits>")
        return cls(int(found[1]), bytes.fromhex(found[2]))


@dataclass(frozen=True, slots=True)
class Send:
    client_id: str
    idempotency_key: str
    sender_repo: str
    target_repo: str
    body: str
    endpoint_id: str | None = None
    correlation_id: str | None = None
    provenance: str | None = None
    metadata: str | None = None  # compact JSON

    @classmethod
    def parse(cls, fields: Fields) -> "Send":
        """From a request. Sizes are bytes of UTF-8."""
        return cls(
            client_id=text(fields, "client_id", wire.ID_MAX_BYTES),
            idempotency_key=text(fields, "idempotency_key", wire.ID_MAX_BYTES),
            sender_repo=text(fields, "sender_repo", wire.REPO_MAX_BYTES),
            target_repo=text(fields, "target_repo", wire.REPO_MAX_BYTES),
            body=_body(fields),
            endpoint_id=optional_text(fields, "endpoint_id", wire.ID_MAX_BYTES),
            correlation_id=optional_text(fields, "correlation_id", wire.ID_MAX_BYTES),
            provenance=optional_text(fields, "provenance", PROVENANCE_MAX_BYTES),
            metadata=_metadata(fields),
        )


@dataclass(frozen=True, slots=True)
class Register:
    """`terminal` is the object that says where the session is; its own parser reads it."""

    repos: tuple[str, ...]
    terminal: dict[str, Any]
    profile: str
    label: str
    policy: Policy

    @classmethod
    def parse(cls, fields: Fields) -> "Register":
        return cls(
            repos=_repos(fields),
            terminal=_terminal(fields),
            profile=text(fields, "profile", wire.ID_MAX_BYTES),
            label=optional_text(fields, "label", LABEL_MAX_BYTES) or "",
            policy=_policy(fields),
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Newest first, below `before`. A cursor is the row of the last one seen."""

    limit: int
    before: int
    client_id: str | None = None
    target_repo: str | None = None
    correlation_id: str | None = None
    state: State | None = None
    bodies: bool = False

    @classmethod
    def parse(cls, fields: Fields) -> "Page":
        state = optional_text(fields, "state", 32)
        if state is not None and state not in list(State):
            raise InvalidRequestError(f"state: is one of {', '.join(State)}")
        return cls(
            limit=number(fields, "limit", 1, PAGE_MAX, PAGE_DEFAULT),
            before=cursor(fields),
            client_id=optional_text(fields, "client_id", wire.ID_MAX_BYTES),
            target_repo=optional_text(fields, "target_repo", wire.REPO_MAX_BYTES),
            correlation_id=optional_text(fields, "correlation_id", wire.ID_MAX_BYTES),
            state=None if state is None else State(state),
            bodies=flag(fields, "bodies"),
        )


@dataclass(frozen=True, slots=True)
class Retry:
    message: MessageId
    actor: str
    why: str

    @classmethod
    def parse(cls, fields: Fields) -> "Retry":
        return cls(
            MessageId.parse(fields.get("message_id")),
            text(fields, "actor", wire.ID_MAX_BYTES),
            text(fields, "why", WHY_MAX_BYTES),
        )


@dataclass(frozen=True, slots=True)
class Rebind:
    message: MessageId
    endpoint_id: str | None
    actor: str
    why: str

    @classmethod
    def parse(cls, fields: Fields) -> "Rebind":
        return cls(
            MessageId.parse(fields.get("message_id")),
            optional_text(fields, "endpoint_id", wire.ID_MAX_BYTES),
            text(fields, "actor", wire.ID_MAX_BYTES),
            text(fields, "why", WHY_MAX_BYTES),
        )


# ---- single fields -------------------------------------------------------------------------

CURSOR_MAX: Final = 2**62


def text(fields: Fields, name: str, max_bytes: int) -> str:
    """A text of 1 to `max_bytes` bytes that can be stored and shown."""
    value = fields.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequestError(f"{name}: must be a text that is not empty")
    if _utf8_bytes(name, value) > max_bytes:
        raise InvalidRequestError(f"{name}: is longer than {max_bytes} bytes")
    return value


def optional_text(fields: Fields, name: str, max_bytes: int) -> str | None:
    return None if fields.get(name) is None else text(fields, name, max_bytes)


def number(fields: Fields, name: str, lowest: int, highest: int, default: int) -> int:
    value = fields.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise InvalidRequestError(f"{name}: must be a number from {lowest} to {highest}")
    return value


def flag(fields: Fields, name: str) -> bool:
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{name}: must be true or false")
    return value


def cursor(fields: Fields, default: int = CURSOR_MAX) -> int:
    """Where a page begins."""
    value = fields.get("cursor")
    if value is None:
        return default
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{1,18}", value):
        raise InvalidRequestError("cursor: must be one that an earlier page gave")
    return int(value)


def _utf8_bytes(name: str, value: str) -> int:
    if "\0" in value:
        raise InvalidRequestError(f"{name}: must not hold a NUL character")
    try:
        return len(value.encode())
    except UnicodeEncodeError:
        raise InvalidRequestError(f"{name}: holds a lone surrogate, which is no text") from None


def _body(fields: Fields) -> str:
    value = fields.get("body")
    if not isinstance(value, str) or not value:
        raise InvalidRequestError("body: must be a text that is not empty")
    size = _utf8_bytes("body", value)
    if size > wire.BODY_MAX_BYTES:
        raise BodyTooLargeError(
            f"body: has {size} bytes of UTF-8, at most {wire.BODY_MAX_BYTES}",
            hint="put what is long into a file of the repository, and name it",
        )
    return value


def _metadata(fields: Fields) -> str | None:
    value = fields.get("metadata")
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidRequestError("metadata: must be a JSON object")
    try:
        encoded = wire.compact(value)
    except (ValueError, RecursionError):
        raise InvalidRequestError("metadata: holds what is no JSON or no text") from None
    size = len(encoded.encode())
    if size > wire.METADATA_MAX_BYTES:
        raise MetadataTooLargeError(
            f"metadata: has {size} bytes of JSON, at most {wire.METADATA_MAX_BYTES}"
        )
    if "\\u0000" in encoded and _holds_nul(value):
        raise InvalidRequestError("metadata: must not hold a NUL character")
    return encoded


def _holds_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_holds_nul(key) or _holds_nul(item) for key, item in value.items())
    return isinstance(value, list) and any(_holds_nul(item) for item in value)


def _repos(fields: Fields) -> tuple[str, ...]:
    value = fields.get("repos")
    if not isinstance(value, list) or not 1 <= len(value) <= REPOS_MAX:
        raise InvalidRequestError(f"repos: must be a list of 1 to {REPOS_MAX} names")
    names = {text({"repos": one}, "repos", wire.REPO_MAX_BYTES) for one in value}
    return tuple(sorted(names))


def _terminal(fields: Fields) -> dict[str, Any]:
    value = fields.get("terminal")
    if not isinstance(value, dict):
        raise InvalidRequestError("terminal: must be a JSON object")
    try:
        size = len(wire.compact(value).encode())
    except (ValueError, RecursionError):
        raise InvalidRequestError("terminal: holds what is no JSON or no text") from None
    if size > TERMINAL_MAX_BYTES:
        raise InvalidRequestError(f"terminal: is longer than {TERMINAL_MAX_BYTES} bytes")
    return value


def _policy(fields: Fields) -> Policy:
    value = fields.get("policy")
    if value is None:
        return Policy()
    if not isinstance(value, dict):
        raise InvalidRequestError("policy: must be a JSON object")
    attempts = number(value, "delivery_max_attempts", ATTEMPTS_MIN, ATTEMPTS_MAX, ATTEMPTS_DEFAULT)
    mode = value.get("delivery_ack_mode", AckMode.ACKNOWLEDGED.value)
    if mode not in list(AckMode):
        raise InvalidRequestError(f"delivery_ack_mode: is one of {', '.join(AckMode)}")
    return Policy(attempts, AckMode(mode))
