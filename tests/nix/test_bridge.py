"""The bridge's units: what they are given, what they wait for, and what the homeserver is told."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.bridge.settings import AgentSettings, BridgeSettings
from tests.nix import hosts, nix, options_page, refused_bridge, render, rendered_hosts, verify
from tests.nix.render.outputs import BuildError

EXAMPLE = nix.EXAMPLES / "bridge-remote-postgres.nix"
SCRIPTS = [
    nix.ROOT / "services" / name for name in ("make-tokens.sh", "a2a-bridge/registration.sh")
]
BRIDGE, REGISTRATION = "a2a-bridge.service", "a2a-bridge-registration.service"
EXPOSURE_MAX = 2.0
WANTED = """{
  services = lib.mapAttrs (_: s: {
    inherit (s) after requires serviceConfig environment stopIfChanged;
  }) config.systemd.services;
  synapse = config.services.matrix-synapse.settings.app_service_config_files;
  postgresql = { inherit (config.services.postgresql) enable ensureDatabases ensureUsers; };
  conflict = config.services.a2a-bridge.settings.txn_conflict;
  homeserver = config.services.a2a-bridge.homeserver;
}"""
# Their own modules make the units of Synapse and PostgreSQL; here they only must be units.
ALL_HERE = f"""
  {{ imports = {refused_bridge.bridge("%s", more=refused_bridge.SYNAPSE_ON_SQLITE, server="")};
    systemd.services = lib.genAttrs [ "matrix-synapse" "postgresql" ] (_: {{
      serviceConfig.ExecStart = "${{pkgs.coreutils}}/bin/true";
    }});
    users.users.matrix-synapse = {{ isSystemUser = true; group = "matrix-synapse"; }};
    users.groups.matrix-synapse = {{ }};
  }}"""


def evaluated(modules: str) -> dict[str, Any]:
    found: dict[str, Any] = hosts.one(modules, WANTED)
    return found


def rendered(folder: Path, text: str = "") -> render.Rendered:
    host = folder / "host.nix"
    host.write_text("{ lib, pkgs, ... }: " + ALL_HERE % text)
    return render.host(host)


def settings(host: render.Rendered) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.etc["a2a-bridge/settings.json"].text)
    return found


# ---- the homeserver -------------------------------------------------------------------------


def test_f60_the_registration_is_made_before_both_sides() -> None:
    """F60: at the first boot Synapse needs the file that the bridge writes later."""
    host = evaluated(refused_bridge.bridge(more=refused_bridge.SYNAPSE, server=""))
    for side in ("a2a-bridge", "matrix-synapse"):
        assert REGISTRATION in host["services"][side]["requires"]
        assert REGISTRATION in host["services"][side]["after"]
    made = host["services"]["a2a-bridge-registration"]
    # A start that waits for either would wait for itself.
    assert not [one for one in made["after"] + made["requires"] if "synapse" in one]
    assert host["synapse"] == ["/run/a2a-bridge-registration/registration.yaml"]
    assert made["serviceConfig"]["Type"] == "oneshot"
    assert made["serviceConfig"]["RemainAfterExit"] is True
    # So that a restart, and no stop, reaches both (F64).
    assert made["stopIfChanged"] is False


def test_f60_the_registration_is_readable_by_both_sides_only() -> None:
    host = evaluated(refused_bridge.bridge(more=refused_bridge.SYNAPSE, server=""))
    made = host["services"]["a2a-bridge-registration"]["serviceConfig"]
    assert (made["User"], made["Group"]) == ("a2a-bridge", "matrix-synapse")
    assert made["RuntimeDirectoryMode"] == "0750"
    assert made["StateDirectoryMode"] == "0700"
    alone = evaluated(refused_bridge.bridge())
    assert alone["services"]["a2a-bridge-registration"]["serviceConfig"]["Group"] == "a2a-bridge"
    assert "matrix-synapse" not in alone["services"]


@pytest.mark.parametrize(
    ("more", "conflict"),
    [(refused_bridge.SYNAPSE_ON_SQLITE, "epoch"), (refused_bridge.SYNAPSE, "reject")],
)
def test_a_used_transaction_id_is_what_the_homeservers_database_makes_it(
    more: str, conflict: str
) -> None:
    host = evaluated(refused_bridge.bridge(more=more, server=""))
    assert host["conflict"] == conflict
    assert host["homeserver"] == {"url": "http://127.0.0.1:8008", "domain": "example.org"}


def test_a_synapse_that_is_off_is_nobodys_homeserver() -> None:
    off = 'services.matrix-synapse.settings.database.name = "sqlite3";'
    assert evaluated(refused_bridge.bridge(more=off))["conflict"] == "reject"


def test_the_choice_of_the_database_can_be_changed() -> None:
    host = evaluated(
        refused_bridge.bridge(
            'settings.txn_conflict = "reject";', refused_bridge.SYNAPSE_ON_SQLITE, server=""
        )
    )
    assert host["conflict"] == "reject"


# ---- the database ---------------------------------------------------------------------------


def test_a_database_of_this_host_is_made_and_needs_no_secret(tmp_path: Path) -> None:
    host = evaluated(refused_bridge.bridge())
    assert host["postgresql"] == {
        "enable": True,
        "ensureDatabases": ["a2a-bridge"],
        "ensureUsers": [{"name": "a2a-bridge", "ensureDBOwnership": True}],
    }
    loaded = host["services"]["a2a-bridge"]["serviceConfig"]["LoadCredential"]
    assert not [one for one in loaded if one.startswith("database:")]
    made = settings(rendered(tmp_path))
    assert made["database"] == "postgresql://a2a-bridge@/a2a-bridge?host=/run/postgresql"
    assert host["services"]["a2a-bridge"]["serviceConfig"]["User"] == "a2a-bridge"
    assert "postgresql.service" in host["services"]["a2a-bridge"]["after"]


def test_a_database_elsewhere_is_a_credential_and_nothing_is_made_here() -> None:
    host = evaluated(refused_bridge.bridge(refused_bridge.REMOTE))
    assert host["postgresql"] == {"enable": False, "ensureDatabases": [], "ensureUsers": []}
    loaded = host["services"]["a2a-bridge"]["serviceConfig"]["LoadCredential"]
    assert "database:/run/secrets/database" in loaded
    assert "database" not in settings(rendered_hosts.rendered(EXAMPLE))


# ---- the units ------------------------------------------------------------------------------


def test_secrets_are_credentials_of_the_unit() -> None:
    unit = rendered_hosts.rendered(EXAMPLE).units[BRIDGE]
    assert sorted(re.findall(r"^LoadCredential=(.*)$", unit, re.MULTILINE)) == [
        "agent-scout:/run/secrets/scout-token",
        "as-token:/run/secrets/bridge-as-token",
        "database:/run/secrets/bridge-database",
        "hs-token:/run/secrets/bridge-hs-token",
    ]
    agents = settings(rendered_hosts.rendered(EXAMPLE))["agents"]
    assert agents["scout"]["token_file"] == "/run/credentials/a2a-bridge.service/agent-scout"
    assert "token_file" not in agents["smith"]


def test_made_tokens_are_those_that_the_bridge_gets() -> None:
    services = evaluated(refused_bridge.bridge('asTokenFile = "/run/secrets/as";'))["services"]
    loaded = services["a2a-bridge"]["serviceConfig"]["LoadCredential"]
    assert sorted(loaded) == ["as-token:/run/secrets/as", "hs-token:/var/lib/a2a-bridge/hs-token"]
    made = services["a2a-bridge-registration"]
    assert made["serviceConfig"]["LoadCredential"] == ["as-token:/run/secrets/as"]
    assert made["environment"]["TOKENS"] == "hs-token"
    assert made["environment"]["BRIDGE_HS_TOKEN_FILE"] == "/var/lib/a2a-bridge/hs-token"
    assert "BRIDGE_AS_TOKEN_FILE" not in made["environment"]


def test_it_is_started_again_whatever_happens() -> None:
    unit = rendered_hosts.rendered(EXAMPLE).units[BRIDGE].splitlines()
    for line in ("Type=notify", "Restart=always", "StartLimitIntervalSec=0", "WatchdogSec=60s"):
        assert line in unit
    assert "TimeoutStopSec=30s" in unit


def test_what_is_in_work_gets_its_time_at_a_stop(tmp_path: Path) -> None:
    unit = rendered(tmp_path, "settings.shutdown_timeout_s = 90;").units[BRIDGE]
    assert "TimeoutStopSec=95s" in unit.splitlines()


def test_the_boot_id_can_be_read() -> None:
    """By it a worker knows its dead predecessor; `ProcSubset=pid` would end it at its start."""
    assert "ProcSubset" not in rendered_hosts.rendered(EXAMPLE).units[BRIDGE]


def test_systemd_has_nothing_to_say_of_a_host_with_everything(tmp_path: Path) -> None:
    host = rendered(tmp_path)
    assert verify.problems(host) == []
    assert verify.dangling(host) == []
    assert settings(host)["txn_conflict"] == "epoch"


@pytest.mark.parametrize("unit", [BRIDGE, REGISTRATION])
def test_little_is_exposed(unit: str) -> None:
    assert verify.exposure(rendered_hosts.rendered(EXAMPLE), unit) <= EXPOSURE_MAX


# ---- settings -------------------------------------------------------------------------------


def test_every_setting_of_the_program_has_an_option() -> None:
    """A setting that the program gains or loses is missed here, not on a host."""
    prefix = "services.a2a-bridge."
    names = [option["name"].removeprefix(prefix) for option in options_page.options()]
    typed = {name.removeprefix("settings.") for name in names if name.startswith("settings.")}
    ours = {"homeserver_url", "server_name", "as_token", "hs_token", "database", "agents"}
    assert typed | ours == set(BridgeSettings.model_fields)
    assert not typed & ours
    agent = {one.removeprefix("agents.<name>.") for one in names if one.startswith("agents.<name>")}
    assert (agent - {"tokenFile"}) | {"token_file"} == set(AgentSettings.model_fields)


def test_settings_that_the_program_refuses_fail_the_build(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"tomorrow"):
        rendered(tmp_path, "settings.tomorrow = 1;")
    with pytest.raises(BuildError, match=r"room_queue_capacity must not be above"):
        rendered(tmp_path, "settings.room_queue_capacity = 1000;")


def test_no_secret_is_in_what_is_rendered(tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    planted.write_text("sesame-open-5d1f0c\n")
    given = [
        "database = { createLocally = false; urlFile = FILE; };",
        f'asTokenFile = "{planted}-as"; hsTokenFile = FILE; agents.scout.tokenFile = FILE;',
    ]
    (tmp_path / "planted-as").write_text(planted.read_text())
    host = rendered(tmp_path, " ".join(given).replace("FILE", f'"{planted}"'))
    text = json.dumps(host.as_json())
    assert str(planted) in text, "its path is, so it was used"
    assert "sesame-open" not in text


# ---- the script -----------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in ("state", "run", "bin"):
        (tmp_path / folder).mkdir()
    program = tmp_path / "bin" / "a2a-bridge"
    program.write_text('#!/bin/sh\n[ "$1" = registration ] && cat "$STATE_DIRECTORY"/*-token\n')
    program.chmod(0o755)
    return tmp_path


def register(place: Path, tokens: str = "as-token hs-token") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", "".join(one.read_text(encoding="utf-8") for one in SCRIPTS)],
        env={
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "STATE_DIRECTORY": str(place / "state"),
            "RUNTIME_DIRECTORY": str(place / "run"),
            "TOKENS": tokens,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_tokens_are_made_once_and_differ(place: Path) -> None:
    assert register(place).returncode == 0
    tokens = {path.name: path.read_text() for path in (place / "state").iterdir()}
    assert set(tokens) == {"as-token", "hs-token"}
    assert len(set(tokens.values())) == 2
    assert all(len(token) == 73 for token in tokens.values())
    assert register(place).returncode == 0
    assert tokens == {path.name: path.read_text() for path in (place / "state").iterdir()}


def test_nobody_else_reads_tokens_or_registration(place: Path) -> None:
    assert register(place).returncode == 0
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode)
        for folder in ("state", "run")
        for path in (place / folder).iterdir()
    }
    assert modes == {"as-token": 0o400, "hs-token": 0o400, "registration.yaml": 0o440}


def test_given_tokens_are_not_made(place: Path) -> None:
    assert register(place, "hs-token").returncode == 0
    assert [path.name for path in (place / "state").iterdir()] == ["hs-token"]


def test_a_token_that_was_deleted_is_made_anew_and_in_the_registration(place: Path) -> None:
    register(place)
    before = (place / "state" / "as-token").read_text()
    (place / "state" / "as-token").unlink()
    assert register(place).returncode == 0
    after = (place / "state" / "as-token").read_text()
    assert after != before
    assert after in (place / "run" / "registration.yaml").read_text()


def test_a_registration_that_cannot_be_made_ends_the_start(place: Path) -> None:
    (place / "bin" / "a2a-bridge").write_text("#!/bin/sh\nexit 78\n")
    assert register(place).returncode == 78
    assert not (place / "run" / "registration.yaml").exists()


def test_what_a_killed_start_left_behind_is_replaced(place: Path) -> None:
    for left in (place / "state" / "as-token.new", place / "run" / "registration.yaml.new"):
        left.write_text("half")
        left.chmod(0o400)
    assert register(place).returncode == 0
    assert "half" not in (place / "state" / "as-token").read_text()
    assert "half" not in (place / "run" / "registration.yaml").read_text()


def test_the_program_writes_the_registration_of_a_first_boot(place: Path) -> None:
    """The real program, with the environment of the rendered unit."""
    config = place / "settings.json"
    config.write_text(rendered_hosts.rendered(EXAMPLE).etc["a2a-bridge/settings.json"].text)
    program = place / "bin" / "a2a-bridge"
    exports = "".join(
        f"export {name}={value}\n"
        for name, value in {
            "PYTHONPATH": nix.ROOT / "python",
            "BRIDGE_CONFIG": config,
            "BRIDGE_DATABASE": "postgresql:///not-the-database",
            "BRIDGE_AS_TOKEN_FILE": place / "state" / "as-token",
            "BRIDGE_HS_TOKEN_FILE": place / "state" / "hs-token",
        }.items()
    )
    program.write_text(f'#!/bin/sh\n{exports}exec {sys.executable} -P -m corral.bridge.main "$@"\n')
    done = register(place)
    assert done.returncode == 0, done.stderr
    made = json.loads((place / "run" / "registration.yaml").read_text())
    assert made["as_token"] == (place / "state" / "as-token").read_text().strip()
    assert made["hs_token"] == (place / "state" / "hs-token").read_text().strip()
    assert made["url"] == "http://192.0.2.7:29331"
