"""A small A2A 1.0 agent to try the bridge with: `python -m corral.local.echo_agent PORT [LOG]`.

It does what the first word of a message says, and keeps nothing. For tests against real peers there
are agents made with the official SDK.

| words | |
| --- | --- |
| `slow SECONDS TEXT` | works that long, telling how far it is, then answers TEXT |
| `ask TEXT` | asks TEXT, and answers with what it is told |
| `fail TEXT` | fails |
| anything else | is answered with itself |

Each start of work is one line of LOG (the message's id), so that starts can be counted.
"""

import asyncio
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from corral.local.synapse import LOOPBACK

SLOW_MAX_S = 3_600.0
STEPS = 4
TASKS_MAX = 10_000


class RefusedError(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass
class Work:
    """One task."""

    number: int
    context_id: str
    text: str
    takes_s: float
    began_s: float
    state: str = "TASK_STATE_WORKING"

    @property
    def task_id(self) -> str:
        return f"task-{self.number}"

    def view(self) -> dict[str, Any]:
        said, artifacts = self._now()
        status: dict[str, Any] = {"state": self.state}
        if said:
            parts = [{"text": said}]
            message_id = f"{self.task_id}-{self.state}"
            status["message"] = {"messageId": message_id, "role": "ROLE_AGENT", "parts": parts}
        shown = {"id": self.task_id, "contextId": self.context_id, "status": status}
        return shown | ({"artifacts": artifacts} if artifacts else {})

    def _now(self) -> tuple[str, list[dict[str, Any]]]:
        gone_s = time.monotonic() - self.began_s
        if self.state == "TASK_STATE_WORKING" and gone_s >= self.takes_s:
            self.state = "TASK_STATE_COMPLETED"
        if self.state == "TASK_STATE_WORKING":
            step = int(gone_s / self.takes_s * STEPS)
            return (f"{step * 100 // STEPS} % done" if step else ""), []
        return self.text, []


class EchoAgent:
    """The JSON-RPC methods that the bridge uses."""

    def __init__(self, url: str, log: Path | None = None) -> None:
        self.url = url
        self._log = log
        self._numbers = itertools.count(1)
        self._tasks: dict[str, Work] = {}

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/.well-known/agent-card.json", self._card)
        app.router.add_post("/", self._call)
        return app

    async def _card(self, _request: web.Request) -> web.Response:
        interface = {"url": self.url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response({
            "name": "Echo",
            "description": "Answers with what it is told.",
            "version": "1",
            "supportedInterfaces": [interface],
            "capabilities": {"streaming": False},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [],
        })  # fmt: skip

    async def _call(self, request: web.Request) -> web.Response:
        asked = await request.json()
        answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked.get("id")}
        try:
            method = self._methods.get(asked.get("method"))
            if method is None:
                raise RefusedError(-32601, "no such method")
            answer["result"] = method(self, asked.get("params") or {})
        except RefusedError as error:
            answer["error"] = {"code": error.code, "message": error.message}
        return web.json_response(answer)

    def _send(self, params: dict[str, Any]) -> dict[str, Any]:
        message = params["message"]
        text = " ".join(part["text"] for part in message["parts"] if "text" in part)
        if "taskId" in message:
            return {"task": self._told(self._task(message["taskId"]), text).view()}
        if self._log is not None:
            with self._log.open("a", encoding="utf-8") as log:
                log.write(f"{message['messageId']}\n")
        number = next(self._numbers)
        context_id = message.get("contextId") or f"context-{number}"
        work = Work(number, context_id, text, 0.0, time.monotonic())
        word, _, rest = text.partition(" ")
        match word.lower():
            case "slow":
                seconds, _, said = rest.partition(" ")
                work.takes_s = _seconds(seconds)
                work.text = said or "done"
            case "ask":
                work.state, work.text = "TASK_STATE_INPUT_REQUIRED", rest or "What?"
            case "fail":
                work.state, work.text = "TASK_STATE_FAILED", rest or "It did not work."
        self._tasks[work.task_id] = work
        if len(self._tasks) > TASKS_MAX:
            del self._tasks[next(iter(self._tasks))]
        return {"task": work.view()}

    @staticmethod
    def _told(work: Work, text: str) -> Work:
        if work.state != "TASK_STATE_INPUT_REQUIRED":
            raise RefusedError(-32004, "the task does not wait for input")
        work.state, work.text = "TASK_STATE_COMPLETED", f"You said: {text}"
        return work

    def _get(self, params: dict[str, Any]) -> dict[str, Any]:
        return self._task(params.get("id")).view()

    def _cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        work = self._task(params.get("id"))
        work.view()
        if work.state not in {"TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"}:
            raise RefusedError(-32002, "the task is over")
        work.state, work.text = "TASK_STATE_CANCELED", ""
        return work.view()

    def _task(self, task_id: object) -> Work:
        work = self._tasks.get(str(task_id))
        if work is None:
            raise RefusedError(-32001, "no such task")
        return work

    _methods = {"SendMessage": _send, "GetTask": _get, "CancelTask": _cancel}  # noqa: RUF012


def _seconds(text: str) -> float:
    try:
        return min(max(float(text), 0.001), SLOW_MAX_S)
    except ValueError:
        raise RefusedError(-32602, "slow SECONDS TEXT") from None


async def serve(port: int, log: Path | None) -> None:
    """Until it is cancelled."""
    agent = EchoAgent(f"http://{LOOPBACK}:{port}/", log)
    runner = web.AppRunner(agent.application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
