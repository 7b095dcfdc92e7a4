"""A later release of the bridge and back: its schema is used where it allows that, else refused."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

BRIDGE = "a2a-bridge.service"
UNITS = ("postgresql.service", "matrix-synapse.service", "echo-agent.service", BRIDGE)


def rooms(count: int) -> None:
    said = json.loads(machine.succeed("corral-vm rooms"))
    assert (said["mentions"], said["answered"]) == (count, count), said
    assert said["violations"] == said["out_of_order"] == [], said


with subtest("everything is up"):
    for unit in UNITS:
        machine.wait_for_unit(unit)
    machine.succeed("corral-vm mention")

with subtest("a later release changes the schema, answers, and has a job that waits for its agent"):
    machine.succeed("corral-vm release --later 1; systemctl restart a2a-bridge")
    machine.wait_for_unit(BRIDGE)
    machine.succeed("corral-vm mention")
    machine.succeed("systemctl stop echo-agent; corral-vm mention --no-wait")
    machine.wait_until_succeeds("a2a-bridge jobs list --state a2a_prepared | grep '!'")

with subtest("back: the installed release goes on with what the later one wrote"):
    machine.succeed("corral-vm release; corral-vm kill a2a-bridge; systemctl start echo-agent")
    machine.succeed("corral-vm mention")
    machine.wait_for_unit(BRIDGE)
    assert machine.get_unit_property(BRIDGE, "DropInPaths") == ""
    rooms(4)
    machine.succeed("a2a-bridge doctor")

with subtest("a release that leaves the installed one no way back"):
    machine.succeed("corral-vm release --later 2 --unusable; systemctl restart a2a-bridge")
    machine.wait_for_unit(BRIDGE)
    machine.succeed("corral-vm mention")

with subtest("the installed release refuses that schema, and says so"):
    machine.succeed("corral-vm release; systemctl restart --no-block a2a-bridge")
    reason = "too new for this release"
    machine.wait_until_succeeds(f"journalctl --no-pager -u a2a-bridge -o cat | grep '{reason}'")
    status, said = machine.execute("a2a-bridge doctor --json")
    found = [one for one in json.loads(said)["checks"] if one["code"] == "schema_wrong"]
    assert status == 1, said
    assert len(found) == 1, said
    assert reason in found[0]["text"], said
    machine.succeed("corral-vm mention --no-wait")

with subtest("forward again: what was said meanwhile is answered"):
    machine.succeed("corral-vm release --later 2 --unusable; systemctl restart a2a-bridge")
    machine.wait_for_unit(BRIDGE)
    machine.succeed("corral-vm mention")
    rooms(7)

machine.shutdown()
