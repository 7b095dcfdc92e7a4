"""TAMQ armed to die, or to have its sessions die, at a point; and sessions in tmux and on a pty."""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from corral.local.wait import until
from corral.tamq import points as of_queue
from corral.tamq.terminal import points as of_terminal
from tests.contract.tamq.kit import Process
from tests.contract.terminal.hosted import Hosted
from tests.contract.terminal.panes import Agent, Tmux

PATIENCE_S = 90.0
BODY = "look at issue 7"
AT_SEND = [
    of_queue.ADMITTED,
    of_queue.LEASED,
    of_terminal.TYPING,
    of_terminal.PASTED,
    of_terminal.SUBMITTED,
    of_queue.INJECTED,
    of_queue.RECORDED,
]


class Armed(Process):
    """`tamq serve` that dies at the first pass of a point, and can be started again without.

    `victim`: who dies in its place, by the name under which `dies_at_a_point` knows it.
    `run_point`: the same for `tamq run`.
    """

    point = ""
    victim = "self"
    run_point = ""

    def argv(self, *arguments: str) -> list[str]:
        points = {"serve": self.point, "run": self.run_point}
        point = points.get(arguments[0], "")
        if not point:
            return super().argv(*arguments)
        module = ("-m", "tests.crash.armed_tamq", "--pids", str(self.folder))
        arm = f"{point}:1={self.victim}"
        return [sys.executable, "-W", "error", "-P", *module, arm, "--", *arguments]

    def start_armed(self, point: str) -> None:
        self.point = point
        self.start()

    def dies_at_a_point(self, victim: str, pid: int) -> None:
        (self.folder / victim).write_text(str(pid))

    def dies(self) -> None:
        assert self.running is not None
        assert self.running.wait(PATIENCE_S) == -signal.SIGKILL

    def start_again(self) -> None:
        self.dies()
        self.point = ""
        self.start()

    def told(self, *arguments: str) -> dict[str, object]:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr.decode()
        answer: dict[str, object] = json.loads(done.stdout)
        return answer

    def state(self, message_id: str) -> str:
        return str(self.client.request({"op": "message", "message_id": message_id})["state"])

    def receipt(self, message_id: str) -> dict[str, Any]:
        return self.client.request({"op": "message", "message_id": message_id})

    @property
    def endpoints(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.request({"op": "endpoints"})["endpoints"]
        return found

    def wait_for(self, message_id: str, state: str) -> None:
        until(lambda: self.state(message_id) == state, PATIENCE_S, f"state {state}")


class Pane:
    """An agent in tmux, attached by the command."""

    def __init__(self, tamq: Armed, folder: Path, *options: str) -> None:
        self.agent = Agent(folder, "claude-code", *options)
        self.tamq = tamq
        self.tmux = Tmux(folder, self.agent.command)
        self.tmux.see("? for shortcuts")

    def attach(self, *options: str) -> int:
        where = ("--pane", self.tmux.pane, "--tmux-socket", self.tmux.socket)
        profile = ("--profile", "claude-code", *options)
        return self.tamq.run("attach", "--repo", "shop", *where, *profile).returncode

    @property
    def submitted(self) -> list[str]:
        return [str(one) for one in self.agent.submitted]


@contextmanager
def in_a_pty(tamq: Armed, folder: Path) -> Iterator[tuple[Hosted, Agent]]:
    """A registered session under `tamq run`; the service runs."""
    agent = Agent(folder, "codex")
    run = tamq.argv("run", "--repo", "shop", "--profile", "codex", "--", *agent.argv)
    hosted = Hosted.of(folder, run, tamq.environ)
    try:
        hosted.see("? for shortcuts")
        until(lambda: tamq.endpoints, PATIENCE_S, "its registration")
        yield hosted, agent
    finally:
        hosted.close()


def send(tamq: Armed) -> str:
    """The message's id, from a client that repeats its request until it is answered."""
    command = ("send", "--repo", "shop", "--key", "k1", "--json", BODY)
    done = tamq.run(*command)
    if done.returncode:
        tamq.start_again()
        done = tamq.run(*command)
    assert done.returncode == 0, done.stderr.decode()
    return str(json.loads(done.stdout)["message_id"])


def acknowledged(tamq: Armed, message_id: str) -> None:
    tamq.told("ack", message_id)
    assert tamq.state(message_id) == "acknowledged"
    assert send(tamq) == message_id  # the same key is the same message for ever
