"""Sends that arrive while the writer is busy are admitted together, by a few statements for all.

A send that is new, to an endpoint that is live, needs nothing decided but that its key is unknown,
and the unique index does that. All such sends that wait become rows of one statement. Whatever else
a send may be (a repetition, a refusal, a rebinding) is left out of it and goes through
`admission.send` by itself, in a transaction step of its own; so there is one place for the rules.
"""

import asyncio
import secrets
import sqlite3
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from corral.core import logs
from corral.core.clock import Clock
from corral.core.crashpoints import crashpoint
from corral.core.errors import StorageError
from corral.core.sqlite import SqliteWriter, load_sql
from corral.tamq import admission, domain, points, rows
from corral.tamq.admission import Admitted
from corral.tamq.deliverer import Deliverer
from corral.tamq.domain import AckMode, Policy
from corral.tamq.errors import BusyError, TamqError
from corral.tamq.registry import Registry
from corral.tamq.requests import MessageId, Send
from corral.tamq.rows import Message
from corral.tamq.store import Peer
from corral.tamq.transport import Answered

TOGETHER_MAX: Final = 256
TOKEN_BYTES: Final = 16
STATEMENT_ROWS: Final = (64, 16, 4, 1)  # few texts, so that each stays prepared

_log = logs.get("tamq.intake")
_SQL = load_sql("corral.tamq", "sql/queue.sql")
_INSERT: Final = {
    count: f"{_SQL['admit_all']} {', '.join([_SQL['admit_row']] * count)} {_SQL['admit_new']}"
    for count in STATEMENT_ROWS
}


@dataclass(slots=True)
class Asked:
    """A send on its way. `room`: one more message may be open."""

    request: Send
    peer: Peer
    now_ms: int
    room: bool
    answered: Answered
    message: Message | None = None  # once it is admitted with others


class Target(NamedTuple):
    """A live endpoint, and the newest row of all messages."""

    newest: int
    row: int
    endpoint_id: str
    policy: Policy


@dataclass(slots=True)
class Group:
    """Sends that are admitted in one request to the writer."""

    sends: list[Asked] = field(default_factory=list)
    begun: bool = False  # whether the writer came to it at all


class Intake:
    """Takes sends in the event loop and admits them in the writer's thread."""

    def __init__(
        self, writer: SqliteWriter, deliverer: Deliverer, registry: Registry, clock: Clock
    ) -> None:
        self._writer = writer
        self._deliverer = deliverer
        self._registry = registry
        self._clock = clock
        self._waiting: deque[Asked] = deque()
        self._called = False  # whether the writer is on its way to what waits
        self._crowded = False  # whether the last group was more than one send
        self._alone: set[asyncio.Task[None]] = set()

    def send(self, request: Send, peer: Peer, answered: Answered) -> None:
        """`answered` gets the receipt, once it is on the disk, or what `admission.send` raises."""
        room = self._deliverer.reserve()
        self._waiting.append(Asked(request, peer, self._clock.wall_ms(), room, answered))
        if self._called:
            return
        self._called = True
        if self._crowded:
            # Not before the loop has read what else has arrived: one commit for all of it.
            asyncio.get_running_loop().call_soon(self._call_writer)
        else:
            self._call_writer()

    def _call_writer(self) -> None:
        group = Group()
        try:
            self._writer.ask(lambda conn: self._admit(conn, group), partial(self._admitted, group))
        except StorageError as error:
            while self._waiting:
                self._fail(self._waiting.popleft(), _copied(error))
            self._called = False

    # ---- in the writer's thread

    def _admit(self, conn: sqlite3.Connection, group: Group) -> None:
        group.begun = True
        self._called = False  # who comes from now on calls again
        while self._waiting and len(group.sends) < TOGETHER_MAX:
            group.sends.append(self._waiting.popleft())
        simple = self._simple(group.sends)
        try:
            insert(conn, simple)
        except sqlite3.Error:
            if not conn.in_transaction:
                raise
            for asked in simple:  # the statement undid itself; whose fault it was is found alone
                asked.message = None

    def _simple(self, asked: Sequence[Asked]) -> list[Asked]:
        try:
            self._registry.refresh()
        except TamqError:
            return []
        knows = self._registry.knows
        return [
            one
            for one in asked
            if one.room and knows(one.request.sender_repo, one.request.target_repo)
        ]

    # ---- in the event loop

    def _admitted(self, group: Group, _: object, error: BaseException | None) -> None:
        self._crowded = len(group.sends) > 1
        if error is not None and not group.begun:  # no transaction could be begun
            group.sends.extend(self._waiting)
            self._waiting.clear()
            self._called = False
        if self._waiting and not self._called:  # more than one group's
            self._called = True
            self._call_writer()
        for asked in group.sends:
            if error is not None:
                self._fail(asked, _copied(error))
            elif asked.message is not None:
                self._answer(asked, Admitted(asked.message, deduplicated=False))
            else:
                task = asyncio.ensure_future(self._admit_alone(asked))
                self._alone.add(task)
                task.add_done_callback(self._alone.discard)

    async def _admit_alone(self, asked: Asked) -> None:
        request = asked.request
        times = self._deliverer.times

        def check() -> None:
            """In the writer's thread, and only for what would be new."""
            self._registry.check(request.sender_repo, request.target_repo)
            if not asked.room:
                raise BusyError("too many messages are open", hint="see 'tamq history'")

        try:
            admitted = await self._writer.submit(
                lambda conn: admission.send(conn, request, asked.peer, times, asked.now_ms, check)
            )
        except BaseException as error:
            self._fail(asked, error)
            if not isinstance(error, Exception):
                raise
        else:
            self._answer(asked, admitted)

    def _answer(self, asked: Asked, admitted: Admitted) -> None:
        crashpoint(points.ADMITTED)
        if admitted.deduplicated:
            shown = {"deduplicated": True, "rebound": admitted.rebound}
            asked.answered(shown | rows.receipt(admitted.message, body=False), None)
        else:
            asked.answered(rows.admitted_frame(admitted.message), None)
        # In the same step of the loop, so that whatever the client asks next finds it known.
        self._deliverer.release()
        try:
            self._deliverer.note(admitted.message)
        except Exception as fault:  # the others of its group must be answered
            _log.error(
                "a message is stored and not known to delivery: restart TAMQ",
                message_id=str(admitted.message.id), error=type(fault).__name__, exc_info=True,
            )  # fmt: skip

    def _fail(self, asked: Asked, error: BaseException) -> None:
        self._deliverer.release()
        asked.answered(None, error)


def _copied(error: BaseException) -> BaseException:
    """An exception is not shared by two callers."""
    if isinstance(error, StorageError):
        return type(error)(error.message, hint=error.hint, ids=error.ids)
    return error


def insert(conn: sqlite3.Connection, asked: Sequence[Asked]) -> None:
    """Admit those that are new and have an endpoint; they are the ones that get a `message`."""
    made = _make(conn, asked)
    added = at = 0
    while at < len(made):
        count = next(size for size in STATEMENT_ROWS if size <= len(made) - at)
        values = [value for message in made[at : at + count] for value in _values(message)]
        added += conn.execute(_INSERT[count], values).rowcount
        at += count
    if added < len(made):
        there = {found[0] for found in conn.execute(_SQL["admitted_from"], (made[0].id.row,))}
        for one_of in asked:
            if one_of.message is not None and one_of.message.id.row not in there:
                one_of.message = None


def _make(conn: sqlite3.Connection, asked: Sequence[Asked]) -> list[Message]:
    targets: dict[tuple[str, str | None], Target | None] = {}
    tokens = secrets.token_bytes(TOKEN_BYTES * len(asked))
    row = 0
    made: list[Message] = []
    for number, one in enumerate(asked):
        wanted = one.request.target_repo, one.request.endpoint_id
        if wanted not in targets:
            targets[wanted] = _target(conn, *wanted)
        target = targets[wanted]
        if target is not None:
            row = row + 1 if made else target.newest + 1
            token = tokens[TOKEN_BYTES * number : TOKEN_BYTES * (number + 1)]
            one.message = _message(one, MessageId(row, token), target)
            made.append(one.message)
    return made


def _target(conn: sqlite3.Connection, repo: str, endpoint_id: str | None) -> Target | None:
    """As `admission.resolve` where that refuses nothing."""
    params = {"repo": repo, "endpoint_id": endpoint_id}
    found = conn.execute(_SQL["target"], params).fetchall()
    if len(found) != 1:
        return None
    newest, row, name, max_attempts, ack_mode = found[0]
    try:
        return Target(newest, row, name, Policy(max_attempts, AckMode(ack_mode)))
    except (ValueError, TypeError):  # damaged: `admission.send` says so
        return None


def _message(asked: Asked, ident: MessageId, target: Target) -> Message:
    request = asked.request
    return Message(
        id=ident,
        endpoint=target.row,
        endpoint_id=target.endpoint_id,
        client_id=request.client_id,
        idempotency_key=request.idempotency_key,
        digest=rows.digest_of(request.sender_repo, request.target_repo, request.body),
        sender_repo=request.sender_repo,
        target_repo=request.target_repo,
        sender_pid=asked.peer.pid,
        correlation_id=request.correlation_id,
        provenance=request.provenance,
        metadata=request.metadata,
        body=request.body,
        admitted_at_ms=asked.now_ms,
        waiting_reason=None,
        waiting_since_ms=None,
        progress=domain.admitted(target.policy, asked.now_ms),
    )


def _values(message: Message) -> tuple[object, ...]:
    """In the order of the columns of `admit_all`."""
    progress = message.progress
    return (
        message.id.row, message.id.token, message.client_id, message.idempotency_key,
        message.digest, message.endpoint, message.sender_repo, message.target_repo,
        message.sender_pid, message.correlation_id, message.provenance, message.metadata,
        message.body, message.admitted_at_ms, progress.state.value, progress.generation,
        progress.policy.max_attempts, progress.policy.ack_mode.value, progress.next_attempt_at_ms,
    )  # fmt: skip
