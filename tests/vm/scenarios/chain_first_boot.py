"""The preset's first boot: a mention is answered by an agent behind bridge, gateway and Redis.

The machine has been started once, and nobody has spoken yet.
"""

import json
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

TOKENS, GATEWAY, BRIDGE = "a2a-gateway-tokens.service", "a2a-gateway.service", "a2a-bridge.service"
RUNNING = ["postgresql.service", "matrix-synapse.service", "redis-cowboy.service"]
RUNNING += ["cowboy-scout.service", "cowboy-runner-scout.service", GATEWAY, BRIDGE]
UNITS = ["cowboy-ns.service", "cowboy-secrets.service", "a2a-bridge-registration.service"]
UNITS += [TOKENS, *RUNNING]
CYCLES = "journalctl -b --no-pager -o cat _PID=1 | grep -c 'ordering cycle' || true"
TOKEN = "/var/lib/a2a-gateway-tokens/bridge"


def at(unit: str, moment: str) -> int:
    """Microseconds since the machine was started."""
    return int(machine.get_unit_property(unit, f"{moment}Monotonic"))


def as_user(user: str, command: str, groups: str = "--init-groups") -> str:
    whom = f"--reuid {user} --regid $(id -g {user}) {groups}"
    return f"setpriv {whom} -- bash -c {shlex.quote(command)}"


def refused(command: str, reason: str) -> None:
    """The command fails, and says why: a denial for another reason proves nothing."""
    status, said = machine.execute(f"({command}) 2>&1")
    assert status != 0, f"`{command}` was not refused: {said}"
    assert reason in said, f"`{command}` failed for another reason: {said}"


with subtest("everything comes up by itself, and nothing had to be started again"):
    for unit in UNITS:
        machine.wait_for_unit(unit)
    assert machine.succeed("systemctl --failed --no-legend --plain") == ""
    assert machine.succeed(CYCLES) == "0\n"
    for unit in RUNNING:
        assert machine.get_unit_property(unit, "NRestarts") == "0", unit

with subtest("tokens are there before both sides start, for the gateway alone"):
    for unit in (GATEWAY, BRIDGE):
        assert at(TOKENS, "ActiveEnterTimestamp") <= at(unit, "ExecMainStartTimestamp"), unit
    assert machine.succeed(f"stat -c '%U:%G %a' {TOKEN}") == "a2a-gateway:a2a-gateway 400\n"
    for user in ("alice", "scout", "a2a-bridge"):
        refused(as_user(user, f"cat {TOKEN}"), "Permission denied")

with subtest("a mention is answered, by an agent that began once"):
    machine.succeed("corral-vm mention --count 1 --work 0.1")
    status, said = machine.execute("corral-vm chain 2>&1")
    assert status == 0, said
    summary = json.loads(said)["summary"]
    assert (summary["asked"], summary["answered"], summary["notices"]) == (1, 1, 0), said

machine.shutdown()
