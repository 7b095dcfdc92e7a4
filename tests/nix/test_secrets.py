"""The script that makes secrets and joins the ACL, run as it is, in a folder of the test's own."""

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.nix import nix

SCRIPT = nix.ROOT / "modules" / "secrets.sh"
ACL = (
    "user default off resetpass ~* resetchannels -@all +@write\n"
    "user agent-a on #@redis-agent-a@ resetchannels -@all ~a:* +get\n"
    "user operator on #@redis-operator@ resetchannels -@all %R~* +get (%W~*:inbox +xadd)\n"
)
# Restarts as systemd does: one after the other, and where it fails none of its holders is started.
SYSTEMCTL = """#!/bin/bash
case $* in
  "show --property=RequiredBy"*) echo redis-cowboy.service cowboy-a.service stopped.service; exit ;;
  "show --property=ActiveState"*stopped.service) echo inactive; exit ;;
  "show --property=ActiveState"*) cat {place}/state 2>/dev/null || echo active; exit ;;
esac
chmod u+w {place}/restarted
echo "$@" >>{place}/restarted
case $* in
  restart*)
    if [ -x {place}/meanwhile ]; then {place}/meanwhile; fi
    RESTART= bash {script} || {{ echo inactive >{place}/state; exit 1; }} ;;
  *start*) rm -f {place}/state ;;
esac
"""
MADE = re.compile(r"[0-9a-f-]{72}")
GOOD = "given-" + "x" * 26


@dataclass
class Place:
    """A host's directories, and the script's environment."""

    root: Path

    def __post_init__(self) -> None:
        for name in ("secrets", "run", "bin", "given"):
            (self.root / name).mkdir()
        self.file("acl.in").write_text(ACL)
        self.listed("redis-agent-a made", "redis-operator made")
        self.restarted = self.file("restarted")
        self.restarted.touch()
        systemctl = self.file("bin/systemctl")
        systemctl.write_text(SYSTEMCTL.format(place=self.root, script=SCRIPT))
        systemctl.chmod(0o755)

    def file(self, name: str) -> Path:
        return self.root / name

    def listed(self, *lines: str) -> None:
        text = "".join(
            f"{name} {self.root}/{'secrets' if how == 'made' else 'given'}/{name} {how}\n"
            for name, how in (line.split() for line in lines)
        )
        self.file("list").write_text(text)

    @property
    def environment(self) -> Mapping[str, str]:
        owner = f"{os.getuid()}:{os.getgid()}"
        return {
            "PATH": f"{self.root}/bin:{os.environ['PATH']}",
            "SECRETS": f"{self.root}/list",
            "SECRETS_DIRECTORY": f"{self.root}/secrets",
            "ACL": f"{self.root}/acl.in",
            "ACL_FILE": f"{self.root}/run/redis.acl",
            "ACL_OWNER": owner,
            "OPERATOR_FILE": f"{self.root}/run/operator-redis.env",
            "OPERATOR_OWNER": owner,
            "REDIS_URL": "redis://127.0.0.1:6379",
            "REDIS_NETNS": "cowboy-ns",
            "HELD": f"{self.root}/run/held",
            "PAUSE_S": "0",
        }

    def run(self, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SCRIPT)],
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def replaced(self, name: str, secret: str = GOOD) -> None:
        self.file(f"secrets/{name}").chmod(0o600)
        self.file(f"secrets/{name}").write_text(secret)

    def meanwhile(self, command: str) -> None:
        """What somebody does just when the unit is restarted."""
        self.file("meanwhile").write_text(f"#!/bin/sh\n{command}\n")
        self.file("meanwhile").chmod(0o755)

    def good(self) -> None:
        done = self.run()
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def secret(self, name: str) -> str:
        return self.file(f"secrets/{name}").read_text().removesuffix("\n")

    @property
    def acl(self) -> str:
        return self.file("run/redis.acl").read_text()

    @property
    def restarts(self) -> list[str]:
        return self.restarted.read_text().splitlines() if self.restarted.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_first_boot_makes_secrets_that_differ_and_joins_their_hashes(place: Place) -> None:
    place.good()
    agent, operator = place.secret("redis-agent-a"), place.secret("redis-operator")
    assert MADE.fullmatch(agent)
    assert MADE.fullmatch(operator)
    assert agent != operator
    assert place.acl == ACL.replace("@redis-agent-a@", sha256(agent)).replace(
        "@redis-operator@", sha256(operator)
    )
    assert place.file("run/operator-redis.env").read_text() == (
        f"export REDIS_URL=redis://127.0.0.1:6379\nexport REDISCLI_AUTH={operator}\n"
        "export COWBOY_REDIS_NETNS=cowboy-ns\n"
    )


def test_only_the_owner_reads_what_is_written(place: Place) -> None:
    place.good()
    written = [*place.file("secrets").iterdir(), *place.file("run").iterdir()]
    assert len(written) == 4
    assert {mode(path) for path in written} == {0o400}


def test_the_next_boot_changes_no_secret(place: Place) -> None:
    place.good()
    before = place.secret("redis-agent-a"), place.secret("redis-operator"), place.acl
    place.good()
    assert (place.secret("redis-agent-a"), place.secret("redis-operator"), place.acl) == before


def test_what_a_killed_start_left_behind_is_replaced(place: Place) -> None:
    """Half a secret, and files that even their owner may not write."""
    place.file("secrets/.new").mkdir()
    for name in ("secrets/.new/redis-agent-a", "run/redis.acl.new", "run/operator-redis.env.new"):
        place.file(name).write_text("half")
        place.file(name).chmod(0o400)
    place.good()
    assert MADE.fullmatch(place.secret("redis-agent-a"))
    assert not [*place.root.rglob("*.new")]
    assert not place.file("secrets/.new").exists()


@pytest.mark.parametrize("ending", ["", "\n"])
def test_a_given_secret_is_used_as_it_is(place: Place, ending: str) -> None:
    place.listed("redis-agent-a given", "redis-operator made")
    place.file("given/redis-agent-a").write_text(GOOD + ending)
    place.good()
    assert sha256(GOOD) in place.acl
    assert place.file("given/redis-agent-a").read_text() == GOOD + ending


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("x" * 16, True),
        ("x" * 15, False),
        ("x" * 512, True),
        ("x" * 513, False),
        ("AZaz09._~+/=-----", True),
        ("spaces are not for me", False),
        ("x'; rm -rf / ; echo '", False),
        ("two-lines-are-one\ntoo-many-of-them", False),
        ("", False),
    ],
)
def test_a_given_secret_at_the_limits(place: Place, text: str, taken: bool) -> None:
    place.listed("redis-agent-a given", "redis-operator made")
    place.file("given/redis-agent-a").write_text(text)
    done = place.run()
    assert (done.returncode == 0) is taken
    if not taken:
        assert done.stderr == (
            f"{place.root}/given/redis-agent-a: must hold 16 to 512 of "
            "A-Z a-z 0-9 . _ ~ + / = - in one line\n"
        )
        assert not place.file("run/redis.acl").exists()


def test_a_given_secret_that_is_missing_is_named_and_never_made(place: Place) -> None:
    place.listed("redis-agent-a given", "redis-operator made")
    done = place.run()
    assert done.returncode == 1
    assert done.stderr.startswith(f"{place.root}/given/redis-agent-a: there is no such secret")
    assert not place.file("given/redis-agent-a").exists()


def test_a_placeholder_without_a_secret_ends_the_start(place: Place) -> None:
    place.file("acl.in").write_text("user x on #@redis-x@\n")
    done = place.run()
    assert done.returncode != 0
    assert not place.file("run/redis.acl").exists()


RESTART = "restart cowboy-secrets.service"
START = "--no-block start cowboy-a.service redis-cowboy.service"


def watch(place: Place) -> subprocess.CompletedProcess[str]:
    return place.run(RESTART="cowboy-secrets.service")


def test_a_watch_restarts_only_when_a_secret_was_replaced(place: Place) -> None:
    """F64: a credential is rotated, and nobody restarts what holds it."""
    place.good()
    assert watch(place).returncode == 0
    assert place.restarts == []
    place.replaced("redis-agent-a")
    assert watch(place).returncode == 0
    assert place.restarts == [RESTART, START]
    assert sha256(GOOD) in place.acl
    assert not place.file("run/held").exists()


def test_a_watch_has_a_deleted_secret_made_again_by_the_unit(place: Place) -> None:
    place.good()
    before = place.secret("redis-operator")
    place.file("secrets/redis-operator").unlink()
    assert watch(place).returncode == 0
    assert place.restarts == [RESTART, START]
    assert place.secret("redis-operator") != before


def test_who_ran_before_a_restart_that_failed_runs_after_one_that_does_not(place: Place) -> None:
    """A file is away for a moment: the unit fails, and none that needs it is started by systemd."""
    place.listed("redis-agent-a given", "redis-operator made")
    given = place.file("given/redis-agent-a")
    given.write_text(GOOD)
    place.good()
    given.write_text(f"another-{GOOD}")
    place.meanwhile(
        f"if [ -e {given} ]; then mv {given} {given}.away; else mv {given}.away {given}; fi"
    )
    done = watch(place)
    assert done.returncode == 0, done.stderr
    assert place.restarts == [RESTART, RESTART, START]
    assert not place.file("run/held").exists()


def test_a_watch_that_was_killed_goes_on(place: Place) -> None:
    place.good()
    place.file("run/held").write_text("cowboy-a.service\n")
    place.file("state").write_text("inactive\n")
    assert watch(place).returncode == 0
    assert place.restarts == [RESTART, "--no-block start cowboy-a.service"]


def test_what_is_replaced_during_a_restart_is_seen(place: Place) -> None:
    """systemd does not look at the files while the watch works."""
    place.good()
    place.replaced("redis-agent-a")
    agent, other = (place.file(f"secrets/{name}") for name in ("redis-agent-a", "redis-operator"))
    place.meanwhile(f"if [ -e {other}.once ]; then exit; fi; touch {other}.once; rm {other}")
    assert watch(place).returncode == 0
    assert place.restarts == [RESTART, START]
    assert sha256(agent.read_text()) in place.acl
    assert sha256(other.read_text().strip()) in place.acl


def test_a_malformed_secret_restarts_nothing(place: Place) -> None:
    place.good()
    place.replaced("redis-agent-a", "short")
    done = watch(place)
    assert done.returncode == 1
    assert "must hold 16 to 512" in done.stderr
    assert place.restarts == []


def test_a_secret_that_is_deleted_while_others_are_made_is_made(place: Place) -> None:
    place.listed(*(f"redis-{name} made" for name in ("a", "b", "c")))
    place.file("acl.in").write_text("user b on #@redis-b@\n")
    sync = place.file("bin/sync")
    once = place.file("once")
    sync.write_text(
        f"#!/bin/sh\n[ -e {once} ] || {{ [ -e {place.root}/secrets/redis-b ] && "
        f"touch {once} && rm -f {place.root}/secrets/redis-b; }}; exec /bin/sync\n"
    )
    sync.chmod(0o755)
    place.good()
    assert once.exists()
    assert sha256(place.secret("redis-b")) in place.acl


def test_no_program_gets_a_secret_as_an_argument(place: Place) -> None:
    """Each program that the script starts is replaced by one that writes its arguments down."""
    heard = place.file("heard")
    heard.touch()  # the script's umask would make it one that only root can write to again
    for program in ("sha256sum", "chown", "mv", "sync", "mkdir", "rm", "rmdir"):
        real = subprocess.run(
            ["sh", "-c", f"command -v {program}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        wrapper = place.file(f"bin/{program}")
        wrapper.write_text(f'#!/bin/sh\necho "{program} $*" >>{heard}\nexec {real} "$@"\n')
        wrapper.chmod(0o755)
    place.good()
    said = heard.read_text()
    assert "sha256sum" in said
    for name in ("redis-agent-a", "redis-operator"):
        assert place.secret(name) not in said
