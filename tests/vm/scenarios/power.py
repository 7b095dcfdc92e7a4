"""Power failures while clients send: the machine boots again from its disk, and nothing is lost."""

import json
import os
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SEED = int(os.environ.get("CORRAL_SEED", "1"))
UNITS = ("redis-cowboy", "cowboy-runner-scout", "cowboy-scout")
RECORD = "/var/lib/corral-vm/record"
MESSAGES = 40
FAILURES = 2

rng = random.Random(SEED)
print(f"CORRAL_SEED={SEED}")


def client(number: int) -> str:
    return f"corral-vm client --seed {SEED + number} --count {MESSAGES} --seconds 8"


with subtest("everything is up"):
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")

for number in range(FAILURES):
    with subtest(f"power failure {number + 1}, while messages flow"):
        machine.succeed(f"mkdir -p {RECORD}; touch {RECORD}/sent.jsonl; sync")
        before = int(machine.succeed(f"cat {RECORD}/sent.jsonl | wc -l"))
        machine.succeed(f"systemd-run --unit=client {client(number)}")
        count = before + rng.randrange(1, MESSAGES)
        machine.wait_until_succeeds(f"test $(cat {RECORD}/sent.jsonl | wc -l) -ge {count}")
        machine.succeed("corral-vm note")
        machine.crash()
        machine.start()
        for unit in UNITS:
            machine.wait_for_unit(f"{unit}.service")
        assert int(machine.succeed(f"cat {RECORD}/sent.jsonl | wc -l")) >= count

with subtest("everything that was sent before is answered, and new messages are"):
    machine.succeed("corral-vm client --seed 1 --count 5 --seconds 0.5 --plain", timeout=700)

with subtest("what was sent, seen, done and remembered agrees"):
    machine.succeed("systemctl stop cowboy-scout cowboy-runner-scout")
    status, said = machine.execute("corral-vm judge")
    print(said)
    assert status == 0, said
    summary = json.loads(said)["summary"]
    assert summary["lost"] == summary["duplicated"] == 0

machine.shutdown()
