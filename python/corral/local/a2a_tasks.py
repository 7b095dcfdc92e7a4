"""The tasks of the scriptable A2A agent, and the log of what was asked of it.

Every call is a line of JSON in the log, on disk before anything is answered: what a test counts to
see that nothing was begun twice. Tasks are rebuilt from the log, so the agent may be killed too.

A line has `at_ms`, `call` (`send`, `get`, `cancel`, `list`), `did` (`started`, `continued`,
`again`, `canceled`, `looked`, `refused`) and the ids of the call.
"""

import json
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.core.clock import wall_ms
from corral.local import a2a_script as script
from corral.local.a2a_script import AgentTask


class RpcRefusal(Exception):
    """Becomes a JSON-RPC error."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class HttpRefusal(Exception):
    """Becomes an HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass
class Agent:
    """The tasks and the log. `idempotent`: a message that comes again has the task it had."""

    log: Path
    idempotent: bool = False
    tasks: dict[str, AgentTask] = field(default_factory=dict)
    by_message: dict[str, AgentTask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._fd = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for line in read_log(self.log):
            self._replay(line)

    def close(self) -> None:
        os.close(self._fd)

    def _write(self, call: str, did: str, **ids: Any) -> None:
        line = {"at_ms": wall_ms(), "call": call, "did": did} | ids
        os.write(self._fd, json.dumps(line).encode() + b"\n")
        os.fsync(self._fd)

    def _replay(self, line: dict[str, Any]) -> None:
        match line["did"]:
            case "started" if "task_id" in line:
                order = script.parse(line["text"])
                task = AgentTask(line["task_id"], line["context_id"], order, line["at_ms"])
                self._keep(task, line["message_id"], line["text"])
            case "continued":
                task = self.tasks[line["task_id"]]
                task.answer = line["text"]
                task.messages.append((line["message_id"], line["text"]))
            case "canceled":
                self.tasks[line["task_id"]].canceled = True

    def _keep(self, task: AgentTask, message_id: str, text: str) -> None:
        task.messages.append((message_id, text))
        self.by_message[message_id] = task
        if task.order.word != "forget":
            self.tasks[task.task_id] = task

    # ---- the calls -----------------------------------------------------------------------

    def send(self, message: dict[str, Any], user: str) -> AgentTask | str:
        """The task, or the text of a message that answers at once."""
        message_id, text = message["messageId"], message["parts"][0]["text"]
        ids = {"message_id": message_id, "text": text, "user": user}
        known = self.by_message.get(message_id)
        if known is not None and self.idempotent:
            self._write("send", "again", task_id=known.task_id, **ids)
            return known
        if "taskId" in message:
            return self._continue(message["taskId"], ids)
        order = script.parse(text)
        if order.word in {"refuse", "http"}:
            self._write("send", "refused", **ids)
            number = int(order.numbers[0])
            raise HttpRefusal(number) if order.word == "http" else RpcRefusal(number)
        context_id = message.get("contextId") or uuid.uuid4().hex
        if order.word == "message":
            self._write("send", "started", **ids)
            return order.rest
        task = AgentTask(uuid.uuid4().hex, context_id, order, wall_ms())
        self._write("send", "started", task_id=task.task_id, context_id=context_id, **ids)
        self._keep(task, message_id, text)
        return task

    def _continue(self, task_id: str, ids: dict[str, Any]) -> AgentTask:
        task = self._found("send", task_id)
        if task.state(wall_ms())[0] != "input-required":
            self._write("send", "refused", task_id=task_id, **ids)
            raise RpcRefusal(-32004)
        self._write("send", "continued", task_id=task_id, **ids)
        task.answer = ids["text"]
        task.messages.append((ids["message_id"], ids["text"]))
        return task

    def get(self, task_id: str) -> AgentTask:
        task = self._found("get", task_id)
        self._write("get", "looked", task_id=task_id)
        return task

    def cancel(self, task_id: str) -> AgentTask:
        task = self._found("cancel", task_id)
        ended = task.state(wall_ms())[0] in script.ENDED
        if ended or task.order.word == "stubborn":
            self._write("cancel", "refused", task_id=task_id)
            raise RpcRefusal(-32002)
        self._write("cancel", "canceled", task_id=task_id)
        task.canceled = True
        return task

    def of_context(self, context_id: str) -> list[AgentTask]:
        self._write("list", "looked", context_id=context_id)
        return [task for task in self.tasks.values() if task.context_id == context_id]

    def _found(self, call: str, task_id: str) -> AgentTask:
        if task_id not in self.tasks:
            self._write(call, "refused", task_id=task_id)
            raise RpcRefusal(-32001)
        return self.tasks[task_id]


def read_log(path: Path) -> list[dict[str, Any]]:
    """The whole lines of an effect log, in order."""
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def starts(path: Path) -> dict[str, int]:
    """How often each message id has begun something, by an effect log."""
    found: dict[str, int] = {}
    for line in read_log(path):
        if line["did"] in {"started", "continued"}:
            found[line["message_id"]] = found.get(line["message_id"], 0) + 1
    return found
