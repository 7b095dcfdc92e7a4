"""Cancelling, passing on, late answers, and what is refused at the door."""

import asyncio
import contextlib
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from corral.core import sockets
from corral.core.errors import GuardError, StorageError
from corral.gateway.card import IDEMPOTENT_URI
from corral.gateway.domain import Limits, Send, State, Task
from corral.gateway.errors import TaskNotCancelableError
from corral.gateway.http import Server, listening
from corral.gateway.service import Gateway
from corral.gateway.store import Caller, Wanted
from tests.contract.gateway.kit import AGENTS, CLIENTS

ANN = Caller("ann", "scout")


@pytest.fixture
async def alone(tmp_path: Path) -> AsyncIterator[Gateway]:
    """A gateway whose agent does nothing by itself."""
    async with Gateway(tmp_path / "gateway.db") as found:
        yield found


# ---- passing on -----------------------------------------------------------------------------


async def test_messages_are_passed_on_in_order_and_once(alone: Gateway) -> None:
    for number in range(5):
        await alone.send(ANN, Send(f"m-{number}", f"{number}"))
    await alone.work("scout")
    taken = await alone.take("scout", 3)
    assert [one.text for one in taken] == ["0", "1", "2"]
    assert [one.text for one in await alone.take("scout", 3)] == [
        "0",
        "1",
        "2",
    ]  # not published yet
    for one in taken:
        await alone.published(one)
        assert (await alone.get(ANN, one.task.task_id)).state is State.WORKING
        with pytest.raises(GuardError):
            await alone.published(one)
    assert [one.text for one in await alone.take("scout", 9)] == ["3", "4"]


async def test_cancel_before_it_was_taken_is_not_passed_on(alone: Gateway) -> None:
    task = await alone.send(ANN, Send("m", "x"))
    assert (await alone.cancel(ANN, task.task_id)).state is State.CANCELED
    assert await alone.take("scout", 9) == []


async def test_cancel_of_what_the_agent_may_have_is_passed_on_after_it(alone: Gateway) -> None:
    task = await alone.send(ANN, Send("m", "x"))
    [message] = await alone.take("scout", 9)
    await alone.cancel(ANN, task.task_id)
    assert [one.kind for one in await alone.take("scout", 9)] == ["message", "cancel"]
    await alone.published(message)
    assert (await alone.get(ANN, task.task_id)).state is State.CANCELED
    [cancel] = await alone.take("scout", 9)
    await alone.published(cancel)
    assert await alone.take("scout", 9) == []


async def test_late_answer_is_recorded_and_not_shown(alone: Gateway) -> None:
    task = await alone.send(ANN, Send("m", "x"))
    await alone.cancel(ANN, task.task_id)
    assert not await alone.settle(task.task_id, State.COMPLETED, "too late")
    now = await alone.get(ANN, task.task_id)
    assert (now.state, now.text) == (State.CANCELED, "")
    assert [one.text for one in now.messages] == ["x"]
    with pytest.raises(TaskNotCancelableError):
        await alone.cancel(ANN, task.task_id)


async def test_f46_answer_that_cannot_be_stored(alone: Gateway) -> None:
    task = await alone.send(ANN, Send("m", "x"))
    assert await alone.settle(task.task_id, State.COMPLETED, "a\0b\ud800c")
    assert (await alone.get(ANN, task.task_id)).text == "a\ufffdb\ufffdc"


async def test_everyone_who_waits_is_told(alone: Gateway) -> None:
    task = await alone.send(ANN, Send("m", "x"))
    waiting = [asyncio.create_task(alone.rested(ANN, task.task_id)) for _ in range(5)]
    await asyncio.sleep(0)
    await alone.settle(task.task_id, State.COMPLETED, "done")
    assert {one.text for one in await asyncio.gather(*waiting)} == {"done"}


async def test_wait_has_a_limit(tmp_path: Path) -> None:
    async with Gateway(tmp_path / "g.db", limits=Limits(wait_max_s=0.05)) as found:
        task = await found.send(ANN, Send("m", "x"))
        assert (await found.rested(ANN, task.task_id)).state is State.SUBMITTED


async def test_pages(alone: Gateway) -> None:
    made = [await alone.send(ANN, Send(f"m-{n}", "x", context_id="c")) for n in range(5)]
    await alone.send(ANN, Send("other", "x", context_id="d"))
    await alone.settle(made[0].task_id, State.FAILED, "")
    first = await alone.page(ANN, Wanted(2, context_id="c"))
    assert [one.task_id for one in first.tasks] == [made[4].task_id, made[3].task_id]
    assert first.total == 5
    rest = await alone.page(ANN, Wanted(9, before=int(first.next_token), context_id="c"))
    assert [one.task_id for one in rest.tasks] == [made[n].task_id for n in (2, 1, 0)]
    assert rest.next_token == ""
    failed = await alone.page(ANN, Wanted(9, state=State.FAILED))
    assert [one.task_id for one in failed.tasks] == [made[0].task_id]
    assert (await alone.page(Caller("bob", "scout"), Wanted(9))).total == 0


# ---- the door -------------------------------------------------------------------------------


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator["Door"]:
    limits = Limits(body_max_bytes=4096)
    async with Gateway(tmp_path / "gateway.db", limits=limits) as found:
        listener, _ = await asyncio.to_thread(sockets.listen, tmp_path / "s", "socket")
        async with (
            listening(Server(found, agents=AGENTS, clients=CLIENTS), listener),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as http,
        ):
            yield Door(http, found)


class Door:
    """Raw HTTP to the gateway."""

    def __init__(self, http: aiohttp.ClientSession, gateway: Gateway) -> None:
        self.http = http
        self.gateway = gateway

    async def post(
        self,
        body: bytes,
        *,
        agent: str = "scout",
        token: str = "anns-token",
        scheme: str = "Bearer",
    ) -> tuple[int, Any]:
        headers = {"Authorization": f"{scheme} {token}", "A2A-Version": "1.0"}
        url = f"http://localhost/a2a/{agent}/"
        async with self.http.post(url, data=body, headers=headers) as response:
            text = await response.text()
            return response.status, json.loads(text) if text.startswith("{") else text


def call(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params}).encode()


async def test_door_wants_a_token(door: Door) -> None:
    body = call("GetTask", id="t")
    assert (await door.post(body))[0] == 200
    for token, scheme in (("wrong", "Bearer"), ("", "Bearer"), ("anns-token", "Basic")):
        assert (await door.post(body, token=token, scheme=scheme))[0] == 401
    assert (await door.post(body, agent="nobody"))[0] == 404


async def test_token_is_compared_by_its_hash(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are, at one length: the time that it takes says nothing of any token."""
    seen: list[tuple[bytes, bytes]] = []
    compare = hmac.compare_digest

    def watch(one: bytes, two: bytes) -> bool:
        seen.append((one, two))
        return compare(one, two)

    monkeypatch.setattr("corral.gateway.http.hmac.compare_digest", watch)
    assert (await door.post(call("GetTask", id="t"), token="x" * 4000))[0] == 401
    assert len(seen) == len(CLIENTS)
    assert {len(part) for pair in seen for part in pair} == {32}


async def test_request_that_cannot_be_parsed_is_not_logged(
    door: Door, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
    writer.write(b"POST /a2a/scout/ HTTP/1.1\r\nAuthorization: Bearer my secret\nX\x00: y\r\n\r\n")
    assert b" 400 " in await reader.readline()
    writer.close()
    [record] = caplog.records
    assert record.getMessage() == "a request was answered with an error BadHttpMessage"
    assert record.exc_info is None
    assert "secret" not in caplog.text


async def test_health_without_a_token(tmp_path: Path) -> None:
    trouble: dict[str, str] = {}
    async with Gateway(tmp_path / "gateway.db") as found:
        server = Server(found, agents=AGENTS, clients=CLIENTS, trouble=lambda: trouble)
        listener, _ = await asyncio.to_thread(sockets.listen, tmp_path / "s", "socket")
        async with (
            listening(server, listener),
            aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(tmp_path / "s"))) as http,
        ):
            for path, wanted in (("healthz", 200), ("readyz", 200), ("readyz", 503)):
                async with http.get(f"http://localhost/{path}") as answer:
                    assert answer.status == wanted
                    body = await answer.json()
                if trouble:
                    assert body == {"ready": False, "trouble": trouble}
                trouble |= {"scout.read": "ConnectionError"} if path == "readyz" else {}


async def test_body_at_the_limit_and_past_it(door: Door) -> None:
    body = call("GetTask", id="t")
    assert (await door.post(body.ljust(4096)))[0] == 200
    assert (await door.post(body.ljust(4097)))[0] == 413


async def test_what_is_wrong_has_a_code(door: Door) -> None:
    for body, code in ((b"{", -32700), (b"{}", -32600), (call("x"), -32601)):
        status, answer = await door.post(body)
        assert (status, answer["error"]["code"]) == (200, code)
    status, answer = await door.post(call("GetTask", id="t"))
    assert answer["error"] == {
        "code": -32001, "message": "no such task", "data": [{"reason": "task_not_found"}],
    }  # fmt: skip


async def test_extension_is_named_to_who_names_it(door: Door) -> None:
    url, body = "http://localhost/a2a/scout/", call("ListTasks")
    headers = {"Authorization": "Bearer anns-token", "A2A-Version": "1.0"}
    async with door.http.post(url, data=body, headers=headers) as answer:
        assert "A2A-Extensions" not in answer.headers
    headers["A2A-Extensions"] = f"urn:other, {IDEMPOTENT_URI}"
    async with door.http.post(url, data=body, headers=headers) as answer:
        assert answer.headers["A2A-Extensions"] == IDEMPOTENT_URI


async def test_stream_that_breaks_says_so(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has begun, so there is no other answer; and nobody takes its end for the task's."""
    task = await door.gateway.send(ANN, Send("m", "x"))

    async def follow(*_: object) -> AsyncIterator[Task]:
        yield task
        raise StorageError("the disk is gone")

    monkeypatch.setattr(door.gateway, "follow", follow)
    status, text = await door.post(call("SubscribeToTask", id=task.task_id))
    events = [json.loads(line[6:]) for line in text.splitlines() if line]
    assert status == 200
    assert events[0]["result"]["task"]["id"] == task.task_id
    assert events[1]["error"]["code"] == -32603
    assert "disk" not in text


async def test_client_that_goes_away_changes_nothing(door: Door) -> None:
    """Its call waits for an end that does not come; the task is there all the same."""
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "work"}]}
    waiting = asyncio.create_task(door.post(call("SendMessage", message=message)))
    await door.gateway.work("scout")
    while not (taken := await door.gateway.take("scout", 1)):
        await door.gateway.work("scout")
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    await door.gateway.settle(taken[0].task.task_id, State.COMPLETED, "done")
    _, answer = await door.post(call("GetTask", id=taken[0].task.task_id))
    assert answer["result"]["status"]["state"] == "TASK_STATE_COMPLETED"
