"""The A2A server: JSON-RPC and streams at `/a2a/AGENT/`, the card below it.

Every client has a bearer token of its own. What a client may see are its own tasks. Nothing is
answered before it is committed; a client that goes away changes nothing. Without a token there are
the cards, `/healthz` (it serves) and `/readyz` (messages reach their agents, 503 when not).
"""

import contextlib
import hashlib
import hmac
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from aiohttp import web

from corral.core import logs
from corral.core.errors import CorralError
from corral.core.weblog import wire_logger
from corral.gateway import card as cards
from corral.gateway import wire
from corral.gateway.domain import ENDED, Send
from corral.gateway.errors import GatewayError, InvalidRequestError, UnsupportedOperationError
from corral.gateway.figures import NO_METHOD, Figures
from corral.gateway.service import Gateway
from corral.gateway.store import Caller, Wanted
from corral.gateway.wire import Call, Method

CARD_PATH: Final = ".well-known/agent-card.json"
EXTENSION_HEADERS: Final = ("A2A-Extensions", "X-A2A-Extensions")  # since 1.0, and before
USER_HEADER: Final = "X-User-Id"
USER_MAX_CHARS: Final = 512
SHUTDOWN_TIMEOUT_S: Final = 2.0  # for calls that wait; their tasks go on

_log = logs.get(__name__)


class Server:
    """`clients` maps names to bearer tokens; `agents` maps names to descriptions. `trouble` has a
    word for each way to an agent that does not work."""

    def __init__(
        self,
        gateway: Gateway,
        *,
        agents: Mapping[str, str],
        clients: Mapping[str, str],
        base_url: str = "http://localhost",
        trouble: Callable[[], Mapping[str, str]] = dict,
        figures: Figures | None = None,
    ) -> None:
        self._gateway = gateway
        self._agents = dict(agents)
        self._clients = {name: _hashed(token.encode()) for name, token in clients.items()}
        self._base_url = base_url.rstrip("/")
        self._trouble = trouble
        self._figures = figures

    def app(self) -> web.Application:
        # Whether the limit itself is still allowed depends on aiohttp's release: see _body.
        app = web.Application(client_max_size=self._gateway.limits.body_max_bytes + 1)
        for path in ("/a2a/{agent}", "/a2a/{agent}/"):
            app.router.add_post(path, self._rpc)
        app.router.add_get(f"/a2a/{{agent}}/{CARD_PATH}", self._card)
        app.router.add_get("/healthz", _healthy)
        app.router.add_get("/readyz", self._readiness)
        return app

    async def _readiness(self, _request: web.Request) -> web.StreamResponse:
        trouble = dict(self._trouble())
        return web.json_response(
            {"ready": not trouble, "trouble": trouble}, status=503 if trouble else 200
        )

    async def _card(self, request: web.Request) -> web.StreamResponse:
        agent = request.match_info["agent"]
        if agent not in self._agents:
            return web.Response(status=404)
        url = f"{self._base_url}/a2a/{agent}/"
        retention_s = self._gateway.limits.retention_s
        return web.json_response(
            cards.card(agent, url, retention_s=retention_s, description=self._agents[agent])
        )

    async def _rpc(self, request: web.Request) -> web.StreamResponse:
        agent = request.match_info["agent"]
        client = self._client(request.headers.get("Authorization", ""))
        if client is None:
            if self._figures is not None:
                self._figures.unauthorized()
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        if agent not in self._agents:
            return web.Response(status=404)
        given: wire.Envelope | None = None
        method = NO_METHOD
        try:
            given = wire.envelope(await self._body(request))
            call = wire.read(given, request.headers.get(wire.VERSION_HEADER), self._gateway.limits)
            method = call.method.value
            caller = Caller(client, agent)
            if call.method in {Method.STREAM, Method.SUBSCRIBE}:
                response = await self._stream(request, caller, call)
            else:
                answer = await self._answer(request, caller, call)
                response = web.json_response(
                    wire.result(call.request_id, answer), headers=_activated(request)
                )
        except GatewayError as error:
            self._called(method, error.code)
            return _refused(given, error)
        except CorralError as error:
            self._called(method, error.code)
            _log.error("a call failed", code=error.code, client=client, agent=agent)
            return _refused(given, GatewayError("not committed"))
        self._called(method, "ok")
        return response

    def _called(self, method: str, result: str) -> None:
        if self._figures is not None:
            self._figures.called(method, result)

    async def _body(self, request: web.Request) -> bytes:
        body = await request.read()
        allowed = self._gateway.limits.body_max_bytes
        if len(body) > allowed:
            raise web.HTTPRequestEntityTooLarge(max_size=allowed, actual_size=len(body))
        return body

    async def _answer(self, request: web.Request, caller: Caller, call: Call) -> dict[str, Any]:
        match call.method:
            case Method.SEND:
                task = await self._gateway.send(caller, _send_of(request, call))
                if call.wait:
                    task = await self._gateway.rested(caller, task.task_id)
                self._gateway.handed_out(task)
                return wire.sent(task, call)
            case Method.CANCEL:
                task = await self._gateway.cancel(caller, call.task_id)
            case Method.LIST if call.listing is not None:
                return await self._list(caller, call.listing)
            case _:
                task = await self._gateway.get(caller, call.task_id)
        self._gateway.handed_out(task)
        return wire.shown(task, old=call.old, history=call.history)

    async def _list(self, caller: Caller, listing: wire.Listing) -> dict[str, Any]:
        before = int(listing.token) if listing.token else Wanted(0).before
        wanted = Wanted(listing.count, before, listing.context_id, listing.state, listing.since_ms)
        page = await self._gateway.page(caller, wanted)
        for task in page.tasks:
            self._gateway.handed_out(task)
        return {
            "tasks": [wire.shown(one, old=False, history=listing.history) for one in page.tasks],
            "nextPageToken": page.next_token,
            "pageSize": listing.count,
            "totalSize": page.total,
        }

    async def _stream(self, request: web.Request, caller: Caller, call: Call) -> web.StreamResponse:
        """Server-sent events, from the task as it is to where nothing follows by itself."""
        if call.method is Method.STREAM:
            task = await self._gateway.send(caller, _send_of(request, call))
        else:
            task = await self._gateway.get(caller, call.task_id)
            if task.state in ENDED and not call.old:  # the protocol, since 1.0
                raise UnsupportedOperationError(f"the task is {task.state}: nothing follows")
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                **_activated(request),
            }
        )
        await response.prepare(request)
        try:
            await self._events(response, caller, call, task.task_id)
        except CorralError as error:  # the answer has begun: it can only end with this
            _log.error("a stream failed", code=error.code, task_id=task.task_id)
            fault = wire.error(call.request_id, GatewayError("the stream ends early"))
            await _event(response, fault)
        await response.write_eof()
        return response

    async def _events(
        self, response: web.StreamResponse, caller: Caller, call: Call, task_id: str
    ) -> None:
        async with contextlib.aclosing(self._gateway.follow(caller, task_id)) as tasks:
            first = True
            async for task in tasks:
                event = wire.first_event(task, call) if first else wire.next_event(task, call)
                await _event(response, wire.result(call.request_id, event))
                self._gateway.handed_out(task)
                first = False

    def _client(self, authorization: str) -> str | None:
        """Whose token it is. The hashes of all are compared, each in constant time: how long that
        takes says neither how long a token is nor how much of one was right."""
        scheme, _, token = authorization.partition(" ")
        given = _hashed(token.strip().encode("utf-8", "surrogateescape"))
        found = None
        for name, wanted in self._clients.items():
            if hmac.compare_digest(given, wanted):
                found = name
        return found if scheme.lower() == "bearer" else None


def _hashed(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


async def _healthy(_request: web.Request) -> web.StreamResponse:
    return web.json_response({"healthy": True})


async def _event(response: web.StreamResponse, value: dict[str, Any]) -> None:
    await response.write(f"data: {json.dumps(value)}\n\n".encode())


def _refused(given: wire.Envelope | None, error: GatewayError) -> web.Response:
    """An error in the form that the client reads."""
    body = json.dumps(wire.error(given.request_id if given else None, error))
    if given is not None and given.wants_events:
        return web.Response(text=f"data: {body}\n\n", content_type="text/event-stream")
    return web.Response(text=body, content_type="application/json")


def _activated(request: web.Request) -> dict[str, str]:
    """Of the extensions that the client names, the one that is ours."""
    for name in EXTENSION_HEADERS:
        named = ",".join(request.headers.getall(name, ())).split(",")
        if cards.IDEMPOTENT_URI in {one.strip() for one in named}:
            return {name: cards.IDEMPOTENT_URI}
    return {}


def _send_of(request: web.Request, call: Call) -> Send:
    """The message with what the headers say of it."""
    if call.send is None:
        raise InvalidRequestError("there is no message")
    trace = request.headers.get("traceparent", "")
    return replace(
        call.send,
        user=wire.printable(request.headers.get(USER_HEADER, ""))[:USER_MAX_CHARS],
        traceparent=trace if wire.TRACEPARENT.match(trace) else "",
    )


@contextlib.asynccontextmanager
async def listening(server: Server, listener: socket.socket) -> AsyncIterator[None]:
    """Serves meanwhile at a socket that is bound. A client that goes away ends its call."""
    runner = web.AppRunner(
        server.app(),
        access_log=None,
        logger=wire_logger("corral.gateway.wire"),
        handler_cancellation=True,
        shutdown_timeout=SHUTDOWN_TIMEOUT_S,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        yield
    finally:
        await runner.cleanup()
