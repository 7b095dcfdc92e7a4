"""Root asks a user's TAMQ with `--user`, and is nobody there without: with a second account.

In a mount namespace of its own `/run` is an empty file system, with Python and this project in it,
which that account can read wherever they are really kept.
"""

import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator

import pytest

from corral.local.wait import until
from tests.lint.repository import ROOT

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")

ACCOUNT, OTHER = pwd.getpwnam("daemon"), pwd.getpwnam("mail")
SETUP = """
set -e
mount -t tmpfs -o mode=755 none /run
mkdir -p /run/python /run/site /run/src /run/user
mount --bind "$1" /run/python
mount --bind "$2" /run/site
mount --bind "$3" /run/src
mkdir -m 700 "$4" /run/home
chown "$5" "$4" /run/home
echo ready
exec cat
"""
PATIENCE_S = 60.0
ASK = """
import socket
connection = socket.socket(socket.AF_UNIX)
connection.connect("/run/user/{uid}/tamq/tamq.sock")
connection.sendall(b'{{"op":"ping","protocol":"0.1"}}\\n')
print(connection.makefile().read())
"""


class Place:
    """The namespace, and commands in it as one user or another."""

    def __init__(self) -> None:
        self.python = f"/run/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        where = [sys.base_prefix, sysconfig.get_path("purelib"), str(ROOT / "python")]
        owner = [f"/run/user/{ACCOUNT.pw_uid}", f"{ACCOUNT.pw_uid}:{ACCOUNT.pw_gid}"]
        argv = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SETUP, "sh"]
        self.holder = subprocess.Popen(
            [*argv, *where, *owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.holder.stdout is not None
        assert self.holder.stdout.readline() == b"ready\n"
        self.environ = {"PATH": os.environ["PATH"], "PYTHONPATH": "/run/src:/run/site"}
        self.theirs = {
            "XDG_RUNTIME_DIR": f"/run/user/{ACCOUNT.pw_uid}",
            "HOME": "/run/home",
            "TAMQ_GITA_REPOS": "/run/home/repos.csv",
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def argv(self, user: pwd.struct_passwd | None, *arguments: str) -> list[str]:
        enter = ["nsenter", "--target", str(self.holder.pid), "--mount", "--wd=/"]
        become = (
            []
            if user is None
            else ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        )
        return [*enter, *become, self.python, "-P", *arguments]

    def tamq(
        self, user: pwd.struct_passwd | None, *arguments: str
    ) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.argv(user, "-m", "corral.tamq.main", *arguments), env=self.environ,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def start(self, *arguments: str) -> None:
        argv = self.argv(ACCOUNT, "-m", "corral.tamq.main", *arguments)
        self.started.append(
            subprocess.Popen(argv, env=self.environ | self.theirs, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )  # fmt: skip

    def close(self) -> None:
        for one in (*reversed(self.started), self.holder):
            one.kill()
            one.wait(PATIENCE_S)
        for pipe in (self.holder.stdin, self.holder.stdout):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def place() -> Iterator[Place]:
    for tool in ("unshare", "nsenter", "setpriv"):
        assert shutil.which(tool), f"{tool} is missing: apt-get install util-linux"
    made = Place()
    try:
        yield made
    finally:
        made.close()


def test_root_asks_a_users_tamq_as_that_user(place: Place) -> None:
    name = ACCOUNT.pw_name
    write = 'from pathlib import Path; Path("/run/home/repos.csv").write_text("/s/shop,shop,,\\n")'
    subprocess.run(place.argv(ACCOUNT, "-c", write), env=place.environ, check=True, timeout=60)
    place.start("serve")
    until(lambda: place.tamq(None, "--user", name, "ping").returncode == 0, PATIENCE_S, "answers")
    place.start("run", "--repo", "shop", "--ack-mode", "injected", "--", "cat")
    until(lambda: "1 live" in place.tamq(None, "--user", name, "doctor").stdout, PATIENCE_S, "it")
    send = ("send", "--repo", "shop", "--wait", "30", "--json", "look at issue 7")
    sent = place.tamq(None, "--user", name, *send)
    assert sent.returncode == 0, sent.stdout + sent.stderr
    assert json.loads(sent.stdout)["state"] == "injected"
    # Without becoming that user, root is refused like anybody else, by the service itself.
    ask = place.argv(None, "-c", ASK.format(uid=ACCOUNT.pw_uid))
    told = subprocess.run(ask, env=place.environ, capture_output=True, timeout=60, check=True)
    error = json.loads(told.stdout)["error"]
    assert error["code"] == "unauthorized"
    assert "0" in error["message"]


def test_user_is_for_root_and_names_an_account(place: Place) -> None:
    refused = place.tamq(OTHER, "--user", ACCOUNT.pw_name, "ping", "--json")
    assert refused.returncode == 64
    assert "--user is for root" in json.loads(refused.stdout)["error"]["message"]
    unknown = place.tamq(None, "--user", "no-such-account", "ping", "--json")
    assert unknown.returncode == 64
    assert "no-such-account" in json.loads(unknown.stdout)["error"]["message"]
    silent = place.tamq(None, "--user", OTHER.pw_name, "ping", "--json")
    assert silent.returncode == 69
    assert f"/run/user/{OTHER.pw_uid}/" in json.loads(silent.stdout)["error"]["message"]
