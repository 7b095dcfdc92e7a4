"""What an answer that is no result means. Pure.

A send that may have left is never repeated, so it matters what proves that the agent did not
begin: only what the protocol documents as said before execution. All else is ambiguous.

| answer to `SendMessage` | is |
| --- | --- |
| JSON-RPC -32700, -32600, -32601, -32602 | refused |
| -32001 when the message continues a task | refused |
| -32003, -32004, -32005, -32008, -32009 | refused |
| -32050 with the reason `tasks_full` | no room: nothing was begun, and it may be sent again |
| -32603, -32006, any other code | ambiguous |
| HTTP 401, 403 | authentication failed |
| HTTP 404, 405, 413, 415, 422 | refused |
| HTTP 408, 429, 3xx, 5xx, any other status | ambiguous |

A status below 500, except those of the authentication, gives way to a JSON-RPC error in its body.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Kind(Enum):
    """What a call came to when it gave no result."""

    NEVER_LEFT = auto()  # no byte of the request was written, or the agent had no room for it
    AMBIGUOUS = auto()
    REFUSED = auto()  # before execution
    AUTH = auto()
    GONE = auto()  # the task is not known
    NOT_CANCELABLE = auto()


@dataclass(frozen=True, slots=True)
class Fault:
    """`code` is stable and content-free: part of evidence, metrics and documentation."""

    kind: Kind
    code: str


_RPC: Final = {
    -32700: (Kind.REFUSED, "parse_error"),
    -32600: (Kind.REFUSED, "invalid_request"),
    -32601: (Kind.REFUSED, "method_not_found"),
    -32602: (Kind.REFUSED, "invalid_params"),
    -32603: (Kind.AMBIGUOUS, "internal_error"),
    -32001: (Kind.GONE, "task_not_found"),
    -32002: (Kind.NOT_CANCELABLE, "task_not_cancelable"),
    -32003: (Kind.REFUSED, "push_unsupported"),
    -32004: (Kind.REFUSED, "unsupported_operation"),
    -32005: (Kind.REFUSED, "content_type_unsupported"),
    -32006: (Kind.AMBIGUOUS, "invalid_agent_response"),
    -32007: (Kind.AMBIGUOUS, "no_extended_card"),
    -32008: (Kind.REFUSED, "extension_required"),
    -32009: (Kind.REFUSED, "version_unsupported"),
}
_HTTP_AUTH: Final = frozenset({401, 403})
_HTTP_REFUSED: Final = frozenset({404, 405, 413, 415, 422})
_HTTP_ALWAYS_AMBIGUOUS: Final = frozenset({408, 429})

# The two by which a server says that it speaks another version of the protocol.
OTHER_VERSION: Final = frozenset({"a2a_rpc_method_not_found", "a2a_rpc_version_unsupported"})


# What an agent with the extension of docs/reference/bridge-a2a.md says when it has no room.
FULL: Final = (-32050, "tasks_full")
FULL_CODE: Final = f"a2a_rpc_{FULL[1]}"


def of_rpc(code: int, reason: str = "") -> Fault:
    """Of a JSON-RPC error code, and the reason in its data."""
    if (code, reason) == FULL:
        return Fault(Kind.NEVER_LEFT, FULL_CODE)
    kind, name = _RPC.get(code, (Kind.AMBIGUOUS, "other"))
    return Fault(kind, f"a2a_rpc_{name}")


def of_status(status: int) -> Fault:
    """Of an HTTP status other than 200, without a JSON-RPC error."""
    if status in _HTTP_AUTH:
        kind = Kind.AUTH
    elif status in _HTTP_REFUSED:
        kind = Kind.REFUSED
    else:
        kind = Kind.AMBIGUOUS
    return Fault(kind, f"a2a_http_{status}")


def body_decides(status: int) -> bool:
    """Whether a JSON-RPC answer in the body says more than the status."""
    return status < 500 and status not in _HTTP_AUTH | _HTTP_ALWAYS_AMBIGUOUS


def known_codes() -> tuple[str, ...]:
    """The codes of this module that a JSON-RPC error can have, for the documentation."""
    names = (name for _, name in _RPC.values())
    return (*(f"a2a_rpc_{name}" for name in names), FULL_CODE, "a2a_rpc_other")
