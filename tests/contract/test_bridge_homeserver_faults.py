"""Answers that a sound homeserver does not give, but a proxy before it, or a broken one, does.

A stand-in gives them: a real homeserver cannot be made to.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from corral.bridge.matrix.rooms import DEVICE_ID, MatrixRooms, Options, Problem
from corral.bridge.ports import (
    AuthFailed,
    Forbidden,
    Found,
    Joined,
    Limited,
    Sent,
    TooLarge,
    Unreachable,
)
from corral.local.synapse import LOOPBACK, free_port

Answer = tuple[int, bytes, dict[str, str]]
FINE: Answer = (200, b'{"event_id": "$e"}', {})


def refused(status: int, errcode: str = "", **headers: str) -> Answer:
    return status, json.dumps({"errcode": errcode} if errcode else {}).encode(), headers


@dataclass
class Server:
    """Accounts and devices are there; each send gets the next answer."""

    port: int = field(default_factory=free_port)
    answers: list[Answer] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    joins: int = 0
    logins: int = 0
    pages: list[list[dict[str, object]]] = field(default_factory=list)  # of a room's messages
    has_device: bool = True

    async def serve(self, request: web.Request) -> web.Response:
        if request.path.endswith("/login"):
            self.logins += 1
        if "/devices/" in request.path and not self.has_device:
            return web.json_response({"errcode": "M_NOT_FOUND"}, status=404)
        if "/join/" in request.path:
            self.joins += 1
        if request.path.endswith("/messages"):
            self.queries.append(dict(request.query))
            page, more = self.pages.pop(0), len(self.pages)
            return web.json_response({"chunk": page, **({"end": f"t{more}"} if more else {})})
        if "/send/" not in request.path:
            return web.json_response({})
        self.queries.append(dict(request.query))
        status, body, headers = self.answers.pop(0)
        return web.Response(status=status, body=body, headers=headers)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", made.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, LOOPBACK, made.port).start()
    yield made
    await runner.cleanup()


@pytest.fixture
async def rooms(server: Server) -> AsyncIterator[MatrixRooms]:
    url = f"http://{LOOPBACK}:{server.port}"
    options = Options(url, "corral.test", "bridge", "as-token", {"scout": "scout"}, timeout_s=30)
    async with MatrixRooms(options) as made:
        yield made


async def sent(rooms: MatrixRooms) -> Sent | Problem:
    return await rooms.send("scout", "!r", "txn", "m.room.message", {"body": "x"})


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (FINE, Sent("$e")),
        (refused(429, "M_LIMIT_EXCEEDED"), Limited(1_000)),
        (refused(429, "M_LIMIT_EXCEEDED", **{"Retry-After": "7"}), Limited(7_000)),
        ((429, b'{"retry_after_ms": 2500}', {}), Limited(2_500)),
        ((429, b'{"retry_after_ms": 99999999}', {}), Limited(600_000)),
        ((429, b'{"retry_after_ms": -1}', {}), Limited(1_000)),
        ((429, b'{"retry_after_ms": NaN}', {}), Limited(1_000)),
        ((429, b'{"retry_after_ms": 1e999}', {}), Limited(600_000)),
        (refused(413), TooLarge()),
        (refused(400, "M_TOO_LARGE"), TooLarge()),
        (refused(401, "M_UNKNOWN_TOKEN"), AuthFailed("m_unknown_token")),
        (refused(401), AuthFailed("http_401")),
        (refused(400, "M_BAD_JSON"), Forbidden("m_bad_json")),
        (refused(404, "M_NOT_FOUND"), Forbidden("m_not_found")),
        # Without a code of the specification somebody else is speaking.
        ((403, b"<html>blocked</html>", {}), Unreachable("http_403")),
        ((404, b"<html>nobody here</html>", {}), Unreachable("http_404")),
        (refused(500, "M_UNKNOWN"), Unreachable("m_unknown")),
        ((502, b"Bad Gateway", {}), Unreachable("http_502")),
        ((301, b"", {"Location": "http://127.0.0.1:9/"}), Unreachable("http_301")),
        ((200, b"<html>welcome</html>", {}), Unreachable("no_answer")),
        ((200, b"[]", {}), Unreachable("no_answer")),
        ((200, b'{"event_id": 7}', {}), Unreachable("no_answer")),
        ((200, b'{"event_id": "$e"', {}), Unreachable("no_answer")),
    ],
)
async def test_f49_each_answer_is_what_it_says(
    server: Server, rooms: MatrixRooms, answer: Answer, expected: Sent | Problem
) -> None:
    server.answers = [answer]
    assert await sent(rooms) == expected
    assert server.queries == [{"user_id": "@scout:corral.test", "device_id": DEVICE_ID}]


async def test_f49_who_is_not_in_the_room_joins_once_and_sends_once_more(
    server: Server, rooms: MatrixRooms
) -> None:
    server.answers = [refused(403, "M_FORBIDDEN"), FINE]
    assert await sent(rooms) == Sent("$e")
    assert server.joins == 1
    server.answers = [refused(403, "M_FORBIDDEN"), refused(403, "M_FORBIDDEN")]
    assert await sent(rooms) == Forbidden("m_forbidden")
    assert server.joins == 2
    assert await rooms.join("scout", "!r") == Joined()


async def test_f41_a_device_that_was_deleted_is_made_anew_before_the_next_try(
    server: Server, rooms: MatrixRooms
) -> None:
    server.answers = [refused(400, "M_UNKNOWN_DEVICE"), FINE]
    assert await sent(rooms) == Unreachable("m_unknown_device")
    server.has_device = False
    assert await sent(rooms) == Sent("$e")
    assert server.logins == 1


async def test_an_agent_that_the_settings_no_longer_name_is_refused(rooms: MatrixRooms) -> None:
    answer = await rooms.send("gone", "!r", "txn", "m.room.message", {"body": "x"})
    assert answer == Forbidden("ghost_unknown")
    assert await rooms.join("gone", "!r") == Forbidden("ghost_unknown")


async def test_what_was_said_long_ago_is_found_behind_pages_without_anything_of_ours(
    server: Server, rooms: MatrixRooms
) -> None:
    ours: dict[str, object] = {
        "sender": "@scout:corral.test",
        "content": {"corral.id": "txn"},
        "event_id": "$old",
    }
    server.pages = [[], [{**ours, "sender": "@other:x", "event_id": "$other"}], [], [ours]]
    assert await rooms.find("scout", "!r", "txn") == Found("$old")
    server.pages = [[], [ours]]
    assert await rooms.find("scout", "!r", "another") == Found(None)
    assert {json.loads(one["filter"])["senders"][0] for one in server.queries} == {
        "@scout:corral.test"
    }


async def test_an_answer_beyond_all_measure_is_cut_off(
    server: Server, rooms: MatrixRooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.bridge.matrix.api.ANSWER_MAX_BYTES", 1_000)
    server.answers = [(200, b'{"event_id": "$e", "x": "' + b"x" * 2_000 + b'"}', {})]
    assert await sent(rooms) == Unreachable("no_answer")


async def test_no_answer_in_time_is_no_answer() -> None:
    async def never(_request: web.Request) -> web.Response:
        await asyncio.Event().wait()
        return web.Response()

    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", never)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, LOOPBACK, port).start()
    options = Options(f"http://{LOOPBACK}:{port}", "x", "b", "t", {"scout": "scout"}, timeout_s=0.3)
    async with MatrixRooms(options) as rooms:
        assert await sent(rooms) == Unreachable("timeout")
    await runner.cleanup()
