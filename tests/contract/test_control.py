"""The control socket over real Unix sockets: frames, limits, peers, stale sockets, the client."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster

from corral.core.errors import ConfigError, CorralError, UnavailableError
from corral.cowboy.control import ControlServer, Handler, RemoteError, ask, peer_allowed
from corral.local.wait import until_async

REPOSITORY = Path(__file__).parents[2]
NOBODY = 65_534


class OddError(CorralError):
    code = "odd_thing"
    exit_code = 74


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets, wherever the tests keep their files."""
    with tempfile.TemporaryDirectory(prefix="ctl-") as name:
        yield Path(name)


@pytest.fixture
def path(folder: Path) -> Path:
    return folder / "control.sock"


async def echo(request: Mapping[str, object]) -> Mapping[str, object]:
    return {"echo": request.get("value")}


async def odd(request: Mapping[str, object]) -> Mapping[str, object]:
    raise OddError("an odd thing", hint="look", ids={"turn_id": "t"})


async def broken(request: Mapping[str, object]) -> Mapping[str, object]:
    raise KeyError("secret content")


HANDLERS: Mapping[str, Handler] = {"echo": echo, "odd": odd, "broken": broken}


async def asked(path: Path, request: Mapping[str, object], timeout_s: float = 10) -> dict[str, Any]:
    return await asyncio.to_thread(ask, path, request, timeout_s)


async def raw(path: Path, data: bytes, *, end: bool = False) -> dict[str, Any]:
    """Writes bytes as they are; the one line that is answered before the end."""
    reader, writer = await asyncio.open_unix_connection(str(path), limit=4 * 1024 * 1024)
    try:
        writer.write(data)
        if end:
            writer.write_eof()
        answer: dict[str, Any] = json.loads(await reader.readline())
        with suppress(ConnectionResetError):  # refused before it had read what we sent
            assert await reader.read() == b""
        return answer
    finally:
        writer.transport.abort()


async def test_a_request_is_answered(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        assert await asked(path, {"op": "echo", "value": "é\nx"}) == {"echo": "é\nx"}
        assert await raw(path, b'{"op":"echo","value":1}\n') == {"ok": True, "echo": 1}


async def test_the_error_of_a_handler_arrives_whole(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        with pytest.raises(RemoteError) as caught:
            await asked(path, {"op": "odd"})
    error = caught.value
    assert (error.code, error.exit_code, error.message) == ("odd_thing", 74, "an odd thing")
    assert (error.hint, error.ids) == ("look", {"turn_id": "t"})


async def test_an_unforeseen_error_says_its_kind_and_quotes_nothing(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        with pytest.raises(RemoteError) as caught:
            await asked(path, {"op": "broken"})
        assert (caught.value.code, caught.value.exit_code) == ("internal", 70)
        assert caught.value.message == "broken failed: KeyError"
        assert await asked(path, {"op": "echo"}) == {"echo": None}


async def test_an_answer_that_is_no_json_is_an_error(path: Path) -> None:
    async def odd_values(request: Mapping[str, object]) -> Mapping[str, object]:
        return {"value": object()}

    async with ControlServer(path, {"odd": odd_values}):
        with pytest.raises(RemoteError, match="odd failed: TypeError"):
            await asked(path, {"op": "odd"})


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\n", "frame_invalid"),
        (b"\xff\xfe\x00\n", "frame_invalid"),
        (b"GET / HTTP/1.1\r\n", "frame_invalid"),
        (b"[" * 100_000 + b"\n", "frame_invalid"),
        (b"[]\n", "frame_invalid"),
        (b'{"op": NaN}\n', "usage"),
        (b"{}\n", "usage"),
        (b'{"op": "drop"}\n', "usage"),
        (b'{"op": ["echo"]}\n', "usage"),
        (b'{"op": {}}\n', "usage"),
    ],
)
async def test_garbage_is_answered_and_disturbs_no_other(
    path: Path, data: bytes, code: str
) -> None:
    async with ControlServer(path, HANDLERS):
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b'{"op":"echo",')
        answer = await raw(path, data)
        assert (answer["ok"], answer["error"]["code"]) == (False, code)
        writer.write(b'"value":2}\n')
        assert json.loads(await reader.readline()) == {"ok": True, "echo": 2}
        writer.transport.abort()


async def test_a_connection_that_ends_within_a_line_is_refused(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        for data in (b"", b'{"op":"echo"}'):
            answer = await raw(path, data, end=True)
            assert answer["error"]["message"] == "the connection ended within a line"


async def test_a_frame_is_taken_at_the_limit_and_refused_one_past(path: Path) -> None:
    async with ControlServer(path, HANDLERS, frame_max_bytes=1000):
        frame = json.dumps({"op": "echo", "value": ""}).encode().ljust(999)
        assert (await raw(path, frame + b"\n"))["ok"]
        answer = await raw(path, frame + b" \n")
        assert answer["error"]["message"] == "a line is at most 1000 bytes"


async def test_an_endless_line_is_cut_off_and_the_client_still_hears_why(path: Path) -> None:
    async with ControlServer(path, HANDLERS):
        with pytest.raises(RemoteError, match="a line is at most 1048576 bytes"):
            await asked(path, {"op": "echo", "value": "x" * 8_000_000})
        assert await asked(path, {"op": "echo"}) == {"echo": None}


async def test_an_answer_is_sent_at_the_limit_and_replaced_one_past(path: Path) -> None:
    async def long(request: Mapping[str, object]) -> Mapping[str, object]:
        return {"x": "x" * int(str(request["length"]))}

    overhead = len(b'{"ok":true,"x":""}\n')
    async with ControlServer(path, {"long": long}, frame_max_bytes=1000):
        assert len((await asked(path, {"op": "long", "length": 1000 - overhead}))["x"]) == 981
        with pytest.raises(RemoteError, match="the answer is longer than 1000 bytes"):
            await asked(path, {"op": "long", "length": 1001 - overhead})


async def test_a_silent_client_is_told_so(path: Path) -> None:
    async with ControlServer(path, HANDLERS, read_timeout_s=0.05):
        answer = await raw(path, b'{"op":')
        assert answer["error"]["message"] == "no whole line within 0.05 s"


async def test_a_client_that_does_not_read_is_dropped(path: Path) -> None:
    async def long(request: Mapping[str, object]) -> Mapping[str, object]:
        return {"x": "x" * 900_000}

    async with ControlServer(path, {"long": long}, read_timeout_s=0.05) as server:
        _, writer = await asyncio.open_unix_connection(str(path), limit=1)
        writer.write(b'{"op":"long"}\n')

        async def connections(count: int) -> bool:
            return len(server._connections) == count

        await until_async(lambda: connections(1), 10, "the connection")
        await until_async(lambda: connections(0), 10, "its end")
        writer.transport.abort()


async def test_connections_are_limited(path: Path) -> None:
    async with ControlServer(path, HANDLERS, connections_max=2):
        held = [await asyncio.open_unix_connection(str(path)) for _ in range(2)]
        answer = await raw(path, b'{"op":"echo"}\n')
        assert answer["error"]["code"] == "unavailable"
        held[0][1].write(b'{"op":"echo"}\n')
        assert json.loads(await held[0][0].readline())["ok"]
        held[0][1].transport.abort()
        assert (await raw(path, b'{"op":"echo"}\n'))["ok"]
        held[1][1].transport.abort()


async def test_a_request_is_carried_out_when_its_client_is_gone(path: Path) -> None:
    began, go, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def adopt(request: Mapping[str, object]) -> Mapping[str, object]:
        began.set()
        await go.wait()
        done.set()
        return {}

    async with ControlServer(path, {"adopt": adopt}):
        _, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b'{"op":"adopt"}\n')
        await began.wait()
        writer.transport.abort()
        go.set()
        await asyncio.wait_for(done.wait(), 10)


async def test_stop_lets_a_request_finish_and_drops_those_not_yet_read(path: Path) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def backup(request: Mapping[str, object]) -> Mapping[str, object]:
        began.set()
        await go.wait()
        return {"path": "x"}

    server = ControlServer(path, {"backup": backup})
    await server.start()
    idle_reader, idle_writer = await asyncio.open_unix_connection(str(path))
    running = asyncio.create_task(asked(path, {"op": "backup"}))
    await began.wait()
    stopping = asyncio.create_task(server.stop())
    assert await idle_reader.read() == b""
    go.set()
    await stopping
    assert await running == {"path": "x"}
    idle_writer.transport.abort()
    assert not path.exists()
    await server.stop()


class TestSocketFile:
    async def test_its_mode_is_right_whatever_the_umask(self, path: Path) -> None:
        for umask in (0o000, 0o022, 0o077):
            before = os.umask(umask)
            try:
                async with ControlServer(path, HANDLERS):
                    assert stat.S_IMODE(path.stat().st_mode) == 0o600
            finally:
                os.umask(before)

    def test_it_is_born_with_its_mode(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, blockbuster: BlockBuster
    ) -> None:
        """Seen before `listen`: nobody could have connected in between."""
        modes = []
        original = socket.socket.listen

        def listen(self: socket.socket, *args: int) -> None:
            modes.append(stat.S_IMODE(path.stat().st_mode))
            original(self, *args)

        monkeypatch.setattr(socket.socket, "listen", listen)
        before = os.umask(0)
        try:
            asyncio.run(self.started_and_stopped(path))
        finally:
            os.umask(before)
        assert set(modes) == {0o600}

    async def started_and_stopped(self, path: Path) -> None:
        async with ControlServer(path, HANDLERS):
            pass

    async def test_f32_a_stale_socket_is_replaced(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        assert path.is_socket()
        async with ControlServer(path, HANDLERS):
            assert await asked(path, {"op": "echo"}) == {"echo": None}

    async def test_f32_a_live_socket_is_left_alone(self, path: Path) -> None:
        async with ControlServer(path, HANDLERS):
            with pytest.raises(UnavailableError, match="another program listens"):
                await ControlServer(path, HANDLERS).start()
            assert await asked(path, {"op": "echo"}) == {"echo": None}

    async def test_what_is_no_socket_is_left_alone(self, path: Path) -> None:
        path.write_text("precious")
        with pytest.raises(ConfigError, match=r"^runtime_dir: .* is no socket"):
            await ControlServer(path, HANDLERS).start()
        assert path.read_text() == "precious"

    async def test_a_successor_keeps_its_socket(self, path: Path) -> None:
        first = ControlServer(path, HANDLERS)
        await first.start()
        path.unlink()
        async with ControlServer(path, HANDLERS):
            await first.stop()
            assert await asked(path, {"op": "echo"}) == {"echo": None}

    async def test_its_own_folder_is_made(self, folder: Path) -> None:
        async with ControlServer(folder / "scout" / "control.sock", HANDLERS):
            assert (folder / "scout").stat().st_mode & 0o777 == 0o700

    async def test_a_missing_folder_is_named(self, folder: Path) -> None:
        with pytest.raises(ConfigError, match=r"^runtime_dir: cannot listen at .*No such file"):
            await ControlServer(folder / "no" / "such" / "control.sock", HANDLERS).start()

    async def test_f33_a_path_that_is_too_long_is_named(self, folder: Path) -> None:
        with pytest.raises(ConfigError, match=r"^runtime_dir: .* has a path of \d+ bytes"):
            await ControlServer(folder / ("x" * 107), HANDLERS).start()


class TestPeers:
    def test_root_and_the_own_user_are_allowed(self) -> None:
        assert peer_allowed(0, 1000)
        assert peer_allowed(1000, 1000)
        assert not peer_allowed(1001, 1000)
        assert not peer_allowed(1000, 0)

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
    async def test_another_user_is_refused_with_the_reason(self, folder: Path, path: Path) -> None:
        folder.chmod(0o755)
        async with ControlServer(path, HANDLERS):
            closed = await self.ask_as(NOBODY, path)
            assert closed["code"] == "unavailable"
            assert "no permission" in str(closed["message"])
            # Even with the file's mode gone wrong, the kernel's word on the peer decides.
            path.chmod(0o666)
            denied = await self.ask_as(NOBODY, path)
            assert denied["code"] == "peer_denied"
            assert denied["message"] == "user 65534 may not command this daemon"
            assert await self.ask_as(0, path) == {"echo": 7}

    async def ask_as(self, uid: int, path: Path) -> dict[str, Any]:
        program = (
            "import json, os, sys\n"
            "from pathlib import Path\n"
            "from corral.core.errors import CorralError\n"
            "from corral.cowboy.control import ask\n"
            "os.setuid(int(sys.argv[1]))\n"
            "try:\n"
            "    answer = ask(Path(sys.argv[2]), {'op': 'echo', 'value': 7})\n"
            "except CorralError as error:\n"
            "    answer = error.as_dict()\n"
            "print(json.dumps(answer))\n"
        )
        argv = [sys.executable, "-c", program, str(uid), str(path)]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "python")}
        done = await asyncio.to_thread(
            subprocess.run, argv, env=environment, capture_output=True, check=True
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


class TestClient:
    def test_no_daemon(self, path: Path) -> None:
        with pytest.raises(UnavailableError) as caught:
            ask(path, {"op": "status"})
        assert caught.value.message == f"no daemon listens at {path}"
        assert "cowboy run" in caught.value.hint
        assert caught.value.exit_code == 69

    def test_a_dead_daemon(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(path))
        with pytest.raises(UnavailableError, match="no daemon listens"):
            ask(path, {"op": "status"})

    def test_a_stopped_daemon(self, path: Path) -> None:
        """SIGSTOP: the kernel still takes the connection and the request."""
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(path))
            silent.listen()
            with pytest.raises(UnavailableError, match=r"did not answer within 0\.05 s"):
                ask(path, {"op": "status"}, timeout_s=0.05)

    def test_a_daemon_that_takes_no_more(self, path: Path) -> None:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(path))
            silent.listen()
            with pytest.raises(UnavailableError, match=r"did not answer within 0\.05 s"):
                ask(path, {"op": "x", "value": "x" * 9_000_000}, timeout_s=0.05)

    @pytest.mark.parametrize("sent", [b"", b"{", b"garbage\n", b"[]\n"])
    async def test_a_daemon_that_dies_in_its_answer(self, path: Path, sent: bytes) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(sent)
            await writer.drain()
            writer.close()

        server = await asyncio.start_unix_server(answer, str(path))
        try:
            with pytest.raises(UnavailableError, match="gave no answer") as caught:
                await asked(path, {"op": "adopt"})
            assert "may have been done" in caught.value.hint
        finally:
            server.close()

    async def test_an_error_without_fields_is_an_error(self, path: Path) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readline()
            writer.write(b'{"ok":false}\n')
            writer.close()

        server = await asyncio.start_unix_server(answer, str(path))
        try:
            with pytest.raises(RemoteError, match="gave no reason") as caught:
                await asked(path, {"op": "adopt"})
            assert caught.value.exit_code == 70
        finally:
            server.close()
