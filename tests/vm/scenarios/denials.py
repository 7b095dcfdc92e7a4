"""Who may do what, inside and outside the namespace and as other users, and why not."""

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SECRETS = "/var/lib/cowboy/secrets"
INSIDE = "ip netns exec cowboy-ns"


def refused(command: str, reason: str) -> None:
    """The command fails, and says why: a denial for another reason proves nothing."""
    status, said = machine.execute(f"({command}) 2>&1")
    assert status != 0, f"`{command}` was not refused: {said}"
    assert reason in said, f"`{command}` failed for another reason: {said}"


def as_user(user: str, command: str) -> str:
    return f"setpriv --reuid {user} --regid {user} --init-groups -- bash -c {shlex.quote(command)}"


def redis(identity: str, words: str) -> str:
    """A command of an identity; an error that Redis answers is a failure."""
    secret = f"REDISCLI_AUTH=$(cat {SECRETS}/redis-{identity})"
    return f"{secret} {INSIDE} redis-cli -e --no-auth-warning --user {identity} {words}"


def denied(identity: str, words: str) -> None:
    refused(redis(identity, words), "NOPERM")


with subtest("everything is up"):
    for unit in ("redis-cowboy", "cowboy-scout", "cowboy-smith", "cowboy-runner-smith"):
        machine.wait_for_unit(f"{unit}.service")
    machine.succeed("corral-vm client --seed 1 --count 3 --seconds 0.3 --plain")

with subtest("from outside, there is no Redis"):
    machine.succeed(f"{INSIDE} nc -z -w 2 127.0.0.1 6379")
    refused("nc -zv -w 2 127.0.0.1 6379", "Connection refused")
    refused("nc -zv -w 2 localhost 6379", "Connection refused")

with subtest("from inside, there is nothing else"):
    machine.succeed("systemd-run --unit=outside nc -lk 127.0.0.1 7000")
    machine.wait_for_open_port(7000)
    refused(f"{INSIDE} nc -zv -w 2 127.0.0.1 7000", "Connection refused")
    refused(f"{INSIDE} nc -zv -w 2 10.0.2.2 80", "unreachable")

with subtest("no other user enters the namespace"):
    machine.succeed("nsenter --net=/run/netns/cowboy-ns true")
    for user in ("scout", "smith", "cowboy-scout"):
        command = as_user(user, "nsenter --net=/run/netns/cowboy-ns true")
        refused(command, "Operation not permitted")

with subtest("each identity has its own keys, and no others"):
    machine.succeed(redis("agent-scout", "xrange scout:a2a:inbox - + count 1"))
    denied("agent-scout", "xrange smith:echo:inbox - + count 1")
    denied("agent-smith", "xadd scout:a2a:outbox '*' content x")
    machine.succeed(redis("source.smith.echo", "xadd smith:echo:inbox '*' content x sender y"))
    denied("source.smith.echo", "xadd scout:echo:inbox '*' content x")
    denied("source.smith.echo", "xrange smith:echo:inbox - +")
    denied("source.scout.a2a", "xreadgroup group source r streams scout:chat:outbox '>'")
    machine.succeed(redis("operator", "xrange smith:echo:inbox - + count 1"))
    denied("operator", "del smith:echo:inbox")
    denied("operator", "xadd smith:echo:outbox '*' content x")
    machine.succeed(redis("metrics", "xlen smith:echo:inbox"))
    denied("metrics", "xrange smith:echo:inbox - +")

with subtest("no identity rewrites the rules or leaves its place"):
    for identity in ("agent-scout", "source.scout.a2a", "operator", "metrics"):
        machine.succeed(redis(identity, "ping"))
        denied(identity, "acl setuser evil on nopass allkeys allcommands")
        denied(identity, "config set requirepass x")
        denied(identity, "flushall")
        denied(identity, "client kill type normal")

with subtest("a wrong password is told apart from a missing right"):
    wrong = f"REDISCLI_AUTH=wrong {INSIDE} redis-cli -e --no-auth-warning --user agent-scout ping"
    refused(wrong, "WRONGPASS")
    refused(f"{INSIDE} redis-cli -e ping", "NOAUTH")

with subtest("files of one are closed to the other"):
    for closed in (f"{SECRETS}/redis-agent-scout", "/run/cowboy/redis.acl"):
        machine.succeed(f"cat {closed} >/dev/null")
        for user in ("scout", "smith", "cowboy-scout"):
            refused(as_user(user, f"cat {closed}"), "Permission denied")
    machine.succeed(as_user("cowboy-scout", "cat /var/lib/cowboy/scout/ledger.db >/dev/null"))
    for user in ("scout", "smith", "cowboy-smith"):
        command = as_user(user, "cat /var/lib/cowboy/scout/ledger.db")
        refused(command, "Permission denied")
    machine.succeed(as_user("scout", "ls /var/lib/cowboy-agents/scout"))
    for user in ("smith", "cowboy-scout"):
        refused(as_user(user, "ls /var/lib/cowboy-agents/scout"), "Permission denied")

with subtest("sockets of one are closed to the other"):
    machine.succeed("cowboy status scout")
    machine.succeed(as_user("cowboy-scout", "nc -z -U /run/cowboy-runner/scout/runner.sock"))
    for user in ("smith", "cowboy-smith"):
        command = as_user(user, "nc -zv -U /run/cowboy-runner/scout/runner.sock")
        refused(command, "Permission denied")
        refused(as_user(user, "cowboy turns list scout"), "no permission to use")

with subtest("processes of one are closed to the other"):
    pid = machine.get_unit_property("cowboy-scout.service", "MainPID")
    machine.succeed(as_user("cowboy-scout", f"kill -0 {pid}"))
    for user in ("scout", "smith", "cowboy-smith"):
        refused(as_user(user, f"kill -0 {pid}"), "Operation not permitted")
        refused(as_user(user, f"cat /proc/{pid}/environ"), "Permission denied")

machine.shutdown()
