"""The ACL file of a NixOS host, joined by the host's own script, on real servers.

The host's names would meet if a separator could be part of one (see the sample). Over all of its
identities, verbs and keys: what one may do, and that it may do nothing else. The verbs themselves
are in `test_acl`; here is who reaches whose keys.
"""

import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError

from corral.local.client import ANSWER_TIMEOUT_S
from corral.local.servers import Login, RedisServer, find_server
from corral.local.topology import private_base
from tests.contract import acl_policy as policy

ROOT = Path(__file__).resolve().parents[2]
ACL = ROOT / "tests" / "nix" / "samples" / "meeting-names.acl"
SCRIPT = ROOT / "modules" / "secrets.sh"
SOURCES = {"a": "b-c", "a-b": "c", "operator": "a", "source": "a"}
OWNERS = [f"{agent}:{source}" for agent, source in SOURCES.items()]
# What the names could be taken for.
LOOKALIKES = ("a:b:c", "a-b-c", "a:b-c:c", "source:a:a", "agent-a:b-c", "a:*", "a-b:c*", "?:b-c")
KEYS = [f"{owner}:{part}" for owner in (*OWNERS, *LOOKALIKES) for part in policy.SOURCE_KEYS]


@dataclass(frozen=True)
class Host:
    server: RedisServer
    admin: "redis.Redis"
    secrets: dict[str, str]  # credential -> secret

    @property
    def identities(self) -> list[str]:
        return sorted(credential.removeprefix("redis-") for credential in self.secrets)

    def login(self, identity: str) -> Login:
        return Login(identity, self.secrets[f"redis-{identity}"])

    def dry_run(self, identity: str, uses: Sequence[str]) -> list[bool]:
        """For each command, whether the server would let it pass."""
        pipeline = self.admin.pipeline(transaction=False)
        send: Callable[..., Any] = pipeline.execute_command
        for use in uses:
            send("ACL", "DRYRUN", identity, *use.split(" "))
        answers: list[Any] = pipeline.execute(raise_on_error=True)
        return [answer in {b"OK", "OK"} for answer in answers]


def join(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The finished lines and the secrets, as `cowboy-secrets.service` makes them."""
    credentials = sorted(set(re.findall(r"#@([^@]+)@", ACL.read_text(encoding="utf-8"))))
    (folder / "list").write_text(
        "".join(f"{name} {folder}/{name} made\n" for name in credentials), encoding="utf-8"
    )
    owner = f"{os.getuid()}:{os.getgid()}"
    environment = {
        "PATH": os.environ["PATH"],
        "SECRETS": str(folder / "list"),
        "SECRETS_DIRECTORY": str(folder),
        "ACL": str(ACL),
        "ACL_FILE": str(folder / "redis.acl"),
        "ACL_OWNER": owner,
        "OPERATOR_FILE": str(folder / "operator.env"),
        "OPERATOR_OWNER": owner,
        "REDIS_URL": "redis://127.0.0.1:6379",
        "REDIS_NETNS": "cowboy-ns",
    }
    subprocess.run(["bash", str(SCRIPT)], env=environment, check=True, timeout=60)
    secrets = {name: (folder / name).read_text().rstrip("\n") for name in credentials}
    return (folder / "redis.acl").read_text().splitlines(), secrets


@pytest.fixture(scope="module", params=["redis", "valkey"])
def host(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Host]:
    _, binary = find_server(request.param)
    lines, secrets = join(tmp_path_factory.mktemp("secrets"))
    base = private_base()
    server = RedisServer(base / "server", binary, acl=lines)
    try:
        with server, server.client(protocol=2) as admin:
            yield Host(server, admin, secrets)
    finally:
        shutil.rmtree(base)


def may(identity: str, verb: str, key: str) -> bool:
    """The policy of `acl_policy` for any names."""
    owner, _, part = key.partition(":inbox:") if key.endswith(":dead") else key.rpartition(":")
    part = "inbox:dead" if key.endswith(":inbox:dead") else part
    if identity.startswith("agent-"):
        agent = identity.removeprefix("agent-")
        return verb in policy.AGENT_VERBS and key.startswith(f"{agent}:")
    if identity.startswith("source."):
        _, agent, source = identity.split(".")
        mine = owner == f"{agent}:{source}"
        return mine and verb in policy.SOURCE_VERBS.get(part, set())
    return policy.may(identity, verb, key)


def test_every_identity_of_the_host_is_there(host: Host) -> None:
    sources = {f"source.{agent}.{source}" for agent, source in SOURCES.items()}
    agents = {f"agent-{agent}" for agent in SOURCES}
    assert set(host.identities) == sources | agents | {"operator", "metrics"}
    for identity in host.identities:
        with host.server.client(host.login(identity)) as client:
            assert client.ping()


def test_a_secret_opens_one_identity_alone(host: Host) -> None:
    for identity in host.identities:
        for other in set(host.identities) - {identity}:
            login = Login(identity, host.login(other).password)
            with host.server.client(login) as client, pytest.raises(AuthenticationError):
                client.ping()


def test_nobody_else_is_let_in(host: Host) -> None:
    with host.server.client(host.login("operator")) as client:
        assert client.ping()
    with socket.socket(socket.AF_UNIX) as anonymous:
        anonymous.settimeout(ANSWER_TIMEOUT_S)
        anonymous.connect(str(host.server.socket))
        anonymous.sendall(b"PING\r\n")
        assert anonymous.recv(4096).startswith(b"-NOAUTH ")


def test_each_identity_reaches_its_keys_and_no_others(host: Host) -> None:
    pairs = [(key, verb) for key in KEYS for verb in policy.USES]
    for identity in host.identities:
        passes = host.dry_run(identity, [policy.USES[verb].format(key) for key, verb in pairs])
        wrong = [
            (verb, key, passed)
            for (key, verb), passed in zip(pairs, passes, strict=True)
            if passed is not may(identity, verb, key)
        ]
        assert (identity, wrong) == (identity, [])
        assert any(passes)
        assert not all(passes)


@pytest.mark.parametrize(
    ("identity", "mine", "others"),
    [
        ("agent-a", "a:b-c:outbox", "a-b:c:outbox"),
        ("agent-a-b", "a-b:c:outbox", "a:b-c:outbox"),
        ("agent-source", "source:a:outbox", "a:b-c:outbox"),
        ("source.a.b-c", "a:b-c:inbox", "a-b:c:inbox"),
        ("source.a-b.c", "a-b:c:inbox", "a:b-c:inbox"),
        ("source.source.a", "source:a:inbox", "operator:a:inbox"),
    ],
)
def test_names_that_look_as_if_they_met(host: Host, identity: str, mine: str, others: str) -> None:
    """Really run, with the server's own reason; beside it stands what is allowed."""
    host.admin.acl_log_reset()
    with host.server.client(host.login(identity)) as client:
        assert client.xadd(mine, {"content": "x"})
        assert host.admin.acl_log() == []
        with pytest.raises(NoPermissionError):
            client.xadd(others, {"content": "x"})
    denial = host.admin.acl_log()[0]
    assert (denial["username"], denial["reason"], denial["object"]) == (identity, "key", others)
