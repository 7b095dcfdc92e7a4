"""The preset `services.corral.enable`: what it wires, and that each of it can be set otherwise."""

from typing import Any

import pytest

from tests.nix import hosts

SYNAPSE = 'services.matrix-synapse = { enable = true; settings.server_name = "m.test"; };'
SQLITE = 'services.matrix-synapse.settings.database.name = "sqlite3";'
AGENT = 'services.cowboy.agents.a.runner.kind = "echo";'
LIVE = (
    'services.cowboy.agents.b = { user = "alice"; runner = { kind = "tamq"; repo = "shop"; }; }; '
    "users.users.alice.isNormalUser = true;"
)
ELSEWHERE = "https://agents.test/a/"
URL, TOKEN = "unix:/run/a2a-gateway/socket:/a2a/{}/", "/var/lib/a2a-gateway-tokens/bridge"
WANTED = f"""{{
  refused = {hosts.FAILED};
  on = {{
    bridge = config.services.a2a-bridge.enable;
    gateway = config.services.a2a-gateway.enable;
    cowboy = config.services.cowboy.enable;
  }};
  agents = lib.mapAttrs (_: a: lib.attrNames a.sources) config.services.cowboy.agents;
  tamqs = lib.attrNames (lib.filterAttrs (_: u: u.enable) config.services.tamq.users);
  served = lib.mapAttrs (_: a: {{ inherit (a) source description; }})
    config.services.a2a-gateway.agents;
  clients = lib.mapAttrs (_: c: c.tokenPath) config.services.a2a-gateway.clients;
  mentioned = lib.mapAttrs (_: a: {{ inherit (a) url tokenFile idempotent display_name; }})
    config.services.a2a-bridge.agents;
  conflict = config.services.a2a-bridge.settings.txn_conflict;
  units = lib.attrNames config.systemd.services;
}}"""


def host(text: str) -> str:
    return f"[ {{ services.corral.enable = true; {text} }} ]"


HOSTS = {
    "postgresql": host(f"{SYNAPSE} {AGENT}"),
    "sqlite": host(f"{SYNAPSE} {SQLITE} {AGENT}"),
    "live": host(f"{SYNAPSE} {AGENT} {LIVE}"),
    "live, its own way": host(
        f"{SYNAPSE} {AGENT} {LIVE} services.tamq.users.alice.settings.retention_days = 3;"
    ),
    "a name and a description": host(
        f"{SYNAPSE} {AGENT} {LIVE} services.a2a-gateway.agents.a.description = "
        '"Echoes."; services.a2a-bridge.agents.a.display_name = "Echo";'
    ),
    "one of two": host(
        f"{SYNAPSE} {AGENT} {LIVE} services.cowboy.agents.b.sources.s = {{ }}; "
        "services.a2a-gateway.agents = lib.mkForce { a = { }; };"
    ),
    "another source": host(f'{SYNAPSE} {AGENT} services.a2a-gateway.agents.a.source = "rooms"; '),
    "an agent elsewhere": host(
        f'{SYNAPSE} {AGENT} services.a2a-bridge.agents.a.url = "{ELSEWHERE}";'
    ),
    "a token given": host(
        f'{SYNAPSE} {AGENT} services.a2a-gateway.clients.bridge.tokenFile = "/run/secrets/t";'
    ),
    "a disabled agent": host(
        f'{SYNAPSE} {AGENT} services.cowboy.agents.b = {{ enable = false; runner.kind = "echo"; }};'
    ),
    "no bridge": host(
        f"{AGENT} services.a2a-bridge.enable = false; services.a2a-gateway.clients.ann = {{ }};"
    ),
    "no gateway": host(
        f"{SYNAPSE} {AGENT} services.a2a-gateway.enable = false; "
        "services.cowboy.agents.a.sources.s = { }; "
        f'services.a2a-bridge.agents.c.url = "{ELSEWHERE}";'
    ),
    "no homeserver": host(AGENT),
    "no agent": host(SYNAPSE),
    "no runner for rooms": host(
        f'{SYNAPSE} services.cowboy.agents.a.sources.s.runner.kind = "echo";'
    ),
}
REFUSED = {
    "no homeserver": [
        f"services.a2a-bridge.homeserver.{option}: is needed, because there is no Synapse on this "
        "host; services.corral.enable has switched the bridge on, and "
        "services.a2a-bridge.enable = false does without"
        for option in ("domain", "url")
    ],
    "no agent": [
        f"services.a2a-{service}.agents: at least one agent is needed"
        for service in ("bridge", "gateway")
    ],
    "no runner for rooms": [
        (
            "services.cowboy.agents.a.sources.a2a.runner: is not set, and neither is "
            "services.cowboy.agents.a.runner"
        )
    ],
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    """Every host, from one evaluation."""
    return hosts.evaluate(HOSTS, WANTED)


@pytest.mark.parametrize("name", HOSTS)
def test_what_is_refused_names_its_option(name: str, found: dict[str, Any]) -> None:
    assert sorted(found[name]["refused"]) == REFUSED.get(name, [])


def test_every_part_is_on_and_each_agent_can_be_mentioned(found: dict[str, Any]) -> None:
    all_of_it = found["live"]
    assert all_of_it["on"] == {"bridge": True, "gateway": True, "cowboy": True}
    assert all_of_it["agents"] == {"a": ["a2a"], "b": ["a2a"]}
    assert set(all_of_it["served"]) == {"a", "b"}
    assert all_of_it["clients"] == {"bridge": TOKEN}
    for agent in ("a", "b"):
        one = all_of_it["mentioned"][agent]
        assert one["url"] == URL.format(agent)
        assert (one["tokenFile"], one["idempotent"]) == (TOKEN, True)
    assert {"a2a-bridge", "a2a-gateway", "cowboy-a", "cowboy-runner-b", "tamq-alice"} <= set(
        all_of_it["units"]
    )


def test_numbers_that_begin_again_are_expected_of_sqlite_alone(found: dict[str, Any]) -> None:
    assert found["sqlite"]["conflict"] == "epoch"
    assert found["postgresql"]["conflict"] == "reject"


def test_who_has_sessions_that_are_woken_has_a_tamq(found: dict[str, Any]) -> None:
    assert found["sqlite"]["tamqs"] == []
    assert found["live"]["tamqs"] == found["live, its own way"]["tamqs"] == ["alice"]


def test_to_say_more_of_one_agent_takes_no_other_away(found: dict[str, Any]) -> None:
    more = found["a name and a description"]
    assert more["served"]["a"] == {"source": "a2a", "description": "Echoes."}
    assert set(more["served"]) == set(more["mentioned"]) == {"a", "b"}
    assert more["mentioned"]["a"]["display_name"] == "Echo"
    assert more["mentioned"]["a"]["url"] == URL.format("a")


def test_what_is_forced_is_all_there_is(found: dict[str, Any]) -> None:
    assert set(found["one of two"]["served"]) == set(found["one of two"]["mentioned"]) == {"a"}
    assert found["one of two"]["agents"] == {"a": ["a2a"], "b": ["s"]}


def test_the_source_of_rooms_may_have_another_name(found: dict[str, Any]) -> None:
    assert found["another source"]["agents"] == {"a": ["rooms"]}


def test_an_agent_elsewhere_is_not_told_the_token_of_this_host(found: dict[str, Any]) -> None:
    one = found["an agent elsewhere"]["mentioned"]["a"]
    assert (one["url"], one["tokenFile"]) == (ELSEWHERE, None)


def test_a_token_that_is_given_is_that_of_both_sides(found: dict[str, Any]) -> None:
    given = found["a token given"]
    assert given["clients"] == {"bridge": "/run/secrets/t"}
    assert given["mentioned"]["a"]["tokenFile"] == "/run/secrets/t"


def test_a_disabled_agent_is_not_there_for_anybody(found: dict[str, Any]) -> None:
    off = found["a disabled agent"]
    assert set(off["served"]) == set(off["mentioned"]) == {"a"}


def test_a_part_that_is_off_leaves_nothing_in_the_others(found: dict[str, Any]) -> None:
    without = found["no bridge"]
    assert without["on"] == {"bridge": False, "gateway": True, "cowboy": True}
    assert set(without["clients"]) == {"ann"}
    assert "a2a-bridge" not in without["units"]
    without = found["no gateway"]
    assert set(without["mentioned"]) == {"c"}
    assert without["mentioned"]["c"]["tokenFile"] is None
    assert without["agents"]["a"] == ["s"]
