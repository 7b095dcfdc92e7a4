"""Servers are found, run privately, and keep what they acknowledged when they are killed."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from corral.core.errors import UnavailableError
from corral.local import servers, wait
from corral.local.servers import RedisServer, find_server, find_servers, server_version
from corral.local.topology import base_environment


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> RedisServer:
    found = find_servers()
    if request.param not in found:
        pytest.skip(f"no {request.param} server on this machine")
    return RedisServer(
        tmp_path / "s",
        found[request.param],
        acl=["user default off", "user writer on >pw ~own:* -@all +hello +ping +xadd"],
    )


def test_floor_is_checked() -> None:
    for path in find_servers().values():
        assert (server_version(path) or (0,)) >= (7, 0)


def test_an_old_server_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.2.14 sha=0'\n")
    old.chmod(0o755)
    assert server_version(old) == (6, 2, 14)
    monkeypatch.setattr(servers, "_redis_binary", lambda: old)
    monkeypatch.setattr(servers, "_valkey_binary", lambda: None)
    assert find_servers() == {}
    with pytest.raises(UnavailableError, match=r"version 7\.0 .*apt-get install redis-server"):
        find_server()
    assert server_version(tmp_path / "missing") is None


def test_data_survive_a_kill(server: RedisServer) -> None:
    with server, server.client() as admin:
        for number in range(50):
            admin.xadd("s", {b"n": str(number).encode()})
        server.kill()
        assert not server.running
        server.start()
        with server.client() as again:
            assert again.xlen("s") == 50
    assert not server.running


def test_only_a_private_socket(server: RedisServer) -> None:
    with server, server.client() as admin:
        assert admin.config_get("port") == {"port": "0"}
        assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
        for path in (server.acl_file, server.config_file):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert admin.config_get("appendfsync") == {"appendfsync": "always"}


@pytest.mark.parametrize("protocol", [2, 3])
def test_identities_are_those_of_the_file(server: RedisServer, protocol: int) -> None:
    with server, server.client() as admin:
        writer = servers.Login("writer", "pw")
        with server.client(writer, protocol=protocol) as client:
            assert client.xadd("own:s", {b"a": b"b"})
            assert admin.execute_command("ACL", "LOG") == []
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.xadd("other:s", {b"a": b"b"})
        assert len(admin.execute_command("ACL", "LOG")) == 1
        anonymous = server.client(servers.Login("default", ""))
        with anonymous, pytest.raises(redis.exceptions.AuthenticationError):
            anonymous.ping()


def test_pause_and_resume(server: RedisServer) -> None:
    with server:
        pid = server.pid
        server.pause()
        wait.until(lambda: _state(pid) == "T", 5, "the server to stop")
        server.resume()
        with server.client() as admin:
            assert admin.ping()
        server.pause()  # a paused server can be stopped as well
    assert not server.running


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_server_that_cannot_start_says_so(tmp_path: Path) -> None:
    _, binary = find_server()
    broken = RedisServer(tmp_path / "s", binary, settings={"no-such-setting": "1"})
    with pytest.raises(UnavailableError, match=r"server\.log"):
        broken.start()
    with pytest.raises(UnavailableError, match="not running"):
        _ = broken.pid


def test_dies_with_its_parent(tmp_path: Path) -> None:
    """A process that is killed leaves no server behind."""
    _, binary = find_server()
    code = (
        "import sys; from pathlib import Path; from corral.local.servers import RedisServer\n"
        f"s = RedisServer(Path({str(tmp_path / 's')!r}), Path({str(binary)!r}))\n"
        "s.start(); print(s.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=base_environment(),
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    wait.until(lambda: not _alive(pid), 10, "the server to die with its parent")


def _alive(pid: int) -> bool:
    try:
        return _state(pid) != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
