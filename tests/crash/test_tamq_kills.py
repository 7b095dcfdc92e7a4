"""TAMQ's daemon is SIGKILLed at each of its boundaries, with live sessions of both kinds.

Whatever happens: the session goes on, the message has the same id, it is shown at least once, and
twice only where nobody can know (killed after Enter, before that was recorded, in tmux).
"""

import importlib
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import corral.tamq
from corral.core import crashpoints
from corral.local.wait import until
from corral.tamq import points as of_queue
from corral.tamq.terminal import points as of_terminal
from corral.tamq.terminal import process as processes
from tests.contract.tamq.kit import Process
from tests.contract.terminal.hosted import Hosted
from tests.contract.terminal.panes import Agent, Tmux

PATIENCE_S = 90.0
BODY = "look at issue 7"
# At these the text was submitted, and the daemon that knew is dead.
SUBMITTED_UNKNOWN = {of_terminal.SUBMITTED, of_queue.INJECTED}
AT_SEND = [
    of_queue.ADMITTED,
    of_queue.LEASED,
    of_terminal.TYPING,
    of_terminal.PASTED,
    of_terminal.SUBMITTED,
    of_queue.INJECTED,
    of_queue.RECORDED,
]
AT_OTHER_TIMES = [
    of_queue.REGISTERED,
    of_queue.ACKED,
    of_queue.EXPIRED,
    of_queue.GONE,
    of_queue.RETRIED,
]


class Armed(Process):
    """`tamq serve` that dies at the first pass of a point, and can be started again without."""

    point = ""

    def argv(self, *arguments: str) -> list[str]:
        if arguments != ("serve",) or not self.point:
            return super().argv(*arguments)
        module = ("-m", "tests.crash.armed_tamq")
        return [sys.executable, "-W", "error", "-P", *module, f"{self.point}:1", "--", "serve"]

    def start_armed(self, point: str) -> None:
        self.point = point
        self.start()

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

    def wait_for(self, message_id: str, state: str) -> None:
        until(lambda: self.state(message_id) == state, PATIENCE_S, f"state {state}")


@pytest.fixture
def tamq(tmp_path: Path) -> Iterator[Armed]:
    made = Armed(tmp_path)
    made.environ |= {"TAMQ_LEASE_MS": "9000", "TAMQ_RETRY_DELAYS_MS": "[200]"}
    try:
        yield made
    finally:
        made.close()


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


@pytest.fixture
def pane(tamq: Armed, tmp_path: Path) -> Iterator[Pane]:
    made = Pane(tamq, tmp_path)
    try:
        yield made
    finally:
        made.tmux.close()


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


@pytest.mark.parametrize("point", AT_SEND)
def test_killed_while_a_message_goes_into_a_pane(tamq: Armed, pane: Pane, point: str) -> None:
    tamq.start_armed(point)
    assert pane.attach() == 0
    message_id = send(tamq)
    if tamq.point:
        tamq.start_again()
    tamq.wait_for(message_id, "awaiting_ack")
    shown = [text for text in pane.submitted if message_id in text]
    assert shown == pane.submitted
    assert len(shown) == (2 if point in SUBMITTED_UNKNOWN else 1)
    assert ["may repeat" in text for text in shown[1:]] == [True] * (len(shown) - 1)
    assert all(BODY in text for text in shown)
    acknowledged(tamq, message_id)


@pytest.mark.parametrize("point", [of_queue.LEASED, of_queue.INJECTED, of_queue.RECORDED])
def test_killed_while_a_message_goes_into_a_pty_it_is_shown_once(
    tamq: Armed, tmp_path: Path, point: str
) -> None:
    """`tamq run` remembers what it wrote, so even an unrecorded result is known."""
    agent = Agent(tmp_path, "codex")
    tamq.start_armed(point)
    run = tamq.argv("run", "--repo", "shop", "--profile", "codex", "--", *agent.argv)
    hosted = Hosted.of(tmp_path, run, tamq.environ)
    try:
        hosted.see("? for shortcuts")
        until(lambda: tamq.client.request({"op": "endpoints"})["endpoints"], PATIENCE_S, "it")
        message_id = send(tamq)
        if tamq.point:
            tamq.start_again()
        tamq.wait_for(message_id, "awaiting_ack")
        assert len(agent.submitted) == 1
        assert hosted.program.poll() is None
        acknowledged(tamq, message_id)
    finally:
        hosted.close()


def test_killed_before_the_registration_is_answered(tamq: Armed, pane: Pane) -> None:
    tamq.start_armed(of_queue.REGISTERED)
    assert pane.attach() != 0
    tamq.start_again()
    assert pane.attach() == 0
    assert len(tamq.client.request({"op": "endpoints"})["endpoints"]) == 1


def test_killed_before_the_acknowledgement_is_answered(tamq: Armed, pane: Pane) -> None:
    tamq.start_armed(of_queue.ACKED)
    assert pane.attach() == 0
    message_id = send(tamq)
    tamq.wait_for(message_id, "awaiting_ack")
    assert tamq.run("ack", message_id).returncode != 0
    tamq.start_again()
    assert tamq.state(message_id) == "acknowledged"
    assert len(pane.submitted) == 1


def test_killed_when_a_lease_has_expired(tamq: Armed, pane: Pane) -> None:
    tamq.start_armed(of_queue.LEASED)
    assert pane.attach() == 0
    message_id = send(tamq)
    tamq.dies()
    tamq.start_armed(of_queue.EXPIRED)
    tamq.start_again()
    tamq.wait_for(message_id, "awaiting_ack")
    assert len(pane.submitted) == 1
    assert tamq.client.request({"op": "message", "message_id": message_id})["attempt_count"] == 2


def test_killed_when_the_session_has_ended(tamq: Armed, pane: Pane) -> None:
    tamq.start_armed(of_queue.GONE)
    assert pane.attach() == 0
    found = tamq.client.request({"op": "endpoints"})["endpoints"]
    pid = found[0]["terminal"]["process"]["pid"]
    os.kill(pid, signal.SIGKILL)
    tamq.start_again()
    assert tamq.client.request({"op": "endpoints"})["endpoints"] == []


def test_killed_before_a_retry_is_answered(tamq: Armed, tmp_path: Path) -> None:
    pane = Pane(tamq, tmp_path, "--swallow", "3")
    try:
        tamq.start_armed(of_queue.RETRIED)
        assert pane.attach("--max-attempts", "1") == 0
        message_id = send(tamq)
        tamq.wait_for(message_id, "failed")
        assert tamq.run("retry", message_id, "--why", "tested").returncode != 0
        tamq.start_again()
        tamq.wait_for(message_id, "awaiting_ack")
        assert len(pane.submitted) == 1
    finally:
        pane.tmux.close()


def test_the_tmux_server_is_killed_while_a_message_waits(tamq: Armed, pane: Pane) -> None:
    tamq.start()
    assert pane.attach() == 0
    pane.tmux.type("-l", "a draft")
    pane.tmux.see("a draft")
    message_id = send(tamq)
    os.kill(pane.tmux.pid, signal.SIGKILL)
    until(lambda: processes.read(pane.tmux.pid) is None, PATIENCE_S, "its end")
    until(lambda: not tamq.client.request({"op": "endpoints"})["endpoints"], PATIENCE_S, "gone")
    assert tamq.state(message_id) == "pending"
    assert tamq.client.request({"op": "message", "message_id": message_id})["attempt_count"] == 0


def test_every_point_of_tamq_is_killed_at() -> None:
    for info in pkgutil.walk_packages(corral.tamq.__path__, prefix="corral.tamq."):
        importlib.import_module(info.name)
    registered = {name for name in crashpoints.registered() if name.startswith("tamq.")}
    assert registered == {*AT_SEND, *AT_OTHER_TIMES}
