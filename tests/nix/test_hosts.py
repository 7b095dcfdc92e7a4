"""Hosts with `modules/`: what is refused, with the option's path, and what is not."""

import pytest

from tests.nix import hosts, nix, refused_hosts

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
        {host.name: host.modules for host in refused_hosts.FAILED}, hosts.FAILED
    )
    return found


@pytest.mark.parametrize("host", refused_hosts.FAILED, ids=lambda host: host.name)
def test_refused_by_an_assertion(host: refused_hosts.Host, told: dict[str, list[str]]) -> None:
    assert told[host.name] == list(host.messages)


@pytest.mark.parametrize("host", refused_hosts.THROWN, ids=lambda host: host.name)
def test_refused_by_a_type(host: refused_hosts.Host) -> None:
    with pytest.raises(nix.NixError) as refused:
        hosts.one(host.modules, WHOLE)
    assert refused.value.message.startswith(host.messages[0])


def test_what_the_refused_ones_are_made_of_is_accepted() -> None:
    assert hosts.one(f"[ ({hosts.AGENT}) ]", WHOLE) == []


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
