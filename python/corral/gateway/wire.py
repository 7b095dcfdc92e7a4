"""What clients ask and how they are answered, in 1.0 and 0.3. Pure.

`read` makes of a body one `Call`, or raises an error that becomes a JSON-RPC error. The words that
differ between the versions are only here.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, NoReturn

from corral.gateway import domain
from corral.gateway.domain import Limits, Message, Send, State, Task
from corral.gateway.errors import (
    ContentTypeError,
    ExtendedCardError,
    GatewayError,
    InvalidParamsError,
    InvalidRequestError,
    MethodNotFoundError,
    ParseError,
    PushUnsupportedError,
    VersionError,
)

VERSION_HEADER: Final = "A2A-Version"
TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


class Method(StrEnum):
    """The methods by their names in 1.0."""

    SEND = "SendMessage"
    STREAM = "SendStreamingMessage"
    GET = "GetTask"
    CANCEL = "CancelTask"
    LIST = "ListTasks"
    SUBSCRIBE = "SubscribeToTask"


_OLD: Final = {
    "message/send": Method.SEND,
    "message/stream": Method.STREAM,
    "tasks/get": Method.GET,
    "tasks/cancel": Method.CANCEL,
    "tasks/resubscribe": Method.SUBSCRIBE,
}


# What the protocol has for more than is offered here, and says of its absence.
_NOT_OFFERED: Final = {
    **dict.fromkeys(
        (
            *("CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"),
            *("ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"),
            *(f"tasks/pushNotificationConfig/{verb}" for verb in ("set", "get", "list", "delete")),
        ),
        PushUnsupportedError("this agent calls nobody"),
    ),
    **dict.fromkeys(
        ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard"),
        ExtendedCardError("there is no card beside the public one"),
    ),
}
_PUSH: Final = ("taskPushNotificationConfig", "pushNotificationConfig")


@dataclass(frozen=True, slots=True)
class Listing:
    """Which tasks a client wants to see. `token` is an earlier page's."""

    count: int
    token: str
    context_id: str | None
    state: State | None
    since_ms: int
    history: int


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `old`: in the words of 0.3. `history`: how many messages are shown, at most."""

    request_id: str | int | None
    method: Method
    old: bool
    task_id: str = ""
    send: Send | None = None
    wait: bool = True
    history: int = 0
    listing: Listing | None = None


@dataclass(frozen=True, slots=True)
class Envelope:
    """What is known of a request before its parameters are read."""

    request_id: str | int | None
    method: str
    params: dict[str, Any]

    @property
    def wants_events(self) -> bool:
        """Whether the clients of its version read an error only as an event of the stream."""
        return _OLD.get(self.method) in {Method.STREAM, Method.SUBSCRIBE}


# ---- reading --------------------------------------------------------------------------------


def envelope(body: bytes) -> Envelope:
    """`ParseError` and `InvalidRequestError` for what is no JSON-RPC request."""
    try:
        call = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ParseError("the body is no JSON") from None
    if not isinstance(call, dict) or call.get("jsonrpc") != "2.0":
        raise InvalidRequestError("not a JSON-RPC 2.0 request")
    request_id, method, params = call.get("id"), call.get("method"), call.get("params", {})
    good_id = request_id is None or isinstance(request_id, str | int)
    if not good_id or isinstance(request_id, bool) or not isinstance(method, str):
        raise InvalidRequestError("a request needs a method, and an id that is text or a number")
    if not isinstance(params, dict):
        raise InvalidRequestError("params must be an object")
    return Envelope(request_id, method, params)


def read(given: Envelope, version: str | None, limits: Limits) -> Call:
    """The call. `version` is the header's; a request without it speaks 0.3."""
    if given.method in _NOT_OFFERED:
        error = _NOT_OFFERED[given.method]
        raise type(error)(error.message)
    old = given.method in _OLD
    try:
        method = _OLD[given.method] if old else Method(given.method)
    except ValueError:
        raise MethodNotFoundError(f"no method {given.method[:64]!r}") from None
    if (version or "0.3").split(".")[0] != ("0" if old else "1"):
        raise VersionError(f"{given.method} is not a method of version {(version or '0.3')[:16]!r}")
    params = given.params
    if method in {Method.SEND, Method.STREAM}:
        return _send(given, method, limits, old=old)
    if method is Method.LIST:
        return Call(given.request_id, method, old, listing=_listing(params, limits))
    history = _count(params, "historyLength", limits.history_max)
    return Call(
        given.request_id, method, old, task_id=_ident(params, "id", limits), history=history
    )


def _send(given: Envelope, method: Method, limits: Limits, *, old: bool) -> Call:
    message, configuration = given.params.get("message"), given.params.get("configuration", {})
    if not isinstance(message, dict) or not isinstance(configuration, dict):
        raise InvalidParamsError("params needs a message, and configuration is an object")
    if any(configuration.get(name) for name in _PUSH):
        raise PushUnsupportedError("this agent calls nobody")
    if message.get("role") != ("user" if old else "ROLE_USER"):
        raise InvalidParamsError("the role of a message must be the user's")
    if old:
        wait = configuration.get("blocking", True) is not False
    else:
        wait = configuration.get("returnImmediately", False) is not True
    send = Send(
        message_id=_ident(message, "messageId", limits),
        text=_text(message.get("parts"), limits),
        context_id=_ident(message, "contextId", limits) if message.get("contextId") else None,
        task_id=_ident(message, "taskId", limits) if message.get("taskId") else None,
    )
    history = _count(configuration, "historyLength", limits.history_max)
    return Call(given.request_id, method, old, send=send, wait=wait, history=history)


def _text(parts: object, limits: Limits) -> str:
    """The text of all parts, one below the other. Only text can be carried."""
    if not isinstance(parts, list) or not 0 < len(parts) <= limits.parts_max:
        raise InvalidParamsError(f"a message needs 1 to {limits.parts_max} parts")
    texts = []
    for part in parts:
        if not isinstance(part, dict):
            raise InvalidParamsError("a part must be an object")
        text = part.get("text")
        if not isinstance(text, str):
            raise ContentTypeError("only text parts can be carried to this agent")
        if _UNSTORABLE.search(text):
            raise InvalidParamsError("the text holds NUL or half a character")
        texts.append(text)
    if not any(text.strip() for text in texts):
        raise InvalidParamsError("a message must not be blank")
    return "\n".join(texts)


def _listing(params: dict[str, Any], limits: Limits) -> Listing:
    token, context_id = params.get("pageToken", ""), params.get("contextId") or None
    status, since = params.get("status"), params.get("statusTimestampAfter")
    if not isinstance(token, str) or (token and not token.isdecimal()) or len(token) > 18:
        raise InvalidParamsError("pageToken is not one of ours")
    if not isinstance(context_id, str | None):
        raise InvalidParamsError("contextId must be text")
    return Listing(
        count=min(_count(params, "pageSize", 50) or 50, limits.page_max),
        token=token,
        context_id=context_id,
        state=_state(status) if status else None,
        since_ms=_instant_ms(since) if since else 0,
        history=_count(params, "historyLength", 0),
    )


def _state(name: object) -> State | None:
    try:
        return State(str(name).removeprefix("TASK_STATE_").lower().replace("_", "-"))
    except ValueError:
        if name == "TASK_STATE_UNSPECIFIED":
            return None
        raise InvalidParamsError("no tasks have that status") from None


def _instant_ms(text: object) -> int:
    try:
        return round(datetime.fromisoformat(str(text)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise InvalidParamsError("statusTimestampAfter is no time") from None


def _ident(holder: dict[str, Any], name: str, limits: Limits) -> str:
    value = holder.get(name)
    fits = isinstance(value, str) and 0 < len(value) <= limits.id_max_chars
    if not isinstance(value, str) or not fits or _CONTROL.search(value):
        raise InvalidParamsError(
            f"{name} must be text of 1 to {limits.id_max_chars} characters without control ones"
        )
    return value


def _count(holder: dict[str, Any], name: str, default: int) -> int:
    value = holder.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidParamsError(f"{name} must be a number, 0 or more")
    return min(value, 2**31)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def printable(text: str) -> str:
    """A header's text without what cannot be stored or shown."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


# ---- answering ------------------------------------------------------------------------------


def result(request_id: str | int | None, value: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def error(request_id: str | int | None, fault: GatewayError) -> dict[str, Any]:
    """The message is ours and holds no content; `data` has the stable code."""
    body = {"code": fault.rpc_code, "message": fault.message, "data": [{"reason": fault.code}]}
    return {"jsonrpc": "2.0", "id": request_id, "error": body}


def sent(task: Task, call: Call) -> dict[str, Any]:
    """What `SendMessage` answers."""
    found = shown(task, old=call.old, history=call.history)
    return found if call.old else {"task": found}


def shown(task: Task, *, old: bool, history: int) -> dict[str, Any]:
    """A task with its newest `history` messages."""
    found: dict[str, Any] = {
        "id": task.task_id, "contextId": task.context_id, "status": _status(task, old=old),
    }  # fmt: skip
    if history and task.messages:
        found["history"] = [_message(task, one, old=old) for one in task.messages[-history:]]
    return found | ({"kind": "task"} if old else {})


def first_event(task: Task, call: Call) -> dict[str, Any]:
    """The beginning of a stream: the whole task."""
    found = shown(task, old=call.old, history=call.history)
    return found if call.old else {"task": found}


def next_event(task: Task, call: Call) -> dict[str, Any]:
    """A later event of a stream: the new status."""
    found: dict[str, Any] = {
        "taskId": task.task_id, "contextId": task.context_id,
        "status": _status(task, old=call.old),
    }  # fmt: skip
    if call.old:
        return found | {"kind": "status-update", "final": task.state in domain.RESTING}
    return {"statusUpdate": found}


def _status(task: Task, *, old: bool) -> dict[str, Any]:
    state = task.state.value
    status: dict[str, Any] = {
        "state": state if old else f"TASK_STATE_{state.upper().replace('-', '_')}",
        "timestamp": _instant(task.changed_at_ms),
    }
    if task.text:
        ident = f"{task.task_id}-{task.generation}"
        message = Message(ident, "agent", task.text, task.changed_at_ms)
        status["message"] = _message(task, message, old=old)
    return status


def _message(task: Task, message: Message, *, old: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messageId": message.message_id, "contextId": task.context_id, "taskId": task.task_id,
    }  # fmt: skip
    if old:
        part = {"kind": "text", "text": message.text}
        return found | {"kind": "message", "role": message.role, "parts": [part]}
    return found | {"role": f"ROLE_{message.role.upper()}", "parts": [{"text": message.text}]}


def _instant(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
