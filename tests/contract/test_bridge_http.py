"""The appservice endpoints as any HTTP client sees them: tokens, sizes, shapes, faults."""

import asyncio
import io
import json
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from corral.bridge.incoming import Cancel
from corral.core.errors import StorageError
from tests.harness.homeserver import Endpoint, Recording, registration

TOKEN = registration(1).hs_token
GOOD = {"Authorization": f"Bearer {TOKEN}"}
SCOUT = "@scout:corral.test"


def message(number: int, **more: Any) -> dict[str, Any]:
    content = {"msgtype": "m.text", "body": "look", "m.mentions": {"user_ids": [SCOUT]}}
    return {
        "type": "m.room.message",
        "event_id": f"$e{number}",
        "room_id": "!r",
        "sender": "@alice:corral.test",
        "content": content,
        **more,
    }


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint(Recording())


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def put(
    http: aiohttp.ClientSession,
    url: str,
    body: Any,
    *,
    txn: str = "1",
    prefix: str = "/_matrix/app/v1",
    headers: dict[str, str] | None = None,
    query: str = "",
) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    where = f"{url}{prefix}/transactions/{txn}{query}"
    sent = GOOD if headers is None else headers
    async with http.put(where, data=io.BytesIO(data), headers=sent) as response:
        return response.status, await response.json()


@pytest.mark.parametrize("prefix", ["/_matrix/app/v1", ""])
async def test_f45_the_token_is_taken_from_the_header_and_from_the_query(
    endpoint: Endpoint, http: aiohttp.ClientSession, prefix: str
) -> None:
    body = {"events": [message(1)]}
    async with endpoint.serving() as url:
        assert await put(http, url, body, prefix=prefix) == (200, {})
        query = f"?access_token={TOKEN}"
        answer = await put(http, url, body, txn="2", prefix=prefix, headers={}, query=query)
        assert answer == (200, {})
    assert [one.txn_id for one in endpoint.admission.came] == ["1", "2"]


@pytest.mark.parametrize(
    ("headers", "query", "status", "errcode"),
    [
        ({}, "", 401, "M_MISSING_TOKEN"),
        ({"Authorization": "Bearer "}, "", 401, "M_MISSING_TOKEN"),
        ({"Authorization": "Basic eDp5"}, "", 401, "M_MISSING_TOKEN"),
        ({"Authorization": "Bearer wrong"}, "", 403, "M_FORBIDDEN"),
        ({"Authorization": f"Bearer {TOKEN}x"}, "", 403, "M_FORBIDDEN"),
        ({"Authorization": f"Bearer {TOKEN[:-1]}"}, "", 403, "M_FORBIDDEN"),
        ({}, "?access_token=wrong", 403, "M_FORBIDDEN"),
        # A header decides: a good token in a logged address does not help a wrong one.
        ({"Authorization": "Bearer wrong"}, f"?access_token={TOKEN}", 403, "M_FORBIDDEN"),
    ],
)
async def test_f45_a_stranger_is_refused_before_anything_is_read(
    endpoint: Endpoint,
    http: aiohttp.ClientSession,
    headers: dict[str, str],
    query: str,
    status: int,
    errcode: str,
) -> None:
    async with endpoint.serving() as url:
        answered = await put(http, url, b"not JSON", headers=headers, query=query)
        assert (answered[0], answered[1]["errcode"]) == (status, errcode)
        for path in ("/users/@scout:corral.test", "/rooms/x"):
            async with http.get(f"{url}/_matrix/app/v1{path}{query}", headers=headers) as response:
                assert response.status == status
        async with http.post(f"{url}/_matrix/app/v1/ping{query}", headers=headers) as response:
            assert response.status == status
    assert endpoint.admission.came == []


async def test_f45_no_token_is_ever_logged(
    endpoint: Endpoint,
    http: aiohttp.ClientSession,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    async with endpoint.serving() as url:
        query = f"?access_token={TOKEN}"
        assert (await put(http, url, {"events": []}, headers={}, query=query))[0] == 200
        endpoint.admission.fail = [StorageError("no disk"), ValueError(TOKEN)]
        assert (await put(http, url, {"events": []}, txn="2", headers={}, query=query))[0] == 503
        assert (await put(http, url, {"events": []}, txn="2", headers={}, query=query))[0] == 500
        with socket.create_connection(("127.0.0.1", endpoint.port)) as raw:
            raw.sendall(f"PUT /x?access_token={TOKEN} HTTP/9.9.9\r\nA B\r\n\r\n".encode())
            raw.settimeout(30)
            assert b" 400 " in await asyncio.to_thread(raw.recv, 4096)
    shown = capfd.readouterr()
    assert TOKEN not in caplog.text
    assert TOKEN not in shown.out + shown.err


async def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not(
    http: aiohttp.ClientSession, endpoint: Endpoint
) -> None:
    endpoint.body_max_bytes = 2000
    body = b'{"events": []}'
    async with endpoint.serving() as url:
        assert (await put(http, url, body.ljust(2000)))[0] == 200
        status, answer = await put(http, url, body.ljust(2001), txn="2")
        assert (status, answer["errcode"]) == (413, "M_TOO_LARGE")

        async def pieces() -> AsyncIterator[bytes]:
            yield body
            for _ in range(20):
                yield b" " * 100

        where = f"{url}/_matrix/app/v1/transactions/3"
        async with http.put(where, data=pieces(), headers=GOOD) as response:
            assert response.status == 413  # its length was not announced
    assert [one.txn_id for one in endpoint.admission.came] == ["1"]


async def test_a_transaction_of_several_megabytes_is_taken(
    http: aiohttp.ClientSession, endpoint: Endpoint
) -> None:
    many = [message(number, x="x" * 60_000) for number in range(100)]
    async with endpoint.serving() as url:
        assert (await put(http, url, {"events": many})) == (200, {})
    assert len(endpoint.admission.mentions) == 100


@pytest.mark.parametrize(
    ("body", "errcode"),
    [
        (b"", "M_NOT_JSON"),
        (b"{", "M_NOT_JSON"),
        (b"\xff\xfe", "M_NOT_JSON"),
        (b"[" * 100_000, "M_NOT_JSON"),
        (b"[]", "M_BAD_JSON"),
        (b"{}", "M_BAD_JSON"),
        (b'{"events": {}}', "M_BAD_JSON"),
    ],
)
async def test_what_is_no_transaction_is_400(
    http: aiohttp.ClientSession, endpoint: Endpoint, body: bytes, errcode: str
) -> None:
    async with endpoint.serving() as url:
        status, answer = await put(http, url, body)
    assert (status, answer["errcode"]) == (400, errcode)
    assert endpoint.admission.came == []


@pytest.mark.parametrize(("txn", "status"), [("x" * 255, 200), ("x" * 256, 400), ("a%00b", 400)])
async def test_a_transaction_id_that_cannot_be_stored_is_400(
    http: aiohttp.ClientSession, endpoint: Endpoint, txn: str, status: int
) -> None:
    async with endpoint.serving() as url:
        assert (await put(http, url, {"events": []}, txn=txn))[0] == status


async def test_f46_one_bad_event_does_not_hold_up_the_others(
    http: aiohttp.ClientSession, endpoint: Endpoint
) -> None:
    digits = b"9" * 10_000
    bad = b'{"events": [7, {"type": "x", "depth": ' + digits + b'}, {"content": "\\ud800\\u0000"}, '
    body = bad + json.dumps(message(1)).encode() + b"]}"
    async with endpoint.serving() as url:
        assert await put(http, url, body) == (200, {})
    assert [one.event_id for one in endpoint.admission.mentions] == ["$e1"]
    assert len(endpoint.admission.came[0].events) == 4


@pytest.mark.parametrize(
    ("fault", "status"),
    [(StorageError("no disk"), 503), (ValueError("of ours"), 500), (TimeoutError(), 500)],
)
async def test_f43_a_fault_is_never_answered_200(
    http: aiohttp.ClientSession, endpoint: Endpoint, fault: Exception, status: int
) -> None:
    endpoint.admission.fail = [fault]
    async with endpoint.serving() as url:
        got, answer = await put(http, url, {"events": [message(1)]})
        assert (got, answer["errcode"]) == (status, "M_UNKNOWN")
        assert await put(http, url, {"events": [message(1)]}) == (200, {})
    assert len(endpoint.admission.mentions) == 1


async def test_other_events_under_a_used_id_are_409(
    http: aiohttp.ClientSession, endpoint: Endpoint
) -> None:
    endpoint.admission.reject_conflicts = True
    async with endpoint.serving() as url:
        assert (await put(http, url, {"events": [message(1)]}))[0] == 200
        assert (await put(http, url, {"events": [message(1, unsigned={"age": 9})]}))[0] == 200
        status, answer = await put(http, url, {"events": [message(2)]})
    assert (status, answer["errcode"]) == (409, "CORRAL_TRANSACTION_CONFLICT")


async def test_users_and_aliases_are_ours_or_not(
    http: aiohttp.ClientSession, endpoint: Endpoint
) -> None:
    expected = {
        "/users/@scout:corral.test": 200,
        "/users/%40scout%3Acorral.test": 200,
        "/users/@alice:corral.test": 404,
        "/rooms/%23x:corral.test": 404,
        "/thirdparty/protocol/x": 404,
        "/transactions/1": 405,
    }
    async with endpoint.serving() as url:
        for path, status in expected.items():
            async with http.get(f"{url}/_matrix/app/v1{path}", headers=GOOD) as response:
                assert (path, response.status) == (path, status)
                assert ("errcode" in await response.json()) == (status != 200)


async def test_health_readiness_and_metrics_need_no_token_and_name_nobody(
    http: aiohttp.ClientSession, endpoint: Endpoint
) -> None:
    reasons: list[str | None] = ["database_read_only", None]

    async def ready() -> str | None:
        return reasons.pop(0)

    endpoint.ready = ready
    async with endpoint.serving() as url:
        async with http.get(f"{url}/readyz") as response:
            assert response.status == 503
            assert await response.json() == {"ready": False, "reason": "database_read_only"}
        async with http.get(f"{url}/readyz") as response:
            assert response.status == 200
        async with http.get(f"{url}/healthz") as response:
            assert response.status == 200
        assert (await put(http, url, {"events": [message(1), {}]}))[0] == 200
        async with http.get(f"{url}/metrics") as response:
            shown = await response.text()
    assert 'bridge_transactions_total{result="committed"} 1.0' in shown
    assert 'bridge_events_total{meaning="mention"} 1.0' in shown
    assert 'bridge_events_total{meaning="malformed"} 1.0' in shown
    assert "bridge_last_transaction_age_seconds" in shown
    for secret in ("!r", "alice", "scout", "$e1", TOKEN):
        assert secret not in shown


async def test_an_invite_is_told_after_the_commit_also_when_it_comes_again(
    http: aiohttp.ClientSession, endpoint: Endpoint
) -> None:
    invite = message(1, type="m.room.member", state_key=SCOUT, content={"membership": "invite"})
    endpoint.admission.fail = [StorageError("no disk")]
    async with endpoint.serving() as url:
        assert (await put(http, url, {"events": [invite]}))[0] == 503
        assert endpoint.invites == []
        for _ in range(2):
            assert (await put(http, url, {"events": [invite]}))[0] == 200
    assert [(one.room_id, one.ghost) for one in endpoint.invites] == [("!r", "scout")] * 2


async def test_who_may_cancel_for_others_is_looked_up_with_a_bound(
    http: aiohttp.ClientSession, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    relation = {"rel_type": "m.annotation", "event_id": "$e0", "key": "\N{CROSS MARK}"}
    crosses = [
        message(number, type="m.reaction", sender=f"@{who}:x", content={"m.relates_to": relation})
        for number, who in enumerate(["mod", "guest", "slow"])
    ]

    async def powerful(room_id: str, user: str) -> bool:
        assert room_id == "!r"
        if user == "@slow:x":
            await asyncio.Event().wait()
        return user == "@mod:x"

    monkeypatch.setattr("corral.bridge.http.POWER_TIMEOUT_S", 0.2)
    for known, expected in ((powerful, [True, False, False]), (None, [False] * 3)):
        endpoint.powerful = known
        async with endpoint.serving() as url:
            assert (await put(http, url, {"events": crosses}, txn=str(len(expected))))[0] == 200
        found = endpoint.admission.came[-1].classified
        assert [one.by_power for one in found if isinstance(one, Cancel)] == expected
