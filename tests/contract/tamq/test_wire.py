"""The wire: frames, limits, garbage, many at once; every sentence of the contract about it."""

import asyncio
import json
import os
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from corral.tamq import transport, wire
from corral.tamq.errors import (
    BodyTooLargeError,
    IdempotencyConflictError,
    IncompatibleProtocolError,
    UnauthorizedError,
    UnavailableTamqError,
    UnknownRepoError,
)
from corral.tamq.requests import PAGE_MAX
from corral.tamq.store import Peer
from corral.tamq.terminal.base import Readiness, Ready
from tests.contract.tamq.conftest import Starter
from tests.contract.tamq.kit import SEND, Service

PING = b'{"op":"ping","protocol":"0.1"}\n'
BUSY = Readiness(Ready.BUSY, "busy")


def code(answer: dict[str, Any]) -> str:
    assert answer["ok"] is False
    return str(answer["error"]["code"])


async def test_ping_says_who_and_what(service: Service) -> None:
    pong = await service.ask("ping")
    assert pong["protocol"] == "0.1"
    assert {"bounded_delivery_ack_v1", "idempotent_send_v1"} <= set(pong["capabilities"])
    assert pong["instance"] == (await service.ask("ping"))["instance"]


@pytest.mark.parametrize("op", ["ping", "send", "endpoints", "history"])
async def test_another_major_version_is_refused_for_every_operation(
    service: Service, op: str
) -> None:
    assert await service.refusal(op, protocol="1.0") == "incompatible_protocol"
    with pytest.raises(IncompatibleProtocolError):
        await service.ask(op, protocol="9")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"nonsense\n", "JSON"),
        (b"{}\n", "protocol"),
        (b'{"op":"ping"}\n', "protocol"),
        (b'{"op":"ping","protocol":1}\n', "protocol"),
        (b'{"protocol":"0.1"}\n', "op"),
        (b'{"op":"fly","protocol":"0.1"}\n', "op"),
        (b'{"op":["ping"],"protocol":"0.1"}\n', "op"),
        (b"\xff\xfe\n", "UTF-8"),
        (b"[" * 50_000 + b"\n", "nested"),
        (PING + b"x", "more followed"),
        (PING + PING, "more followed"),
        (b"\n", "JSON"),
        (b"x" * 200_000, "at most 131072 bytes"),
        (b'{"op":"ping","protocol":"0.1","x":"' + b"y" * 140_000 + b'"}\n', "at most"),
    ],
)
async def test_garbage_is_answered_and_closed(service: Service, data: bytes, why: str) -> None:
    answer = await service.raw(data)
    assert code(answer) == "invalid_request"
    assert answer["error"]["retryable"] is False
    assert why in answer["error"]["message"]
    assert await service.ask("ping")


async def test_half_a_line_is_no_request(service: Service) -> None:
    await service.register()
    half = json.dumps({**SEND, "protocol": "0.1"}).encode()
    for data in (half, b"", b"{"):
        answer = await service.raw(data, eof=True)
        assert "ended within a line" in answer["error"]["message"]
    assert (await service.ask("history"))["messages"] == []


async def test_a_frame_at_the_limit_and_one_past_it(service: Service) -> None:
    room = wire.FRAME_MAX_BYTES - len(b'{"op":"ping","protocol":"0.1","x":""}\n')
    for extra, ok in ((0, True), (1, False)):
        frame = b'{"op":"ping","protocol":"0.1","x":"' + b"y" * (room + extra) + b'"}\n'
        assert (await service.raw(frame))["ok"] is ok


async def test_a_client_that_stalls_is_told_and_disturbs_nobody(services: Starter) -> None:
    service = await services.start(read_timeout_s=0.3)
    reader, writer = await asyncio.open_unix_connection(service.path)
    writer.write(PING[:10])
    assert await service.ask("ping")
    answer = json.loads(await asyncio.wait_for(reader.readline(), 30))
    assert "no whole line within 0.3 s" in answer["error"]["message"]
    writer.close()


async def test_500_idle_connections_disturb_nobody(services: Starter) -> None:
    service = await services.start(connections_max=100)
    idle = [await asyncio.open_unix_connection(service.path) for _ in range(500)]
    await service.register()
    for number in range(20):
        assert (await service.send(idempotency_key=str(number)))["state"] == "pending"
    answer = json.loads(await asyncio.wait_for(idle[0][0].readline(), 30))
    assert code(answer) == "busy"
    assert answer["error"]["retryable"] is True
    for _, writer in idle:
        writer.close()


async def test_connections_at_the_limit_and_one_past_it(services: Starter) -> None:
    service = await services.start(connections_max=2)
    idle = [await asyncio.open_unix_connection(service.path) for _ in range(2)]
    await service.queue.settle()
    assert service.server.count == 2
    assert len(service.server.reading) == 2
    assert await service.ask("ping")  # the third: the oldest silent one makes room
    assert code(json.loads(await asyncio.wait_for(idle[0][0].readline(), 30))) == "busy"
    idle[1][1].write(PING)
    assert json.loads(await asyncio.wait_for(idle[1][0].readline(), 30))["ok"] is True
    for _, writer in idle:
        writer.close()


async def test_a_client_that_leaves_has_still_asked(service: Service) -> None:
    await service.register()
    service.queue.terminals["a"].looks = BUSY
    for number in range(20):
        _, writer = await asyncio.open_unix_connection(service.path)
        frame = json.dumps({**SEND, "protocol": "0.1", "idempotency_key": f"g{number}"})
        writer.write(frame.encode() + b"\n")
        await writer.drain()
        writer.transport.abort()
    found: list[object] = []
    while len(found) < 20:
        found = (await service.ask("history", limit=100))["messages"]
    assert (await service.send(idempotency_key="g7"))["deduplicated"] is True


# ---- peers and the socket's file ----


def test_another_user_is_refused_with_the_reason() -> None:
    assert transport.admitted(1000, 5, 1000) == Peer(1000, 5)
    assert transport.admitted(1000, 0, 1000).pid == 0
    for uid, own in ((1001, 1000), (0, 1000), (1000, 0), (65_534, 1000), (65_534, 65_534)):
        with pytest.raises(UnauthorizedError, match=str(uid)):
            transport.admitted(uid, 5, own)


def test_a_peer_is_who_the_kernel_says(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        peer = transport.peer_of(ours, os.getuid())
        assert (peer.uid, peer.pid) == (os.getuid(), os.getpid())
    with socket.socket(socket.AF_UNIX) as nobody, pytest.raises(UnauthorizedError):
        transport.peer_of(nobody, os.getuid())


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="it has peer credentials or none")
def test_an_unreadable_credential_is_refused_where_there_are_some(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET) as other, pytest.raises(UnauthorizedError):
        transport.peer_of(other, os.getuid())


# ---- every code of the contract ----


async def test_what_is_refused_and_how(service: Service) -> None:
    assert await service.refusal("send") == "unavailable"
    await service.register()
    assert await service.refusal("send", body="x" * 8193) == "body_too_large"
    with pytest.raises(BodyTooLargeError):
        await service.send(body="é" * 4097)
    large = {"a": "x" * 4096}
    assert await service.refusal("send", metadata=large) == "metadata_too_large"
    assert await service.refusal("send", target_repo="none") == "unknown_repo"
    assert await service.refusal("send", sender_repo="none") == "unknown_repo"
    assert await service.refusal("send", body=None) == "invalid_request"
    assert await service.refusal("send", endpoint_id="none") == "unavailable"
    sent = await service.send()
    assert await service.refusal("send", body="other") == "idempotency_conflict"
    ident = sent["message_id"]
    assert await service.refusal("retry", message_id=ident, actor="a", why="b") == "invalid_state"
    unknown = ident[:-1] + ("0" if ident[-1] != "0" else "1")
    for op in ("message", "ack"):
        assert await service.refusal(op, message_id=unknown) == "not_found"
        assert await service.refusal(op, message_id="42") == "invalid_request"
    for op in ("heartbeat", "unregister"):
        assert await service.refusal(op, endpoint_id="none") == "not_found"
    await service.register("b")
    assert await service.refusal("send", idempotency_key="k2") == "ambiguous_endpoint"


async def test_a_full_queue_is_busy_and_still_knows_its_keys(services: Starter) -> None:
    service = await services.start(open_max=3)
    await service.register()
    service.queue.terminals["a"].looks = BUSY
    for number in range(3):
        await service.send(idempotency_key=f"k{number}")
    assert await service.refusal("send", idempotency_key="k3") == "busy"
    again = await service.send(idempotency_key="k0")
    assert again["deduplicated"] is True
    await service.ask("ack", message_id=again["message_id"])
    assert (await service.send(idempotency_key="k3"))["deduplicated"] is False


async def test_f35_64_concurrent_identical_sends(service: Service) -> None:
    await service.register()
    answers = await asyncio.gather(*(service.send() for _ in range(64)))
    assert len({one["message_id"] for one in answers}) == 1
    assert sum(not one["deduplicated"] for one in answers) == 1
    assert len((await service.ask("history"))["messages"]) == 1
    others = await asyncio.gather(
        *(service.send(body=f"other {n}") for n in range(16)), return_exceptions=True
    )
    assert all(isinstance(one, IdempotencyConflictError) for one in others)


async def test_the_registry_is_the_current_one(service: Service) -> None:
    await service.register(repos=["shop", "new"])
    with pytest.raises(UnknownRepoError):
        await service.send(target_repo="new")
    service.repos.write_text("/src/shop,shop,,\n/src/new,new,,\n")
    await service.send(target_repo="new")
    service.repos.write_text("/src/new,new,,\n/b/new,new,,\n")
    with pytest.raises(UnknownRepoError, match="2 clones"):
        await service.send(target_repo="new", idempotency_key="k2")


async def test_endpoints_show_their_sessions(service: Service) -> None:
    first = await service.register("a", label="left")
    await service.register("b", repos=["lib"])
    service.queue.terminals["a"].looks = Readiness(Ready.DRAFT, "draft")
    await service.send()
    await service.queue.settle()
    [one] = (await service.ask("endpoints", repo="shop"))["endpoints"]
    assert one["endpoint_id"] == first["endpoint_id"]
    assert (one["label"], one["ready"], one["ready_reason"]) == ("left", "draft", "draft")
    assert one["open_messages"] == 1
    assert len((await service.ask("endpoints"))["endpoints"]) == 2
    await service.ask("heartbeat", endpoint_id=first["endpoint_id"])
    await service.ask("unregister", endpoint_id=first["endpoint_id"])
    assert (await service.ask("endpoints", repo="shop"))["endpoints"] == []
    with pytest.raises(UnavailableTamqError):
        await service.send(idempotency_key="k2")


async def test_every_answer_fits_a_frame_however_large_the_page(service: Service) -> None:
    await service.register()
    service.queue.terminals["a"].looks = BUSY
    body = "\x01" * 8192  # six bytes each in JSON
    for number in range(8):
        await service.send(idempotency_key=str(number), body=body, metadata={"a": '"' * 2000})
    seen, cursor = [], None
    while True:
        raw = {"op": "history", "protocol": "0.1", "bodies": True, "limit": PAGE_MAX}
        answer = await service.raw(json.dumps({**raw, "cursor": cursor}).encode() + b"\n")
        assert len(wire.encode(answer)) <= wire.FRAME_MAX_BYTES
        assert answer["messages"]
        assert all(one["body"] == body for one in answer["messages"])
        seen += [one["idempotency_key"] for one in answer["messages"]]
        cursor = answer["cursor"]
        if cursor is None:
            break
    assert seen == [str(number) for number in range(7, -1, -1)]


async def test_a_refused_client_that_still_writes_gets_its_answer(service: Service) -> None:
    """Closing over unread bytes would reset the connection, and the reason would be lost."""
    reader, writer = await asyncio.open_unix_connection(service.path)
    for _ in range(50):
        writer.write(b"x" * 20_000)
        await writer.drain()
    answer = json.loads(await asyncio.wait_for(reader.readline(), 30))
    assert "at most 131072 bytes" in answer["error"]["message"]
    assert await asyncio.wait_for(reader.read(), 30) == b""
    writer.write(b"y")
    writer.close()


async def test_f34_an_acknowledgement_waits_for_a_locked_database(service: Service) -> None:
    """Another program holds the write lock for a moment: nothing fails at once, nothing is lost."""
    await service.register()
    sent = await service.send()
    await service.queue.settle()
    other = sqlite3.connect(service.queue.path, isolation_level=None, check_same_thread=False)
    try:
        other.execute("BEGIN IMMEDIATE")
        asked = asyncio.create_task(service.ask("ack", message_id=sent["message_id"]))
        await asyncio.sleep(0)
        assert await service.ask("ping")
        assert not asked.done()
        other.execute("ROLLBACK")
        assert (await asked)["state"] == "acknowledged"
    finally:
        other.close()


async def test_what_waits_for_an_ended_session_says_so_and_an_operator_binds_it(
    service: Service,
) -> None:
    first = await service.register("a")
    service.queue.terminals["a"].looks = Readiness(Ready.DRAFT, "draft")
    ident = (await service.send())["message_id"]
    await service.queue.settle()
    decision = {"message_id": ident, "actor": "alice", "why": "started again"}
    stays = await service.ask("rebind", **decision)
    assert (stays["rebound"], stays["waiting_reason"]) == (False, "draft")
    second = await service.register("b", repos=["shop"])
    assert await service.refusal("rebind", **decision, endpoint_id=second["endpoint_id"]) == (
        "invalid_state"
    )
    await service.ask("unregister", endpoint_id=first["endpoint_id"])
    await service.queue.settle()
    assert service.queue.terminals["b"].wakes == []  # nobody said so
    waits = await service.ask("message", message_id=ident)
    assert (waits["state"], waits["waiting_reason"]) == ("pending", "endpoint_gone")
    [listed] = (await service.ask("history", state="pending"))["messages"]
    assert listed["waiting_reason"] == "endpoint_gone"
    bound = await service.ask("rebind", **decision)
    assert (bound["rebound"], bound["endpoint_id"]) == (True, second["endpoint_id"])
    assert bound["waiting_reason"] is None
    await service.queue.until_wakes("b", 1)
    [record] = (await service.ask("message", message_id=ident))["rebindings"]
    assert (record["actor"], record["why"]) == ("alice", "started again")
    assert record["from_endpoint_id"] == first["endpoint_id"]
    await service.ask("ack", message_id=ident)
    assert await service.refusal("rebind", **decision) == "invalid_state"


async def test_f34_sends_are_refused_while_nothing_can_be_written_and_taken_after(
    service: Service,
) -> None:
    """No transaction begins, for another program keeps the lock: each send is told, none waits."""
    await service.register()
    await service.queue.settle()
    other = sqlite3.connect(service.queue.path, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        sends = [service.send(idempotency_key=f"k{number}") for number in range(3)]
        refused = await asyncio.gather(*sends, return_exceptions=True)
        assert ["locked" in str(one) for one in refused] == [True] * 3, refused
        other.execute("ROLLBACK")
    finally:
        other.close()
    assert (await service.send())["state"] == "pending"
