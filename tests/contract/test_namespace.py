"""Redis in a network namespace of its own: root's commands enter it, other users are told why not.

A script makes the namespace, in mounts of its own so that nothing is left behind, starts Redis on
its loopback, and runs the commands outside of it. Where the machine lets nobody make namespaces,
what the commands say then is tested.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.local.servers import find_server
from corral.local.topology import Topology, load_rendered, private_base

ROOT = Path(__file__).parents[2]
PORT = 6391

# Makes /run/netns/corral-test with a server in it, then runs the command line in "$@" outside.
SCRIPT = r"""
set -eu
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
touch /run/netns/corral-test
unshare --net sh -eu -c '
  mount --bind /proc/self/ns/net /run/netns/corral-test
  "$0" -c "$1"
  exec "$2" "$3"
' "$PYTHON" "$LOOPBACK" "$SERVER" "$CONFIG" >/dev/null 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null || true' EXIT
until nsenter --net=/run/netns/corral-test "$PYTHON" -c "$READY" 2>/dev/null; do
  kill -0 $server
  read -r -t 0.1 _ <> <(:) || true
done
"$@"
"""
LOOPBACK = """
import fcntl, socket, struct
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))
"""
READY = f"import socket; socket.create_connection(('127.0.0.1', {PORT}), 1)"

# A daemon, in the namespace or not, beside which the doctor is asked.
DAEMON_AND_DOCTOR = r"""
set -eu
$JOIN "$PYTHON" -m corral.cowboy.main run scout >/dev/null 2>&1 &
daemon=$!
trap 'kill $daemon 2>/dev/null; wait $daemon || true' EXIT
until "$PYTHON" -c "$LISTENS" "$COWBOY_RUNTIME_DIR/scout/control.sock" 2>/dev/null; do
  kill -0 $daemon
  read -r -t 0.1 _ <> <(:) || true
done
unset COWBOY_REDIS_URL COWBOY_REDIS_PASSWORD_FILE
"$PYTHON" -m corral.cowboy.main doctor scout --json || true
"""
LISTENS = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
JOIN = "nsenter --net=/run/netns/corral-test"

# Another user, who may not even read where this program lies: so it is loaded before.
AS_NOBODY = """
import asyncio, os, sys, uuid
from corral.cowboy import access, main, redisops
os.setgroups([]); os.setgid(65534); os.setuid(65534)
main.cli(sys.argv[1:])
"""


class Host:
    """The files of a host whose Redis listens in the namespace."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        base = topology.base
        login = topology.login("operator")
        digest = hashlib.sha256((login.password or "").encode()).hexdigest()
        acl = [*topology.acl()]
        assert any(digest in line for line in acl)
        (base / "users.acl").write_text("\n".join(acl) + "\n")
        (base / "redis.conf").write_text(
            f"port {PORT}\nbind 127.0.0.1\nsave ''\nappendonly no\ndir {base}\n"
            f"aclfile {base}/users.acl\nlogfile {base}/redis.log\n"
        )
        self.env_file = base / "operator-redis.env"
        self.env_file.write_text(
            f"export REDIS_URL=redis://127.0.0.1:{PORT}\nexport REDISCLI_AUTH={login.password}\n"
        )
        self.env_file.chmod(0o600)
        namespace = {"version": 1, "name": "corral-test", "path": "/run/netns/corral-test"}
        (topology.config_dir / "namespace.json").write_text(json.dumps(namespace))

    def run(self, *words: str, nobody: bool = False) -> "subprocess.CompletedProcess[str]":
        """A command outside of the namespace, with no variable that says where Redis is."""
        command = [sys.executable, "-m", "corral.cowboy.main", *words]
        if nobody:
            command = [sys.executable, "-c", AS_NOBODY, *words]
        return self.beside(command)

    def doctor(self, join: str) -> dict[str, tuple[str, str]]:
        """What the doctor says of each check while a daemon runs; `join` leads its start."""
        login = self.topology.rendered["identities"]["agent-scout"]["credential"]
        done = self.beside(
            ["bash", "-c", DAEMON_AND_DOCTOR],
            JOIN=join,
            LISTENS=LISTENS,
            COWBOY_REDIS_URL=f"redis://127.0.0.1:{PORT}",
            COWBOY_REDIS_PASSWORD_FILE=str(self.topology.credential_file(login)),
        )
        (report,) = as_json(done)["agents"]
        return {one["check"]: (one["result"], one["text"]) for one in report["checks"]}

    def beside(self, command: list[str], **more: str) -> "subprocess.CompletedProcess[str]":
        """Runs a command outside of the namespace, while Redis runs in it."""
        _, server = find_server("redis")
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT / "python"),
            "COWBOY_CONFIG_DIR": str(self.topology.config_dir),
            "COWBOY_STATE_DIR": str(self.topology.state_dir),
            "COWBOY_RUNTIME_DIR": str(self.topology.runtime_dir),
            "COWBOY_OPERATOR_ENV": str(self.env_file),
            "PYTHON": sys.executable,
            "LOOPBACK": LOOPBACK,
            "READY": READY,
            "SERVER": str(server),
            "CONFIG": str(self.topology.base / "redis.conf"),
            **more,
        }
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "bash", "-c", SCRIPT, "-", *command],
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


@pytest.fixture
def host() -> Iterator[Host]:
    topology = Topology.materialise(load_rendered(), private_base())
    try:
        yield Host(topology)
    finally:
        topology.remove()


def may_make_namespaces() -> bool:
    tried = ["unshare", "--net", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    done = subprocess.run(tried, capture_output=True, check=False)
    return os.geteuid() == 0 and done.returncode == 0


def as_json(done: "subprocess.CompletedProcess[str]") -> Any:
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def test_roots_commands_enter_the_namespace_by_themselves(host: Host) -> None:
    sent = host.run("send", "scout", "a2a", "--content", "x", "--json")
    if not may_make_namespaces():
        assert sent.returncode != 0
        return
    assert sent.returncode == 0, sent.stderr
    assert as_json(sent)["stream"] == "scout:a2a:inbox"
    (agent,) = as_json(host.run("status", "scout", "--json"))["agents"]
    assert [source["refused"] for source in agent["redis"]] == [[], [], []]
    (told,) = as_json(host.run("explain", "scout", "1-1", "--source", "a2a", "--json"))[
        "explanations"
    ]
    assert told["redis"]["in_stream"] is False  # Redis was read; the daemon is not there
    (report,) = as_json(host.run("doctor", "scout", "--json"))["agents"]
    checks = {one["check"]: one["result"] for one in report["checks"]}
    assert (checks["redis"], checks["anonymous access"]) == ("ok", "ok")
    assert checks["namespace"] == "unknown"  # no daemon to ask which it is in


def test_another_user_is_told_why_not(host: Host) -> None:
    for folder in (
        host.topology.base,
        host.topology.config_dir,
        host.topology.config_dir / "scout",
    ):
        folder.chmod(0o755)
    for file in (host.topology.config_dir / "scout" / "sources.json",):
        file.chmod(0o644)
    send = ("send", "scout", "a2a", "--content", "x")
    refused = host.run(*send, nobody=True)
    if not may_make_namespaces():
        assert refused.returncode != 0
        return
    assert refused.returncode == 69, refused.stderr
    assert "operator-redis.env cannot be read: Permission denied" in refused.stderr
    assert "hint: run this as root" in refused.stderr
    host.env_file.chmod(0o644)  # even with the credential the namespace is closed
    refused = host.run(*send, nobody=True)
    assert refused.returncode == 69
    assert "network namespace corral-test, which only root can enter" in refused.stderr


def test_the_doctor_finds_a_daemon_outside_of_the_namespace_and_a_missing_egress(
    host: Host,
) -> None:
    if not may_make_namespaces():
        assert host.run("doctor", "scout").returncode != 0
        return
    rules = host.topology.config_dir / "namespace.nft"
    reachable = f"ip daddr 127.0.0.1 tcp dport {PORT} accept\n"
    rules.write_text(reachable)
    checks = host.doctor(JOIN)
    assert checks["namespace"] == ("ok", "the daemon is in corral-test")
    assert checks["egress"] == ("ok", f"127.0.0.1:{PORT}/tcp can be reached")
    rules.write_text("ip daddr 192.0.2.1 tcp dport 443 accept\n")
    checks = host.doctor("")
    assert checks["namespace"] == ("failed", "the daemon is not in corral-test")
    assert checks["egress"] == ("failed", "192.0.2.1:443/tcp: Network is unreachable")
    (host.topology.config_dir / "namespace.json").write_text('{"name": "gone"}')
    done = host.run("doctor", "scout", "--json")
    (report,) = as_json(done)["agents"]
    (found,) = [one for one in report["checks"] if one["check"] == "namespace"]
    assert (found["result"], found["text"]) == ("failed", "there is no network namespace gone")
