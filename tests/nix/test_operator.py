"""A service's program as a host has it on PATH: with what the service has, for root alone."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.nix import nix, rendered_hosts

EXAMPLE = nix.EXAMPLES / "bridge-remote-postgres.nix"
SCRIPT = nix.ROOT / "services" / "operator.sh"
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root is let through")


def on_path(example: Path = EXAMPLE) -> str:
    host = rendered_hosts.rendered(example)
    return host.files[host.commands["a2a-bridge"]].text


def run(
    folder: Path,
    *words: str,
    status: int = 0,
    user: int | None = None,
    namespace: str = "",
    **more: str,
) -> "subprocess.CompletedProcess[str]":
    """The script between a program and a systemd-run that say how they were called."""
    folder.chmod(0o755)
    for name, code in (("program", 0), ("systemd-run", status)):
        file = folder / name
        file.write_text(f'#!/bin/sh\necho {name} "$@"\nexit {code}\n')
        file.chmod(0o755)
    text = f"""
      PROGRAM={folder}/program SYSTEMD_RUN={folder}/systemd-run
      NAME=a2a-bridge SERVICE=a2a-bridge WHAT=bridge VARIABLE=BRIDGE_CONFIG
      SERVICE_USER=a2a-bridge SETTINGS=/etc/settings.json SECRETS=(one:/a two:/b)
      MEMBER_OF=(agents) NAMESPACE={namespace}
      {SCRIPT.read_text()}"""
    return subprocess.run(
        ["bash", "-c", text, "a2a-bridge", *words],
        env={"PATH": os.environ["PATH"], **more},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        user=user,
    )


def test_it_has_the_settings_and_the_secrets_of_the_service() -> None:
    text = on_path()
    unit = rendered_hosts.rendered(EXAMPLE).units["a2a-bridge.service"]
    (secrets,) = re.findall(r"^SECRETS=\((.*)\)$", text, re.MULTILINE)
    assert secrets.split() == re.findall(r"^LoadCredential=(.*)$", unit, re.MULTILINE)
    for name, key in (("SERVICE_USER", "User"), ("SETTINGS", 'Environment="BRIDGE_CONFIG')):
        (value,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
        assert f"{key}={value}" in unit
    (program,) = re.findall(r"^PROGRAM=(.*)$", text, re.MULTILINE)
    assert f"ExecStart={program} run" in unit


def test_it_goes_before_the_program_of_the_package_that_cowboy_brings() -> None:
    """And it reaches what the service reaches: a gateway's socket, by the group."""
    text = on_path(nix.EXAMPLES / "single-host.nix")
    assert "SERVICE_USER=a2a-bridge" in text
    assert "MEMBER_OF=(a2a-gateway)" in text
    assert "MEMBER_OF=()" in on_path()


def test_the_gateways_looks_where_redis_is() -> None:
    example = nix.EXAMPLES / "single-host.nix"
    host = rendered_hosts.rendered(example)
    text = host.files[host.commands["corral-gateway"]].text
    unit = host.units["a2a-gateway.service"]
    assert "SECRETS=()" in text
    for name, key in (
        ("SERVICE_USER", "User"),
        ("SETTINGS", 'Environment="GATEWAY_CONFIG'),
        ("NAMESPACE", "NetworkNamespacePath"),
    ):
        (value,) = re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)
        assert f"{key}={value}" in unit
    (program,) = re.findall(r"^PROGRAM=(.*)$", text, re.MULTILINE)
    assert f"ExecStart={program} run" in unit


@only_root
def test_doctor_looks_in_the_namespace(tmp_path: Path) -> None:
    inside = "--property=NetworkNamespacePath=/run/netns/n"
    assert inside in run(tmp_path, "doctor", namespace="/run/netns/n").stdout
    assert inside not in run(tmp_path, "jobs", namespace="/run/netns/n").stdout
    assert "NetworkNamespacePath" not in run(tmp_path, "doctor").stdout
    gone = run(tmp_path, "doctor", status=225, namespace="/run/netns/n")
    assert (gone.returncode, "systemctl start cowboy-ns" in gone.stderr) == (69, True)


@only_root
def test_roots_command_is_run_as_the_service(tmp_path: Path) -> None:
    done = run(tmp_path, "jobs", "show", "a b")
    assert done.returncode == 0, done.stderr
    said = done.stdout.split()
    assert said[0] == "systemd-run"
    assert {"--pipe", "--wait", "--uid=a2a-bridge", "--setenv=BRIDGE_CONFIG=/etc/settings.json"} < (
        set(said)
    )
    assert "--property=LoadCredential=two:/b" in said
    assert "--property=SupplementaryGroups=agents" in said
    assert done.stdout.endswith(f" -- {tmp_path}/program jobs show a b\n")
    # What a command is told stands in no journal.
    assert "--description=A command about the bridge" in done.stdout


@only_root
def test_an_id_of_matrix_is_not_taken_for_a_variable(tmp_path: Path) -> None:
    assert run(tmp_path, "jobs", "show", "$event$a").stdout.endswith(" jobs show $$event$$a\n")


@only_root
def test_who_asks_is_passed_on(tmp_path: Path) -> None:
    assert "--setenv=SUDO_USER=root " in run(tmp_path, "resolve", "j").stdout
    assert "--setenv=SUDO_USER=ann " in run(tmp_path, "resolve", "j", SUDO_USER="ann").stdout


@only_root
def test_its_status_is_that_of_the_command_and_a_missing_secret_is_named(tmp_path: Path) -> None:
    assert run(tmp_path, "doctor", status=1).returncode == 1
    done = run(tmp_path, "doctor", status=243)
    assert done.returncode == 78
    assert "a secret of the bridge cannot be read" in done.stderr
    assert "two:/b" in done.stderr


@only_root
def test_others_and_a_second_bridge_are_refused_with_the_reason(tmp_path: Path) -> None:
    for parent in (tmp_path, *tmp_path.parents[:-2]):
        parent.chmod(parent.stat().st_mode | 0o011)
    done = run(tmp_path, "doctor", user=65534)
    assert (done.returncode, done.stdout) == (77, "")
    assert "no permission: only root can ask" in done.stderr
    asked = run(tmp_path, "doctor", "--json", user=65534)
    error = json.loads(asked.stdout)["error"]
    assert (asked.returncode, error["code"]) == (77, "no_permission")
    done = run(tmp_path, "run")
    assert (done.returncode, done.stdout) == (64, "")
    assert "systemctl start a2a-bridge" in done.stderr


@pytest.mark.parametrize("words", [(), ("--help",), ("jobs", "list", "-h"), ("--version",)])
def test_whoever_only_reads_needs_nothing(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run(tmp_path, *words)
    assert done.stdout.split() == ["program", *words]


def test_whoever_has_settings_of_their_own_gets_the_program(tmp_path: Path) -> None:
    done = run(tmp_path, "run", BRIDGE_CONFIG="bridge.toml")
    assert done.stdout == "program run\n"
    done = run(tmp_path, "run", BRIDGE_CONFIG="/etc/settings.json")
    assert "program" not in done.stdout
