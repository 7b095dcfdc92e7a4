"""SIGKILL of every service between a mention and its answer, of each, and of all at once."""

import json
import os
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SEED = int(os.environ.get("CORRAL_SEED", "1"))
SERVERS = ("matrix-synapse", "postgresql", "redis-cowboy")
OURS = ("a2a-bridge", "a2a-gateway", "cowboy-scout", "cowboy-runner-scout")
ALL = [*SERVERS, *OURS]
RECORD = "/var/lib/corral-vm/record"
MENTIONS, ROOMS = 30, 3
SENT_WITHIN_S = 15

rng = random.Random(SEED)
print(f"CORRAL_SEED={SEED}")


def wait_for_mentions(count: int) -> None:
    said = f"test $(cat {RECORD}/mentioned.jsonl | wc -l) -ge {count}"
    machine.wait_until_succeeds(said, timeout=600)


with subtest("everything is up"):
    for unit in ALL:
        machine.wait_for_unit(f"{unit}.service")

with subtest("kills while mentions flow"):
    machine.succeed(f"mkdir -p {RECORD}; touch {RECORD}/mentioned.jsonl")
    flow = f"--seed {SEED} --count {MENTIONS} --seconds {SENT_WITHIN_S} --rooms {ROOMS} --work 0.5"
    machine.succeed(f"systemd-run --unit=client corral-vm mention {flow}")
    victims = [*([one] for one in ALL), ALL]
    rng.shuffle(victims)
    for number, units in enumerate(victims, start=1):
        wait_for_mentions(rng.randrange(number * MENTIONS // (len(victims) + 1)))
        whom = rng.choice(["", "--all "])
        machine.succeed(f"corral-vm kill {whom}{' '.join(units)}")

with subtest("every mention has its end: an answer, or a notice"):
    machine.wait_for_file(f"{RECORD}/answered", timeout=900)
    assert machine.get_unit_property("client.service", "Result") == "success"

with subtest("what was said, answered and done agrees: each once, and nothing is left on the way"):
    machine.succeed("systemctl stop cowboy-scout cowboy-runner-scout")
    said = machine.execute("corral-vm chain")[1]
    print(said)
    report = json.loads(said)
    summary = report["summary"]
    # What a killed Synapse never delivered is found later than what was said after it.
    broken = [one for one in report["violations"] if one["rule"] != "mention_order"]
    assert broken == [], said
    assert summary["asked"] == MENTIONS, said
    assert summary["answered"] + summary["notices"] == MENTIONS, said
    assert summary["answered"] > 0, said

with subtest("all is green again"):
    machine.succeed("systemctl start cowboy-runner-scout cowboy-scout")
    machine.wait_until_succeeds("test $(systemctl is-system-running) = running", timeout=300)
    machine.wait_until_succeeds("corral doctor", timeout=300)

machine.shutdown()
