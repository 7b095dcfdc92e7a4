"""The clock jumps, forward and back, while mentions are on the way: each has one end."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

UNITS = ["postgresql", "matrix-synapse", "redis-cowboy", "cowboy-runner-scout", "cowboy-scout"]
UNITS += ["a2a-gateway", "a2a-bridge"]
EFFECTS = "/var/lib/cowboy-agents/scout/effects.jsonl"
# A clock cannot be told from the time: forward, a task may run into its limit of ten minutes, and
# ends with the notice that says so.
JUMPS = ("+45 minutes", "-4 hours", "+45 minutes")
WORK_S = 6

with subtest("everything is up"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")
    machine.succeed("corral-vm mention --work 0.1")
    processes = {unit: machine.get_unit_property(f"{unit}.service", "MainPID") for unit in UNITS}

for number, jump in enumerate(JUMPS, start=1):
    with subtest(f"the clock jumps by {jump} while an agent works, and while one waits"):
        machine.succeed(f"corral-vm mention --count 2 --work {WORK_S} --no-wait")
        begun = f"test $(grep -c '\"start\"' {EFFECTS}) = {3 * number - 1}"
        machine.wait_until_succeeds(begun)
        machine.succeed(f"date -s '{jump}'")
        if jump.startswith("-"):
            # Its timers are Twisted's, which are the clock's: they would wait until it is later.
            machine.succeed("systemctl restart matrix-synapse")
        machine.succeed("corral-vm mention --work 0.1")

with subtest("nothing of ours was started again, and each mention has one end"):
    for unit, process in processes.items():
        if unit != "matrix-synapse":
            assert machine.get_unit_property(f"{unit}.service", "MainPID") == process, unit
    machine.succeed("systemctl stop cowboy-scout cowboy-runner-scout")
    said = machine.execute("corral-vm chain")[1]
    report = json.loads(said)
    # Which began first is told by the clock, too; a task that ran into its limit is ambiguous.
    others = [one["rule"] for one in report["violations"]]
    assert set(others) <= {"mention_order", "mention_job"}, said
    asked, summary = 1 + 3 * len(JUMPS), report["summary"]
    assert summary["asked"] == summary["answered"] + summary["notices"] == asked, said
    assert summary["started_twice"] == summary["doubled"] == summary["lost"] == 0, said

machine.shutdown()
