"""The agents of the table, as the worker asks them: typed answers, never an exception.

Idempotent mode: where `card()` has an `idempotent_for_s`, both the agent's card and the operator
say that a message may come again. After `MayHaveLeft`, or when a prepared attempt is recovered,
the very same `Submission` may then be sent again, as long as the first attempt is not older than
that (less a margin for clocks): the agent answers with the task that it has. A `NeverLeft`,
`MayHaveLeft` or `AuthFailed` of the repetition leaves everything as it was; a `Refused` proves
nothing about the first attempt, which stays ambiguous. Without this mode, `find` may tell what
became of a lost message.
"""

import functools
from collections.abc import Mapping
from typing import Any, Final

from corral.bridge.a2a import card as cards
from corral.bridge.a2a import reading, wire
from corral.bridge.a2a.caller import Caller, Endpoint
from corral.bridge.a2a.reading import BadAnswerError
from corral.bridge.a2a.target import Target
from corral.bridge.a2a.verdict import FULL_CODE, Fault, Kind
from corral.bridge.a2a.wire import Request, Version
from corral.bridge.ports import (
    AuthFailed,
    CancelAnswer,
    Canceled,
    Card,
    CardAnswer,
    FindAnswer,
    GetAnswer,
    MayHaveLeft,
    NeverLeft,
    NotCancelable,
    NotFound,
    Refused,
    Reply,
    SendAnswer,
    Submission,
    Task,
    TaskGone,
    TaskView,
    Unreachable,
    Unsupported,
)
from corral.core.clock import Clock, SystemClock

LIST_PAGES_MAX: Final = 20


class HttpAgents:
    """Implements `corral.bridge.ports.Agents` over HTTP. Belongs to one event loop.

    `ConfigError` when the URL of a target makes no sense.
    """

    def __init__(self, targets: Mapping[str, Target], *, clock: Clock | None = None) -> None:
        self._caller = Caller(targets, clock or SystemClock())

    async def close(self) -> None:
        await self._caller.close()

    async def card(self, agent: str) -> CardAnswer:
        """The agent's card, a few minutes old at most.

        `idempotent_for_s` is set only where the operator enabled it for this agent, too.
        """
        found = await self._caller.endpoint(agent)
        if isinstance(found, Endpoint):
            enabled = self._caller.target(agent).idempotent
            return Card(
                name=found.card.name,
                protocol=found.version.value,
                idempotent_for_s=found.card.idempotent_for_s if enabled else None,
                lists_tasks=found.version is Version.V1_0,
            )
        match found.kind:
            case Kind.AUTH:
                return AuthFailed(found.code)
            case Kind.REFUSED:
                return Refused(found.code)
        return Unreachable(found.code)

    async def send(self, submission: Submission) -> SendAnswer:
        """One message. After `MayHaveLeft` nothing is known but that it may have arrived."""

        def request(endpoint: Endpoint) -> Request:
            enabled = self._caller.target(submission.agent).idempotent
            declared = endpoint.card.idempotent_for_s is not None
            extensions = (cards.IDEMPOTENT_URI,) if enabled and declared else ()
            return wire.send(endpoint.version, submission, extensions=extensions)

        def read(result: dict[str, Any]) -> Task | Reply:
            answer = reading.sent(result, context_id=submission.context_id or "")
            if isinstance(answer, Task) and submission.task_id is not None:
                _of_task(answer.view, submission.task_id)
            return answer

        answer = await self._caller.call(submission.agent, request, read, effect=True)
        if not isinstance(answer, Fault):
            return answer
        if answer.kind is Kind.REFUSED:
            return Refused(answer.code)
        if answer.kind is Kind.GONE and submission.task_id is not None:
            return Refused(answer.code)
        return _uncertain(answer)

    async def get(self, agent: str, task_id: str) -> GetAnswer:
        """The task as it is now."""
        answer = await self._caller.call(
            agent,
            lambda endpoint: wire.get(endpoint.version, task_id),
            lambda result: Task(_of_task(reading.view(result), task_id)),
            effect=False,
        )
        if isinstance(answer, Task):
            return answer
        return TaskGone(answer.code) if answer.kind is Kind.GONE else _unanswered(answer)

    async def cancel(self, agent: str, task_id: str) -> CancelAnswer:
        """One cancellation. What became of the task is in the view: it need not be canceled."""
        answer = await self._caller.call(
            agent,
            lambda endpoint: wire.cancel(endpoint.version, task_id),
            lambda result: Canceled(_of_task(reading.view(result), task_id)),
            effect=True,
        )
        if isinstance(answer, Canceled):
            return answer
        match answer.kind:
            case Kind.REFUSED | Kind.NOT_CANCELABLE:
                return NotCancelable(answer.code)
            case Kind.GONE:
                return TaskGone(answer.code)
        return _uncertain(answer)

    async def find(self, agent: str, context_id: str, message_id: str) -> FindAnswer:
        """Walks the agent's list of the context's tasks, at most `LIST_PAGES_MAX` pages."""
        endpoint = await self._caller.endpoint(agent)
        if isinstance(endpoint, Endpoint) and endpoint.version is not Version.V1_0:
            return Unsupported()

        def read(result: dict[str, Any]) -> tuple[Task | None, str]:
            tasks, following = reading.listed(result)
            for task in tasks:
                if reading.has_message(task, message_id):
                    return Task(reading.view(task, context_id=context_id)), ""
            return None, following

        token = ""
        for _ in range(LIST_PAGES_MAX):
            page = wire.list_tasks(context_id, token)
            answer = await self._caller.call(
                agent, functools.partial(_same, page), read, effect=False
            )
            if isinstance(answer, Fault):
                unsupported = answer.kind is Kind.REFUSED and answer.code.startswith("a2a_rpc_")
                return Unsupported() if unsupported else _unanswered(answer)
            task, token = answer
            if task is not None:
                return task
            if not token:
                return NotFound()
        return Unreachable("a2a_list_too_long")


def _same(request: Request, _endpoint: Endpoint) -> Request:
    return request


def _of_task(view: TaskView, task_id: str) -> TaskView:
    """The view, which must be of the task that was asked about."""
    if view.task_id != task_id:
        raise BadAnswerError("a2a_answer_wrong_task")
    return view


def _uncertain(fault: Fault) -> NeverLeft | MayHaveLeft | AuthFailed:
    """Of a call that has an effect, when the agent gave no definite answer."""
    match fault.kind:
        case Kind.NEVER_LEFT:
            return NeverLeft(fault.code, full=fault.code == FULL_CODE)
        case Kind.AUTH:
            return AuthFailed(fault.code)
    return MayHaveLeft(fault.code)


def _unanswered(fault: Fault) -> Unreachable | AuthFailed:
    """Of a question, which may be asked again."""
    return AuthFailed(fault.code) if fault.kind is Kind.AUTH else Unreachable(fault.code)
