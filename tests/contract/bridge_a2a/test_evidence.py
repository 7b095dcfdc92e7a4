"""Whether a message may have left: decided at the transport, counted at the agent."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.bridge.a2a.target import Address
from corral.bridge.a2a.transport import Answer, Limits, NoAnswer, Transport
from corral.bridge.ports import MayHaveLeft, NeverLeft, Refused, Task, Unreachable
from corral.local.wait import until_true
from tests.contract.bridge_a2a.kit import AGENT, WAIT_S, agents, submission
from tests.harness.a2a_peers import Peer
from tests.harness.fault_proxy import Fault, FaultProxy, Place

Proxied = tuple[FaultProxy, str]
LIMITS = Limits(connect_s=60, total_s=60, answer_max_bytes=1 << 20)
HASTY = Limits(connect_s=0.2, total_s=60, answer_max_bytes=1 << 20)


# ---- never left -----------------------------------------------------------------------------


async def test_f50_nobody_listens(tmp_path: Path) -> None:
    async with agents(f"unix:{tmp_path / 'none'}:/") as found:
        assert await found.send(submission("echo")) == NeverLeft("a2a_connect")


async def test_nobody_listens_any_more(peer: Peer, tmp_path: Path) -> None:
    """The card is known from before; then the agent is away."""
    place = tmp_path / "proxy"
    async with agents(f"unix:{place}:/") as found:
        async with FaultProxy(Place(path=peer.place), Place(path=place)):
            assert isinstance(await found.send(submission("echo")), Task)
        assert await found.send(submission("echo")) == NeverLeft("a2a_connect")
        assert await found.cancel(AGENT, "t") == NeverLeft("a2a_connect")
        assert isinstance(await found.get(AGENT, "t"), Unreachable)


@contextlib.contextmanager
def deaf_port() -> Iterator[int]:
    """A port whose queue of connections is full: what comes is neither taken nor refused."""
    with socket.socket() as listener, contextlib.ExitStack() as clients:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            client = clients.enter_context(socket.socket())
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(listener.getsockname())
        yield listener.getsockname()[1]


async def test_connection_takes_too_long() -> None:
    with deaf_port() as port:
        transport = Transport()
        address = Address.parse(f"http://127.0.0.1:{port}/")
        try:
            answer = await transport.call("POST", address, headers={}, limits=HASTY, body=b"x")
        finally:
            await transport.close()
    assert answer == NoAnswer("a2a_connect_timeout", left=False)


async def test_no_connection_is_free(proxy: Proxied) -> None:
    """Waiting for a free connection is part of connecting: nothing has left."""
    front, url = proxy
    held = front.arm(b"first", Fault.HOLD_ANSWER)
    transport = Transport(connections_max=1)
    address = Address.parse(url)
    try:
        first = asyncio.create_task(
            transport.call("POST", address, headers={}, limits=LIMITS, body=b"first")
        )
        await until_true(lambda: held.hits, WAIT_S, "the first to be held")
        second = await transport.call("POST", address, headers={}, limits=HASTY, body=b"second")
        front.release()
        assert isinstance(await first, Answer)
    finally:
        await transport.close()
    assert second == NoAnswer("a2a_connect_timeout", left=False)
    assert front.connections == 1


async def test_handshake_with_what_is_no_tls_server(peer: Peer) -> None:
    """Bytes of the handshake are no bytes of the request."""
    async with FaultProxy(Place(path=peer.place), Place()) as front:
        transport = Transport()
        address = Address.parse(f"https://127.0.0.1:{front.port}/")
        try:
            answer = await transport.call("POST", address, headers={}, limits=LIMITS, body=b"x")
        finally:
            await transport.close()
        assert front.client_bytes > 0
    assert isinstance(answer, NoAnswer)
    assert not answer.left


# ---- may have left --------------------------------------------------------------------------


@pytest.mark.parametrize("after_bytes", [0, 1, 20, 200, 500])
async def test_f50_cut_within_the_request(proxy: Proxied, peer: Peer, after_bytes: int) -> None:
    """From the first byte on we cannot know: it is never sent again, and the agent never began."""
    front, url = proxy
    ours = submission("echo " + "x" * 400)
    async with agents(url) as found:
        await found.card(AGENT)
        rule = front.arm(b"SendMessage", Fault.CUT_REQUEST, after_bytes=after_bytes, times=9)
        assert await found.send(ours) == MayHaveLeft("a2a_disconnected")
    assert rule.hits == 1
    assert peer.starts(ours.message_id) == 0


@pytest.mark.parametrize("after_bytes", [0, 1, 12, 60, 200, 300])
async def test_f50_cut_within_the_answer(proxy: Proxied, peer: Peer, after_bytes: int) -> None:
    front, url = proxy
    ours = submission("echo hi")
    async with agents(url) as found:
        await found.card(AGENT)
        front.arm(ours.message_id.encode(), Fault.CUT_ANSWER, after_bytes=after_bytes, times=9)
        answer = await found.send(ours)
    assert isinstance(answer, MayHaveLeft)
    assert peer.starts(ours.message_id) == 1


async def test_f50_answer_is_dropped(proxy: Proxied, peer: Peer) -> None:
    front, url = proxy
    ours = submission("echo hi")
    async with agents(url) as found:
        await found.card(AGENT)
        rule = front.arm(ours.message_id.encode(), Fault.DROP_ANSWER, times=9)
        assert await found.send(ours) == MayHaveLeft("a2a_disconnected")
        # What was lost can be asked for, and is there once.
        answer = await found.find(AGENT, ours.context_id or "", ours.message_id)
    assert isinstance(answer, Task)
    assert rule.hits == 1
    assert peer.starts(ours.message_id) == 1


async def test_answer_comes_too_late(peer: Peer) -> None:
    ours = submission("hang")
    async with agents(peer.url, request_timeout_s=5.0) as found:
        assert await found.send(ours) == MayHaveLeft("a2a_timeout")
    assert peer.starts(ours.message_id) == 1


async def test_cancel_has_the_same_evidence(proxy: Proxied, peer: Peer) -> None:
    front, url = proxy
    async with agents(url) as found:
        answer = await found.send(submission("work"))
        assert isinstance(answer, Task)
        task_id = answer.view.task_id
        front.arm(b"CancelTask", Fault.DROP_ANSWER, times=9)
        assert await found.cancel(AGENT, task_id) == MayHaveLeft("a2a_disconnected")
    canceled = [one for one in peer.effects if one["did"] == "canceled"]
    assert [one["task_id"] for one in canceled].count(task_id) == 1


async def test_effect_gets_a_connection_of_its_own(proxy: Proxied) -> None:
    """A server that closes what was kept would make a send ambiguous for nothing."""
    front, url = proxy
    async with agents(url) as found:
        await found.card(AGENT)
        before = front.connections
        for _ in range(3):
            assert isinstance(await found.send(submission("echo")), Task)
    assert front.connections == before + 3


async def test_questions_share_a_connection(proxy: Proxied) -> None:
    front, url = proxy
    async with agents(url) as found:
        answer = await found.send(submission("echo"))
        assert isinstance(answer, Task)
        before = front.connections
        for _ in range(3):
            assert isinstance(await found.get(AGENT, answer.view.task_id), Task)
    assert front.connections == before


# ---- answers by their status ----------------------------------------------------------------


@pytest.mark.parametrize("status", [404, 405, 413, 415, 422])
async def test_definite_status_is_a_refusal(peer: Peer, status: int) -> None:
    async with agents(peer.url) as found:
        assert await found.send(submission(f"http {status}")) == Refused(f"a2a_http_{status}")


@pytest.mark.parametrize("status", [202, 301, 303, 307, 308, 400, 408, 409, 429, 500, 502, 503])
async def test_other_status_is_ambiguous_and_sent_once(peer: Peer, status: int) -> None:
    ours = submission(f"http {status}")
    async with agents(peer.url) as found:
        assert await found.send(ours) == MayHaveLeft(f"a2a_http_{status}")
    asked = [one for one in peer.effects if one.get("message_id") == ours.message_id]
    assert len(asked) == 1


@pytest.mark.parametrize("code", [-32700, -32600, -32602, -32003, -32004, -32005, -32008])
async def test_definite_code_is_a_refusal(peer: Peer, code: int) -> None:
    async with agents(peer.url) as found:
        assert isinstance(await found.send(submission(f"refuse {code}")), Refused)


@pytest.mark.parametrize("code", [-32603, -32006, -32000, -32001, -32002, 1])
async def test_other_code_is_ambiguous(peer: Peer, code: int) -> None:
    async with agents(peer.url) as found:
        assert isinstance(await found.send(submission(f"refuse {code}")), MayHaveLeft)
