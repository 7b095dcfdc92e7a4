"""Every example is a whole host: it is evaluated, and what it is an example of is looked at."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.nix import hosts, nix, rendered_hosts

EXAMPLES = [str(path.relative_to(nix.EXAMPLES)) for path in rendered_hosts.examples()]
WITHOUT_AGENTS = {"bridge-remote-postgres.nix", "terminals.nix", "two-hosts/rooms.nix"}
WITH_AGENTS = [name for name in EXAMPLES if name not in WITHOUT_AGENTS]
# What a host is made of, as far as these tests look.
WANTED = f"""{{
  refused = {hosts.FAILED};
  units = lib.mapAttrs (_: unit: unit.text) config.systemd.units;
  etc = lib.mapAttrs (_: file:
    if file.text != null then file.text else file.source.text or "") (
    lib.filterAttrs (name: _: lib.hasPrefix "cowboy/" name || lib.hasPrefix "tamq/" name)
      config.environment.etc);
  services = lib.mapAttrs (_: s: s.serviceConfig) config.systemd.services;
  bindsTo = lib.mapAttrs (_: s: s.bindsTo) config.systemd.services;
  requires = lib.mapAttrs (_: s: s.requires) config.systemd.services;
  users = lib.attrNames config.users.users;
  tmpfiles = config.systemd.tmpfiles.settings."10-cowboy" or {{ }};
  internalInterfaces = config.networking.nat.internalInterfaces;
}}"""
_OURS = "cowboy"


@cache
def example(name: str) -> dict[str, Any]:
    found: dict[str, Any] = hosts.one(f"[ {nix.EXAMPLES / name} ]", WANTED)
    return found


def test_there_are_examples() -> None:
    assert {Path(name).stem for name in EXAMPLES} >= {
        "single-host",
        "agents-only",
        "bridge-remote-postgres",
        "secrets-as-files",
        "renamed-namespace",
        "disabled-agent",
        "terminals",
        "rooms",
    }


@pytest.mark.parametrize("file", EXAMPLES)
def test_evaluates(file: str) -> None:
    host = example(file)
    assert host["refused"] == []
    assert all(host["units"].values())


@pytest.mark.parametrize("file", WITH_AGENTS)
def test_members_of_the_namespace_are_those_that_are_published(file: str) -> None:
    host = example(file)
    published = json.loads(host["etc"]["cowboy/namespace.json"])
    inside = {
        f"{name}.service"
        for name, service in host["services"].items()
        if service.get("NetworkNamespacePath")
    }
    assert inside == set(published["members"])
    assert published["path"] == f"/run/netns/{published['name']}"
    for unit in inside:
        name = unit.removesuffix(".service")
        assert host["services"][name]["NetworkNamespacePath"] == published["path"]
        assert "cowboy-ns.service" in host["bindsTo"][name]


@pytest.mark.parametrize("file", WITH_AGENTS)
def test_who_holds_a_secret_needs_the_unit_that_makes_it(file: str) -> None:
    host = example(file)
    given = {line.split()[0]: line.split()[1] for line in _secrets(host)}
    holders = [
        (name, loaded)
        for name, service in host["services"].items()
        for loaded in service.get("LoadCredential", [])
        if loaded.partition(":")[2] in given.values()
    ]
    assert holders
    for name, _ in holders:
        assert "cowboy-secrets.service" in host["requires"][name]
    assert "cowboy-secrets.service" in host["requires"]["redis-cowboy"]


def _secrets(host: dict[str, Any]) -> list[str]:
    lines: list[str] = host["etc"]["cowboy/secrets.list"].splitlines()
    return lines


@pytest.mark.parametrize("file", WITH_AGENTS)
def test_no_path_or_socket_waits_for_a_service_that_waits_for_it(file: str) -> None:
    """By default services wait for basic.target, and that waits for all paths and sockets.

    systemd breaks such a circle by not starting one of them, which one it does not say before.
    """
    units = example(file)["units"]
    early = [name for name in units if name.endswith((".path", ".socket"))]
    assert "cowboy-rotate.path" in early
    for name in early:
        after = re.findall(r"^After=(.*)$", units[name], re.MULTILINE)
        if any(one.endswith(".service") for line in after for one in line.split()):
            assert "DefaultDependencies=false" in units[name]


def test_two_agents_with_three_sources_each() -> None:
    host = example("agents-only.nix")
    for agent, sources in (("scout", "a2a chat deploy"), ("smith", "a2a echo mail")):
        text = json.loads(host["etc"][f"cowboy/{agent}/sources.json"])
        assert " ".join(sorted(text["sources"])) == sources
        assert {f"cowboy-{agent}.service", f"cowboy-runner-{agent}.service"} <= set(host["units"])
    assert json.loads(host["etc"]["cowboy/scout/sources.json"])["limits"] == {
        "turns_concurrent_max": 4
    }
    assert sorted(host["services"]["my-gateway"]["LoadCredential"]) == [
        f"redis-source.scout.{source}:/var/lib/cowboy/secrets/redis-source.scout.{source}"
        for source in ("a2a", "chat", "deploy")
    ]


def test_given_secrets_are_read_where_they_are_and_the_rest_is_made() -> None:
    host = example("secrets-as-files.nix")
    assert _secrets(host) == [
        "redis-agent-scout /run/secrets/redis-agent-scout given",
        "redis-metrics /run/secrets/redis-metrics given",
        "redis-operator /run/secrets/redis-operator given",
        "redis-source.scout.a2a /run/secrets/redis-source-scout-a2a given",
    ]
    assert {line.split()[2] for line in _secrets(example("single-host.nix"))} == {"made"}
    daemon, runner = host["services"]["cowboy-scout"], host["services"]["cowboy-runner-scout"]
    assert daemon["LoadCredential"] == ["redis-password:/run/secrets/redis-agent-scout"]
    assert "EnvironmentFile" not in daemon
    assert runner["LoadCredential"] == ["api-key:/run/secrets/scout-api-key"]
    assert runner["EnvironmentFile"] == ["/run/secrets/scout.env"]


def test_a_renamed_namespace_is_nowhere_called_by_the_old_name() -> None:
    host = example("renamed-namespace.nix")
    assert host["services"]["cowboy-scout"]["NetworkNamespacePath"] == "/run/netns/agents-ns"
    texts = "".join([*host["units"].values(), *host["etc"].values()])
    assert "netns/cowboy-ns" not in texts
    assert "NAMESPACE=agents-ns" in host["units"]["cowboy-ns.service"]
    settings = json.loads(host["etc"]["cowboy/scout/settings.json"])
    assert settings["redis_url"] == "redis://127.0.0.1:6380"
    rules = host["etc"]["cowboy/namespace.nft"]
    assert "ip daddr 203.0.113.7 tcp dport 443 accept" in rules
    assert "ip daddr 203.0.113.53 udp dport 53 accept" in rules
    assert host["internalInterfaces"] == ["agents-ns"]


def test_metrics_are_written_where_they_are_wanted_and_else_nowhere() -> None:
    wanted = "/var/lib/metrics"
    host = hosts.one(
        f'[ ({hosts.AGENT}) {{ services.cowboy.metrics.directory = "{wanted}"; }} ]', WANTED
    )
    assert host["refused"] == []
    assert json.loads(host["etc"]["cowboy/a/settings.json"])["metrics_dir"] == wanted
    daemon = host["services"]["cowboy-a"]
    assert wanted in daemon["ReadWritePaths"]
    assert daemon["SupplementaryGroups"] == ["corral-metrics"]
    made = host["tmpfiles"][wanted]["d"]
    assert (made["mode"], made["user"], made["group"]) == ("1775", "root", "corral-metrics")
    without = hosts.one(f"[ ({hosts.AGENT}) ]", WANTED)
    assert "metrics_dir" not in json.loads(without["etc"]["cowboy/a/settings.json"])
    assert without["services"]["cowboy-a"]["SupplementaryGroups"] == []


def test_without_egress_nothing_leaves_the_namespace() -> None:
    host = example("single-host.nix")
    rules = host["etc"]["cowboy/namespace.nft"]
    assert [line.strip() for line in rules.splitlines() if "accept" in line] == [
        "iif lo accept",
        "oif lo accept",
    ]
    assert rules.count("policy drop") == 3
    assert "HOST_ADDRESS" not in host["units"]["cowboy-ns.service"]
    assert host["internalInterfaces"] == []


def test_a_disabled_agent_leaves_no_trace() -> None:
    host = example("disabled-agent.nix")
    texts = [*host["units"].values(), *host["etc"].values(), *host["etc"], *host["units"]]
    assert not [text for text in [*texts, *host["users"], *host["tmpfiles"]] if "scout" in text]
    assert "cowboy-helper" in host["users"]
    runner = host["services"]["cowboy-runner-helper"]
    assert runner["User"] == "alice"
    assert host["services"]["cowboy-helper"]["User"] == "cowboy-helper"


@pytest.mark.parametrize("file", WITH_AGENTS)
def test_the_daemon_has_another_user_than_the_runs(file: str) -> None:
    """And nothing that is the agent's is the daemon's, nor the other way round."""
    host = example(file)
    runners = [name for name in host["services"] if name.startswith("cowboy-runner-")]
    assert runners
    for name in runners:
        agent = name.removeprefix("cowboy-runner-")
        daemon, runner = host["services"][f"cowboy-{agent}"], host["services"][name]
        assert daemon["User"] == f"cowboy-{agent}" != runner["User"]
        ours = f"/run/cowboy-runner/{agent}"
        assert host["tmpfiles"][ours]["d"]["mode"] == "0710"
        assert host["tmpfiles"][ours]["d"]["user"] == runner["User"]
        assert host["tmpfiles"][ours]["d"]["group"] == daemon["Group"]
        assert not any(_OURS in loaded for loaded in runner["LoadCredential"])


def test_each_user_has_a_tamq_and_a_place_of_its_own() -> None:
    host = example("terminals.nix")
    units = {name: host["services"][name] for name in host["services"] if name.startswith("tamq-")}
    assert set(units) == {"tamq-alice", "tamq-bob"}
    for name, unit in units.items():
        user = name.removeprefix("tamq-")
        assert unit["User"] == user
        assert unit["StateDirectory"] == unit["RuntimeDirectory"] == f"tamq/{user}"
        assert unit["StateDirectoryMode"] == unit["RuntimeDirectoryMode"] == "0700"
        # The sockets of `tamq run` are in it, and its sessions outlive the unit (F61).
        assert unit["RuntimeDirectoryPreserve"] == "yes"
        assert (unit["Type"], unit["Restart"]) == ("notify", "always")
        assert "StartLimitIntervalSec=0" in host["units"][f"{name}.service"]
        assert unit["WatchdogSec"]


def test_settings_are_those_that_were_set_and_nothing_else() -> None:
    host = example("terminals.nix")
    texts = {
        user: json.loads(host["etc"][f"tamq/{user}/settings.json"]) for user in ("alice", "bob")
    }
    assert texts["alice"].pop("gita_repos").endswith("/alice/.config/gita/repos.csv")
    assert texts["alice"] == {
        "socket": "/run/tamq/alice/tamq.sock",
        "state_dir": "/var/lib/tamq/alice",
    }
    profiles = texts["bob"].pop("profiles")
    assert profiles.startswith("/nix/store/")
    assert texts["bob"] == {
        "ack_deadline_ms": 120000,
        "gita_repos": "/srv/bob/gita/repos.csv",
        "retention_days": 7,
        "socket": "/run/tamq/bob/tamq.sock",
        "state_dir": "/var/lib/tamq/bob",
    }


@pytest.mark.parametrize(
    ("folder", "written"),
    [("/var/lib/tamq/a/capture", []), ("/srv/capture", ["/srv/capture"])],
)
def test_a_capture_may_be_written(folder: str, written: list[str]) -> None:
    settings = f'services.tamq.users.a.settings.capture_dir = "{folder}";'
    host = hosts.one(f"[ {{ {settings} users.users.a.isNormalUser = true; }} ]", WANTED)
    assert host["services"]["tamq-a"]["ReadWritePaths"] == written


def test_without_users_there_is_no_tamq() -> None:
    host = hosts.one(f'[ ({hosts.AGENT}) {{ services.tamq.users."*".enable = false; }} ]', WANTED)
    assert not [name for name in [*host["units"], *host["etc"]] if "tamq" in name]
