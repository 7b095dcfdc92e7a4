"""The seams of the bridge: what the ledger's side asks of A2A and of Matrix.

The seam of the intake is in `corral.bridge.incoming`.

Implementations answer with one of the listed types and raise nothing but `asyncio.CancelledError`
(another exception is a fault of the program). `code` is a stable, content-free word for evidence
and metrics. Times are seconds unless the name says otherwise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

# ---- A2A --------------------------------------------------------------------------------------


class TaskState(StrEnum):
    """The states of an A2A task, for both versions of the protocol."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    REJECTED = "rejected"


TASK_ENDED: Final = frozenset(
    {TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED, TaskState.REJECTED}
)


@dataclass(frozen=True, slots=True)
class Artifact:
    """One part of a result besides its text: `text`, `data` or `url` is set."""

    artifact_id: str
    name: str
    text: str | None = None
    data: bytes | None = None
    media_type: str = "text/plain"
    url: str | None = None


@dataclass(frozen=True, slots=True)
class TaskView:
    """A task as the agent shows it. `text` is of its status or final message, perhaps empty."""

    task_id: str
    context_id: str
    state: TaskState
    text: str = ""
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """A message to an agent. `task_id` is set when it continues a task that asked for input.

    `context_id` is the conversation's, or one of our choice when it is new. `user` is the MXID.
    """

    agent: str
    message_id: str
    context_id: str | None
    task_id: str | None
    text: str
    user: str
    traceparent: str | None = None


@dataclass(frozen=True, slots=True)
class NeverLeft:
    """Nothing was begun: no byte of the request was written, or the agent had no room for it.

    It may be tried again with the same identity. `full`: the agent lives, and had no room.
    """

    code: str
    full: bool = False


@dataclass(frozen=True, slots=True)
class MayHaveLeft:
    """The agent may have it: never sent again, unless idempotent or reconciled."""

    code: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The agent said no before it executed anything. `reason` is content-free."""

    code: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class AuthFailed:
    """The other side does not accept us (401, 403): nothing was done, and nothing is spent."""

    code: str


@dataclass(frozen=True, slots=True)
class Task:
    """There is a task, perhaps ended already."""

    view: TaskView


@dataclass(frozen=True, slots=True)
class Reply:
    """The agent answered with a message, without a task."""

    text: str
    context_id: str
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskGone:
    """The agent does not know the task (any more)."""

    code: str = "task_not_found"


@dataclass(frozen=True, slots=True)
class Unreachable:
    """No answer, or none that says anything; asking again does no harm."""

    code: str


@dataclass(frozen=True, slots=True)
class Canceled:
    """The agent took the cancellation; the view says what became of the task."""

    view: TaskView


@dataclass(frozen=True, slots=True)
class NotCancelable:
    """The task is over, or the agent does not cancel."""

    code: str = "task_not_cancelable"


@dataclass(frozen=True, slots=True)
class NotFound:
    """The agent lists no task with our message id. It proves nothing."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """This agent cannot be asked that (0.3 has no list of tasks)."""


SendAnswer = Task | Reply | NeverLeft | MayHaveLeft | Refused | AuthFailed
GetAnswer = Task | TaskGone | Unreachable | AuthFailed
CancelAnswer = Canceled | NotCancelable | TaskGone | NeverLeft | MayHaveLeft | AuthFailed
FindAnswer = Task | NotFound | Unsupported | Unreachable | AuthFailed


@dataclass(frozen=True, slots=True)
class Card:
    """What an agent says of itself. `idempotent_for_s`: how long it knows a message id again."""

    name: str
    protocol: str  # "1.0" or "0.3"
    idempotent_for_s: float | None = None
    lists_tasks: bool = False


CardAnswer = Card | Unreachable | AuthFailed | Refused


class Agents(Protocol):
    """The A2A side; `agent` is the key of the agents' table."""

    async def card(self, agent: str) -> CardAnswer:
        """The agent's card, from a cache while it is fresh. `Refused`: it can not be used."""

    async def send(self, submission: Submission) -> SendAnswer:
        """One `SendMessage`, at most: no retry inside. Asks for an immediate answer."""

    async def get(self, agent: str, task_id: str) -> GetAnswer: ...

    async def cancel(self, agent: str, task_id: str) -> CancelAnswer:
        """One `CancelTask`, at most."""

    async def find(self, agent: str, context_id: str, message_id: str) -> FindAnswer:
        """The task that our message made, by what the agent lists for the context."""


# ---- Matrix -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sent:
    """The homeserver has the event (now, or from an earlier try under the same id)."""

    event_id: str


@dataclass(frozen=True, slots=True)
class Joined:
    """The ghost is in the room."""


@dataclass(frozen=True, slots=True)
class Limited:
    """429: not before `retry_after_ms`."""

    retry_after_ms: int


@dataclass(frozen=True, slots=True)
class TooLarge:
    """413: it will never be accepted in this size."""

    code: str = "too_large"


@dataclass(frozen=True, slots=True)
class Forbidden:
    """The room does not let the ghost do that."""

    code: str


@dataclass(frozen=True, slots=True)
class Uploaded:
    """`uri` is the content's `mxc:` address."""

    uri: str


@dataclass(frozen=True, slots=True)
class Pins:
    """The pinned events of a room, in order."""

    event_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """An earlier event of ours with the id that was looked for; None: there is none."""

    event_id: str | None


_Problem = Limited | TooLarge | Forbidden | Unreachable | AuthFailed
PostAnswer = Sent | _Problem
JoinAnswer = Joined | _Problem
FindEventAnswer = Found | _Problem
PinsAnswer = Pins | _Problem
UploadAnswer = Uploaded | _Problem

Content = Mapping[str, Any]


class Rooms(Protocol):
    """The Matrix side; `ghost` is the key of the agents' table, not the MXID."""

    async def send(
        self, ghost: str, room_id: str, txn_id: str, event_type: str, content: Content
    ) -> PostAnswer:
        """One try. The same `txn_id` of a ghost makes one event."""

    async def join(self, ghost: str, room_id: str) -> JoinAnswer: ...

    async def find(self, ghost: str, room_id: str, our_id: str) -> FindEventAnswer:
        """The event of ours that carries `our_id` in its content, among the newest of the room."""

    async def pins(self, ghost: str, room_id: str) -> PinsAnswer: ...

    async def set_pins(self, ghost: str, room_id: str, event_ids: Sequence[str]) -> PostAnswer: ...

    async def upload(self, ghost: str, data: bytes, media_type: str, name: str) -> UploadAnswer: ...

    async def power_level(self, room_id: str, user: str) -> int | None:
        """None: not known."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an event of ours belongs: in reply to `reply_to`, in the thread if there is one."""

    room_id: str
    reply_to: str
    thread_root: str | None = None


class Contents(Protocol):
    """Pure: the `m.room.message` contents of what the bridge says. `our_id` travels in each.

    What comes in several parts is the same parts every time: they are sent under ids that count.
    """

    def answer(self, place: Place, text: str, *, failed: bool, our_id: str) -> Sequence[Content]:
        """An agent's answer, split where it is too large for one event (at least one)."""

    def edit(
        self, place: Place, primary: str, text: str, *, failed: bool, our_id: str
    ) -> Sequence[Content]:
        """The placeholder `primary` becomes the answer; further parts follow as replies."""

    def notice(self, place: Place, reason: str, *, our_id: str) -> Content:
        """The generic text for a stable reason (`corral.bridge.domain.Reason`)."""

    def edit_notice(self, place: Place, primary: str, reason: str, *, our_id: str) -> Content: ...

    def placeholder(self, place: Place, *, our_id: str) -> Content: ...

    def threaded(self, place: Place, text: str, *, kind: str, our_id: str) -> Content:
        """A question or progress, in the thread of `place` (`kind`: `question`, `progress`)."""

    def fits(self, artifact: Artifact) -> bool:
        """Whether its text can be shown in one event; else it is to be uploaded."""

    def artifact(
        self, place: Place, artifact: Artifact, uri: str | None, *, our_id: str
    ) -> Content:
        """`uri` is the upload's address; None when the artifact is text or a link."""
