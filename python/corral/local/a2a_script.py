"""What the scriptable A2A agent does with a message, and how a task looks at an instant. Pure.

The words before the first one that the table names do not count (a mention of the agent, say):

| message | the agent |
| --- | --- |
| `echo TEXT`, or any other text | completes at once with the text |
| `after SECONDS TEXT` | works so long, then completes |
| `progress COUNT SECONDS TEXT` | shows so many steps in so long, then completes |
| `artifact TEXT` | completes with the text as an artifact, and a file |
| `ask TEXT` | asks, then completes with the answer |
| `work` | works until it is canceled |
| `stubborn` | works, and cannot be canceled |
| `fail`, `reject`, `login` | ends in that state |
| `message TEXT` | answers with a message, without a task |
| `forget` | takes the task, and does not know it afterwards |
| `block SECONDS TEXT` | does not answer the call until it has completed |
| `refuse CODE` | answers with that JSON-RPC error, having done nothing |
| `http STATUS` | answers with that HTTP status, having done nothing |
| `deaf` | does it, and closes the connection without an answer |
| `hang` | does it, and never answers |
| `garbage KIND` | does it, and answers with nonsense (`GARBAGE`) |
"""

import base64
import json
from dataclasses import dataclass, field
from typing import Any, Final

GARBAGE: Final = (
    "html", "half", "huge", "wrong-id", "wrong-task", "list", "no-state", "deep", "nul",
)  # fmt: skip
_NUMBERS: Final = {"after": 1, "progress": 2, "block": 1, "refuse": 1, "http": 1}
WORDS: Final = frozenset({
    "echo", "artifact", "ask", "work", "stubborn", "fail", "reject", "login", "message",
    "forget", "deaf", "hang", "garbage", *_NUMBERS,
})  # fmt: skip
ENDED: Final = frozenset({"completed", "failed", "rejected", "canceled"})
FILE: Final = b"a file, made up"


@dataclass(frozen=True)
class Order:
    """What a message asks for: a word of the table, its numbers, and the rest."""

    word: str
    numbers: tuple[float, ...]
    rest: str


def parse(text: str) -> Order:
    """The order in a text; what is no order is `echo`."""
    words = text.split()
    at = next((n for n, word in enumerate(words) if word.lower() in WORDS), None)
    if at is None:
        return Order("echo", (), text)
    word, count = words[at].lower(), _NUMBERS.get(words[at].lower(), 0)
    following = words[at + 1 :]
    try:
        numbers = tuple(float(one) for one in following[:count])
    except ValueError:
        numbers = ()
    if len(numbers) < count:
        return Order("echo", (), text)
    return Order(word, numbers, " ".join(following[count:]))


@dataclass
class AgentTask:
    """A task of the agent. Times are wall milliseconds."""

    task_id: str
    context_id: str
    order: Order
    began_ms: int
    messages: list[tuple[str, str]] = field(default_factory=list)  # id and text, of the user
    answer: str | None = None  # to `ask`
    canceled: bool = False

    def state(self, now_ms: int) -> tuple[str, str]:
        """The state, and the text of its message."""
        elapsed_s = (now_ms - self.began_ms) / 1000
        word, rest, numbers = self.order.word, self.order.rest, self.order.numbers
        if self.canceled:
            return "canceled", ""
        match word:
            case "fail":
                return "failed", rest
            case "reject":
                return "rejected", rest
            case "login":
                return "auth-required", rest
            case "ask":
                if self.answer is None:
                    return "input-required", rest
                return "completed", f"answered: {self.answer}"
            case "work" | "stubborn":
                return "working", "at work"
            case "after" | "block" if elapsed_s < numbers[0]:
                return "working", ""
            case "progress" if elapsed_s < numbers[1]:
                step = int(elapsed_s / numbers[1] * numbers[0]) + 1
                return "working", f"step {step} of {int(numbers[0])}"
            case "artifact":
                return "completed", ""
        return "completed", rest

    def shown(self, now_ms: int, *, old: bool, history: int = 0) -> dict[str, Any]:
        """The task as an answer has it, in 1.0 or (`old`) 0.3."""
        state, text = self.state(now_ms)
        status: dict[str, Any] = {"state": _state(state, old=old)}
        if text:
            status["message"] = self.message(text, old=old)
        task: dict[str, Any] = {
            "id": self.task_id, "contextId": self.context_id, "status": status,
        }  # fmt: skip
        if old:
            task["kind"] = "task"
        if self.order.word == "artifact":
            parts = [text_part(self.order.rest, old=old), file_part(old=old)]
            task["artifacts"] = [{"artifactId": "result", "name": "result", "parts": parts}]
        if history:
            task["history"] = [
                {"messageId": ident, "role": "user" if old else "ROLE_USER",
                 "parts": [text_part(words, old=old)]}
                for ident, words in self.messages[-history:]
            ]  # fmt: skip
        return task

    def message(self, text: str, *, old: bool) -> dict[str, Any]:
        """A message of the agent in this task."""
        return agent_message(text, self.context_id, old=old) | {"taskId": self.task_id}


def agent_message(text: str, context_id: str, *, old: bool) -> dict[str, Any]:
    """A message of the agent, in 1.0 or (`old`) 0.3."""
    message: dict[str, Any] = {
        "messageId": f"of-{context_id}",
        "contextId": context_id,
        "role": "agent" if old else "ROLE_AGENT",
        "parts": [text_part(text, old=old)],
    }
    return message | ({"kind": "message"} if old else {})


def text_part(text: str, *, old: bool) -> dict[str, Any]:
    return {"kind": "text", "text": text} if old else {"text": text}


def file_part(*, old: bool) -> dict[str, Any]:
    encoded = base64.b64encode(FILE).decode()
    if old:
        file = {"bytes": encoded, "mimeType": "text/plain", "name": "file.txt"}
        return {"kind": "file", "file": file}
    return {"raw": encoded, "mediaType": "text/plain", "filename": "file.txt"}


def _state(name: str, *, old: bool) -> str:
    return name if old else f"TASK_STATE_{name.upper().replace('-', '_')}"


def garbage(kind: str, request_id: object, task: dict[str, Any], *, old: bool) -> bytes:
    """An answer that is none, by its name in `GARBAGE`."""

    def answer(shown: object, ident: object = request_id) -> bytes:
        result = shown if old else {"task": shown}
        return json.dumps({"jsonrpc": "2.0", "id": ident, "result": result}).encode()

    match kind:
        case "html":
            return b"<html><body>502 Bad Gateway</body></html>"
        case "half":
            whole = answer(task)
            return whole[: len(whole) // 2]
        case "huge":
            return b" " * (64 * 1024 * 1024)
        case "wrong-id":
            return answer(task, "somebody else's")
        case "wrong-task":
            return answer(task | {"id": "somebody else's"})
        case "list":
            return json.dumps([task]).encode()
        case "no-state":
            return answer(task | {"status": {"state": 7}})
        case "deep":
            return b"[" * 100_000 + b"]" * 100_000
    text = "a\x00b\ud800c"
    nul = {"state": _state("completed", old=old), "message": agent_message(text, "c", old=old)}
    return answer(task | {"status": nul})
