"""A killed server replays what scripts wrote (decision 3: `default` is off, but may write)."""

import shutil
import socket

import pytest

from corral.local.servers import RedisServer, find_server
from corral.local.topology import Topology, load_rendered, private_base

SCRIPT = """
redis.call('XADD', KEYS[1], '*', 'content', 'x')
redis.call('HSET', KEYS[2], 'field', 'x')
return 1
"""


def replay(kind: str, default_line: str | None) -> tuple[int, list[str], str]:
    """Run a script, SIGKILL the server, start it again: entries kept, users logged, anonymous."""
    base = private_base()
    topology = Topology.materialise(load_rendered(), base)
    acl = [line for line in topology.acl() if not line.startswith("user default ")]
    rendered = next(line for line in topology.acl() if line.startswith("user default "))
    server = RedisServer(
        base / "server",
        find_server(kind)[1],
        acl=[default_line or rendered, *acl],
        settings=topology.redis_settings,
        socket=topology.redis_socket,
    )
    try:
        with server:
            with server.client(protocol=2) as admin:
                admin.eval(SCRIPT, 2, "scout:a2a:outbox", "scout:a2a:replies")
            server.kill()
            server.start()
            with server.client(protocol=2) as admin:
                length = int(admin.xlen("scout:a2a:outbox"))
                logged = [str(entry["username"]) for entry in admin.acl_log()]
            return length, logged, anonymous(server)
    finally:
        topology.remove()
        shutil.rmtree(base, ignore_errors=True)


def anonymous(server: RedisServer) -> str:
    """What a connection without an identity is answered."""
    with socket.socket(socket.AF_UNIX) as raw:
        raw.connect(str(server.socket))
        raw.sendall(b"SET x y\r\n")
        return raw.recv(200).decode()


@pytest.fixture(params=["redis", "valkey"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_what_a_script_wrote_survives_a_kill_of_the_server(kind: str) -> None:
    length, logged, refused = replay(kind, None)
    assert length == 1
    assert logged == []
    assert refused.startswith("-NOAUTH")


def test_redis_70_drops_it_when_default_may_not_write() -> None:
    """The fact behind the decision; when this fails, the line may be narrowed again."""
    length, logged, refused = replay("redis", "user default off")
    assert (length, sorted(set(logged))) == (0, ["default"])
    assert refused.startswith("-NOAUTH")
