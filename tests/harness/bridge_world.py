"""The other sides of the bridge, played by the test: an agent by script, and rooms that record.

The agent does what the message says (see `Agent.send`). The rooms are a double: they number what
they are sent, know a transaction id again as a homeserver does (for each room, whoever sends), and
keep every event. They cannot show what a homeserver refuses or reorders: the tests with a real one
do. Both live in the test's process, so that they survive the bridge; `serve` and `Remote` carry
the calls of a bridge that runs as a process of its own.
"""

import asyncio
import itertools
import pickle
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.bridge.ports import (
    Artifact,
    AuthFailed,
    CancelAnswer,
    Canceled,
    Card,
    CardAnswer,
    Content,
    FindAnswer,
    FindEventAnswer,
    Forbidden,
    Found,
    GetAnswer,
    JoinAnswer,
    Joined,
    MayHaveLeft,
    NeverLeft,
    NotCancelable,
    NotFound,
    Pins,
    PinsAnswer,
    Place,
    PostAnswer,
    Refused,
    Reply,
    SendAnswer,
    Sent,
    Submission,
    Task,
    TaskGone,
    TaskState,
    TaskView,
    Unreachable,
    UploadAnswer,
    Uploaded,
)


@dataclass
class OneTask:
    submission: Submission
    task_id: str
    context_id: str
    began: float
    takes_s: float
    text: str
    state: TaskState = TaskState.WORKING
    answer: str = ""
    artifacts: tuple[Artifact, ...] = ()
    progress: tuple[str, ...] = ()

    def view(self) -> TaskView:
        if self.state is TaskState.WORKING and time.monotonic() - self.began >= self.takes_s:
            self.state = TaskState.COMPLETED
        if self.state is TaskState.COMPLETED:
            text, artifacts = self.text, self.artifacts
            return TaskView(self.task_id, self.context_id, self.state, text, artifacts)
        if self.state is TaskState.INPUT_REQUIRED:
            return TaskView(self.task_id, self.context_id, self.state, "which one?")
        said = ""
        if self.progress:
            share = (time.monotonic() - self.began) / self.takes_s
            said = self.progress[min(int(share * len(self.progress)), len(self.progress) - 1)]
        return TaskView(self.task_id, self.context_id, self.state, said)


@dataclass
class Agent:
    """Answers by the first words of the message; keeps every call.

    `reply TEXT`, `task SECONDS TEXT`, `progress SECONDS TEXT`, `ask TEXT`, `artifacts N TEXT`,
    `fail`, `reject`, `auth`, `refuse`, `lost TEXT` (done, the answer does not arrive),
    `down N TEXT` (the first N calls never leave), `unauthorized N TEXT`.
    """

    sends: list[Submission] = field(default_factory=list)
    begun: list[Submission] = field(default_factory=list)  # what the agent really executed
    gets: int = 0
    cancels: list[str] = field(default_factory=list)
    tasks: dict[str, OneTask] = field(default_factory=dict)
    tries: dict[str, int] = field(default_factory=dict)
    card_answer: CardAnswer = field(default_factory=lambda: Card("agent", "1.0"))
    idempotent: bool = False
    unsent: list[NeverLeft | AuthFailed] = field(default_factory=list)  # first of controls' calls
    get_answers: list[GetAnswer] = field(default_factory=list)  # first, before the truth

    async def card(self, agent: str) -> CardAnswer:
        return self.card_answer

    async def send(self, submission: Submission) -> SendAnswer:
        if submission.task_id is not None and self.unsent:
            return self.unsent.pop(0)
        if submission.task_id is not None:
            return self._continue(submission)
        word, _, rest = submission.text.partition(" ")
        tries = self.tries[submission.message_id] = self.tries.get(submission.message_id, 0) + 1
        if word in {"down", "unauthorized"}:
            count, _, rest = rest.partition(" ")
            if tries <= int(count):
                return NeverLeft("refused") if word == "down" else AuthFailed("http_401")
            word, rest = "reply", rest or "up"
        self.sends.append(submission)
        if word == "refuse":
            return Refused("json_rpc_32602")
        for one in self.tasks.values() if self.idempotent else ():
            if one.submission.message_id == submission.message_id:
                return Task(one.view())
        self.begun.append(submission)
        return self._begin(submission, word, rest)

    def _begin(self, submission: Submission, word: str, rest: str) -> SendAnswer:
        context_id = submission.context_id or f"context-{len(self.begun)}"
        if word == "reply":
            return Reply(rest, context_id)
        number, _, text = rest.partition(" ")
        task = OneTask(submission, f"task-{len(self.begun)}", context_id, time.monotonic(), 0, rest)
        self.tasks[task.task_id] = task
        match word:
            case "task" | "progress":
                task.takes_s, task.text = float(number), text
                if word == "progress":
                    task.progress = ("one", "two", "three", "four", "five", "six")
            case "ask":
                task.state = TaskState.INPUT_REQUIRED
            case "artifacts":
                task.text = text
                task.artifacts = tuple(
                    Artifact(f"a{n}", f"file-{n}", data=b"data", media_type="text/plain")
                    for n in range(int(number))
                )
            case "fail" | "reject" | "auth":
                task.state = {
                    "fail": TaskState.FAILED,
                    "reject": TaskState.REJECTED,
                    "auth": TaskState.AUTH_REQUIRED,
                }[word]
            case "lost":
                return MayHaveLeft("connection_lost")
        return Task(task.view())

    def _continue(self, submission: Submission) -> SendAnswer:
        self.sends.append(submission)
        task = self.tasks.get(submission.task_id or "")
        if task is None or task.state is not TaskState.INPUT_REQUIRED:
            return Refused("json_rpc_32004")
        self.begun.append(submission)
        task.answer = submission.text
        task.text = f"{task.text}: {submission.text}"
        task.state, task.began = TaskState.WORKING, time.monotonic()
        return Task(task.view())

    async def get(self, agent: str, task_id: str) -> GetAnswer:
        self.gets += 1
        if self.get_answers:
            return self.get_answers.pop(0)
        task = self.tasks.get(task_id)
        return TaskGone() if task is None else Task(task.view())

    async def cancel(self, agent: str, task_id: str) -> CancelAnswer:
        if self.unsent:
            return self.unsent.pop(0)
        self.cancels.append(task_id)
        task = self.tasks.get(task_id)
        if task is None:
            return TaskGone()
        if task.view().state not in {TaskState.WORKING, TaskState.INPUT_REQUIRED}:
            return NotCancelable()
        task.state = TaskState.CANCELED
        return Canceled(task.view())

    async def find(self, agent: str, context_id: str, message_id: str) -> FindAnswer:
        for one in self.tasks.values():
            if (one.context_id, one.submission.message_id) == (context_id, message_id):
                return Task(one.view())
        return NotFound()


@dataclass(frozen=True)
class Event:
    event_id: str
    ghost: str
    room_id: str
    txn_id: str
    content: Mapping[str, Any]

    @property
    def text(self) -> str:
        return str(self.content["body"])


@dataclass
class Rooms:
    """Keeps what it is sent. `problems` are given first, one for each call of `send`."""

    events: list[Event] = field(default_factory=list)
    sends: int = 0
    pinned: dict[str, tuple[str, ...]] = field(default_factory=dict)
    pin_writes: int = 0
    pins_forbidden: bool = False
    joined: set[tuple[str, str]] = field(default_factory=set)
    must_join: bool = False
    problems: list[PostAnswer] = field(default_factory=list)
    faulty: set[str] = field(default_factory=set)  # ghosts at which a fault of the program shows
    uploads: int = 0
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    sent: dict[tuple[str, str], str] = field(default_factory=dict)  # by room and transaction id

    async def send(
        self, ghost: str, room_id: str, txn_id: str, event_type: str, content: Content
    ) -> PostAnswer:
        self.sends += 1
        if ghost in self.faulty:
            raise KeyError(ghost)
        if self.problems:
            return self.problems.pop(0)
        if self.must_join and (ghost, room_id) not in self.joined:
            return Forbidden("m_forbidden")
        if (known := self.sent.get((room_id, txn_id))) is not None:
            return Sent(known)
        made = Event(f"$ours{next(self.numbers)}", ghost, room_id, txn_id, dict(content))
        self.events.append(made)
        self.sent[room_id, txn_id] = made.event_id
        return Sent(made.event_id)

    async def join(self, ghost: str, room_id: str) -> JoinAnswer:
        self.joined.add((ghost, room_id))
        return Joined()

    async def find(self, ghost: str, room_id: str, our_id: str) -> FindEventAnswer:
        for event in self.events:
            if event.content["our_id"] == our_id:
                return Found(event.event_id)
        return Found(None)

    async def pins(self, ghost: str, room_id: str) -> PinsAnswer:
        return Pins(self.pinned.get(room_id, ()))

    async def set_pins(self, ghost: str, room_id: str, event_ids: Sequence[str]) -> PostAnswer:
        if self.pins_forbidden:
            return Forbidden("m_forbidden")
        self.pin_writes += 1
        self.pinned[room_id] = tuple(event_ids)
        return Sent(f"$pin{next(self.numbers)}")

    async def upload(self, ghost: str, data: bytes, media_type: str, name: str) -> UploadAnswer:
        self.uploads += 1
        return Uploaded(f"mxc://example.org/{self.uploads}")

    async def power_level(self, room_id: str, user: str) -> int | None:
        return None

    def said(self, room_id: str | None = None) -> list[str]:
        """What people see, in order: an edit in place of what it edits."""
        shown: dict[str, str] = {}
        for event in self.events:
            if room_id in {None, event.room_id}:
                shown[str(event.content.get("edits", event.event_id))] = event.text
        return list(shown.values())


class Contents:
    """The plainest contents that tell what they are."""

    def answer(self, place: Place, text: str, *, failed: bool, our_id: str) -> Sequence[Content]:
        parts = text.split("|")
        first = self._made(("FAILED " if failed else "") + parts[0], place, our_id)
        return [
            first,
            *(self._made(part, place, f"{our_id}-{n}") for n, part in enumerate(parts[1:])),
        ]

    def edit(
        self, place: Place, primary: str, text: str, *, failed: bool, our_id: str
    ) -> Sequence[Content]:
        first, *rest = self.answer(place, text, failed=failed, our_id=our_id)
        return [{**first, "edits": primary}, *rest]

    def notice(self, place: Place, reason: str, *, our_id: str) -> Content:
        return self._made(f"NOTICE {reason}", place, our_id)

    def edit_notice(self, place: Place, primary: str, reason: str, *, our_id: str) -> Content:
        return {**self.notice(place, reason, our_id=our_id), "edits": primary}

    def placeholder(self, place: Place, *, our_id: str) -> Content:
        return self._made("PLACEHOLDER", place, our_id)

    def threaded(self, place: Place, text: str, *, kind: str, our_id: str) -> Content:
        return {**self._made(f"{kind.upper()} {text}", place, our_id)}

    def fits(self, artifact: Artifact) -> bool:
        return True

    def artifact(
        self, place: Place, artifact: Artifact, uri: str | None, *, our_id: str
    ) -> Content:
        return self._made(f"ARTIFACT {artifact.name}", place, our_id)

    @staticmethod
    def _made(text: str, place: Place, our_id: str) -> Content:
        return {
            "body": text,
            "our_id": our_id,
            "reply_to": place.reply_to,
            "thread": place.thread_root,
        }


@dataclass
class World:
    agent: Agent = field(default_factory=Agent)
    rooms: Rooms = field(default_factory=Rooms)

    async def serve(self, path: Path) -> asyncio.Server:
        """Answers the calls of a bridge in another process."""
        return await asyncio.start_unix_server(self._serve, str(path))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                side, method, args = pickle.loads(await reader.readexactly(size))  # noqa: S301  of our own process
                answer = pickle.dumps(await getattr(getattr(self, side), method)(*args))
                writer.write(len(answer).to_bytes(4, "big") + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Remote:
    """One side of the world, from another process: every method is a call of it."""

    def __init__(self, path: Path, side: str) -> None:
        self._path, self._side = path, side

    def __getattr__(self, method: str) -> Any:
        async def call(*args: Any) -> Any:
            try:
                reader, writer = await asyncio.open_unix_connection(str(self._path))
            except OSError:
                return Unreachable("world_down")
            data = pickle.dumps((self._side, method, args))
            writer.write(len(data).to_bytes(4, "big") + data)
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = pickle.loads(await reader.readexactly(size))  # noqa: S301
            writer.close()
            return answer

        return call
