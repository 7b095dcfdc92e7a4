"""What each operation of the protocol does: from a checked request to the fields of an answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from corral.core.clock import Clock
from corral.core.crashpoints import crashpoint
from corral.core.errors import StorageError
from corral.core.sqlite import SqliteReader, SqliteWriter
from corral.tamq import admission, points, requests, roster, rows, store, wire
from corral.tamq.deliverer import Deliverer
from corral.tamq.errors import InvalidRequestError, UnavailableTamqError
from corral.tamq.intake import Intake
from corral.tamq.registry import Registry
from corral.tamq.requests import MessageId, Page, Rebind, Register, Retry, Send
from corral.tamq.rows import Endpoint
from corral.tamq.store import Peer
from corral.tamq.transport import Answered

ANSWER_SPARE_BYTES: Final = 4_096  # of a frame: what a page has besides its items
READERS_MAX: Final = 4  # connections to the database at once, each with descriptors and a thread

Fields = dict[str, Any]
Answer = Mapping[str, object]
TerminalCheck = Callable[[Mapping[str, Any], str], None]


class Operations:
    """The table of operations around one store. `check_terminal` refuses what no session has."""

    def __init__(
        self,
        writer: SqliteWriter,
        deliverer: Deliverer,
        registry: Registry,
        clock: Clock,
        check_terminal: TerminalCheck,
        instance: str,
    ) -> None:
        self._writer = writer
        self._deliverer = deliverer
        self._intake = Intake(writer, deliverer, registry, clock)
        self._clock = clock
        self._check_terminal = check_terminal
        self._instance = instance
        self._reading = asyncio.Semaphore(READERS_MAX)
        self._table: dict[str, Callable[[Fields, Peer], Awaitable[Answer]]] = {
            "ping": self.ping,
            "endpoints": self.endpoints,
            "register": self.register,
            "heartbeat": self.heartbeat,
            "unregister": self.unregister,
            "send": self.send,
            "message": self.message,
            "history": self.history,
            "ack": self.ack,
            "retry": self.retry,
            "rebind": self.rebind,
        }

    async def handle(self, fields: Fields, peer: Peer) -> Answer:
        """Answer one request. Raises the error that refuses it."""
        _check_protocol(fields)
        op = fields.get("op")
        operation = self._table.get(op) if isinstance(op, str) else None
        if operation is None:
            raise InvalidRequestError(f"op: is one of {', '.join(sorted(self._table))}")
        return await operation(fields, peer)

    def quick(self, fields: Fields, peer: Peer, answered: Answered) -> bool:
        """Take a send, which needs no task. Raises as `handle`."""
        if fields.get("op") != "send":
            return False
        _check_protocol(fields)
        self._intake.send(Send.parse(fields), peer, answered)
        return True

    async def ping(self, _: Fields, __: Peer) -> Answer:
        return {
            "protocol": wire.PROTOCOL,
            "instance": self._instance,
            "capabilities": list(wire.CAPABILITIES),
        }

    async def send(self, fields: Fields, peer: Peer) -> Answer:
        coming: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer | bytes | None, error: BaseException | None) -> None:
            if coming.done():
                pass
            elif error is not None:
                coming.set_exception(error)
            elif answer is not None:
                coming.set_result(wire.answer(answer) if isinstance(answer, bytes) else answer)

        self._intake.send(Send.parse(fields), peer, answered)
        return await coming

    async def message(self, fields: Fields, _: Peer) -> Answer:
        ident = MessageId.parse(fields.get("message_id"))
        return await self._writer.submit(lambda conn: store.details(conn, ident))

    async def history(self, fields: Fields, _: Peer) -> Answer:
        page = Page.parse(fields)
        try:
            async with self._reading, SqliteReader(self._writer.path) as reader:
                found, cursor = await store.history(reader, page)
        except StorageError as error:
            raise UnavailableTamqError(
                f"the queue cannot be read: {error.message}", hint=error.hint, ids=error.ids
            ) from error
        shown = [(one.id.row, rows.receipt(one, body=page.bodies)) for one in found]
        return _page("messages", shown, cursor)

    async def ack(self, fields: Fields, _: Peer) -> Answer:
        ident = MessageId.parse(fields.get("message_id"))
        now_ms = self._clock.wall_ms()
        message, before = await self._writer.submit(
            lambda conn: store.acknowledge(conn, ident, now_ms)
        )
        crashpoint(points.ACKED)
        self._deliverer.note(message)
        return {**rows.receipt(message, body=False), "state_before": before.value}

    async def retry(self, fields: Fields, peer: Peer) -> Answer:
        request = Retry.parse(fields)
        now_ms = self._clock.wall_ms()
        message = await self._writer.submit(lambda conn: store.retry(conn, request, peer, now_ms))
        crashpoint(points.RETRIED)
        self._deliverer.note(message)
        return rows.receipt(message, body=False)

    async def rebind(self, fields: Fields, peer: Peer) -> Answer:
        request = Rebind.parse(fields)
        now_ms, times = self._clock.wall_ms(), self._deliverer.times
        done = await self._writer.submit(
            lambda conn: admission.rebind(conn, request, peer, times, now_ms)
        )
        crashpoint(points.REBOUND)
        self._deliverer.note(done.message)
        return {**rows.receipt(done.message, body=False), "rebound": done.rebound}

    # ---- endpoints

    async def endpoints(self, fields: Fields, _: Peer) -> Answer:
        repo = requests.optional_text(fields, "repo", wire.REPO_MAX_BYTES)
        after = requests.cursor(fields, default=0)
        lanes = [
            lane
            for row, lane in sorted(self._deliverer.lanes.items())
            if row > after and (repo is None or repo in lane.endpoint.repos)
        ]
        shown = [
            (
                lane.endpoint.row,
                {
                    **rows.endpoint_fields(lane.endpoint),
                    "open_messages": self._deliverer.schedule.count_of(lane.endpoint.row),
                    "ready": lane.readiness.state.value,
                    "ready_reason": lane.readiness.reason,
                    "ready_since": rows.moment(lane.readiness_since_ms),
                },
            )
            for lane in lanes
        ]
        return _page("endpoints", shown, None)

    async def register(self, fields: Fields, _: Peer) -> Answer:
        request = Register.parse(fields)
        self._check_terminal(request.terminal, request.profile)
        now_ms = self._clock.wall_ms()
        endpoint, existing = await self._writer.submit(
            lambda conn: roster.register(conn, request, now_ms)
        )
        crashpoint(points.REGISTERED)
        self._deliverer.add_endpoint(endpoint)
        return {"existing": existing, **rows.endpoint_fields(endpoint)}

    async def heartbeat(self, fields: Fields, _: Peer) -> Answer:
        endpoint_id = _endpoint_id(fields)
        now_ms = self._clock.wall_ms()
        endpoint: Endpoint = await self._writer.submit(
            lambda conn: roster.heartbeat(conn, endpoint_id, now_ms)
        )
        self._deliverer.add_endpoint(endpoint)
        return {"endpoint_id": endpoint_id}

    async def unregister(self, fields: Fields, _: Peer) -> Answer:
        endpoint_id = _endpoint_id(fields)
        await self._deliverer.endpoint_gone(endpoint_id, roster.UNREGISTERED)
        return {"endpoint_id": endpoint_id}


def _check_protocol(fields: Fields) -> None:
    if "protocol" not in fields:
        raise InvalidRequestError("protocol: is missing", hint=f'say "{wire.PROTOCOL}"')
    wire.check_protocol(fields["protocol"])


def _endpoint_id(fields: Fields) -> str:
    return requests.text(fields, "endpoint_id", wire.ID_MAX_BYTES)


def _page(
    name: str, items: list[tuple[int, dict[str, object]]], cursor: int | None
) -> dict[str, object]:
    """As many items as fit a frame; the cursor goes on after the last one shown."""
    shown: list[dict[str, object]] = []
    last = 0
    left = wire.FRAME_MAX_BYTES - ANSWER_SPARE_BYTES
    for row, item in items:
        left -= len(wire.compact(item).encode()) + 1
        if left < 0 and shown:
            return {name: shown, "cursor": str(last)}
        shown.append(item)
        last = row
    return {name: shown, "cursor": None if cursor is None else str(cursor)}
