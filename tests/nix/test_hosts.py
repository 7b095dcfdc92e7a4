"""Hosts with `modules/`: what is refused, with the option's path, and what is not."""

from pathlib import Path

import pytest

from tests.nix import hosts, nix, refused_bridge, refused_gateway, refused_hosts, refused_tamq

_REFUSED = (refused_hosts, refused_tamq, refused_bridge, refused_gateway)
FAILED = tuple(host for each in _REFUSED for host in each.FAILED)
THROWN = tuple(host for each in _REFUSED for host in each.THROWN)
# Everything that is installed, so that no error hides behind what nobody looked at.
WHOLE = (
    "builtins.deepSeq [ (lib.mapAttrs (_: u: u.text) config.systemd.units) "
    '(lib.mapAttrsToList (_: f: "${f.source}") config.environment.etc) ] '
    f"({hosts.FAILED})"
)


@pytest.fixture(scope="module")
def told() -> dict[str, list[str]]:
    """The assertions of all hosts of `FAILED`, from one evaluation."""
    found: dict[str, list[str]] = hosts.evaluate(
        {host.name: host.modules for host in FAILED}, hosts.FAILED
    )
    return found


@pytest.mark.parametrize("host", FAILED, ids=lambda host: host.name)
def test_refused_by_an_assertion(host: refused_hosts.Host, told: dict[str, list[str]]) -> None:
    assert told[host.name] == list(host.messages)


@pytest.mark.parametrize("host", THROWN, ids=lambda host: host.name)
def test_refused_by_a_type(host: refused_hosts.Host) -> None:
    with pytest.raises(nix.NixError) as refused:
        hosts.one(host.modules, WHOLE)
    assert refused.value.message.startswith(host.messages[0])


def test_what_the_refused_ones_are_made_of_is_accepted() -> None:
    assert hosts.one(f"[ ({hosts.AGENT}) ]", WHOLE) == []


def test_alert_rules_and_dashboard_are_files_that_are_there() -> None:
    of = "config.services.cowboy.metrics"
    found = hosts.one(f"[ ({hosts.AGENT}) ]", f"map toString [ {of}.rules {of}.dashboard ]")
    folder = nix.ROOT / "monitoring"
    assert found == [str(folder / "cowboy.rules.yml"), str(folder / "cowboy.dashboard.json")]
    assert all(Path(file).is_file() for file in found)


@pytest.mark.parametrize("service", ["bridge", "gateway"])
def test_gateway_and_bridge_have_alert_rules_too(service: str) -> None:
    rules = f"toString config.services.a2a-{service}.metrics.rules"
    found = hosts.one("[ ]", rules)
    assert found == str(nix.ROOT / "monitoring" / f"{service}.rules.yml")
    assert Path(found).is_file()


def _agents(*names: str) -> str:
    agents = "".join(f'{name} = {{ sources.s.runner.kind = "echo"; }}; ' for name in names)
    return f"[ {{ services.cowboy = {{ enable = true; agents = {{ {agents} }}; }}; }} ]"


@pytest.mark.parametrize(
    "modules",
    [
        pytest.param(_agents("a" * 24), id="name of 24 bytes: its daemon's user has 31"),
        pytest.param(
            _agents("a", "agent-a", "source-a", "operator", "runner"), id="names like ours"
        ),
        pytest.param(
            f'[ ({hosts.AGENT}) {{ services.cowboy.runtimeDir = "/run/{"r" * 81}"; }} ]',
            id="socket of 107 bytes",
        ),
        pytest.param(
            f'[ ({hosts.AGENT}) {{ services.cowboy.namespace.name = "{"n" * 15}"; }} ]',
            id="interface of 15 bytes",
        ),
    ],
)
def test_accepted_at_the_limit(modules: str) -> None:
    assert hosts.one(modules, WHOLE) == []


@pytest.mark.parametrize("modules", refused_tamq.GOOD.values(), ids=refused_tamq.GOOD)
def test_tamq_is_accepted(modules: str) -> None:
    assert hosts.one(modules, WHOLE) == []


@pytest.mark.parametrize("modules", refused_bridge.GOOD.values(), ids=refused_bridge.GOOD)
def test_a_bridge_is_accepted(modules: str) -> None:
    assert hosts.one(modules, WHOLE) == []


@pytest.mark.parametrize("modules", refused_gateway.GOOD.values(), ids=refused_gateway.GOOD)
def test_a_gateway_is_accepted(modules: str) -> None:
    assert hosts.one(modules, WHOLE) == []


def test_names_that_look_as_if_they_met_do_not() -> None:
    """Agent `a-b` with source `c` beside agent `a` with source `b-c`."""
    modules = """[ { services.cowboy = { enable = true;
      agents.a-b.sources.c.runner.kind = "echo";
      agents.a.sources.b-c.runner.kind = "echo"; }; } ]"""
    assert hosts.one(modules, WHOLE) == []
    lines = hosts.one(modules, 'config.environment.etc."cowboy/redis.acl.in".text').splitlines()
    users = [line.split()[1] for line in lines]
    assert len(users) == len(set(users)) == 7
    granted = dict(zip(users, lines, strict=True))
    assert "~a-b:*" in granted["agent-a-b"]
    assert "~a:*" in granted["agent-a"]
    assert "a-b:c:inbox" in granted["source.a-b.c"]
    assert "a:b-c:inbox" in granted["source.a.b-c"]


def test_a_session_is_woken_through_the_tamq_of_the_runners_user() -> None:
    runner = '{ kind = "tamq"; repo = "shop"; turn_timeout_s = 60; }'
    modules = (
        f"[ ({hosts.AGENT}) {{ "
        f'services.cowboy.agents.b = {{ user = "alice"; sources.s.runner = {runner}; }}; '
        'services.tamq = { runtimeDir = "/run/queues"; users.alice = { }; }; '
        "users.users.alice.isNormalUser = true; } ]"
    )
    derived = "(import ../../modules/derived.nix { inherit lib; cfg = config.services.cowboy; })"
    found = hosts.one(
        modules,
        "{ file = builtins.fromJSON "
        f'({derived.replace("../..", str(nix.ROOT))}.sourcesText "b"); '
        'daemons = map (a: config.systemd.services."cowboy-${a}".environment'
        '.COWBOY_RUNNER_USER or null) [ "a" "b" ]; }',
    )
    assert found["file"]["sources"]["s"]["runner"] == {
        "kind": "tamq",
        "repo": "shop",
        "socket": "/run/queues/alice/tamq.sock",
        "turn_timeout_s": 60,
    }
    assert found["daemons"] == [None, "alice"]
