"""The bridge's first boot: registration first, a mention answered, root's commands, no leaks.

Synapse is the real one, on SQLite.
"""

import json
import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

REGISTRATION = "a2a-bridge-registration.service"
SIDES = ["matrix-synapse.service", "a2a-bridge.service"]
UNITS = [REGISTRATION, "postgresql.service", *SIDES, "echo-agent.service"]
STATE, FILE = "/var/lib/a2a-bridge", "/run/a2a-bridge-registration/registration.yaml"
GIVEN = "/run/given/echo-token"
EXPOSURE_MAX = 2.0
CYCLES = "journalctl -b --no-pager -o cat _PID=1 | grep -c 'ordering cycle' || true"
# For the search for secrets.
WORDS, CONTROL = "/run/words-real", "/run/words-control"
ALLOWED = (f"{STATE}/", FILE, GIVEN, "/run/credentials/", WORDS, CONTROL)
JOURNAL = "journalctl -b --no-pager -o export"
NOWHERE = {"cmdline": [], "environ": [], "files": [], "journal": 0}


def at(unit: str, moment: str) -> int:
    """Microseconds since the machine was started."""
    return int(machine.get_unit_property(unit, f"{moment}Monotonic"))


def refused(command: str, reason: str) -> None:
    """The command fails, and says why: a denial for another reason proves nothing."""
    status, said = machine.execute(f"({command}) 2>&1")
    assert status != 0, f"`{command}` was not refused: {said}"
    assert reason in said, f"`{command}` failed for another reason: {said}"


def as_user(user: str, command: str) -> str:
    group = f"$(id -g {user})"
    return f"setpriv --reuid {user} --regid {group} --init-groups -- bash -c {shlex.quote(command)}"


def stat(path: str) -> str:
    return machine.succeed(f"stat -c '%U:%G %a' {path}").strip()


def leaks(words: str) -> dict[str, Any]:
    allowed = " ".join(f"--allow {path}" for path in ALLOWED)
    found: dict[str, Any] = json.loads(machine.execute(f"corral-vm leaks {words} {allowed}")[1])
    return found


with subtest("everything comes up by itself"):
    for unit in UNITS:
        machine.wait_for_unit(unit)
    assert machine.succeed("systemctl --failed --no-legend --plain") == ""
    assert machine.succeed(CYCLES) == "0\n"

with subtest("f60: the registration is there before both sides start"):
    for unit in SIDES:
        assert at(REGISTRATION, "ActiveEnterTimestamp") <= at(unit, "ExecMainStartTimestamp"), unit
        assert machine.get_unit_property(unit, "NRestarts") == "0", unit

with subtest("tokens are the bridge's alone, the registration is for both sides"):
    assert stat(STATE).endswith(" 700")
    assert machine.succeed(f"ls {STATE}").split() == ["as-token", "hs-token"]
    for token in ("as-token", "hs-token"):
        assert stat(f"{STATE}/{token}").startswith("a2a-bridge:")
        assert stat(f"{STATE}/{token}").endswith(" 400")
        assert len(machine.succeed(f"cat {STATE}/{token}").strip()) >= 64
    assert stat(FILE) == "a2a-bridge:matrix-synapse 440"
    assert stat("/run/a2a-bridge-registration") == "a2a-bridge:matrix-synapse 750"
    machine.succeed(as_user("matrix-synapse", f"cat {FILE}"))
    refused(as_user("matrix-synapse", f"cat {STATE}/as-token"), "Permission denied")
    for user in ("alice", "echo-agent"):
        for path in (FILE, f"{STATE}/as-token"):
            refused(as_user(user, f"cat {path}"), "Permission denied")

with subtest("a mention is answered"):
    machine.succeed("corral-vm mention --count 1")
    said = json.loads(machine.succeed("corral-vm rooms"))
    assert (said["mentions"], said["answered"], said["violations"]) == (1, 1, []), said

with subtest("root's commands are those of the service, and say what is"):
    report = json.loads(machine.succeed("a2a-bridge doctor --json"))
    assert report["healthy"], report
    assert {one["level"] for one in report["checks"]} == {"ok"}, report
    (job,) = json.loads(machine.succeed("a2a-bridge jobs list --state delivered --json"))["jobs"]
    assert job["job_id"] in machine.succeed(f"a2a-bridge jobs show {job['job_id']}")
    status, said = machine.execute("a2a-bridge jobs show nothing 2>&1")
    assert (status, "a2a-bridge: " in said) == (66, True), f"{status}: {said}"

with subtest("other users are told why not"):
    for command in ("doctor", "jobs list"):
        refused(as_user("alice", f"a2a-bridge {command}"), "only root can ask with the secrets")
    refused("a2a-bridge run", "systemctl start a2a-bridge")

with subtest("both units are exposed to little"):
    for unit in ("a2a-bridge.service", REGISTRATION):
        said = machine.succeed(f"systemd-analyze security --no-pager {unit} | tail -n 1")
        assert float(said.split(":")[1].split()[0]) <= EXPOSURE_MAX, said

with subtest("control: a planted word is found wherever it is"):
    machine.succeed(f"umask 077; cat {STATE}/*-token {GIVEN} >{WORDS}")
    assert machine.succeed(f"grep -c . {WORDS}").strip() == "3"
    machine.succeed(f"umask 077; echo planted-b71d >{CONTROL}")
    machine.succeed(f"corral-vm plant {CONTROL}")
    found = leaks(CONTROL)
    assert "sh" in found["cmdline"], found
    assert "sleep" in found["environ"], found
    assert "/var/planted" in found["files"], found
    assert found["journal"] > 0, found

with subtest("no secret is in an argument, an environment, a file, the journal; no content either"):
    assert leaks(WORDS) == NOWHERE
    assert int(machine.succeed(f"{JOURNAL} | grep -ac '_SYSTEMD_UNIT=a2a-bridge.service'")) > 0
    assert machine.succeed(f"{JOURNAL} | grep -acF said-0 || true") == "0\n"

with subtest("doctor names what is down, and needs no running service"):
    machine.succeed("systemctl stop a2a-bridge echo-agent")
    status, told = machine.execute("a2a-bridge doctor --json")
    codes = {one["code"] for one in json.loads(told)["checks"] if one["level"] != "ok"}
    assert status == 1, told
    assert {"worker_dead", "bridge_unreachable"} <= codes, told

machine.shutdown()
