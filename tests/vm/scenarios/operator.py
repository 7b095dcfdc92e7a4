"""The operator's commands, as root from outside the namespace; faults that `doctor` must name."""

import json
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SECRETS = "/var/lib/cowboy/secrets"


def doctor() -> dict[str, str]:
    """What is not green, by check."""
    _, said = machine.execute("cowboy doctor scout --json")
    (report,) = json.loads(said)["agents"]
    return {
        one["check"]: one["text"]
        for one in report["checks"]
        if one["result"] not in ("ok", "absent")
    }


def refused(command: str, reason: str) -> None:
    status, said = machine.execute(f"({command}) 2>&1")
    assert status != 0, f"`{command}` was not refused: {said}"
    assert reason in said, f"`{command}` failed for another reason: {said}"


def as_user(user: str, command: str) -> str:
    return f"setpriv --reuid {user} --regid {user} --init-groups -- bash -c {shlex.quote(command)}"


with subtest("everything is up, and the doctor finds nothing"):
    for unit in ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout"):
        machine.wait_for_unit(f"{unit}.service")
    # A machine that was frozen gets its clock set, which the doctor would rightly name.
    machine.systemctl("restart cowboy-scout.service")
    machine.wait_until_succeeds("cowboy status scout")
    machine.wait_until_succeeds(f"cowboy doctor scout --probe-acl {SECRETS}")

with subtest("the commands enter the namespace by themselves"):
    source = next(
        iter(json.loads(machine.succeed("cat /etc/cowboy/scout/sources.json"))["sources"])
    )
    sent = json.loads(machine.succeed(f"cowboy send scout {source} --content hello --json"))
    entry = f"{sent['entry_id']} --source {source}"
    machine.wait_until_succeeds(f"cowboy explain scout {entry} | grep -q ': answered'")
    refused(f"cowboy resubmit scout {entry} --reconciled x", "has a reply")
    status = json.loads(machine.succeed("cowboy status scout --json"))["agents"][0]
    assert status["redis_error"] is None, status
    machine.succeed("cowboy turns list scout")

with subtest("other users are told why not"):
    for user in ("scout", "cowboy-scout"):
        refused(as_user(user, f"cowboy send scout {source} --content x"), "Permission denied")

with subtest("faults that were planted are named, each by its check"):
    machine.succeed("chmod 0644 /var/lib/cowboy/scout/ledger.db")
    machine.succeed("date -s '+1 hour'")
    findings = doctor()
    for check, words in (
        ("files", "/var/lib/cowboy/scout/ledger.db has mode 0644"),
        ("clock", "the clock was set by +3"),
    ):
        assert words in findings.get(check, ""), f"{check} is not found: {findings}"

machine.shutdown()
