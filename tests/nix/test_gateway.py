"""The gateway's units: what they are given, what they wait for, and what they may do."""

import json
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corral.gateway.settings import AgentEntry, GatewaySettings
from tests.nix import nix, options_page, refused_gateway, render, rendered_hosts, verify
from tests.nix.render.outputs import BuildError

EXAMPLE = nix.EXAMPLES / "bridge-and-gateway.nix"
OTHER_HOST = nix.EXAMPLES / "two-hosts" / "agents.nix"
PROXY = "a2a-gateway-listen.service"
SCRIPT = nix.ROOT / "services" / "make-tokens.sh"
GATEWAY, TOKENS = "a2a-gateway.service", "a2a-gateway-tokens.service"
EXPOSURE_MAX = 2.0


def lines(unit: str) -> list[str]:
    return rendered_hosts.rendered(EXAMPLE).units[unit].splitlines()


def settings(host: render.Rendered) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.etc["a2a-gateway/settings.json"].text)
    return found


def rendered(folder: Path, text: str) -> render.Rendered:
    host = folder / "host.nix"
    modules = refused_gateway.gateway(text).strip("[] ")
    host.write_text(f"{{ lib, pkgs, ... }}: {modules}")
    return render.host(host)


# ---- the units ------------------------------------------------------------------------------


def test_it_is_a_member_of_the_agents_namespace_and_has_their_passwords() -> None:
    unit = lines(GATEWAY)
    assert "NetworkNamespacePath=/run/netns/cowboy-ns" in unit
    loaded = sorted(line.partition("=")[2] for line in unit if line.startswith("LoadCredential="))
    assert loaded == [
        "client-bridge:/var/lib/a2a-gateway-tokens/bridge",
        "redis-source.scout.a2a:/var/lib/cowboy/secrets/redis-source.scout.a2a",
    ]
    required = " ".join(line for line in unit if line.startswith("Requires="))
    assert TOKENS in required
    assert "cowboy-secrets.service" in required


def test_settings_name_the_credentials_and_hold_none() -> None:
    made = settings(rendered_hosts.rendered(EXAMPLE))
    place = "/run/credentials/a2a-gateway.service"
    assert made["agents"] == {
        "scout": {
            "source": "a2a",
            "description": "Says it louder.",
            "password_file": f"{place}/redis-source.scout.a2a",
        }
    }
    assert made["clients"] == {"bridge": f"{place}/client-bridge"}
    assert made["redis_url"] == "redis://127.0.0.1:6379"
    assert (made["socket"], made["socket_mode"]) == ("/run/a2a-gateway/socket", 0o660)


def test_the_bridge_beside_it_may_connect_and_has_the_token() -> None:
    bridge = lines("a2a-bridge.service")
    assert "SupplementaryGroups=a2a-gateway" in bridge
    assert "LoadCredential=agent-scout:/var/lib/a2a-gateway-tokens/bridge" in bridge
    assert any(line.startswith("Requires=") and TOKENS in line for line in bridge)
    assert not any("NetworkNamespacePath" in line for line in bridge)
    assert "RuntimeDirectoryMode=0750" in lines(GATEWAY)
    assert "StateDirectoryMode=0700" in lines(GATEWAY)


def test_tokens_are_made_where_the_kernels_random_numbers_can_be_read() -> None:
    """`ProcSubset=pid` hides `/proc/sys`: the unit failed at each start, and with it all others."""
    assert "/proc/sys/" in SCRIPT.read_text(encoding="utf-8")
    assert not any(line.startswith("ProcSubset") for line in lines(TOKENS))
    assert "ProcSubset=pid" in lines(GATEWAY)


def test_it_is_started_again_whatever_happens() -> None:
    for line in ("Type=notify", "Restart=always", "StartLimitIntervalSec=0", "WatchdogSec=60s"):
        assert line in lines(GATEWAY)


def test_systemd_has_nothing_to_say_of_it() -> None:
    host = rendered_hosts.rendered(EXAMPLE)
    assert verify.problems(host) == []
    assert verify.dangling(host) == []


@pytest.mark.parametrize("unit", [GATEWAY, TOKENS])
def test_little_is_exposed(unit: str) -> None:
    assert verify.exposure(rendered_hosts.rendered(EXAMPLE), unit) <= EXPOSURE_MAX


def test_metrics_are_written_where_those_of_the_agents_are(tmp_path: Path) -> None:
    more = 'settings.open_tasks_max = 7; }; services.cowboy.metrics.directory = "/var/lib/m"; x = {'
    host = rendered(tmp_path, more.removesuffix(" x = {") + " services.a2a-gateway = {")
    assert settings(host)["metrics_dir"] == "/var/lib/m"
    assert settings(host)["open_tasks_max"] == 7
    unit = host.units[GATEWAY].splitlines()
    assert "SupplementaryGroups=corral-metrics" in unit
    assert "ReadWritePaths=/var/lib/m" in unit


# ---- for other hosts --------------------------------------------------------------------------


def test_nobody_else_is_listened_to_unless_that_is_wanted() -> None:
    units = rendered_hosts.rendered(EXAMPLE).units
    assert not [name for name in units if name.startswith("a2a-gateway-listen")]
    assert "base_url" not in settings(rendered_hosts.rendered(EXAMPLE))


def test_what_comes_from_other_hosts_is_passed_on_to_the_socket() -> None:
    host = rendered_hosts.rendered(OTHER_HOST)
    listening = host.units["a2a-gateway-listen.socket"].splitlines()
    assert [line for line in listening if line.startswith("ListenStream")] == [
        "ListenStream=192.0.2.20:8080"
    ]
    assert "FreeBind=true" in listening
    assert "sockets.target.wants/a2a-gateway-listen.socket" in host.unit_links
    proxy = host.units[PROXY].splitlines()
    (start,) = (line for line in proxy if line.startswith("ExecStart="))
    assert start.endswith("/lib/systemd/systemd-socket-proxyd /run/a2a-gateway/socket")
    assert "SupplementaryGroups=a2a-gateway" in proxy
    assert "PrivateNetwork=true" in proxy
    assert verify.exposure(host, PROXY) <= EXPOSURE_MAX


def test_the_cards_name_where_the_gateway_is_reached(tmp_path: Path) -> None:
    assert settings(rendered_hosts.rendered(OTHER_HOST))["base_url"] == "http://192.0.2.20:8080"
    listen = 'listen = [ "192.0.2.20:8080" ];'
    named = rendered(tmp_path, f'{listen} settings.base_url = "https://a.example.org";')
    assert settings(named)["base_url"] == "https://a.example.org"


# ---- settings -------------------------------------------------------------------------------


def test_every_setting_of_the_program_has_an_option() -> None:
    """A setting that the program gains or loses is missed here, not on a host."""
    prefix = "services.a2a-gateway."
    names = [
        option["name"].removeprefix(prefix)
        for option in options_page.options()
        if option["name"].startswith(prefix)
    ]
    typed = {name.removeprefix("settings.") for name in names if name.startswith("settings.")}
    ours = {
        *("socket", "socket_mode", "state_dir", "redis_url", "metrics_dir"),
        *("agents", "clients"),
    }
    assert typed | ours == set(GatewaySettings.model_fields)
    assert not typed & ours
    agent = {one.removeprefix("agents.<name>.") for one in names if one.startswith("agents.<name>")}
    assert agent | {"password_file"} == set(AgentEntry.model_fields)


def test_settings_that_the_program_refuses_fail_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"tomorrow"):
        rendered(tmp_path, "settings.tomorrow = 1;")


# ---- the script -----------------------------------------------------------------------------


def make(folder: Path, tokens: str) -> None:
    subprocess.run(
        ["bash", str(SCRIPT)],
        env={"PATH": os.environ["PATH"], "STATE_DIRECTORY": str(folder), "TOKENS": tokens},
        timeout=60,
        check=True,
    )


def test_tokens_are_made_once_and_differ_and_nobody_else_reads_them(tmp_path: Path) -> None:
    make(tmp_path, "ann bob")
    first = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert set(first) == {"ann", "bob"}
    assert len(set(first.values())) == 2
    assert all(len(token) == 73 for token in first.values())
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o400}
    (tmp_path / "bob").unlink()
    (tmp_path / "bob.new").write_text("of a killed start")
    make(tmp_path, "ann bob")
    again = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert again["ann"] == first["ann"]
    assert again["bob"] != first["bob"]
    assert set(again) == {"ann", "bob"}
