"""What agents are asked, in the words of each version of the protocol. Pure."""

import re
import urllib.parse
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from corral.bridge.a2a.reading import clean
from corral.bridge.ports import Submission

OUTPUT_MODES: Final = ("text/plain", "text/markdown", "application/json", "image/*", "*/*")
LIST_PAGE_SIZE: Final = 100  # the most that 1.0 allows
LIST_HISTORY_MESSAGES: Final = 100

_TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")


class Version(StrEnum):
    """The versions of the protocol that we speak."""

    V1_0 = "1.0"
    V0_3 = "0.3"

    @property
    def other(self) -> "Version":
        return Version.V0_3 if self is Version.V1_0 else Version.V1_0


@dataclass(frozen=True, slots=True)
class Request:
    """One JSON-RPC call: what goes into its body, and the headers that belong to it."""

    method: str
    params: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


def send(version: Version, submission: Submission, *, extensions: tuple[str, ...] = ()) -> Request:
    """Ask for the task at once, not for its result: its id is what a restart needs."""
    message: dict[str, Any] = {"messageId": submission.message_id}
    if submission.context_id is not None:
        message["contextId"] = submission.context_id
    if submission.task_id is not None:
        message["taskId"] = submission.task_id
    text = clean(submission.text)
    configuration: dict[str, Any] = {"acceptedOutputModes": list(OUTPUT_MODES)}
    if version is Version.V1_0:
        method = "SendMessage"
        message |= {"role": "ROLE_USER", "parts": [{"text": text}]}
        configuration["returnImmediately"] = True
    else:
        method = "message/send"
        message |= {
            "role": "user",
            "kind": "message",
            "parts": [{"kind": "text", "text": text}],
        }
        configuration["blocking"] = False
    headers = {"X-User-Id": urllib.parse.quote(clean(submission.user), safe="@:/=+._-~!")}
    if submission.traceparent and _TRACEPARENT.match(submission.traceparent):
        headers["traceparent"] = submission.traceparent
    if extensions:
        name = "A2A-Extensions" if version is Version.V1_0 else "X-A2A-Extensions"
        headers[name] = ", ".join(extensions)
    return Request(method, {"message": message, "configuration": configuration}, headers)


def get(version: Version, task_id: str) -> Request:
    """A task with its artifacts, without its history."""
    method = "GetTask" if version is Version.V1_0 else "tasks/get"
    return Request(method, {"id": task_id, "historyLength": 0})


def cancel(version: Version, task_id: str) -> Request:
    method = "CancelTask" if version is Version.V1_0 else "tasks/cancel"
    return Request(method, {"id": task_id})


def list_tasks(context_id: str, page_token: str) -> Request:
    """One page of a context's tasks with their messages (1.0 only)."""
    params = {
        "contextId": context_id,
        "pageSize": LIST_PAGE_SIZE,
        "historyLength": LIST_HISTORY_MESSAGES,
        "includeArtifacts": True,
    }
    return Request("ListTasks", params | ({"pageToken": page_token} if page_token else {}))
