"""The generated ACL on real servers: what each identity may do, and that it may do nothing else.

The lines are those of the rendered example, joined with secrets made here. Every denial is told by
the server itself (`NOPERM`, and its reason in `ACL LOG`) and has its allowed counterpart beside it.
What is expected is written down here again, on purpose: the ACL is not tested with itself.
"""

import ast
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from corral.local.client import ANSWER_TIMEOUT_S
from corral.local.servers import Login, RedisServer, find_server
from corral.local.topology import Topology, load_rendered, private_base
from tests.contract import acl_policy as policy

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "corral"


def command(client: "redis.Redis", *words: str) -> Any:
    """One command; the client's own method has no types."""
    run: Callable[..., Any] = client.execute_command
    return run(*words)


@dataclass(frozen=True)
class Deployment:
    topology: Topology
    server: RedisServer
    admin: "redis.Redis"

    @property
    def identities(self) -> list[str]:
        return sorted(self.topology.rendered["identities"])

    def client(self, identity: str, protocol: int = 3) -> "redis.Redis":
        return self.server.client(self.topology.login(identity), protocol=protocol)

    def run(self, identity: str, *words: str) -> Any:
        """One command as the identity; the answer as it came."""
        with self.client(identity) as client:
            client.response_callbacks.clear()
            return command(client, *words)

    def dry_run(self, identity: str, *words: str) -> str:
        """ "OK", or the server's sentence about what the identity lacks."""
        answer = command(self.admin, "ACL", "DRYRUN", identity, *words)
        return answer.decode() if isinstance(answer, bytes) else str(answer)

    def denials(self) -> list[dict[str, Any]]:
        """`ACL LOG`, newest first."""
        log: list[dict[str, Any]] = self.admin.acl_log()
        return log


@pytest.fixture(scope="module", params=["redis", "valkey"])
def deployment(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    _, binary = find_server(request.param)
    base = private_base()
    topology = Topology.materialise(load_rendered(), base)
    server = RedisServer(
        base / "server",
        binary,
        acl=topology.acl(),
        settings=topology.redis_settings,
        socket=topology.redis_socket,
    )
    try:
        with server, server.client(protocol=2) as admin:
            yield Deployment(topology, server, admin)
    finally:
        topology.remove()


@pytest.fixture
def data(deployment: Deployment) -> Deployment:
    """Every key of every source of both agents exists, and ACL LOG is empty."""
    admin = deployment.admin
    admin.flushall()
    for agent, source in (("scout", "a2a"), ("scout", "chat"), ("smith", "echo")):
        for name, group in (("inbox", "cowboy"), ("outbox", "source"), ("inbox:dead", "x")):
            admin.xadd(f"{agent}:{source}:{name}", {"content": "x"}, id="1-0")
            admin.xgroup_create(f"{agent}:{source}:{name}", group, "0")
        for name in ("sent", "replies", "ledger"):
            admin.hset(f"{agent}:{source}:{name}", "f", "v")
        admin.set(f"{agent}:{source}:fence", "1")
    admin.acl_log_reset()
    return deployment


# ---- who is let in --------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3])
def test_every_identity_is_let_in_with_its_secret(data: Deployment, protocol: int) -> None:
    for identity in data.identities:
        with data.client(identity, protocol) as client:
            assert client.ping()
    assert data.denials() == []


def test_anonymous_is_refused(data: Deployment) -> None:
    assert data.run("operator", "PING")
    asked = ("PING", "INFO", "HELLO 3", "XADD scout:a2a:inbox * c x", "ACL LIST")
    answers = talk(data, *asked)
    assert [answer.partition(b" ")[0] for answer in answers] == [b"-NOAUTH"] * len(asked)


def test_a_connection_that_resets_itself_is_nobody_again(data: Deployment) -> None:
    login = data.topology.login("operator")
    auth = f"AUTH {login.username} {login.password}"
    assert talk(data, auth, "PING", "RESET") == [b"+OK\r\n", b"+PONG\r\n", b"+RESET\r\n"]
    assert talk(data, auth, "RESET", "PING")[-1].startswith(b"-NOAUTH ")


def talk(deployment: Deployment, *lines: str) -> list[bytes]:
    """The answers to commands on one bare connection."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_TIMEOUT_S)
        connection.connect(str(deployment.server.socket))
        answers = []
        for line in lines:
            connection.sendall(line.encode() + b"\r\n")
            answers.append(connection.recv(4096))
        return answers


@pytest.mark.parametrize("username", ["default", "operator", "agent-scout", "nobody"])
def test_a_wrong_secret_is_refused(data: Deployment, username: str) -> None:
    with (
        data.server.client(Login(username, "wrong")) as client,
        pytest.raises(AuthenticationError, match="invalid username-password pair"),
    ):
        client.ping()
    if username != "nobody":
        assert data.denials()[0]["reason"] == "auth"


def test_default_is_off_and_holds_what_a_replay_needs(deployment: Deployment) -> None:
    lines: list[str] = command(deployment.admin, "ACL LIST")
    listed = {line.split()[1]: line.split()[2:] for line in lines}
    assert "on" in listed["operator"]
    assert "off" in listed["default"]
    assert "nopass" not in listed["default"]
    assert [rule for rule in listed["default"] if rule[0] in "~%+"] == ["~*", "+@write"]


# ---- the verbs ------------------------------------------------------------------------------


def container(verb: str) -> str:
    return verb.partition("|")[0]


def commands_of(deployment: Deployment) -> dict[str, int]:
    """Every command and subcommand of the server, with its arity; containers left out."""
    with deployment.server.client(protocol=2) as client:
        client.response_callbacks.clear()
        names = [name.decode() for name in command(client, "COMMAND", "LIST")]
        rows = command(client, "COMMAND", "INFO", *names)
    containers = {container(name) for name in names if "|" in name} - {"command"}
    return {
        name: int(row[1])
        for name, row in zip(names, rows, strict=True)
        if row and name not in containers
    }


def granted(deployment: Deployment, identity: str, commands: dict[str, int]) -> set[str]:
    """The commands that the server does not deny as such, whatever it says of the keys."""
    found = set()
    for name, arity in commands.items():
        words = name.split("|")
        words += ["1"] * (abs(arity) - len(words))
        if "no permissions to run" not in deployment.dry_run(identity, *words):
            found.add(name)
    return found


def test_each_identity_has_its_verbs_and_no_other(deployment: Deployment) -> None:
    """Over all commands that the server knows, so that a category cannot bring one in."""
    commands = commands_of(deployment)
    assert len(commands) > 300
    for identity in deployment.identities:
        verbs = policy.published(identity)
        expected = {name for name in commands if name in verbs or container(name) in verbs}
        assert set(map(container, expected)) == set(map(container, verbs)), "all verbs exist"
        assert granted(deployment, identity, commands) == expected | policy.OPEN_TO_ALL


def test_nobody_has_admin_and_only_metrics_has_one_dangerous_verb(deployment: Deployment) -> None:
    commands = commands_of(deployment)
    admin, dangerous = (
        {name.decode().lower() for name in command(deployment.admin, "ACL", "CAT", category)}
        for category in ("admin", "dangerous")
    )
    assert {"acl|setuser", "config|set", "shutdown"} <= admin
    assert {"flushall", "keys", "info"} <= dangerous
    for identity in deployment.identities:
        verbs = granted(deployment, identity, commands)
        assert verbs & admin == set()
        assert verbs & dangerous == ({"info"} if identity == "metrics" else set())


# ---- the keys -------------------------------------------------------------------------------


@pytest.mark.parametrize("identity", ["agent-scout", "source.scout.a2a", "operator", "metrics"])
def test_each_verb_reaches_its_keys_and_no_other(deployment: Deployment, identity: str) -> None:
    assert policy.published(identity) - policy.USES.keys() - policy.HANDSHAKE <= {
        *("script|load", "command", "dbsize", "scan", "info"),  # take no key
    }
    wrong, allowed = [], 0
    for key in policy.KEYS:
        for verb, use in policy.USES.items():
            answer = deployment.dry_run(identity, *(use.format(key).split(" ")))
            if (answer == "OK") is not policy.may(identity, verb, key):
                wrong.append((verb, key, answer))
            allowed += answer == "OK"
    assert wrong == []
    assert allowed > 0


@pytest.mark.parametrize("verb", sorted(policy.FLAGS))
def test_the_access_that_a_verb_needs(deployment: Deployment, verb: str) -> None:
    words = policy.USES[verb].format("key").split(" ")
    enough = []
    for access in ("R", "W", "RW"):
        command(
            deployment.admin, *("ACL", "SETUSER", "trial", "reset", f"+{verb}", f"%{access}~key")
        )
        if deployment.dry_run("trial", *words) == "OK":
            enough.append(access)
    command(deployment.admin, "ACL", "DELUSER", "trial")
    assert enough == [
        access for access in ("R", "W", "RW") if set(access) >= set(policy.FLAGS[verb])
    ]


# ---- commands that are really run -----------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "allowed", "refused", "reason"),
    policy.PAIRS,
    ids=[f"{pair[0]}: {pair[2]}" for pair in policy.PAIRS],
)
def test_run(data: Deployment, identity: str, allowed: str, refused: str, reason: str) -> None:
    data.run(identity, *allowed.split(" "))
    assert data.denials() == []
    with pytest.raises(NoPermissionError):
        data.run(identity, *refused.split(" "))
    denial = data.denials()[0]
    assert (denial["username"], denial["reason"]) == (identity, reason)
    assert denial["context"] == "toplevel"


# ---- scripts --------------------------------------------------------------------------------

PRODUCE = """
local id = redis.call('HGET', KEYS[2], ARGV[1])
if id then return id end
id = redis.call('XADD', KEYS[1], '*', 'content', ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], id)
return id
"""


def run_script(deployment: Deployment, identity: str, text: str, *keys_and_args: str) -> Any:
    with deployment.client(identity) as client:
        return client.evalsha(client.script_load(text), *keys_and_args)


@pytest.mark.parametrize(
    ("identity", "text", "keys", "context"),
    [
        pytest.param("source.scout.a2a", "return redis.call('XRANGE', KEYS[1], '-', '+')",
                     ("scout:a2a:inbox",), "lua", id="reads the inbox"),
        pytest.param("source.scout.a2a", "return redis.call('HGET', 'scout:chat:sent', 'f')",
                     (), "lua", id="a key that is not declared"),
        pytest.param("source.scout.a2a", "return 1",
                     ("scout:a2a:outbox",), "toplevel", id="a key of another kind"),
        pytest.param("agent-scout", "return redis.call('GET', 'smith:echo:fence')",
                     (), "lua", id="another agent's key"),
        pytest.param("agent-scout", "return redis.call('DEL', KEYS[1])",
                     ("scout:a2a:fence",), "lua", id="a verb that it lacks"),
    ],
)  # fmt: skip
def test_a_script_can_do_no_more_than_its_caller(
    data: Deployment, identity: str, text: str, keys: tuple[str, ...], context: str
) -> None:
    sent = ("2", "scout:a2a:inbox", "scout:a2a:sent", "m1", "x")
    assert run_script(data, identity, PRODUCE, *sent) == run_script(data, identity, PRODUCE, *sent)
    assert data.denials() == []
    with pytest.raises(ResponseError):
        run_script(data, identity, text, str(len(keys)), *keys)
    denial = data.denials()[0]
    assert (denial["username"], denial["context"]) == (identity, context)
    assert denial["reason"] in {"command", "key"}


# ---- the programs and their verbs -----------------------------------------------------------


def verbs_in(path: Path, commands: dict[str, int]) -> set[str]:
    """Names of commands among the strings of a module, or among the calls of a script."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".lua":
        words = set(re.findall(r"redis\.p?call\('([A-Z]+)'", text))
    else:
        constants = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
        words = {node.value for node in constants if isinstance(node.value, str)}
    names = {container(name).upper() for name in commands}
    return {word.lower() for word in words & names}


def test_the_agent_has_the_verbs_that_the_daemon_sends(deployment: Deployment) -> None:
    commands = commands_of(deployment)
    cowboy = PACKAGE / "cowboy"
    paths = [cowboy / "transport.py", *sorted((cowboy / "lua").glob("*.lua"))]
    sent = set().union(*(verbs_in(path, commands) for path in paths))
    assert {"xreadgroup", "xadd"} <= sent
    assert sent == set(map(container, policy.AGENT_VERBS))


def test_the_operator_has_the_verbs_that_its_commands_send(deployment: Deployment) -> None:
    sent = verbs_in(PACKAGE / "cowboy" / "redisops.py", commands_of(deployment))
    assert "xadd" in sent
    assert sent <= policy.OPERATOR_VERBS
