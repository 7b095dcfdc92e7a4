"""The daemon's client against a real runner, and against peers that do not behave."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from corral.cowboy.runner import domain
from corral.cowboy.runner.domain import (
    Finished,
    Prepared,
    RunnerEvent,
    RunPhase,
    RunState,
    Welcome,
)
from corral.cowboy.runner.frames import FrameError
from corral.cowboy.runner_client import RunnerClient
from corral.local.wait import until_true
from tests.unit.runner import world as worlds
from tests.unit.runner.world import AGENT, LEDGER, WAIT_S, World, prepare_request, shell

E = TypeVar("E", bound=RunnerEvent)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        yield made


class Seen:
    """Records what the client reports, and waits for it."""

    def __init__(self, path: Path, agent: str = AGENT) -> None:
        self.events: list[RunnerEvent] = []
        self.links: list[str] = []
        self.client = RunnerClient(
            path,
            agent,
            LEDGER,
            self.events.append,
            lambda: self.links.append(f"connected {self.client.runner_id}"),
            lambda: self.links.append("lost"),
        )

    async def link(self, count: int) -> str:
        await until_true(lambda: len(self.links) >= count, WAIT_S, f"{count} changes")
        return self.links[count - 1]

    async def event(self, kind: type[E]) -> E:
        await until_true(lambda: self.events, WAIT_S, kind.__name__)
        event = self.events.pop(0)
        assert isinstance(event, kind)
        return event


@contextlib.asynccontextmanager
async def client(path: Path, agent: str = AGENT) -> AsyncIterator[Seen]:
    seen = Seen(path, agent)
    task = asyncio.create_task(seen.client.run())
    try:
        yield seen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert not seen.client.connected


async def test_a_turn_from_prepare_to_forget(world: World) -> None:
    world.start()
    async with client(world.socket) as seen:
        assert (await seen.link(1)) == f"connected {seen.client.runner_id}"
        assert seen.client.connected
        assert seen.client.prepare(prepare_request("t", prompt=b"\x00hi\n"))
        assert (await seen.event(Prepared)).run.group.startswith("pgid:")
        assert seen.client.query([("t", 1)])
        assert (await seen.event(RunState)).state is RunPhase.PREPARED
        assert seen.client.go("t", 1)
        result = (await seen.event(Finished)).result
        assert (result.outcome, result.reply) == ("completed", b"\x00hi\n")
        assert seen.client.forget("t", 1)
        assert seen.client.query([("t", 1)])
        assert (await seen.event(RunState)).state is RunPhase.UNKNOWN
    assert seen.links[1:] == ["lost"]  # cancelled: once, and no event after it


async def test_kill(world: World) -> None:
    world.program(*shell("exec sleep 1000"))
    world.start()
    async with client(world.socket) as seen:
        await seen.link(1)
        seen.client.prepare(prepare_request("t"))
        seen.client.go("t", 1)
        seen.client.kill("t", 1, "cancel")
        await seen.event(Prepared)
        result = (await seen.event(Finished)).result
        assert (result.outcome, result.detail, result.went) == ("killed", "cancel", True)


async def test_nothing_is_kept_for_a_later_connection(world: World) -> None:
    async with client(world.socket) as seen:
        assert not seen.client.connected
        assert seen.client.runner_id is None
        assert not seen.client.prepare(prepare_request("t"))
        assert not seen.client.go("t", 1)
        assert not seen.client.kill("t", 1, "cancel")
        assert not seen.client.forget("t", 1)
        assert not seen.client.query([("t", 1)])
        assert not seen.client.query([])
        world.start()
        await seen.link(1)
        assert seen.client.query([])
        assert seen.client.query([("t", 1)])
        assert await seen.event(RunState) == RunState("t", 1, RunPhase.UNKNOWN, None)


async def test_a_lost_runner_is_reported_once_and_found_again_under_another_id(
    world: World,
) -> None:
    world.start()
    async with client(world.socket) as seen:
        first = await seen.link(1)
        seen.client.prepare(prepare_request("t"))
        await seen.event(Prepared)
        world.runners[-1].kill()
        assert await seen.link(2) == "lost"
        assert not seen.client.connected
        assert not seen.client.go("t", 1)
        world.start()
        third = await seen.link(3)
        assert third.startswith("connected ")
        assert third != first
        seen.client.query([("t", 1)])
        assert (await seen.event(RunState)).state is RunPhase.NEVER_WENT
    assert [link.split()[0] for link in seen.links] == ["connected", "lost"] * 2


async def test_the_same_runner_keeps_its_id_and_the_results(world: World) -> None:
    world.start()
    async with client(world.socket) as first:
        link = await first.link(1)
        first.client.prepare(prepare_request("t"))
        first.client.go("t", 1)
        await first.event(Prepared)
    async with client(world.socket) as second:
        assert await second.link(1) == link
        await until_true(lambda: _finished(second), WAIT_S, "the result")


def _finished(seen: Seen) -> bool:
    seen.client.query([("t", 1)])
    return any(
        isinstance(event, RunState) and event.state is RunPhase.FINISHED for event in seen.events
    )


async def test_more_turns_than_one_query_holds_are_asked_in_order(world: World) -> None:
    world.start()
    async with client(world.socket) as seen:
        await seen.link(1)
        turns = [(f"t{number}", 1) for number in range(2 * domain.QUERY_MAX_TURNS + 1)]
        assert seen.client.query(turns)
        await until_true(lambda: len(seen.events) == len(turns), WAIT_S, "all answers")
        assert [event.turn for event in seen.events] == [turn for turn, _ in turns]


async def test_a_prompt_that_fits_no_frame_is_an_error_connected_or_not(world: World) -> None:
    request = prepare_request("t", prompt=b"x" * (13 * 1024 * 1024))
    async with client(world.socket) as seen:
        with pytest.raises(FrameError):
            seen.client.prepare(request)
        world.start()
        await seen.link(1)
        with pytest.raises(FrameError):
            seen.client.prepare(request)
        assert seen.client.connected


async def test_a_second_client_takes_over_and_the_first_is_told(world: World) -> None:
    world.start()
    first = Seen(world.socket)
    task = asyncio.create_task(first.client.run())
    await first.link(1)
    async with client(world.socket) as second:
        await second.link(1)
        assert await first.link(2) == "lost"
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_a_runner_of_another_agent_is_no_connection(world: World) -> None:
    world.start()
    async with client(world.socket, agent="other") as seen:
        await until_true(
            lambda: "connection_fenced" not in world.log and world.socket.exists(), WAIT_S, "start"
        )
        async with client(world.socket) as right:
            await right.link(1)
        assert seen.links == []


class Peer:
    """Something that is not a good runner, behind the same socket."""

    def __init__(self, path: Path, *answers: bytes) -> None:
        self._path = path
        self._answers = answers
        self.connections = 0
        self._open = 0

    async def __aenter__(self) -> "Peer":
        self._server = await asyncio.start_unix_server(self._serve, self._path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await until_true(lambda: self._open == 0, WAIT_S, "connections to end")
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open += 1
        await reader.readline()
        writer.writelines(self._answers)
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()
        self._open -= 1


GOOD = domain.encode_event(Welcome(1, "a-runner", "a-boot"))
EVENT = domain.encode_event(RunState("t", 1, RunPhase.UNKNOWN, None))


@pytest.mark.parametrize(
    "answer",
    [
        b"noise\n",
        EVENT,
        domain.encode_event(Welcome(2, "a-runner", "a-boot")),
        domain.encode_event(domain.Rejected("not you")),
    ],
    ids=["noise", "event", "protocol", "rejected"],
)
async def test_a_peer_that_does_not_answer_the_hello_is_left_and_tried_again(
    tmp_path: Path, answer: bytes
) -> None:
    path = tmp_path / "peer.sock"
    async with Peer(path, answer, EVENT) as peer, client(path) as seen:
        await until_true(lambda: peer.connections >= 3, WAIT_S, "three tries")
        assert (seen.links, seen.events) == ([], [])


@pytest.mark.parametrize(
    "noise",
    [b"noise\n", b"x" * (domain.FRAME_MAX_BYTES + 1), GOOD],
    ids=["noise", "endless", "hello again"],
)
async def test_noise_after_the_hello_ends_the_connection(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "peer.sock"
    async with Peer(path, GOOD, EVENT, noise, EVENT), client(path) as seen:
        assert await seen.link(2) == "lost"
        assert len(seen.events) == 1


async def test_a_peer_that_is_silent_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.cowboy.runner_client.HELLO_TIMEOUT_S", 0.05)
    path = tmp_path / "peer.sock"
    async with Peer(path) as peer, client(path) as seen:
        await until_true(lambda: peer.connections >= 2, WAIT_S, "two tries")
        assert seen.links == []


async def test_a_peer_that_does_not_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.cowboy.runner_client.SEND_BUFFER_MAX_BYTES", 100_000)
    path = tmp_path / "peer.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as listener:
        listener.bind(str(path))
        listener.listen(1)
        loop = asyncio.get_running_loop()
        async with client(path) as seen:
            peer, _ = await loop.sock_accept(listener)
            with peer:
                await loop.sock_sendall(peer, GOOD)
                await seen.link(1)
                sent = 0
                while seen.client.prepare(prepare_request("t", prompt=b"x" * 10_000)):
                    sent += 1
                    assert sent < 1000
                assert await seen.link(2) == "lost"


async def test_a_callback_may_send(world: World) -> None:
    """As the daemon does: it queries in `on_connected`."""
    world.start()
    events: list[RunnerEvent] = []
    made = RunnerClient(
        world.socket,
        AGENT,
        LEDGER,
        events.append,
        lambda: None if made.query([("t", 1)]) else pytest.fail("not connected"),
        lambda: None,
    )
    task = asyncio.create_task(made.run())
    await until_true(lambda: events, WAIT_S, "the answer")
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
