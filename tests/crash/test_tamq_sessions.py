"""Sessions are SIGKILLed at each of TAMQ's boundaries: tmux, the program, `tamq run`; a replay is.

Whatever dies, the daemon goes on and the message stays. When its wake is repeated, it is bound to
the session that has taken the place: the same id, attempts kept and bounded.
"""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from corral.local.wait import until
from corral.tamq import points as of_queue
from corral.tamq.terminal import address
from corral.tamq.terminal import points as of_terminal
from corral.tamq.terminal.attach import discover
from tests.contract.terminal.panes import Agent, Tmux
from tests.crash.tamq_kit import AT_SEND, BODY, PATIENCE_S, Armed, in_a_pty

IN_THE_HOST = [of_terminal.TYPING, of_terminal.PASTED, of_terminal.SUBMITTED]
IN_THE_DAEMON = [of_queue.ADMITTED, of_queue.LEASED, of_queue.INJECTED, of_queue.RECORDED]
SEND = {"op": "send", "client_id": "engine", "sender_repo": "local", "target_repo": "shop"}
WAKE = {**SEND, "idempotency_key": "k1", "body": BODY}
LINES = 6


@pytest.fixture
def tamq(tmp_path: Path) -> Iterator[Armed]:
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    made = Armed(tmp_path)
    made.environ |= {
        "TAMQ_LEASE_MS": "9000", "TAMQ_RETRY_DELAYS_MS": "[200]", "TAMQ_ACK_DEADLINE_MS": "2000",
    }  # fmt: skip
    try:
        yield made
    finally:
        made.close()


class Session:
    """An agent in tmux, registered as `tamq attach` does it."""

    def __init__(self, folder: Path) -> None:
        self.agent = Agent(folder, "codex")
        self.tmux = Tmux(folder, self.agent.command)
        self.tmux.see("? for shortcuts")
        self.address = asyncio.run(discover(self.tmux.socket, self.tmux.pane))

    def register(self, tamq: Armed) -> None:
        fields = {"op": "register", "repos": ["shop"], "profile": "codex"}
        tamq.client.request({**fields, "terminal": address.as_dict(self.address)})

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.tmux.close()


def taken_over(tamq: Armed, agent: Agent, message_id: str) -> None:
    """The old session is gone, and with it perhaps what it was shown; now there is another."""
    again = tamq.client.request(WAKE)
    assert again["message_id"] == message_id
    assert again["deduplicated"] is again["rebound"] is True
    until(lambda: agent.submitted, PATIENCE_S, "the message in the other session")
    assert all(message_id in str(one) and BODY in str(one) for one in agent.submitted)
    tamq.client.request({"op": "ack", "message_id": message_id})
    receipt = tamq.receipt(message_id)
    assert receipt["state"] == "acknowledged"
    numbers = [one["attempt"] for one in receipt["attempts"]]
    assert numbers == list(range(receipt["attempt_count"], 0, -1))
    assert receipt["attempt_count"] <= receipt["delivery_max_attempts"]


def stays(tamq: Armed, shown: Sequence[object]) -> str:
    """The wake was answered; its session is found to be gone; the message is not. Its id."""
    message_id = str(tamq.client.request(WAKE)["message_id"])
    until(lambda: not tamq.endpoints, PATIENCE_S, "the session to be found gone")
    receipt = tamq.receipt(message_id)
    assert receipt["state"] in {"pending", "awaiting_ack"}
    assert receipt["attempt_count"] <= 1
    assert len(shown) <= 1
    return message_id


@pytest.mark.parametrize("victim", ["tmux", "program"])
@pytest.mark.parametrize("point", AT_SEND)
def test_a_session_in_tmux_is_killed(tamq: Armed, tmp_path: Path, point: str, victim: str) -> None:
    with Session(tmp_path / "old") as old:
        tamq.dies_at_a_point("tmux", old.tmux.pid)
        tamq.dies_at_a_point("program", old.address.process.pid)
        tamq.victim = victim
        tamq.start_armed(point)
        old.register(tamq)
        message_id = stays(tamq, old.agent.submitted)
    assert tamq.running is not None
    assert tamq.running.poll() is None
    with Session(tmp_path / "new") as new:
        new.register(tamq)
        taken_over(tamq, new.agent, message_id)


@pytest.mark.parametrize("victim", ["host", "program"])
@pytest.mark.parametrize("point", [*IN_THE_DAEMON, *IN_THE_HOST])
def test_a_session_under_tamq_run_is_killed(
    tamq: Armed, tmp_path: Path, point: str, victim: str
) -> None:
    tamq.victim = victim
    if point in IN_THE_HOST:
        tamq.run_point = point
        tamq.start()
    else:
        tamq.start_armed(point)
    with in_a_pty(tamq, tmp_path / "old") as (hosted, agent):
        found = tamq.endpoints[0]["terminal"]
        tamq.dies_at_a_point("host", hosted.program.pid)
        tamq.dies_at_a_point("program", found["process"]["pid"])
        message_id = stays(tamq, agent.submitted)
    tamq.run_point = ""
    with in_a_pty(tamq, tmp_path / "new") as (_, agent):
        taken_over(tamq, agent, message_id)


# ---- a replay that is cut off -----------------------------------------------------------------


def lines() -> bytes:
    fields = {"sender_repo": "local", "target_repo": "shop"}
    whole = [json.dumps({**fields, "body": f"line {number}"}) for number in range(LINES)]
    return "".join(f"{one}\n" for one in whole).encode()


def replayed(tamq: Armed, file: Path) -> tuple[int, dict[str, Any]]:
    done = tamq.run("replay", str(file), "--json")
    report: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    return done.returncode, report


def there(tamq: Armed) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tamq.client.request(
        {"op": "history", "client_id": "tamq-replay", "limit": 100}
    )["messages"]
    return found


def nothing_twice(tamq: Armed, file: Path, *, before: int) -> None:
    """The whole file again, and once more: each line is one message, in the order of the lines."""
    status, report = replayed(tamq, file)
    assert (status, report["sent"], report["deduplicated"]) == (0, LINES - before, before)
    status, report = replayed(tamq, file)
    assert (status, report["sent"], report["deduplicated"]) == (0, 0, LINES)
    assert len(there(tamq)) == LINES


def test_tamq_is_killed_during_a_replay(tamq: Armed, tmp_path: Path) -> None:
    """A line that was admitted and not answered is found again."""
    file = tmp_path / "lines"
    file.write_bytes(lines())
    tamq.start_armed(of_queue.ADMITTED)
    with Session(tmp_path / "old") as session:
        session.register(tamq)
        status, report = replayed(tamq, file)
        assert (status, report["error"]["code"]) == (69, "unavailable")
        assert "line 1" in report["error"]["message"]
        tamq.start_again()
        nothing_twice(tamq, file, before=1)


def test_the_replay_itself_is_killed(tamq: Armed, tmp_path: Path) -> None:
    fifo, file = tmp_path / "fifo", tmp_path / "lines"
    os.mkfifo(fifo)
    file.write_bytes(lines())
    tamq.start()
    with Session(tmp_path / "old") as session:
        session.register(tamq)
        argv = tamq.argv("replay", str(fifo))
        with subprocess.Popen(argv, env=tamq.environ, stdout=subprocess.DEVNULL) as player:
            with fifo.open("wb", buffering=0) as feed:
                feed.write(b"".join(lines().splitlines(keepends=True)[:2]))
                until(lambda: len(there(tamq)) == 2, PATIENCE_S, "two lines")
                player.kill()
            assert player.wait(PATIENCE_S) == -signal.SIGKILL
        nothing_twice(tamq, file, before=2)


def test_the_session_is_killed_during_a_replay(tamq: Armed, tmp_path: Path) -> None:
    """The lines after its end are refused, and sent when another session is there."""
    file = tmp_path / "lines"
    file.write_bytes(lines())
    tamq.victim = "tmux"
    with Session(tmp_path / "old") as old:
        tamq.dies_at_a_point("tmux", old.tmux.pid)
        tamq.start_armed(of_queue.ADMITTED)
        old.register(tamq)
        status, report = replayed(tamq, file)
        until(lambda: not tamq.endpoints, PATIENCE_S, "the session to be found gone")
    admitted = len(there(tamq))
    assert admitted >= 1
    assert report["sent"] == admitted
    assert {one["code"] for one in report["refused"]} <= {"unavailable"}
    assert status == (1 if report["refused"] else 0)
    with Session(tmp_path / "new") as new:
        new.register(tamq)
        nothing_twice(tamq, file, before=admitted)
        bound = {one["endpoint_id"] for one in there(tamq)}
        assert bound == {tamq.endpoints[0]["endpoint_id"]}
