"""What agents answer, read by its shape: both versions of the protocol, and anything else.

Pure, and total: every function gives a value of its type or raises `BadAnswerError`, whatever the
input. Identifiers and states are strict, for decisions are made by them. Content is lenient: a
part of an unknown or broken kind is left out, so that a new kind of part costs no answer.
Text that PostgreSQL or Matrix cannot carry (NUL, lone surrogates) has U+FFFD in its place.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from corral.bridge.ports import Artifact, Reply, Task, TaskState, TaskView

ID_MAX_CHARS: Final = 512
NAME_MAX_CHARS: Final = 255
URL_MAX_CHARS: Final = 2048

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_REASON: Final = re.compile(r"[A-Za-z0-9_]{1,64}\Z", re.ASCII)
_MEDIA_TYPE: Final = re.compile(r"[\w.+-]{1,100}/[\w.+-]{1,100}\Z", re.ASCII)
_STATES: Final = {state.value: state for state in TaskState}
_BINARY: Final = "application/octet-stream"


class BadAnswerError(ValueError):
    """The agent's answer is not what the protocol says; `code` is stable and content-free."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True)
class RpcError:
    """A JSON-RPC error. Its message is not kept: it may quote content. `reason` is the stable word
    in its data, "" for none."""

    code: int
    reason: str = ""


def clean(text: str) -> str:
    """The text with U+FFFD for what cannot be stored: NUL and lone surrogates."""
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def document(body: bytes) -> Any:
    """The JSON value of a body. `BadAnswerError` when it is none: HTML, half of one, too deep."""
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadAnswerError("a2a_answer_not_json") from None


def envelope(body: bytes, request_id: str) -> dict[str, Any] | RpcError:
    """The result (an object) or the error of the JSON-RPC answer to `request_id`.

    An error without an id is taken for ours: a server that could not read the request has none.
    """
    answer = document(body)
    if not isinstance(answer, dict) or answer.get("jsonrpc") != "2.0":
        raise BadAnswerError("a2a_answer_not_jsonrpc")
    error, result, ident = answer.get("error"), answer.get("result"), answer.get("id")
    if ident != request_id and not (ident is None and error is not None):
        raise BadAnswerError("a2a_answer_wrong_id")
    if error is not None:
        code = error.get("code") if isinstance(error, dict) and result is None else None
        if not isinstance(code, int) or isinstance(code, bool):
            raise BadAnswerError("a2a_answer_not_jsonrpc")
        return RpcError(code, _reason(error.get("data")))
    if not isinstance(result, dict):
        raise BadAnswerError("a2a_answer_bad_shape")
    return result


def _reason(data: object) -> str:
    """Where the protocol puts it: in the first detail that has one."""
    found = (one.get("reason") for one in _dicts(data))
    return next((one for one in found if isinstance(one, str) and _REASON.match(one)), "")


def sent(result: dict[str, Any], *, context_id: str) -> Task | Reply:
    """What `SendMessage` answered. `context_id` stands in where the agent names none.

    A task in a state that we do not know counts as submitted: it exists, and polling tells more.
    """
    if "task" in result or "message" in result:  # 1.0 says in which field the answer is
        is_task = result.get("task") is not None
        inner = result["task"] if is_task else result.get("message")
    else:  # 0.3 says it by `kind`; older servers leave even that out
        is_task = result.get("kind") == "task" or ("status" in result and "kind" not in result)
        inner = result
    if not isinstance(inner, dict):
        raise BadAnswerError("a2a_answer_bad_shape")
    if is_task:
        return Task(view(inner, context_id=context_id, unknown=TaskState.SUBMITTED))
    if not isinstance(inner.get("parts"), list):
        raise BadAnswerError("a2a_answer_bad_shape")
    text, others = _content(inner.get("parts"), "message", "")
    return Reply(text, _context(inner, context_id), others)


def view(
    task: dict[str, Any], *, context_id: str = "", unknown: TaskState | None = None
) -> TaskView:
    """A task. `unknown` stands in for a state that is missing or that we do not know."""
    status = task.get("status")
    status = status if isinstance(status, dict) else {}
    state = _state(status.get("state")) or unknown
    if state is None:
        raise BadAnswerError("a2a_answer_bad_state")
    message = status.get("message")
    parts = message.get("parts") if isinstance(message, dict) else None
    text, attached = _content(parts, "status", "")
    artifacts = [one for found in _dicts(task.get("artifacts")) for one in _artifacts(found)]
    return TaskView(
        task_id=_ident(task.get("id")),
        context_id=_context(task, context_id),
        state=state,
        text=text,
        artifacts=(*attached, *artifacts),
    )


def listed(result: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The tasks of one page of `ListTasks`, and the token of the next page ("" for none)."""
    tasks, token = result.get("tasks", []), result.get("nextPageToken", "")
    if not isinstance(tasks, list) or not isinstance(token, str):
        raise BadAnswerError("a2a_answer_bad_shape")
    return list(_dicts(tasks)), token


def has_message(task: dict[str, Any], message_id: str) -> bool:
    """Whether a message of ours with this id is in the task's history."""
    return any(
        message.get("messageId") == message_id and message.get("role") in {"ROLE_USER", "user"}
        for message in _dicts(task.get("history"))
    )


def _state(name: object) -> TaskState | None:
    if not isinstance(name, str):
        return None
    return _STATES.get(name.lower().removeprefix("task_state_").replace("_", "-"))


def _ident(value: object) -> str:
    """An id that can be stored and sent back as it is."""
    if not isinstance(value, str) or not 0 < len(value) <= ID_MAX_CHARS or _CONTROL.search(value):
        raise BadAnswerError("a2a_answer_bad_id")
    return value


def _context(holder: dict[str, Any], default: str) -> str:
    named = holder.get("contextId")
    return default if named is None or named == "" else _ident(named)


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))


def _artifacts(artifact: dict[str, Any]) -> Iterator[Artifact]:
    """One for all its text, then one for each other part."""
    ident = _label(artifact.get("artifactId"), ID_MAX_CHARS) or "artifact"
    name = _label(artifact.get("name"), NAME_MAX_CHARS)
    text, others = _content(artifact.get("parts"), ident, name)
    if text:
        yield Artifact(ident, name, text=text)
    yield from others


def _content(parts: object, ident: str, name: str) -> tuple[str, tuple[Artifact, ...]]:
    """The text of all text parts, one below the other, and the rest."""
    texts: list[str] = []
    others: list[Artifact] = []
    for part in _dicts(parts):
        text = part.get("text")
        if isinstance(text, str):
            texts.append(clean(text))
        elif found := _attachment(part, f"{ident}/{len(others) + 1}", name):
            others.append(found)
    return "\n".join(texts), tuple(others)


def _attachment(part: dict[str, Any], ident: str, name: str) -> Artifact | None:
    """A part with bytes, a link or data, of either version; None for what we do not know."""
    if isinstance(file := part.get("file"), dict):  # 0.3
        raw, url = file.get("bytes"), file.get("uri")
        kind, named = file.get("mimeType"), file.get("name")
    else:
        raw, url = part.get("raw"), part.get("url")
        kind, named = part.get("mediaType"), part.get("filename")
    title = _label(named, NAME_MAX_CHARS) or name
    media_type = kind if isinstance(kind, str) and _MEDIA_TYPE.match(kind) else _BINARY
    if isinstance(raw, str):
        data = _bytes(raw)
        return None if data is None else Artifact(ident, title, None, data, media_type)
    if isinstance(url, str):
        return _link(url, ident, title, media_type)
    if "data" in part:
        data = _json(part["data"])
        return None if data is None else Artifact(ident, title, None, data, "application/json")
    return None


def _link(url: str, ident: str, title: str, media_type: str) -> Artifact | None:
    """Only web addresses become links: what a reader clicks is not for an agent to choose."""
    if len(url) > URL_MAX_CHARS or _CONTROL.search(url):
        return None
    if url.startswith(("https://", "http://")):
        return Artifact(ident, title, None, None, media_type, url)
    return Artifact(ident, title, text=url)


def _json(value: object) -> bytes | None:
    try:
        return clean(json.dumps(value, ensure_ascii=False)).encode()
    except RecursionError:  # reading allows a little more depth than writing
        return None


def _bytes(text: str) -> bytes | None:
    try:
        padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
        return base64.b64decode(padded.translate({45: "+", 95: "/"}), validate=True)
    except (ValueError, binascii.Error):
        return None


def _label(value: object, max_chars: int) -> str:
    if not isinstance(value, str):
        return ""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", value[:max_chars])


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)
