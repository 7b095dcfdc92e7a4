"""No secret in an argument, an environment, the journal, or a file that is not there for it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SECRETS = "/var/lib/cowboy/secrets"
WORDS = "/run/planted"
PLACES = "/etc /nix /opt /run /tmp /usr/local /var"
CONTENT = "sesame-5d1f"  # in every message that the client sends
# Files that hold a secret on purpose, for root or the one user alone.
ALLOWED = (f"{SECRETS}/", "/run/cowboy/operator-redis.env", "/run/credentials/", WORDS)


def holders(what: str) -> list[str]:
    """The processes that have a secret in a file of /proc, as `PID name`."""
    return machine.succeed(
        f"for p in /proc/[0-9]*; do if tr '\\0' '\\n' <$p/{what} 2>/dev/null | grep -qF -f {WORDS};"
        " then echo ${p#/proc/} $(cat $p/comm); fi; done"
    ).splitlines()


def files() -> list[str]:
    found = machine.succeed(f"grep -rIlF -D skip -f {WORDS} {PLACES} 2>/dev/null || true")
    return [path for path in found.splitlines() if not path.startswith(ALLOWED)]


with subtest("everything is up, and messages with a planted word are answered"):
    for unit in ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout"):
        machine.wait_for_unit(f"{unit}.service")
    machine.succeed("corral-vm client --seed 1 --count 8 --seconds 1 --plain")
    machine.succeed(f"umask 077; cat {SECRETS}/* >{WORDS}")

with subtest("control: what is planted is found"):
    secret = "$(cat /var/lib/cowboy/secrets/redis-metrics)"
    machine.succeed(f"systemd-run --unit=argument sh -c ': {secret}; sleep 600'")
    machine.succeed(f"systemd-run --unit=variable --setenv=X={secret} sleep 600")
    machine.succeed(f"logger {secret}; echo {secret} >/var/planted")
    assert any(line.endswith(" sh") for line in holders("cmdline"))
    assert any(line.endswith(" sleep") for line in holders("environ"))
    assert files() == ["/var/planted"]
    assert machine.succeed(f"journalctl -b --no-pager | grep -cF -f {WORDS}").strip() != "0"
    machine.succeed("systemctl stop argument variable; rm /var/planted")
    machine.succeed(
        "journalctl --rotate; journalctl --vacuum-time=1s; rm -f /run/systemd/transient/*"
    )

with subtest("no argument, no environment holds a secret"):
    assert holders("cmdline") == []
    assert holders("environ") == []

with subtest("nor does a file that is not there for it"):
    assert files() == []

with subtest("nor does the journal, which holds no content of a message either"):
    machine.succeed("systemctl restart redis-cowboy cowboy-secrets")
    for unit in ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout"):
        machine.wait_for_unit(f"{unit}.service")
    machine.succeed("corral-vm client --seed 2 --count 8 --seconds 1")
    machine.succeed("corral-vm kill cowboy-scout; corral-vm kill cowboy-runner-scout")
    machine.succeed("corral-vm client --seed 3 --count 3 --seconds 1 --plain")
    log = "journalctl -b --no-pager -o export"
    machine.succeed(f"{log} | grep -c cowboy")
    assert machine.succeed(f"{log} | grep -cF -f {WORDS} || true") == "0\n"
    assert machine.succeed(f"{log} | grep -cF {CONTENT} || true") == "0\n"

machine.shutdown()
