"""No secret in an argument, an environment, the journal, or a file that is not there for it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.vm.names import machine, subtest

SECRETS = "/var/lib/cowboy/secrets"
WORDS, CONTROL = "/run/words-real", "/run/words-control"
PLACES = "/etc /nix /opt /run /tmp /usr/local /var"
CONTENT = "sesame-5d1f"  # in every message that the client sends
UNITS = ("redis-cowboy", "cowboy-scout", "cowboy-runner-scout")
# Files that hold a secret on purpose, for root or the one user alone.
ALLOWED = (f"{SECRETS}/", "/run/cowboy/operator-redis.env", "/run/credentials/", WORDS, CONTROL)
JOURNAL = "journalctl -b --no-pager -o export"


def holders(what: str, words: str) -> list[str]:
    """The names of the processes that have one of the words in their cmdline or environ."""
    grep = f"grep -laF -f {words} /proc/[0-9]*/{what} 2>/dev/null || true"
    return machine.succeed(f"for file in $({grep}); do cat ${{file%/*}}/comm; done").split()


def files(words: str) -> list[str]:
    found = machine.succeed(f"grep -rlF -D skip -f {words} {PLACES} 2>/dev/null || true")
    return [path for path in found.splitlines() if not path.startswith(ALLOWED)]


def in_journal(words: str) -> int:
    return int(machine.succeed(f"{JOURNAL} | grep -acF -f {words} || true"))


def wait_for_units() -> None:
    for unit in UNITS:
        machine.wait_for_unit(f"{unit}.service")


with subtest("control: what is planted is found"):
    machine.succeed(f"umask 077; cat {SECRETS}/* >{WORDS}; echo planted-b71d09c4 >{CONTROL}")
    machine.succeed(f'systemd-run --unit=argument sh -c ": $(cat {CONTROL}); sleep 600"')
    machine.succeed(f"systemd-run --unit=variable --setenv=X=$(cat {CONTROL}) sleep 600")
    machine.succeed(f"logger $(cat {CONTROL}); cp {CONTROL} /var/planted")
    assert "sh" in holders("cmdline", CONTROL)
    assert "sleep" in holders("environ", CONTROL)
    assert "/var/planted" in files(CONTROL)
    assert in_journal(CONTROL) > 0
    assert machine.succeed(f"grep -c . {WORDS}").strip() == "8"

with subtest("services are killed, started again, and carry messages"):
    wait_for_units()
    machine.succeed("corral-vm kill cowboy-scout cowboy-runner-scout")
    machine.succeed("systemctl restart redis-cowboy")
    wait_for_units()
    machine.succeed("corral-vm client --seed 1 --count 10 --seconds 1")

with subtest("no argument, no environment holds a secret"):
    assert holders("cmdline", WORDS) == []
    assert holders("environ", WORDS) == []

with subtest("nor does a file that is not there for it"):
    assert files(WORDS) == []

with subtest("nor does the journal, which holds no content of a message either"):
    assert int(machine.succeed(f"{JOURNAL} | grep -ac '_SYSTEMD_UNIT=cowboy-scout.service'")) > 0
    assert in_journal(WORDS) == 0
    assert machine.succeed(f"{JOURNAL} | grep -acF {CONTENT} || true") == "0\n"

machine.shutdown()
