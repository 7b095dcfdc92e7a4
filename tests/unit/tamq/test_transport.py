"""Connections at their edges: clients that do not read, a server that stops, no descriptor left."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from corral.local.wait import until_true
from corral.tamq import transport, wire
from corral.tamq.store import Peer
from corral.tamq.transport import Connection, Server

BOUND_S = 60.0
LARGE = {"text": "x" * 120_000}
ASK = b'{"op":"ping"}\n'


class Handled:
    """Answers at once, or when it is let."""

    def __init__(self, answer: Mapping[str, object]) -> None:
        self.answer = answer
        self.free = asyncio.Event()
        self.free.set()
        self.began = 0

    async def __call__(self, fields: dict[str, Any], peer: Peer) -> Mapping[str, object]:
        self.began += 1
        await self.free.wait()
        return self.answer


class Wire:
    """A server with one client, whose socket takes little at a time."""

    def __init__(self, answer: Mapping[str, object]) -> None:
        self.handled = Handled(answer)
        self.server = Server(self.handled)
        self.client, self.accepted = socket.socketpair()
        self.client.setblocking(False)
        self.accepted.setblocking(False)
        self.accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)

    async def start(self) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.setblocking(False)
        listener.bind("")  # a name that the kernel makes up
        listener.listen()
        await self.server.start(listener)

    def ask(self) -> Connection:
        self.client.send(ASK)
        connection = Connection(self.server, self.accepted)
        connection.begin()
        return connection

    async def read(self) -> bytes:
        """All until the end."""
        loop, found = asyncio.get_running_loop(), b""
        async with asyncio.timeout(BOUND_S):
            while data := await loop.sock_recv(self.client, 65_536):
                found += data
        return found


@pytest.fixture
async def wired() -> AsyncIterator[Wire]:
    made = Wire(LARGE)
    await made.start()
    yield made
    made.handled.free.set()
    await made.server.stop()
    made.client.close()


async def test_an_answer_that_does_not_fit_at_once_arrives_whole(wired: Wire) -> None:
    wired.ask()
    await until_true(lambda: wired.handled.began == 1, BOUND_S, "the request to be carried out")
    assert wire.answer(await wired.read()) == LARGE
    assert wired.server.count == 0


async def test_a_client_that_takes_no_answer_is_given_up(
    wired: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "WRITE_TIMEOUT_S", 0.05)
    wired.ask()
    await until_true(lambda: wired.handled.began == 1, BOUND_S, "the request to be carried out")
    assert wired.server.count == 1
    await until_true(lambda: wired.server.count == 0, BOUND_S, "the connection to be closed")
    assert wired.accepted.fileno() == -1


async def test_a_client_that_left_costs_nothing(wired: Wire) -> None:
    wired.handled.free.clear()
    wired.ask()
    wired.client.close()
    await until_true(lambda: wired.handled.began == 1, BOUND_S, "the request to be carried out")
    wired.handled.free.set()
    await until_true(lambda: wired.server.count == 0, BOUND_S, "the connection to be closed")


async def test_a_line_in_pieces_is_one_line(wired: Wire) -> None:
    wired.handled.answer = {}
    for piece in (ASK[:1], ASK[1:5]):
        wired.client.send(piece)
    Connection(wired.server, wired.accepted).begin()
    assert len(wired.server.reading) == 1
    for byte in ASK[5:]:
        wired.client.send(bytes([byte]))
        await asyncio.sleep(0)
    assert wire.answer(await wired.read()) == {}


async def test_to_stop_waits_for_what_was_read(wired: Wire) -> None:
    wired.handled.free.clear()
    wired.handled.answer = {"late": True}
    wired.ask()
    stopping = asyncio.create_task(wired.server.stop())
    await until_true(lambda: wired.handled.began == 1, BOUND_S, "the request to be carried out")
    assert not stopping.done()
    wired.handled.free.set()
    await stopping
    assert wire.answer(await wired.read()) == {"late": True}


async def test_to_stop_does_not_wait_for_ever(wired: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "STOP_TIMEOUT_S", 0.05)
    wired.handled.free.clear()
    connection = wired.ask()
    await asyncio.wait_for(wired.server.stop(), BOUND_S)
    assert await wired.read() == b""
    assert connection.task is not None
    assert connection.task.cancelled()


async def test_who_says_nothing_is_sent_away_when_the_server_stops(wired: Wire) -> None:
    Connection(wired.server, wired.accepted).begin()
    await wired.server.stop()
    assert await wired.read() == b""
    assert wired.server.count == 0


class NoDescriptor:
    """A listener as the kernel's is when none is left; `accept` works again when it is let."""

    def __init__(self, real: socket.socket) -> None:
        self.real = real
        self.refusals = 0
        self.spent = True

    def fileno(self) -> int:
        return self.real.fileno()

    def accept(self) -> tuple[socket.socket, object]:
        if self.spent:
            self.refusals += 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self.real.accept()

    def close(self) -> None:
        self.real.close()


async def test_without_a_descriptor_it_waits_and_accepts_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "ACCEPT_PAUSE_S", 0.01)
    real = socket.socket(socket.AF_UNIX)
    real.setblocking(False)
    real.bind("")
    real.listen()
    listener: Any = NoDescriptor(real)
    server = Server(Handled({}))
    await server.start(listener)
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)
    client.connect(real.getsockname())
    client.send(ASK)
    await until_true(lambda: listener.refusals >= 2, BOUND_S, "two refusals")
    listener.spent = False
    async with asyncio.timeout(BOUND_S):
        assert wire.answer(await asyncio.get_running_loop().sock_recv(client, 1_000)) == {}
    await server.stop()
    client.close()
