"""No secret in an argument, an environment, the journal, or a file that is not there for it."""

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SECRETS = "/var/lib/cowboy/secrets"
WORDS, CONTROL = "/run/words-real", "/run/words-control"
CONTENT = "sesame-5d1f"  # in every message that the client sends
UNITS = ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout")
# Files that hold a secret on purpose, for root or the one user alone.
ALLOWED = (f"{SECRETS}/", "/run/cowboy/operator-redis.env", "/run/credentials/", WORDS, CONTROL)
JOURNAL = "journalctl -b --no-pager -o export"
NOWHERE = {"cmdline": [], "environ": [], "files": [], "journal": 0}


def leaks(words: str) -> dict[str, Any]:
    allowed = " ".join(f"--allow {path}" for path in ALLOWED)
    found: dict[str, Any] = json.loads(machine.execute(f"corral-vm leaks {words} {allowed}")[1])
    return found


def wait_for_units() -> None:
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")


with subtest("control: what is planted is found"):
    machine.succeed(f"umask 077; cat {SECRETS}/* >{WORDS}; echo planted-b71d09c4 >{CONTROL}")
    machine.succeed(f"corral-vm plant {CONTROL}")
    found = leaks(CONTROL)
    assert "sh" in found["cmdline"], found
    assert "sleep" in found["environ"], found
    assert "/var/planted" in found["files"], found
    assert found["journal"] > 0, found
    assert machine.succeed(f"grep -c . {WORDS}").strip() == "8"

with subtest("services are killed, started again, and carry messages"):
    wait_for_units()
    machine.succeed("corral-vm kill cowboy-scout cowboy-runner-scout")
    machine.succeed("systemctl restart redis-cowboy")
    wait_for_units()
    machine.succeed("corral-vm client --seed 1 --count 10 --seconds 1")

with subtest("no argument, environment, journal holds a secret, nor a file that is not for it"):
    assert leaks(WORDS) == NOWHERE

with subtest("the journal holds no content of a message either"):
    assert int(machine.succeed(f"{JOURNAL} | grep -ac '_SYSTEMD_UNIT=cowboy-scout.service'")) > 0
    assert machine.succeed(f"{JOURNAL} | grep -acF {CONTENT} || true") == "0\n"

machine.shutdown()
