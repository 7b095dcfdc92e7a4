"""A tmux server of the test's own, and a person at it."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from corral.local.wait import until
from corral.tamq.terminal import process
from corral.tamq.terminal.base import Wake

PROGRAM = Path(__file__).with_name("program.py")
PATIENCE_S = 30.0
MESSAGE_ID = "7-00112233445566778899aabbccddeeff"

T = TypeVar("T")


def wake(body: str, attempt: int = 1, *earlier: int, message_id: str = MESSAGE_ID) -> Wake:
    return Wake(message_id, attempt, "coordination-engine (uid 1000)", body, tuple(earlier))


def envelope(body: str, attempt: int = 1, message_id: str = MESSAGE_ID) -> str:
    again = " (may repeat an earlier one)" if attempt > 1 else ""
    return (
        f"[TAMQ message {message_id}, attempt {attempt}{again},"
        f" from coordination-engine (uid 1000); confirm: tamq ack {message_id}]\n"
        f"{body}\n[end of TAMQ message {message_id}]"
    )


class Tmux:
    """One server with one pane, on a socket of its own, without any configuration."""

    def __init__(self, folder: Path, command: str, *, width: int = 80, height: int = 24) -> None:
        self.socket = str(folder / "tmux")
        size = ("-x", str(width), "-y", str(height))
        self.run("-f", "/dev/null", "new-session", "-d", *size, command)
        self.pane = self.tell("#{pane_id}")
        self.pid = int(self.tell("#{pid}"))

    def run(self, *argv: str) -> str:
        environment = {**os.environ, "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh"}
        environment.pop("TMUX", None)
        whole = ["tmux", "-u", "-S", self.socket, *argv]
        done = subprocess.run(whole, env=environment, capture_output=True, check=True, timeout=30)
        return done.stdout.decode()

    def tell(self, what: str) -> str:
        return self.run("display-message", "-p", "-t", getattr(self, "pane", ""), what).strip()

    def type(self, *keys: str) -> None:
        """As a person does: keys by their names, or text."""
        self.run("send-keys", "-t", self.pane, *keys)

    def interrupt(self) -> None:
        """Control-C at a shell. What is typed before the new prompt may be lost with the line."""
        self.type("C-c")
        soon(lambda: is_prompt(self.shown), "the shell's new prompt")

    @property
    def shown(self) -> str:
        return self.run("capture-pane", "-p", "-t", self.pane)

    def see(self, text: str) -> None:
        until(lambda: text in self.shown, PATIENCE_S, f"{text!r} on the screen")

    def close(self) -> None:
        stat = process.read(self.pid)
        if stat is not None:
            os.kill(self.pid, signal.SIGKILL)
        until(lambda: process.read(self.pid) is None, PATIENCE_S, "the end of the tmux server")


class Agent:
    """The imitated program: how it is started, and what it says that it understood."""

    def __init__(self, folder: Path, look: str, *options: str) -> None:
        self.look = look
        self.log = folder / "agent.jsonl"
        self.argv = [sys.executable, "-P", str(PROGRAM), look, str(self.log), *options]

    @property
    def command(self) -> str:
        return f"exec {shlex.join(self.argv)}"

    @property
    def events(self) -> list[dict[str, object]]:
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def all_of(self, kind: str) -> list[object]:
        return [event[kind] for event in self.events if kind in event]

    @property
    def submitted(self) -> list[object]:
        return self.all_of("submitted")


def is_prompt(shown: str) -> bool:
    """Whether the last line is nothing but a shell's prompt."""
    return re.fullmatch(r"\S{0,12}[$#]", (shown.rstrip().splitlines() or [""])[-1]) is not None


def soon(condition: Callable[[], T], what: str) -> T:
    return until(condition, PATIENCE_S, what)
