"""Errors of the protocol: what a client is told, with the stable code that it may match on.

Server and clients share these classes. `retryable` says whether the same request may succeed
later without anybody changing it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from corral.core.errors import CorralError


class TamqError(CorralError):
    """Base of the protocol's errors. `retryable`: the same request may succeed later."""

    code: ClassVar[str] = "unavailable"
    exit_code: ClassVar[int] = 69
    retryable: ClassVar[bool] = False

    def wire(self) -> dict[str, object]:
        """The `error` object of an answer."""
        fields: dict[str, object] = {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
        }
        if self.hint:
            fields["hint"] = self.hint
        if self.ids:
            fields["ids"] = dict(self.ids)
        return fields


class IncompatibleProtocolError(TamqError):
    """Another major version of the protocol, or a capability that is needed is missing."""

    code: ClassVar[str] = "incompatible_protocol"
    exit_code: ClassVar[int] = 78


class UnauthorizedError(TamqError):
    """The kernel says that the peer is another user, or does not say who it is."""

    code: ClassVar[str] = "unauthorized"
    exit_code: ClassVar[int] = 77


class InvalidRequestError(TamqError):
    """A frame or a field that the protocol does not allow."""

    code: ClassVar[str] = "invalid_request"
    exit_code: ClassVar[int] = 64


class BodyTooLargeError(TamqError):
    """The body has more bytes of UTF-8 than the limit."""

    code: ClassVar[str] = "body_too_large"
    exit_code: ClassVar[int] = 64


class MetadataTooLargeError(TamqError):
    """The metadata has more bytes of JSON than the limit."""

    code: ClassVar[str] = "metadata_too_large"
    exit_code: ClassVar[int] = 64


class UnknownRepoError(TamqError):
    """The repository is not in the gita registry, or more than once."""

    code: ClassVar[str] = "unknown_repo"
    exit_code: ClassVar[int] = 64


class UnavailableTamqError(TamqError):
    """No live endpoint serves the repository, TAMQ does not answer, or cannot store anything."""

    code: ClassVar[str] = "unavailable"
    retryable: ClassVar[bool] = True


class AmbiguousEndpointError(TamqError):
    """Several live endpoints serve the repository: one must be named."""

    code: ClassVar[str] = "ambiguous_endpoint"
    exit_code: ClassVar[int] = 64


class IdempotencyConflictError(TamqError):
    """The key was used before with another sender, target, endpoint or body."""

    code: ClassVar[str] = "idempotency_conflict"
    exit_code: ClassVar[int] = 65


class NotFoundError(TamqError):
    """There is no such message, or no such live endpoint."""

    code: ClassVar[str] = "not_found"
    exit_code: ClassVar[int] = 66


class InvalidStateError(TamqError):
    """The message's state does not allow what was asked."""

    code: ClassVar[str] = "invalid_state"
    exit_code: ClassVar[int] = 65


class BusyError(TamqError):
    """A limit of TAMQ is reached: connections, open messages or endpoints."""

    code: ClassVar[str] = "busy"
    retryable: ClassVar[bool] = True


CODES: Final[Mapping[str, type[TamqError]]] = {
    kind.code: kind
    for kind in (
        IncompatibleProtocolError,
        UnauthorizedError,
        InvalidRequestError,
        BodyTooLargeError,
        MetadataTooLargeError,
        UnknownRepoError,
        UnavailableTamqError,
        AmbiguousEndpointError,
        IdempotencyConflictError,
        NotFoundError,
        InvalidStateError,
        BusyError,
    )
}


def from_wire(fields: Any) -> TamqError:
    """The error of an answer. A code that this release does not know is not retryable."""
    given: dict[str, Any] = fields if isinstance(fields, dict) else {}
    kind = CODES.get(str(given.get("code", "")), TamqError)
    ids = given.get("ids")
    error = kind(
        str(given.get("message", "TAMQ refused and gave no reason")),
        hint=str(given.get("hint", "")),
        ids={str(k): str(v) for k, v in ids.items()} if isinstance(ids, dict) else {},
    )
    retryable = given.get("retryable")
    if isinstance(retryable, bool):
        error.retryable = retryable  # type: ignore[misc]  # what the server said of this one
    return error
