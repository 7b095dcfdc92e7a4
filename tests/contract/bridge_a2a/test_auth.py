"""Bearer tokens: from a file, read anew, shown to nobody."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.bridge.ports import AuthFailed, Card, Task
from tests.contract.bridge_a2a.kit import AGENT, agents, begun, submission
from tests.harness.a2a_peers import Peer, scripted_agent
from tests.harness.fault_proxy import Fault, FaultProxy, Place

RIGHT, WRONG = "right-and-secret", "wrong-and-secret"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    token = tmp_path_factory.mktemp("guarded") / "token"
    token.write_text(RIGHT)
    with scripted_agent("--token-file", str(token)) as peer:
        yield peer


async def test_f51_401_is_not_a_missing_card(guarded: Peer, tmp_path: Path) -> None:
    """One path is tried, and the answer says what is wrong."""
    async with agents(guarded.url) as found:
        assert await found.card(AGENT) == AuthFailed("a2a_http_401")
        assert await found.send(submission("echo")) == AuthFailed("a2a_http_401")
    token = tmp_path / "token"
    token.write_text(f"{RIGHT}\n")
    async with agents(guarded.url, token_file=token) as found:
        assert isinstance(await found.card(AGENT), Card)


async def test_rotated_token_needs_no_restart(
    guarded: Peer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    token = tmp_path / "token"
    token.write_text(RIGHT)
    async with agents(guarded.url, token_file=token) as found:
        task = await begun(found, "after 60 x")
        token.write_text(WRONG)
        assert await found.send(submission("echo")) == AuthFailed("a2a_http_401")
        assert await found.get(AGENT, task.task_id) == AuthFailed("a2a_http_401")
        assert await found.cancel(AGENT, task.task_id) == AuthFailed("a2a_http_401")
        assert await found.find(AGENT, task.context_id, "m") == AuthFailed("a2a_http_401")
        token.unlink()
        assert await found.send(submission("echo")) == AuthFailed("a2a_token_unreadable")
        token.write_text(RIGHT)
        assert isinstance(await found.send(submission("echo")), Task)
    assert "secret" not in caplog.text
    assert not any(one.get("text") == "echo" for one in guarded.effects[:1])


async def test_token_that_would_be_two_headers_is_not_sent(guarded: Peer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_bytes(b"a\r\nX-Evil: 1")
    async with agents(guarded.url, token_file=token) as found:
        assert await found.card(AGENT) == AuthFailed("a2a_token_unreadable")


async def test_what_is_asserted_of_the_user(peer: Peer) -> None:
    async with agents(peer.url) as found:
        ours = submission("echo", user="@ann:example.org\r\nX-Evil: 1")
        assert isinstance(await found.send(ours), Task)
    [effect] = [one for one in peer.effects if one.get("message_id") == ours.message_id]
    assert effect["user"] == "@ann:example.org%0D%0AX-Evil:%201"


async def test_trace_context_travels(peer: Peer, tmp_path: Path) -> None:
    good = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    async with FaultProxy(Place(path=peer.place), Place(path=tmp_path / "p")) as front:
        seen = front.arm(f"traceparent: {good}".encode(), Fault.HOLD_ANSWER)
        front.release()
        async with agents(f"unix:{tmp_path / 'p'}:/") as found:
            assert isinstance(await found.send(submission("echo", traceparent=good)), Task)
            bad = submission("echo", traceparent="00-a\r\nX-Evil: 1")
            assert isinstance(await found.send(bad), Task)
    assert seen.hits == 1
