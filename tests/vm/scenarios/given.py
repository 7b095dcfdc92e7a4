"""f64: secrets that are given as files, what of them reaches a run, and replacing one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

NS = "agents-ns"
UNITS = ["cowboy-ns", "cowboy-secrets", "redis-cowboy", "cowboy-runner-scout", "cowboy-scout"]
REDIS = f"ip netns exec {NS} redis-cli --user operator"
OUTBOX = f". /run/cowboy/operator-redis.env; {REDIS} XRANGE scout:a2a:outbox - +"


def wait_for_units() -> None:
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")


def hashed(secret: str) -> str:
    return machine.succeed(f"printf %s {secret} | sha256sum | cut -d ' ' -f 1").strip()


with subtest("all is up with the secrets that were given, and the rest is made"):
    wait_for_units()
    made = machine.succeed("ls /var/lib/cowboy/secrets").split()
    assert made == ["redis-metrics", "redis-source.scout.a2a"], made
    for secret in ("given-to-the-agents-daemon", "given-to-the-operator"):
        machine.succeed(f"grep -q {hashed(secret)} /run/cowboy/redis.acl")

with subtest("a run has what is the agent's, and reaches what it may"):
    for port in (443, 444):
        listen = f"python3 -m http.server {port} --bind 169.254.77.1"
        machine.succeed(f"systemd-run --quiet --unit=listen-{port} {listen}")
        machine.wait_until_succeeds(f"bash -c '</dev/tcp/169.254.77.1/{port}'")
    machine.succeed("cowboy send scout a2a --content probe")
    machine.wait_until_succeeds(f"{OUTBOX} | grep -q in_reply_to")
    said = machine.succeed(f"{OUTBOX} | grep key=")
    assert "key=planted-in-a-variable file=planted-in-a-file user=scout" in said, said
    assert "services=0 allowed=yes other=no" in said, said

with subtest("the daemon has none of it"):
    pid = machine.get_unit_property("cowboy-scout.service", "MainPID")
    assert "API_KEY" not in machine.succeed(f"tr '\\0' '\\n' </proc/{pid}/environ")
    assert machine.succeed("ls /run/credentials/cowboy-scout.service") == "redis-password\n"
    assert machine.succeed("ls /run/credentials/cowboy-runner-scout.service") == "api-key\n"

with subtest("metrics have a place that the daemon writes"):
    assert machine.succeed("stat -c '%U:%G %a' /var/lib/metrics") == "root:corral-metrics 1775\n"
    pid = machine.get_unit_property("cowboy-scout.service", "MainPID")
    group = machine.succeed("getent group corral-metrics | cut -d : -f 3").strip()
    assert group in machine.succeed(f"grep ^Groups: /proc/{pid}/status").split()

with subtest("f64: a secret that is replaced takes effect by itself, and the old one is refused"):
    before = machine.get_unit_property("redis-cowboy.service", "MainPID")
    new = "another-one-for-the-operator"
    machine.succeed(f"echo {new} >/run/given/next; mv /run/given/next /run/given/redis-operator")
    machine.wait_until_succeeds(f"grep -q {hashed(new)} /run/cowboy/redis.acl")
    wait_for_units()
    machine.wait_until_succeeds(f"REDISCLI_AUTH={new} {REDIS} ping | grep PONG")
    assert machine.get_unit_property("redis-cowboy.service", "MainPID") != before
    said = machine.succeed(f"REDISCLI_AUTH=given-to-the-operator {REDIS} ping 2>&1 || true")
    assert "WRONGPASS" in said, said
    machine.succeed("cowboy send scout a2a --content again")
    machine.wait_until_succeeds(f"test $({OUTBOX} | grep -c in_reply_to) = 2")

machine.shutdown()
