"""First boot: secrets are made once, before all that needs them, and nobody else can read them."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

AGENTS = {"scout": ("a2a", "chat", "echo"), "smith": ("echo",)}
DAEMONS = [f"cowboy-{agent}.service" for agent in AGENTS]
RUNNERS = [f"cowboy-runner-{agent}.service" for agent in AGENTS]
QUEUES = ["tamq-alice.service", "tamq-bob.service"]
UNITS = ["cowboy-ns.service", "cowboy-secrets.service", "redis-cowboy.service"]
UNITS += [*RUNNERS, *DAEMONS, *QUEUES]
SECRETS = "/var/lib/cowboy/secrets"
EXPOSURE_MAX = 2.0
CYCLES = "journalctl -b --no-pager -o cat _PID=1 | grep -c 'ordering cycle' || true"
CREDENTIALS = sorted(
    ["redis-operator", "redis-metrics"]
    + [f"redis-agent-{agent}" for agent in AGENTS]
    + [f"redis-source.{agent}.{source}" for agent in AGENTS for source in AGENTS[agent]]
)


def at(unit: str, moment: str) -> int:
    """Microseconds since the machine was started."""
    return int(machine.get_unit_property(unit, f"{moment}Monotonic"))


with subtest("everything comes up by itself"):
    for unit in UNITS:
        machine.wait_for_unit(unit)
    assert machine.succeed("systemctl --failed --no-legend --plain") == ""

with subtest("systemd left nothing out to break a cycle"):
    assert machine.succeed(CYCLES) == "0\n"

with subtest("f60 f64: what is needed is there before what needs it starts"):
    for unit in ["redis-cowboy.service", *DAEMONS]:
        for needed in ("cowboy-secrets.service", "cowboy-ns.service"):
            assert at(needed, "ActiveEnterTimestamp") <= at(unit, "ExecMainStartTimestamp"), unit
    for unit in RUNNERS:
        assert at("cowboy-ns.service", "ActiveEnterTimestamp") <= at(unit, "ExecMainStartTimestamp")

with subtest("each secret has its own value, and only root can read it"):
    assert sorted(machine.succeed(f"ls {SECRETS}").split()) == CREDENTIALS
    assert machine.succeed(f"stat -c '%U:%G %a' {SECRETS}") == "root:root 700\n"
    assert set(machine.succeed(f"stat -c '%U:%G %a' {SECRETS}/*").splitlines()) == {"root:root 400"}
    assert len(set(machine.succeed(f"cat {SECRETS}/*").split())) == len(CREDENTIALS)
    assert all(len(secret) >= 32 for secret in machine.succeed(f"cat {SECRETS}/*").split())

with subtest("the files that are made from secrets are as closed as these"):
    assert machine.succeed("stat -c '%U:%G %a' /run/cowboy/redis.acl") == (
        "redis-cowboy:redis-cowboy 400\n"
    )
    assert machine.succeed("stat -c '%U:%G %a' /run/cowboy/operator-redis.env") == "root:root 400\n"
    assert machine.succeed("stat -c '%U:%G %a' /var/lib/cowboy/scout") == (
        "cowboy-scout:cowboy-scout 700\n"
    )

with subtest("f15: nobody is let in without a password"):
    said = machine.succeed("ip netns exec cowboy-ns redis-cli ping 2>&1 || true")
    assert "NOAUTH" in said, said
    said = machine.succeed("ip netns exec cowboy-ns redis-cli --user default --pass x ping 2>&1")
    assert "WRONGPASS" in said, said
    operator = ". /run/cowboy/operator-redis.env; ip netns exec cowboy-ns redis-cli --user operator"
    assert machine.succeed(f"{operator} ping") == "PONG\n"

with subtest("a message is answered"):
    machine.succeed("corral-vm client --seed 1 --count 3 --seconds 0.1 --plain")

with subtest("f16: no identity was denied anything that it needs"):
    metrics = f"REDISCLI_AUTH=$(cat {SECRETS}/redis-metrics) ip netns exec cowboy-ns redis-cli"
    assert "role:master" in machine.succeed(f"{metrics} --user metrics info replication")
    denied = "journalctl --no-pager -o cat -u cowboy-scout -u cowboy-smith | grep -c NOPERM || true"
    assert machine.succeed(denied) == "0\n"

with subtest("f64: a second boot keeps the secrets, and all is up again"):
    before = machine.succeed(f"cat {SECRETS}/* | sha256sum")
    machine.shutdown()
    machine.start()
    for unit in UNITS:
        machine.wait_for_unit(unit)
    assert machine.succeed(f"cat {SECRETS}/* | sha256sum") == before
    assert machine.succeed(CYCLES) == "0\n"
    machine.succeed("corral-vm client --seed 2 --count 3 --seconds 0.1 --plain")

with subtest("f64: with a secret that is none, what needs it does not start"):
    secret = f"{SECRETS}/redis-agent-scout"
    machine.succeed(f"systemctl stop {' '.join(DAEMONS)} redis-cowboy cowboy-rotate.path")
    machine.succeed(f"cp -p {secret} /run/kept; echo short >{secret}")
    machine.fail("systemctl restart cowboy-secrets")
    machine.fail("systemctl start cowboy-scout")
    assert machine.get_unit_property("cowboy-scout.service", "ActiveState") != "active"
    machine.succeed("journalctl --no-pager -u cowboy-secrets | grep -F 'must hold 16 to 512'")
    machine.succeed(f"cp -p /run/kept {secret}; rm /run/kept")
    machine.succeed(f"systemctl start cowboy-secrets {' '.join(DAEMONS)} cowboy-rotate.path")
    for unit in UNITS:
        machine.wait_for_unit(unit)

with subtest("the daemon is exposed to little"):
    for unit in DAEMONS:
        said = machine.succeed(f"systemd-analyze security --no-pager {unit} | tail -n 1")
        assert float(said.split(":")[1].split()[0]) <= EXPOSURE_MAX, said

machine.shutdown()
