"""SIGKILL of the daemon, the runner, Redis, all of them, at random while clients send."""

import json
import os
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SEED = int(os.environ.get("CORRAL_SEED", "1"))
DAEMON, RUNNER, REDIS = "cowboy-scout", "cowboy-runner-scout", "redis-cowboy"
VICTIMS = ([DAEMON], [RUNNER], [REDIS], [DAEMON, REDIS], [DAEMON, RUNNER], [DAEMON, RUNNER, REDIS])
RECORD = "/var/lib/corral-vm/record"
MESSAGES = 60
SENT_WITHIN_S = 15

rng = random.Random(SEED)
print(f"CORRAL_SEED={SEED}")


def wait_for_sent(count: int) -> None:
    machine.wait_until_succeeds(f"test $(cat {RECORD}/sent.jsonl | wc -l) -ge {count}", timeout=600)


with subtest("everything is up"):
    for unit in (DAEMON, RUNNER, REDIS):
        machine.wait_for_unit(f"{unit}.service")

with subtest("kills while messages flow"):
    machine.succeed(f"mkdir -p {RECORD}; touch {RECORD}/sent.jsonl")
    client = f"corral-vm client --seed {SEED} --count {MESSAGES} --seconds {SENT_WITHIN_S}"
    machine.succeed(f"systemd-run --unit=client {client}")
    victims = [*VICTIMS, *rng.choices(VICTIMS, k=2)]
    rng.shuffle(victims)
    for number, units in enumerate(victims, start=1):
        wait_for_sent(rng.randrange(number * MESSAGES // (len(victims) + 1)))
        whom = rng.choice(["", "--all "])
        machine.succeed(f"corral-vm kill {whom}{' '.join(units)}")

with subtest("every message is answered once"):
    machine.wait_for_file(f"{RECORD}/answered", timeout=600)
    assert machine.get_unit_property("client.service", "Result") == "success"

with subtest("what was sent, seen, done and remembered agrees"):
    machine.succeed(f"systemctl stop {DAEMON} {RUNNER}")
    status, said = machine.execute("corral-vm judge")
    print(said)
    summary = json.loads(said)["summary"]
    assert status == 0, said
    assert summary["sent"] >= MESSAGES
    assert (summary["lost"], summary["duplicated"], summary["order_violations"]) == (0, 0, 0)
    assert summary["kills"] >= len(victims)

machine.shutdown()
