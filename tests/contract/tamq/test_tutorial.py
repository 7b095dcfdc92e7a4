"""The tutorial's commands in three shells, as they stand in the page, and what it says of them."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.local.wait import until
from corral.tamq.client import Client
from corral.tamq.errors import TamqError
from tests.contract.terminal.panes import Tmux, is_prompt
from tests.lint.repository import ROOT

PAGE = ROOT / "docs" / "tutorial" / "first-wake.md"
ENTRY = """#!/bin/sh
# Stands for the entry script, with the interpreter that runs this test.
shift
PYTHONPATH={python} exec {interpreter} -P -m corral.tamq.main "$@"
"""
PATIENCE_S = 60.0


class Shells:
    """Three shells with one environment; the second one is in a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        entry = folder / "corral"
        entry.write_text(ENTRY.format(python=ROOT / "python", interpreter=sys.executable))
        entry.chmod(0o700)
        blocks = re.findall(r"^```\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        self.exports, self.serve, self.run, self.send, self.ack = blocks
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
        told = self.third(f"{self.exports}\nenv -0")
        self.environ |= dict(one.split("=", 1) for one in told.split("\0") if "=" in one)
        self.client = Client(Path(self.environ["TAMQ_SOCKET"]), 10)
        self.first: subprocess.Popen[bytes] | None = None
        kept = ("HERE", "TAMQ_SOCKET", "TAMQ_STATE_DIR", "TAMQ_GITA_REPOS")
        given = shlex.join(f"{name}={self.environ[name]}" for name in kept)
        bash = f"cd {folder} && PS1='$ ' exec env {given} bash --norc --noprofile"
        self.second = Tmux(folder, bash, width=160, height=40)

    def third(self, script: str) -> str:
        argv = ["bash", "-e", "-c", script]
        done = subprocess.run(
            argv, cwd=self.folder, env=self.environ, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_first(self, **environ: str) -> None:
        with (self.folder / "log").open("ab") as log:
            argv = ["bash", "-c", f"exec {self.serve}"]
            self.first = subprocess.Popen(
                argv, cwd=self.folder, env=self.environ | environ, stdout=log, stderr=log
            )
        until(lambda: self.asks({"op": "ping"}), PATIENCE_S, "the service's answer")

    def asks(self, fields: dict[str, object]) -> dict[str, object]:
        try:
            return self.client.request(fields)
        except TamqError:
            return {}

    def kill_first(self) -> None:
        assert self.first is not None
        self.first.send_signal(signal.SIGKILL)
        assert self.first.wait(PATIENCE_S) == -signal.SIGKILL

    def close(self) -> None:
        self.second.close()
        if self.first is not None:
            self.first.kill()
            self.first.wait(PATIENCE_S)


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[Shells]:
    made = Shells(tmp_path)
    try:
        yield made
    finally:
        made.close()


def test_the_tutorial_does_what_it_says(shells: Shells) -> None:
    shells.start_first()
    second = shells.second
    until(lambda: is_prompt(second.shown), PATIENCE_S, "the second shell's prompt")
    second.type("-l", shells.run.rstrip("\n"))
    second.type("Enter")
    until(lambda: shells.asks({"op": "endpoints"}).get("endpoints"), PATIENCE_S, "the session")
    told = shells.third(shells.send)
    assert "pty demo: " in told
    second.see("look at the README")
    second.see("end of TAMQ")
    [message_id] = set(
        re.findall(r"TAMQ message (\d+-[0-9a-f]{32})", second.shown.replace("\n", ""))
    )
    until(
        lambda: "awaiting_ack" in shells.third("./corral tamq history"), PATIENCE_S, "the receipt"
    )
    assert f"{message_id} " in told
    told = shells.third(shells.ack.replace("1-…", message_id))
    assert told == f"{message_id} acknowledged (was awaiting_ack)\n"
    # A draft: the text of the first message is one already.
    shells.third('./corral tamq send --repo demo "and at issue 7"')
    until(lambda: "(draft)" in shells.third("./corral tamq history"), PATIENCE_S, "the reason")
    waiting = shells.third("./corral tamq history").splitlines()[0]
    assert "pending to demo, attempt 0 of 5 (draft)" in waiting
    shells.kill_first()
    # Nobody waits half a minute here for what is due then.
    shells.start_first(TAMQ_ACK_DEADLINE_MS="2000", TAMQ_RETRY_DELAYS_MS="[100]")
    until(lambda: shells.asks({"op": "endpoints"}).get("endpoints"), PATIENCE_S, "the session")
    assert len(shells.third("./corral tamq history").splitlines()) == 2
    second.type("C-c")
    second.see("and at issue 7")
    # It is due again when nobody acknowledged it, but the line is not empty.
    until(
        lambda: "attempt 1 of 5 (draft)" in shells.third("./corral tamq history"), 120, "the wait"
    )
    second.type("C-c")
    second.see("attempt 2 (may repeat an earlier one)")
