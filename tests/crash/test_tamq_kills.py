"""TAMQ's daemon is SIGKILLed at each of its boundaries, with live sessions of both kinds.

Whatever happens: the session goes on, the message has the same id, it is shown at least once, and
twice only where nobody can know (killed after Enter, before that was recorded, in tmux).
"""

import importlib
import os
import pkgutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import corral.tamq
from corral.core import crashpoints
from corral.local.wait import until
from corral.tamq import points as of_queue
from corral.tamq.terminal import points as of_terminal
from corral.tamq.terminal import process as processes
from tests.crash.tamq_kit import (
    AT_SEND,
    BODY,
    PATIENCE_S,
    Armed,
    Pane,
    acknowledged,
    in_a_pty,
    send,
)

# At these the text was submitted, and the daemon that knew is dead.
SUBMITTED_UNKNOWN = {of_terminal.SUBMITTED, of_queue.INJECTED}
AT_OTHER_TIMES = [
    of_queue.REGISTERED,
    of_queue.ACKED,
    of_queue.EXPIRED,
    of_queue.GONE,
    of_queue.RETRIED,
    of_queue.REBOUND,
]


@pytest.fixture
def tamq(tmp_path: Path) -> Iterator[Armed]:
    made = Armed(tmp_path)
    made.environ |= {"TAMQ_LEASE_MS": "9000", "TAMQ_RETRY_DELAYS_MS": "[200]"}
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def pane(tamq: Armed, tmp_path: Path) -> Iterator[Pane]:
    made = Pane(tamq, tmp_path)
    try:
        yield made
    finally:
        made.tmux.close()


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
    tamq.start_armed(point)
    with in_a_pty(tamq, tmp_path) as (hosted, agent):
        message_id = send(tamq)
        if tamq.point:
            tamq.start_again()
        tamq.wait_for(message_id, "awaiting_ack")
        assert len(agent.submitted) == 1
        assert hosted.program.poll() is None
        acknowledged(tamq, message_id)


@pytest.mark.parametrize("point", [of_queue.INJECTED, of_queue.RECORDED])
def test_killed_while_it_waits_for_the_acknowledgement_it_is_delivered_again(
    tamq: Armed, tmp_path: Path, point: str
) -> None:
    """What `tamq run` remembers settles the attempt that was cut off, and none after it."""
    tamq.environ["TAMQ_ACK_DEADLINE_MS"] = "1000"
    tamq.start_armed(point)
    with in_a_pty(tamq, tmp_path) as (hosted, agent):
        message_id = send(tamq)
        if tamq.point:
            tamq.start_again()
        until(lambda: len(agent.submitted) > 1, PATIENCE_S, "the redelivery")
        assert hosted.program.poll() is None
        acknowledged(tamq, message_id)
        shown = [str(text) for text in agent.submitted]
        assert all(message_id in text and BODY in text for text in shown)
        assert ["may repeat" in text for text in shown] == [False] + [True] * (len(shown) - 1)


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


def test_killed_before_a_rebinding_is_answered(tamq: Armed, pane: Pane, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    old = Pane(tamq, tmp_path / "old")
    tamq.start_armed(of_queue.REBOUND)
    try:
        assert old.attach() == 0
        old.tmux.type("-l", "a draft")
        old.tmux.see("a draft")
        message_id = send(tamq)
    finally:
        old.tmux.close()
    until(lambda: not tamq.endpoints, PATIENCE_S, "the end of the old session")
    assert pane.attach() == 0
    assert tamq.run("rebind", message_id, "--why", "tested").returncode != 0
    tamq.start_again()
    tamq.wait_for(message_id, "awaiting_ack")
    assert len(pane.submitted) == 1
    [decision] = tamq.receipt(message_id)["rebindings"]
    assert decision["why"] == "tested"
    again = tamq.told("rebind", message_id, "--why", "nobody answered")
    assert "'rebound': False" in str(again)  # nothing to do, and nothing to record
    assert len(tamq.receipt(message_id)["rebindings"]) == 1


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


def test_a_text_that_stands_half_submitted_goes_before_an_older_message(
    tamq: Armed, pane: Pane
) -> None:
    """Killed between paste and Enter of the second, while the first waits to be acknowledged.

    To the first, written again, the second one's text would be a draft, and the session stuck.
    """
    tamq.environ["TAMQ_ACK_DEADLINE_MS"] = "600000"
    tamq.start()
    assert pane.attach() == 0
    first = send(tamq)
    tamq.wait_for(first, "awaiting_ack")
    assert tamq.stop() == 0
    tamq.start_armed(of_terminal.PASTED)
    second = str(tamq.told("send", "--repo", "shop", "--key", "k2", "look again")["message_id"])
    tamq.dies()
    tamq.environ["TAMQ_ACK_DEADLINE_MS"] = "3000"  # counts from the start now
    tamq.start_again()

    def order() -> list[str]:
        return [one for text in pane.submitted for one in (first, second) if one in text]

    until(lambda: order()[1:].count(first), PATIENCE_S, "the first message, again")
    assert order()[:3] == [first, second, first]
    for one in (first, second):
        tamq.told("ack", one)
