"""The adapter of the coordination engine, every sentence of its contract, both variants."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from corral.tamq.adapter import (
    AsyncCoordinationEngineAdapter,
    CoordinationEngineAdapter,
    WakeReceipt,
    WakeRequest,
)
from corral.tamq.errors import (
    AmbiguousEndpointError,
    BodyTooLargeError,
    IdempotencyConflictError,
    IncompatibleProtocolError,
    UnavailableTamqError,
    UnknownRepoError,
)
from corral.tamq.terminal.base import Readiness, Ready
from tests.contract.tamq.kit import Service

WAKE = WakeRequest("lease-1", "trigger-1", "shop", "look at issue 7", metadata={"more": 1})
Wake = Callable[[WakeRequest], Awaitable[WakeReceipt]]


@pytest.fixture(params=["sync", "async"])
def wake(request: pytest.FixtureRequest, service: Service) -> Wake:
    service.repos.write_text("/s/shop,shop,,\n/s/lib,lib,,\n/s/ce,coordination-engine,,\n")
    if request.param == "async":
        return AsyncCoordinationEngineAdapter(service.path, 30).wake
    adapter = CoordinationEngineAdapter(service.path, 30)

    async def in_a_thread(wanted: WakeRequest) -> WakeReceipt:
        return await asyncio.to_thread(adapter.wake, wanted)

    return in_a_thread


async def test_a_wake_becomes_the_send_of_the_contract(service: Service, wake: Wake) -> None:
    endpoint = await service.register()
    receipt = await wake(WAKE)
    assert (receipt.endpoint_id, receipt.deduplicated) == (endpoint["endpoint_id"], False)
    stored = await service.ask("message", message_id=receipt.message_id)
    expected = {
        "client_id": "coordination-engine",
        "idempotency_key": "lease-1",
        "correlation_id": "trigger-1",
        "sender_repo": "coordination-engine",
        "target_repo": "shop",
        "provenance": "coordination_engine",
        "metadata": {"more": 1, "lease_id": "lease-1", "trigger_id": "trigger-1"},
        "body": "look at issue 7",
    }
    assert {name: stored[name] for name in expected} == expected


async def test_a_repeated_wake_is_the_same_message(service: Service, wake: Wake) -> None:
    await service.register()
    first = await wake(WAKE)
    again = await wake(WAKE)
    assert again.deduplicated
    assert (again.message_id, again.endpoint_id) == (first.message_id, first.endpoint_id)
    with pytest.raises(IdempotencyConflictError):
        await wake(WakeRequest("lease-1", "trigger-1", "shop", "another prompt"))


async def test_no_session_is_unavailable_and_admits_nothing(service: Service, wake: Wake) -> None:
    with pytest.raises(UnavailableTamqError, match="no live session serves shop"):
        await wake(WAKE)
    gone = await service.register()
    await service.ask("unregister", endpoint_id=gone["endpoint_id"])
    named = WakeRequest("lease-1", "t", "shop", "x", endpoint_id=gone["endpoint_id"])
    for wanted in (WAKE, named):
        with pytest.raises(UnavailableTamqError):
            await wake(wanted)
    assert (await service.ask("history"))["messages"] == []


async def test_several_sessions_need_a_name(service: Service, wake: Wake) -> None:
    await service.register("a")
    second = await service.register("b")
    with pytest.raises(AmbiguousEndpointError):
        await wake(WAKE)
    named = WakeRequest("lease-1", "t", "shop", "x", endpoint_id=second["endpoint_id"])
    assert (await wake(named)).endpoint_id == second["endpoint_id"]


async def test_a_replacement_session_takes_the_same_message(service: Service, wake: Wake) -> None:
    first = await service.register("a")
    service.queue.terminals["a"].looks = Readiness(Ready.BUSY, "busy")
    sent = await wake(WAKE)
    await service.ask("unregister", endpoint_id=first["endpoint_id"])
    second = await service.register("b")
    moved = await wake(WAKE)
    assert moved.message_id == sent.message_id
    assert moved.endpoint_id == second["endpoint_id"]
    await service.register("c")
    with pytest.raises(AmbiguousEndpointError):  # never between two live sessions implicitly
        await wake(WAKE)


async def test_other_refusals_arrive_as_they_are(service: Service, wake: Wake) -> None:
    await service.register(repos=["shop", "none"])
    with pytest.raises(BodyTooLargeError):
        await wake(WakeRequest("l", "t", "shop", "x" * 8193))
    with pytest.raises(UnknownRepoError):
        await wake(WakeRequest("l", "t", "none", "x"))


@pytest.mark.parametrize(
    "pong",
    [
        {"protocol": "1.0", "capabilities": ["bounded_delivery_ack_v1", "idempotent_send_v1"]},
        {"protocol": "0.1", "capabilities": ["bounded_delivery_ack_v1", "x"]},
        {"protocol": "0.1", "capabilities": ["idempotent_send_v1"]},
        {"protocol": "0.1"},
    ],
)
async def test_an_incompatible_service_is_sent_nothing(
    tmp_path: Path, pong: dict[str, Any]
) -> None:
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(json.loads(await reader.readline())["op"])
        writer.write(json.dumps({"ok": True, "instance": "i", **pong}).encode() + b"\n")
        writer.close()

    path = tmp_path / "s"
    async with await asyncio.start_unix_server(serve, path):
        with pytest.raises(IncompatibleProtocolError):
            await AsyncCoordinationEngineAdapter(path, 30).wake(WAKE)
        with pytest.raises(IncompatibleProtocolError):
            await asyncio.to_thread(CoordinationEngineAdapter(path, 30).wake, WAKE)
    assert asked == ["ping", "ping"]


async def test_no_service_and_no_answer_are_retryable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableTamqError, match="no TAMQ listens") as caught:
        await AsyncCoordinationEngineAdapter(tmp_path / "none", 30).wake(WAKE)
    assert caught.value.retryable

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.close()

    path = tmp_path / "s"
    async with await asyncio.start_unix_server(silent, path):
        with pytest.raises(UnavailableTamqError, match="gave no answer"):
            await AsyncCoordinationEngineAdapter(path, 30).wake(WAKE)
        with pytest.raises(UnavailableTamqError, match="gave no answer"):
            await asyncio.to_thread(CoordinationEngineAdapter(path, 30).wake, WAKE)


async def test_a_service_that_never_answers_costs_the_timeout(tmp_path: Path) -> None:
    over = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()

    path = tmp_path / "s"
    async with await asyncio.start_unix_server(hang, path):
        try:
            with pytest.raises(UnavailableTamqError, match=r"within 0\.2 s"):
                await AsyncCoordinationEngineAdapter(path, 0.2).wake(WAKE)
            with pytest.raises(UnavailableTamqError, match=r"within 0\.2 s"):
                await asyncio.to_thread(CoordinationEngineAdapter(path, 0.2).wake, WAKE)
        finally:
            over.set()


def test_the_adapter_imports_nothing_of_the_server() -> None:
    program = (
        "import sys, corral.tamq.adapter;"
        "print(*sorted(name for name in sys.modules if name.startswith('corral.')))"
    )
    argv = [sys.executable, "-P", "-c", program]
    environ = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True, timeout=60)
    assert set(done.stdout.split()) == {
        "corral.core",
        "corral.core.errors",
        "corral.tamq",
        "corral.tamq.adapter",
        "corral.tamq.client",
        "corral.tamq.errors",
        "corral.tamq.host",
        "corral.tamq.wire",
    }
    assert "sqlite3" not in done.stdout
