"""A later release of every service and back: its schema is used where it allows that, else refused.

Each ledger (bridge, gateway, cowboy) gets rows from both releases.
"""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SERVICES = ("a2a-bridge", "a2a-gateway", "cowboy-scout", "cowboy-runner-scout")
SERVERS = ("postgresql", "matrix-synapse", "redis-cowboy")
LEDGERS = {
    "a2a-gateway": "schema is version",
    "cowboy-scout": "schema is version",
    "a2a-bridge": "too new for this release",
}
MENTION = "corral-vm mention --work 0.1"


def change(release: str, services: tuple[str, ...] = SERVICES) -> None:
    """Another release under all services, none of which is asked to end what it does."""
    machine.succeed(f"corral-vm release {release}; corral-vm kill {' '.join(services)}")


def wait_for(units: tuple[str, ...]) -> None:
    for unit in units:
        machine.wait_for_unit(f"{unit}.service")


def of_later(release: str) -> None:
    """Whether the services run it; a drop-in that is not read would make all of this empty."""
    for unit in SERVICES:
        found = machine.get_unit_property(f"{unit}.service", "DropInPaths")
        assert ("release.conf" in found) is (release == "later"), f"{unit}: {found}"


with subtest("everything is up"):
    wait_for((*SERVERS, *SERVICES))
    machine.succeed(MENTION)

with subtest("a later release changes every schema, answers, and has a mention on the way"):
    change("--later 1")
    machine.succeed(MENTION)
    wait_for(SERVICES)
    of_later("later")
    machine.succeed(f"systemctl stop cowboy-runner-scout; {MENTION} --no-wait")
    machine.wait_until_succeeds("test $(corral-vm ledger | grep -c TurnRow) = 3")

with subtest("back: the installed release goes on with what the later one wrote"):
    change("", SERVICES[:3])
    machine.succeed("systemctl start cowboy-runner-scout")
    machine.succeed(MENTION)
    wait_for(SERVICES)
    of_later("installed")
    machine.wait_until_succeeds("corral doctor --timeout 200", timeout=300)

with subtest("each mention has one answer, whichever releases it met"):
    machine.succeed("systemctl stop cowboy-scout cowboy-runner-scout")
    status, said = machine.execute("corral-vm chain")
    summary = json.loads(said)["summary"]
    assert status == 0, said
    assert (summary["asked"], summary["answered"], summary["notices"]) == (4, 4, 0), said

with subtest("a release that leaves the installed one no way back"):
    machine.succeed("corral-vm release --later 2 --unusable; corral-vm kill a2a-bridge a2a-gateway")
    machine.succeed("systemctl start cowboy-runner-scout cowboy-scout")
    machine.succeed(MENTION)
    wait_for(SERVICES)

with subtest("the installed release refuses those schemas, and each service says so"):
    machine.succeed("corral-vm release; systemctl restart --no-block " + " ".join(SERVICES))
    for unit, reason in LEDGERS.items():
        machine.wait_until_succeeds(f"journalctl --no-pager -u {unit} -o cat | grep '{reason}'")
    status, said = machine.execute("a2a-bridge doctor --json")
    found = [one for one in json.loads(said)["checks"] if one["code"] == "schema_wrong"]
    assert status == 1, said
    assert len(found) == 1, said
    machine.succeed(f"{MENTION} --no-wait")

with subtest("forward again: what was said meanwhile is answered"):
    # The installed release's programs cannot look into these ledgers: the room shows the ends.
    machine.succeed("corral-vm release --later 2 --unusable")
    machine.succeed("systemctl restart " + " ".join(SERVICES), timeout=300)
    machine.succeed(MENTION)

machine.shutdown()
