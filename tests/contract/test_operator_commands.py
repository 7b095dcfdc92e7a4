"""`cowboy send`, and what `cowboy status` reads: real servers with the generated ACL file."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import CorralError
from corral.cowboy.config import SourceConfig, load_sources
from corral.cowboy.redisops import LAG_COUNTED_MAX, Message, UncertainSendError, look, send
from corral.cowboy.settings import RedisEndpoint
from corral.local.servers import Login, RedisServer, find_server, find_servers
from corral.local.topology import Topology, load_rendered, private_base

REPOSITORY = Path(__file__).parents[2]
AGENT = "scout"


@dataclass
class Host:
    """One running server, and the topology whose identities it knows."""

    topology: Topology
    server: RedisServer
    protocol: int
    sources: Mapping[str, SourceConfig]

    def source(self, name: str = "a2a") -> SourceConfig:
        return self.sources[name]

    def endpoint(self, identity: str) -> RedisEndpoint:
        login: Login = self.topology.login(identity)
        return RedisEndpoint(
            login.username, login.password, self.protocol, socket=str(self.server.socket)
        )

    def admin(self, *command: str | bytes) -> Any:
        with self.server.client() as client:
            return client.execute_command(*command)


@contextlib.contextmanager
def hosted(binary: Path, protocol: int) -> Iterator[Host]:
    topology = Topology.materialise(load_rendered(), private_base())
    try:
        server = RedisServer(
            topology.base / "server",
            binary,
            acl=topology.acl(),
            settings=topology.redis_settings,
            socket=topology.redis_socket,
        )
        file = load_sources(topology.config_dir / AGENT / "sources.json")
        with server:
            yield Host(topology, server, protocol, file.sources)
    finally:
        topology.remove()


@pytest.fixture(scope="module", params=[(k, p) for k in ("redis", "valkey") for p in (2, 3)])
def running(request: pytest.FixtureRequest) -> Iterator[Host]:
    kind, protocol = request.param
    servers = find_servers()
    if kind not in servers:
        pytest.skip(f"no {kind} server on this machine")
    with hosted(servers[kind], protocol) as host:
        yield host


@pytest.fixture
def host(running: Host) -> Iterator[Host]:
    """The server, empty; afterwards its ACL LOG must be empty unless the test reset it."""
    running.admin("FLUSHALL")
    running.admin("ACL", "LOG", "RESET")
    yield running
    assert running.admin("ACL", "LOG") == []


@pytest.mark.parametrize("identity", ["operator", "source.scout.a2a"])
async def test_a_message_arrives_with_the_fields_that_were_given(identity: str, host: Host) -> None:
    content = b"\x00\xff any bytes \r\n"
    message = Message(content, "m-1", sender="anna", channel="ops", thread="t")
    entry_id = await send(host.endpoint(identity), host.source(), message)
    with host.server.client() as client:
        (found,) = client.xrange("scout:a2a:inbox")
    assert found[0] == entry_id.encode()
    assert found[1] == {
        b"content": content,
        b"message_id": b"m-1",
        b"sender": b"anna",
        b"channel": b"ops",
        b"thread": b"t",
    }


async def test_absent_fields_are_not_sent(host: Host) -> None:
    await send(host.endpoint("operator"), host.source(), Message(b"x", "m-1"))
    with host.server.client() as client:
        ((_, fields),) = client.xrange("scout:a2a:inbox")
    assert fields == {b"content": b"x", b"message_id": b"m-1"}


async def test_another_source_is_denied_by_the_server(host: Host) -> None:
    endpoint = host.endpoint("source.scout.a2a")
    await send(endpoint, host.source("a2a"), Message(b"x", "m-1"))
    with pytest.raises(CorralError, match=r"(?i)noperm|no permissions") as caught:
        await send(endpoint, host.source("chat"), Message(b"x", "m-1"))
    assert not isinstance(caught.value, UncertainSendError)
    assert host.admin("XLEN", "scout:chat:inbox") == 0
    host.admin("ACL", "LOG", "RESET")


async def test_a_wrong_password_is_a_refusal(host: Host) -> None:
    endpoint = replace(host.endpoint("operator"), password="wrong")
    with pytest.raises(CorralError, match=r"credential|username-password") as caught:
        await send(endpoint, host.source(), Message(b"x", "m-1"))
    assert not isinstance(caught.value, UncertainSendError)
    assert caught.value.exit_code == 69
    host.admin("ACL", "LOG", "RESET")


async def test_a_full_server_refuses_and_has_not_added(host: Host) -> None:
    host.admin("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(CorralError, match="maxmemory") as caught:
            await send(host.endpoint("operator"), host.source(), Message(b"x", "m-1"))
        assert not isinstance(caught.value, UncertainSendError)
    finally:
        host.admin("CONFIG", "SET", "maxmemory", "0")
    assert host.admin("XLEN", "scout:a2a:inbox") == 0


async def test_what_redis_knows_before_anything_was_sent(host: Host) -> None:
    (seen,) = await look(host.endpoint("operator"), [host.source()])
    assert seen == {
        "source": "a2a",
        "inbox": {"length": 0, "lag": 0, "pending": None, "oldest_pending_idle_ms": None},
        "outbox": {"length": 0, "readers": {}},
        "dead": 0,
        "refused": [],
    }


async def test_f17_lag_and_pending_are_shown_and_not_the_length_alone(host: Host) -> None:
    source = host.source()
    host.admin("XGROUP", "CREATE", source.stream, "cowboy", "0", "MKSTREAM")
    host.admin("XGROUP", "CREATE", source.outbox, "source", "0", "MKSTREAM")
    for _ in range(5):
        host.admin("XADD", source.stream, "*", "content", "x")
    host.admin("XADD", source.outbox, "*", "content", "x")
    host.admin("XREADGROUP", "GROUP", "cowboy", source.consumer, "COUNT", "2", "STREAMS",
               source.stream, ">")  # fmt: skip
    (seen,) = await look(host.endpoint("operator"), [source])
    inbox = seen["inbox"]
    assert (inbox["length"], inbox["lag"], inbox["pending"]) == (5, 3, 2)
    assert 0 <= inbox["oldest_pending_idle_ms"] < 60_000
    assert seen["outbox"] == {"length": 1, "readers": {"source": {"lag": 1, "pending": 0}}}


async def test_f17_lag_where_redis_does_not_say(host: Host) -> None:
    """Before there is a group every entry is unread; after a deletion the rest is counted."""
    source = host.source()
    ids = [host.admin("XADD", source.stream, "*", "content", "x") for _ in range(3)]
    (seen,) = await look(host.endpoint("operator"), [source])
    assert (seen["inbox"]["lag"], seen["inbox"]["pending"]) == (3, None)
    host.admin("XGROUP", "CREATE", source.stream, "cowboy", ids[0])
    for _ in range(LAG_COUNTED_MAX - 2):
        host.admin("XADD", source.stream, "*", "content", "x")
    host.admin("XDEL", source.stream, ids[1])
    (seen,) = await look(host.endpoint("operator"), [source])
    assert seen["inbox"]["lag"] == LAG_COUNTED_MAX - 1
    host.admin("XADD", source.stream, "*", "content", "x")
    (seen,) = await look(host.endpoint("operator"), [source])
    assert seen["inbox"]["lag"] is None


async def test_an_identity_that_may_not_look_is_told_so(host: Host) -> None:
    (seen,) = await look(host.endpoint("source.scout.a2a"), [host.source()])
    assert seen["inbox"]["length"] is None
    assert any("permission" in text for text in seen["refused"])
    host.admin("ACL", "LOG", "RESET")


def test_the_commands_themselves() -> None:
    """As a user types them: the operator's password from a file, the content from a pipe."""
    with hosted(find_server()[1], 3) as host:
        type_the_commands(host)
        assert host.admin("ACL", "LOG") == []


def type_the_commands(host: Host) -> None:
    topology = host.topology
    credential = topology.rendered["identities"]["operator"]["credential"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "python"),
        "PYTHONWARNINGS": "error",
        "COWBOY_CONFIG_DIR": str(topology.config_dir),
        "COWBOY_RUNTIME_DIR": str(topology.runtime_dir),
        "COWBOY_REDIS_URL": f"unix://{host.server.socket}",
        "COWBOY_REDIS_PROTOCOL": str(host.protocol),
        "COWBOY_REDIS_PASSWORD_FILE": str(topology.credential_file(credential)),
    }

    def cowboy(*args: str, stdin: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
        argv = [sys.executable, "-m", "corral.cowboy.main", *args]
        return subprocess.run(argv, input=stdin, env=environment, capture_output=True, check=False)

    sent = cowboy("send", AGENT, "a2a", "--content", "-", "--json", stdin=b"a private word")
    assert (sent.returncode, sent.stderr) == (0, b"")
    assert b"private" not in sent.stdout
    fields = json.loads(sent.stdout)
    assert fields["stream"] == "scout:a2a:inbox"
    again = cowboy("send", AGENT, "a2a", "--content", "x", "--message-id", fields["message_id"])
    assert again.stdout.decode().endswith(f", message {fields['message_id']}\n")
    with host.server.client() as client:
        first, second = client.xrange("scout:a2a:inbox")
    assert first[1][b"content"] == b"a private word"
    assert first[1][b"message_id"] == second[1][b"message_id"] == fields["message_id"].encode()
    status = cowboy("status", AGENT)
    assert status.returncode == 1
    assert b"agent scout: NO STATUS: no daemon listens" in status.stdout
    assert b"what Redis knows" in status.stdout
    assert status.stderr == b""


class CutOff:
    """A server that takes the handshake and ends the connection at XADD; it counts them."""

    def __init__(self, path: Path, *, silent: bool = False) -> None:
        self.adds = 0
        self.asked = asyncio.Event()
        self._path = path
        self._silent = silent
        self._connections: list[asyncio.StreamWriter] = []

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_unix_server(self._serve, str(self._path))
        try:
            yield
        finally:
            server.close()
            for writer in self._connections:
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.append(writer)
        while command := await self._command(reader):
            if command[0] == b"HELLO":
                writer.write(b"%1\r\n$5\r\nproto\r\n:3\r\n")
            elif command[0] == b"XADD":
                self.adds += 1
                self.asked.set()
                if not self._silent:
                    writer.transport.abort()
                    return
            else:
                writer.write(b"+OK\r\n")

    async def _command(self, reader: asyncio.StreamReader) -> list[bytes]:
        head = await reader.readline()
        parts = []
        for _ in range(int(head[1:] or 0)):
            length = int((await reader.readline())[1:])
            parts.append((await reader.readexactly(length + 2))[:-2])
        return parts


class TestLostAnswers:
    @pytest.fixture
    def base(self) -> Iterator[Path]:
        base = private_base()
        try:
            yield base
        finally:
            for file in base.iterdir():
                file.unlink()
            base.rmdir()

    @pytest.fixture
    def source(self, running: Host) -> SourceConfig:
        return running.source()

    async def test_f12_a_lost_answer_is_said_to_be_uncertain_and_nothing_is_sent_twice(
        self, base: Path, source: SourceConfig
    ) -> None:
        fake = CutOff(base / "r.sock")
        endpoint = RedisEndpoint("operator", "p", 3, socket=str(base / "r.sock"))
        async with fake.serving():
            with pytest.raises(UncertainSendError) as caught:
                await send(endpoint, source, Message(b"x", "m-1"))
        assert fake.adds == 1
        assert "may have been added" in caught.value.message
        assert "--message-id m-1" in caught.value.hint
        assert caught.value.ids == {"message_id": "m-1"}
        assert (caught.value.code, caught.value.exit_code) == ("send_uncertain", 69)

    async def test_a_missing_answer_is_uncertain_too(
        self, base: Path, source: SourceConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("corral.cowboy.redisops.ANSWER_TIMEOUT_S", 0.2)
        fake = CutOff(base / "r.sock", silent=True)
        endpoint = RedisEndpoint("operator", "p", 3, socket=str(base / "r.sock"))
        async with fake.serving():
            with pytest.raises(UncertainSendError):
                await send(endpoint, source, Message(b"x", "m-1"))
        assert fake.adds == 1

    async def test_no_server_is_certain(self, base: Path, source: SourceConfig) -> None:
        endpoint = RedisEndpoint("operator", "p", 3, socket=str(base / "none.sock"))
        with pytest.raises(CorralError, match="no connection to Redis") as caught:
            await send(endpoint, source, Message(b"x", "m-1"))
        assert not isinstance(caught.value, UncertainSendError)
