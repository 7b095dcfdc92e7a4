"""The disk is full: Redis stops, nothing that was acknowledged is lost, and all goes on later."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

UNITS = ("redis-cowboy", "cowboy-runner-scout", "cowboy-scout")
RECORD = "/var/lib/corral-vm/record"
MESSAGES = 40


def sent() -> int:
    return int(machine.succeed(f"cat {RECORD}/sent.jsonl | wc -l"))


with subtest("everything is up; the client keeps its record elsewhere"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")
    machine.succeed(f"mkdir -p {RECORD}; mount -t tmpfs -o size=64m none {RECORD}")
    machine.succeed("corral-vm client --seed 1 --sources echo --count 5 --seconds 0.5 --plain")

with subtest("full: Redis refuses or ends, and says so"):
    room = "$(df --output=avail -B1 / | tail -n 1)"
    machine.succeed(f"sync; fallocate -l $(({room} - 8388608)) /var/ballast")
    machine.succeed("dd if=/dev/zero of=/var/crumbs bs=4k status=none 2>/dev/null || true")
    assert machine.succeed("df --output=avail / | tail -n 1").strip() == "0"
    machine.succeed(f"rm {RECORD}/answered")
    before = sent()
    work = f"corral-vm client --seed 2 --sources echo --plain --count {MESSAGES} --seconds 4"
    machine.succeed(f"systemd-run --unit=client {work} --patience 600")
    full = "MISCONF|No space left on device|disk is full"
    machine.wait_until_succeeds(f"journalctl -b --no-pager -u redis-cowboy | grep -E '{full}'")
    assert sent() < before + MESSAGES

with subtest("there is room again: everything is sent and answered"):
    machine.succeed("rm /var/ballast /var/crumbs; sync")
    machine.wait_for_file(f"{RECORD}/answered", timeout=600)
    assert sent() >= before + MESSAGES

with subtest("what was sent, seen, done and remembered agrees"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")
    machine.succeed("systemctl stop cowboy-scout cowboy-runner-scout")
    status, said = machine.execute("corral-vm judge")
    print(said)
    assert status == 0, said
    assert json.loads(said)["summary"]["lost"] == 0

machine.shutdown()
