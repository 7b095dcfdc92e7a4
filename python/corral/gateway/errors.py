"""Errors that become JSON-RPC errors. Each is said before anything has begun."""

from typing import ClassVar

from corral.core.errors import CorralError


class GatewayError(CorralError):
    """Base: `rpc_code` is the JSON-RPC code that the client gets."""

    code: ClassVar[str] = "gateway_internal"
    rpc_code: ClassVar[int] = -32603


class ParseError(GatewayError):
    code: ClassVar[str] = "parse_error"
    rpc_code: ClassVar[int] = -32700


class InvalidRequestError(GatewayError):
    code: ClassVar[str] = "invalid_request"
    rpc_code: ClassVar[int] = -32600


class MethodNotFoundError(GatewayError):
    code: ClassVar[str] = "method_not_found"
    rpc_code: ClassVar[int] = -32601


class InvalidParamsError(GatewayError):
    code: ClassVar[str] = "invalid_params"
    rpc_code: ClassVar[int] = -32602


class MessageConflictError(InvalidParamsError):
    """The message id was used for another message of this client."""

    code: ClassVar[str] = "message_conflict"


class TaskNotFoundError(GatewayError):
    code: ClassVar[str] = "task_not_found"
    rpc_code: ClassVar[int] = -32001


class TaskNotCancelableError(GatewayError):
    code: ClassVar[str] = "task_not_cancelable"
    rpc_code: ClassVar[int] = -32002


class PushUnsupportedError(GatewayError):
    code: ClassVar[str] = "push_unsupported"
    rpc_code: ClassVar[int] = -32003


class ExtendedCardError(GatewayError):
    """There is no card beside the public one."""

    code: ClassVar[str] = "no_extended_card"
    rpc_code: ClassVar[int] = -32007


class UnsupportedOperationError(GatewayError):
    code: ClassVar[str] = "unsupported_operation"
    rpc_code: ClassVar[int] = -32004


class ContentTypeError(GatewayError):
    code: ClassVar[str] = "content_type_unsupported"
    rpc_code: ClassVar[int] = -32005


class VersionError(GatewayError):
    code: ClassVar[str] = "version_unsupported"
    rpc_code: ClassVar[int] = -32009


class TasksFullError(GatewayError):
    """The client has as many open tasks as it may. Nothing was begun; later it may be."""

    code: ClassVar[str] = "tasks_full"
    rpc_code: ClassVar[int] = -32050
