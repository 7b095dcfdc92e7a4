"""SIGKILL of bridge, PostgreSQL and Synapse at random; every mention is answered once."""

import json
import os
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SEED = int(os.environ.get("CORRAL_SEED", "1"))
BRIDGE, LEDGER, SYNAPSE = "a2a-bridge", "postgresql", "matrix-synapse"
UNITS = (BRIDGE, LEDGER, SYNAPSE, "echo-agent", "a2a-bridge-registration")
ALWAYS = ([BRIDGE], [LEDGER], [SYNAPSE], [BRIDGE, LEDGER, SYNAPSE])
MORE = ([BRIDGE], [LEDGER], [BRIDGE, LEDGER])
RECORD = "/var/lib/corral-vm/record"
MENTIONS, ROOMS = 30, 3
SENT_WITHIN_S = 15

rng = random.Random(SEED)
print(f"CORRAL_SEED={SEED}")


def wait_for_mentions(count: int) -> None:
    machine.wait_until_succeeds(f"test $(cat {RECORD}/mentioned.jsonl | wc -l) -ge {count}")


with subtest("everything is up"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")

with subtest("kills while mentions flow"):
    machine.succeed(f"mkdir -p {RECORD}; touch {RECORD}/mentioned.jsonl")
    flow = f"--seed {SEED} --count {MENTIONS} --seconds {SENT_WITHIN_S} --rooms {ROOMS}"
    machine.succeed(f"systemd-run --unit=client corral-vm mention {flow}")
    victims = [*ALWAYS, *rng.choices(MORE, k=2)]
    rng.shuffle(victims)
    for number, units in enumerate(victims, start=1):
        wait_for_mentions(rng.randrange(number * MENTIONS // (len(victims) + 1)))
        whom = rng.choice(["", "--all "])
        machine.succeed(f"corral-vm kill {whom}{' '.join(units)}")

with subtest("every mention is answered"):
    machine.wait_for_file(f"{RECORD}/answered", timeout=600)
    assert machine.get_unit_property("client.service", "Result") == "success"

with subtest("what was said, answered and done agrees: each once"):
    status, said = machine.execute("corral-vm rooms")
    print(said)
    report = json.loads(said)
    assert status == 0, said
    assert (report["mentions"], report["answered"]) == (MENTIONS, MENTIONS)
    assert report["begun"] == MENTIONS

with subtest("all units are green, the ledger has nothing open or uncertain"):
    machine.wait_until_succeeds("test $(systemctl is-system-running) = running", timeout=300)
    for unit in UNITS:
        machine.require_unit_state(f"{unit}.service")
    machine.wait_until_succeeds("a2a-bridge doctor", timeout=300)
    assert json.loads(machine.succeed("a2a-bridge jobs list --json")) == {"jobs": []}
    listed = machine.succeed("a2a-bridge jobs list --state delivered --limit 1000 --json")
    assert len(json.loads(listed)["jobs"]) == MENTIONS

machine.shutdown()
