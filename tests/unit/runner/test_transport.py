"""Whom the runner's socket serves: the rule, with made-up peers on real connections."""

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.core import sockets
from corral.core.errors import UnavailableError
from corral.cowboy.runner import domain, main, transport
from corral.cowboy.runner.book import BookRequest
from corral.cowboy.runner.domain import Event, Hello, Query, Rejected, RunPhase, RunState, Welcome
from corral.cowboy.runner.transport import RunnerServer

WELCOME = Welcome(1, "a-runner", "a-boot")


@pytest.mark.parametrize(
    ("daemon_uid", "served", "mode"),
    [
        (None, {1000, 0}, 0o600),
        (1000, {1000, 0}, 0o600),
        (2000, {2000, 0}, 0o666),  # and not its own uid, which every run has
        (0, {0}, 0o666),
    ],
)
def test_who_may_order_runs(daemon_uid: int | None, served: set[int], mode: int) -> None:
    assert main.access(daemon_uid, 1000) == (frozenset(served), mode)


class Served:
    """A server and what it was told. `peer` is the uid that every connection seems to have."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch, *uids: int) -> None:
        self.path = path
        self.requests: list[BookRequest] = []
        self.losses = 0
        self.peer = os.getuid()
        monkeypatch.setattr(transport, "_peer_uid", lambda _: self.peer)
        listener, _ = sockets.listen(path, "runtime_dir")
        self.server = RunnerServer(listener, "scout", WELCOME, uids, self._lost)

    def _lost(self) -> None:
        self.losses += 1

    async def ask(self, *requests: domain.Request) -> list[Event]:
        """Everything that the server answers until it closes, or for each request one event."""
        reader, writer = await asyncio.open_unix_connection(self.path)
        events: list[Event] = []
        try:
            writer.writelines(domain.encode_request(request) for request in requests)
            with contextlib.suppress(ConnectionResetError):  # it closed with requests unread
                while len(events) < len(requests) and (line := await reader.readline()):
                    events.append(domain.decode_event(line.removesuffix(b"\n")))
        finally:
            writer.close()
        return events


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Served:
    """Not in a coroutine: the runner, too, makes its socket before it serves anybody."""
    return Served(tmp_path / "runner.sock", monkeypatch, 1000, 0)


@pytest.fixture
async def served(made: Served) -> AsyncIterator[Served]:
    await made.server.start(made.requests.append)
    yield made
    made.server.close()


HELLO = Hello(1, "scout", "a-ledger")


@pytest.mark.parametrize("uid", [1000, 0])
async def test_own_uid_and_root_are_served(served: Served, uid: int) -> None:
    served.peer = uid
    assert await served.ask(HELLO) == [WELCOME]


@pytest.mark.parametrize("uid", [1001, 65534, 2**32 - 1])
async def test_others_are_rejected_before_they_say_anything(served: Served, uid: int) -> None:
    served.peer = uid
    assert await served.ask(HELLO, Query((("t", 1),))) == [
        Rejected(f"uid {uid} is not served here")
    ]
    assert served.requests == []
    assert not served.server.connected


def test_the_peer_is_the_one_that_the_kernel_names() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert transport._peer_uid(ours) == os.getuid()


async def test_requests_reach_the_book_in_order_and_events_the_live_connection(
    served: Served,
) -> None:
    served.server.send(RunState("dropped", 1, RunPhase.UNKNOWN, None))  # nobody is there
    query = Query((("t", 1),))
    served.peer = 1000

    def answer(request: BookRequest) -> None:
        served.requests.append(request)
        served.server.send(RunState("t", 1, RunPhase.UNKNOWN, None))

    served.server.handle = answer
    state = RunState("t", 1, RunPhase.UNKNOWN, None)
    assert await served.ask(HELLO, query, query) == [WELCOME, state, state]
    assert served.requests == [query, query]


async def test_a_daemon_that_does_not_read_is_given_up(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "SEND_BUFFER_MAX_BYTES", 100_000)
    served.peer = 1000
    reader, writer = await asyncio.open_unix_connection(served.path)
    writer.write(domain.encode_request(HELLO))
    await reader.readline()
    sent = 0
    while served.server.connected:
        served.server.send(Rejected("x" * 50_000))
        await asyncio.sleep(0)
        sent += 1
        assert sent < 1000
    assert served.losses == 1
    writer.close()


def test_the_lock_of_a_runner_whose_last_child_is_about_to_end_is_waited_for(
    tmp_path: Path,
) -> None:
    held = transport.lock(tmp_path / "runner.lock")
    release = threading.Timer(0.1, os.close, [held])
    release.start()
    os.close(transport.lock(tmp_path / "runner.lock"))
    release.join()


def test_the_lock_of_another_runner_is_refused_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "LOCK_WAIT_S", 0.05)
    held = transport.lock(tmp_path / "runner.lock")
    with pytest.raises(UnavailableError, match="another runner holds"):
        transport.lock(tmp_path / "runner.lock")
    os.close(held)
