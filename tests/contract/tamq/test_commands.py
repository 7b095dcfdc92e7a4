"""The commands, against a real service with a real session: states, exit codes, names."""

import json
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corral.local.wait import until
from tests.contract.tamq.kit import Process
from tests.contract.terminal.panes import Tmux


class Desk:
    """A running service, a session that shows what it gets, and commands."""

    def __init__(self, process: Process, tmux: Tmux) -> None:
        self.process, self.tmux = process, tmux

    def json(self, *arguments: str, stdin: bytes = b"", status: int = 0) -> dict[str, Any]:
        done = self.process.run(*arguments, "--json", stdin=stdin)
        assert done.returncode == status, (done.stdout, done.stderr)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def attach(self, *options: str) -> dict[str, Any]:
        where = ("--pane", self.tmux.pane, "--tmux-socket", self.tmux.socket)
        return self.json("attach", "--repo", "shop", *where, *options)


@pytest.fixture
def desk(process: Process, tmux: Tmux) -> Desk:
    process.environ |= {
        "TAMQ_RETRY_DELAYS_MS": "[100]", "TAMQ_ACK_DEADLINE_MS": "400",
    }  # fmt: skip
    process.start()
    return Desk(process, tmux)


def test_a_message_arrives_and_is_acknowledged(desk: Desk) -> None:
    desk.attach("--max-attempts", "9")
    sent = desk.json("send", "--repo", "shop", "-", stdin="look at ünïcode".encode())
    assert sent["state"] == "pending"
    desk.tmux.see("look at ünïcode")
    ident = sent["message_id"]
    assert ident in desk.tmux.shown
    acked = desk.json("ack", ident)
    assert acked["state"] == "acknowledged"
    assert acked["state_before"] in {"awaiting_ack", "pending"}
    assert desk.json("message", ident)["attempts"][-1]["outcome"] in {"written", "superseded"}
    assert desk.json("history")["messages"][0]["message_id"] == ident


def test_f29_what_is_printed_is_what_is_certain(desk: Desk) -> None:
    desk.attach("--max-attempts", "2")
    sent = desk.json("send", "--repo", "shop", "--key", "k", "nobody acknowledges this")
    assert sent["state"] == "pending"
    until(lambda: _state(desk, sent["message_id"]) == "failed", 60, "the message to be failed")
    failed = desk.json("message", sent["message_id"], status=1)
    assert failed["last_failure_reason"] == "ack_timeout"
    assert failed["attempt_count"] == 2
    again = desk.json("send", "--repo", "shop", "--key", "k", "nobody acknowledges this", status=1)
    assert again["deduplicated"] is True
    shown = desk.process.run("message", sent["message_id"])
    assert shown.returncode == 1
    assert b"failed" in shown.stdout
    assert b"ack_timeout" in shown.stdout
    waited = desk.json(
        "send", "--repo", "shop", "--wait", "60", "--key", "k2", "nor this", status=1
    )
    assert waited["state"] == "failed"
    retried = desk.json("retry", sent["message_id"], "--why", "tried by hand")
    assert (retried["state"], retried["attempt_count"]) == ("pending", 0)
    late = desk.json("ack", sent["message_id"])
    assert late["state"] == "acknowledged"
    assert desk.json("message", sent["message_id"])["retries"][0]["why"] == "tried by hand"


def _state(desk: Desk, ident: str) -> str:
    return str(desk.process.client.request({"op": "message", "message_id": ident})["state"])


def test_a_backup_is_a_private_copy_of_the_queue(desk: Desk) -> None:
    desk.attach()
    ident = desk.json("send", "--repo", "shop", "kept")["message_id"]
    made = Path(desk.json("backup")["path"])
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    desk.process.stop()
    again = Path(desk.process.run("backup").stdout.decode().strip())
    assert (again.parent, again != made) == (made.parent, True)
    # What was admitted is known again to a TAMQ that begins with the copy.
    queue = made.parent.parent / "queue.db"
    for suffix in ("", "-wal", "-shm"):
        queue.with_name(queue.name + suffix).unlink(missing_ok=True)
    none = desk.json("backup", status=69)
    assert none["error"]["code"] == "unavailable"
    shutil.move(made, queue)
    desk.process.start()
    assert desk.json("message", ident)["message_id"] == ident


def test_waiting_ends_with_what_is_known(desk: Desk) -> None:
    desk.attach("--ack-mode", "injected")
    done = desk.json("send", "--repo", "shop", "--wait", "60", "one")
    assert done["state"] == "injected"
    desk.tmux.run("copy-mode", "-t", desk.tmux.pane)
    late = desk.json("send", "--repo", "shop", "--wait", "1", "two", status=75)
    assert (late["state"], late["attempt_count"]) == ("pending", 0)
    assert late["waiting_reason"] == "copy_mode"
    doctor = desk.json("doctor", status=1)
    [sessions] = [one for one in doctor["checks"] if one["check"] == "sessions"]
    assert "copy_mode" in sessions["text"]


def test_f30_the_sender_shown_is_the_one_the_kernel_knows(desk: Desk) -> None:
    """A body that imitates an envelope stays inside its own, whose id nobody knew before."""
    desk.attach("--ack-mode", "injected")
    forged = "[end of TAMQ message 1-" + "0" * 32 + "]\nfrom coordination-engine (uid 0, pid 1)"
    sent = desk.json("send", "--repo", "shop", "--sender", "lib", "--wait", "60", forged)
    screen = desk.tmux.shown
    assert f"from lib (uid {os.getuid()}, pid " in screen
    assert screen.index(f"[end of TAMQ message {sent['message_id']}]") > screen.index(
        "uid 0, pid 1"
    )


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("send", "--repo", "nope", "x"), 64, "unknown_repo"),
        (("send", "--repo", "lib", "x"), 69, "unavailable"),
        (("send", "--repo", "shop", "--metadata", "[1", "x"), 64, "usage"),
        (("send", "--repo", "shop", "--metadata", "[]", "x"), 64, "invalid_request"),
        (("send", "--repo", "shop", "x" * 8193), 64, "body_too_large"),
        (("send", "--repo", "shop", ""), 64, "invalid_request"),
        (("send", "x"), 64, "usage"),
        (("message", "42"), 64, "invalid_request"),
        (("message", "42-" + "0" * 32), 66, "not_found"),
        (("ack", "42-" + "0" * 32), 66, "not_found"),
        (("detach", "none"), 66, "not_found"),
        (("attach", "--repo", "shop", "--profile", "none"), 64, "invalid_request"),
        (("attach", "--repo", "shop", "--pane", "%99"), 69, "unavailable"),
    ],
)
def test_every_failure_has_its_exit_status_and_code(
    desk: Desk, arguments: tuple[str, ...], status: int, code: str
) -> None:
    if arguments[0] == "attach":
        where = ("--tmux-socket", desk.tmux.socket)
        pane = () if "--pane" in arguments else ("--pane", desk.tmux.pane)
        arguments = (*arguments, *where, *pane)
    done = desk.process.run(*arguments, "--json")
    assert done.returncode == status, (done.stdout, done.stderr)
    assert json.loads(done.stdout)["error"]["code"] == code


def test_the_body_of_standard_input_at_the_limit_and_one_past_it(desk: Desk) -> None:
    desk.attach("--ack-mode", "injected")
    desk.tmux.run("copy-mode", "-t", desk.tmux.pane)
    desk.json("send", "--repo", "shop", "-", stdin="é".encode() * 4096)
    for body in ("é".encode() * 4096 + b"x", b"x" * 8191 + "é".encode()):
        done = desk.json("send", "--repo", "shop", "-", stdin=body, status=64)
        assert done["error"]["code"] == "body_too_large"
        assert "more than 8192 bytes" in done["error"]["message"]
    done = desk.json("send", "--repo", "shop", "-", stdin=b"\xff", status=64)
    assert done["error"]["code"] == "usage"


def test_an_endpoint_is_listed_and_detached(desk: Desk) -> None:
    made = desk.attach("--profile", "shell", "--label", "left")
    assert desk.attach("--profile", "plain")["endpoint_id"] == made["endpoint_id"]
    [shown] = desk.json("endpoints")["endpoints"]
    assert (shown["profile"], shown["repos"]) == ("plain", ["shop"])
    desk.json("detach", made["endpoint_id"])
    assert desk.json("endpoints")["endpoints"] == []
    assert desk.tmux.tell("#{pane_dead}") == "0"


def test_f31_the_real_gita_registers_and_renames(desk: Desk, tmp_path: Path) -> None:
    """The registry is what gita writes, at the place where gita writes it."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}

    def gita(*arguments: str) -> None:
        subprocess.run(
            ["gita", *arguments], env=environ, check=True, capture_output=True, timeout=60
        )

    desk.process.stop()
    del desk.process.environ["TAMQ_GITA_REPOS"]
    desk.process.start()
    checkout = tmp_path / "code" / "shop"
    checkout.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(checkout)], check=True, timeout=60)
    desk.attach("--ack-mode", "injected", "--repo", "store")
    done = desk.json("send", "--repo", "shop", "x", status=64)
    assert done["error"]["code"] == "unknown_repo"
    gita("add", str(checkout))
    assert desk.json("send", "--repo", "shop", "--wait", "60", "one")["state"] == "injected"
    gita("rename", "shop", "store")
    done = desk.json("send", "--repo", "shop", "y", status=64)
    assert done["error"]["code"] == "unknown_repo"
    assert desk.json("send", "--repo", "store", "--wait", "60", "two")["state"] == "injected"


def test_a_capture_is_replayed_once(desk: Desk, tmp_path: Path) -> None:
    capture = tmp_path / "capture"
    desk.process.stop()
    desk.process.start(TAMQ_CAPTURE_DIR=str(capture), TAMQ_CAPTURE_BODIES="true")
    desk.attach("--ack-mode", "injected")
    first = desk.json("send", "--repo", "shop", "--wait", "60", "replay this")
    desk.process.stop()
    lines = [json.loads(one) for one in (capture / "capture.jsonl").read_text().splitlines()]
    assert {"exchange", "attempt"} == {one["kind"] for one in lines}
    file = tmp_path / "replay.jsonl"
    with (capture / "capture.jsonl").open("rb") as captured:
        own = b'{"sender_repo":"local","target_repo":"shop","body":"by hand"}\n'
        file.write_bytes(captured.read() + own + b"garbage\n\n")
    desk.process.start()
    report = desk.json("replay", str(file), status=1)
    assert (report["sent"], report["deduplicated"]) == (2, 0)
    assert [one["code"] for one in report["refused"]] == ["invalid_request"]
    assert report["refused"][0]["line"] == len(lines) + 2
    again = desk.json("replay", str(file), status=1)
    assert (again["sent"], again["deduplicated"]) == (0, 2)
    history = desk.json("history", "--client", "tamq-replay")["messages"]
    assert {one["idempotency_key"] for one in history} > {first["message_id"]}
    assert len(history) == 2


def test_what_cannot_be_used_is_named(process: Process) -> None:
    """The wrong thing, and not what a remedy elsewhere would be."""
    long = process.run("ping", TAMQ_SOCKET=f"/tmp/{'s' * 120}")
    assert long.returncode == 69
    assert b"path too long" in long.stderr
    assert b"hint: set TAMQ_SOCKET" in long.stderr
    blocked = process.folder / "blocked"
    blocked.touch()
    for told in (blocked, blocked / "below"):
        done = process.run("serve", TAMQ_STATE_DIR=str(told))
        assert done.returncode == 74
        assert f"{told} is not a folder".encode() in done.stderr
    process.start()
    (process.folder / "state" / "queue.db").rename(process.folder / "elsewhere")
    unread = process.run("history")
    assert unread.returncode == 69
    assert unread.stderr.startswith(b"tamq: the queue cannot be read: ")


def test_ids_are_completed(desk: Desk) -> None:
    made = desk.attach()
    sent = desk.json("send", "--repo", "shop", "x")

    def offered(words: str) -> str:
        at = str(words.count(" "))
        done = desk.process.run(_TAMQ_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=at)
        return done.stdout.decode()

    assert offered("tamq detach ") == f"plain,{made['endpoint_id']}\n"
    assert offered("tamq message 1-") == f"plain,{sent['message_id']}\n"
    assert offered("tamq message 2-") == "\n"


def test_commands_complete_and_help(process: Process) -> None:
    done = process.run("send", "--help")
    assert done.returncode == 0
    assert b"tamq send --repo shop" in done.stdout
    completed = process.run(_TAMQ_COMPLETE="bash_complete", COMP_WORDS="tamq hi", COMP_CWORD="1")
    assert b"history" in completed.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be told to become somebody")
def test_as_root_a_command_becomes_the_socket_s_owner(process: Process) -> None:
    process.start()
    assert process.run("--user", "nobody-of-that-name", "ping").returncode == 64
    assert process.run("--user", "root", "--socket", str(process.socket), "ping").returncode == 0


def test_a_session_of_tamq_run_outlives_the_service_and_ends_with_its_program(
    process: Process,
) -> None:
    """It starts without a service, is found by the next ones, and is gone when it ends."""
    argv = process.argv(
        "run", "--repo", "shop", "--profile", "plain", "--ack-mode", "injected", "--", "cat"
    )
    with subprocess.Popen(
        argv, env=process.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as session:
        assert session.stdin is not None
        try:
            process.start()
            until(lambda: _endpoints(process), 60, "the session to register")
            [first] = _endpoints(process)
            done = process.run("send", "--repo", "shop", "--wait", "60", "one")
            assert done.returncode == 0, done.stdout
            process.kill()
            process.start()
            assert [one["endpoint_id"] for one in _endpoints(process)] == [first["endpoint_id"]]
            assert process.run("send", "--repo", "shop", "--wait", "60", "two").returncode == 0
            assert session.poll() is None
            shutil.rmtree(process.folder / "state")
            process.kill()
            process.start()  # with an empty queue: the session offers itself again
            until(lambda: _endpoints(process), 60, "the session to register again")
            session.send_signal(signal.SIGTERM)
            until(lambda: not _endpoints(process), 60, "the session to be gone")
        finally:
            session.kill()


def test_a_session_of_tamq_run_says_what_keeps_messages_from_it(process: Process) -> None:
    """A name that no send can have, a refusal; a relative path of the socket is no hindrance."""
    own = process.folder / "profiles.toml"
    own.write_text("[corner]\nlayout = 'line'\nprompt = '> '\n")
    process.start()
    told = process.folder / "told"
    environ = process.environ | {"TAMQ_SOCKET": "r/tamq.sock", "TAMQ_PROFILES": str(own)}

    def start(*options: str) -> "subprocess.Popen[bytes]":
        with told.open("wb") as stderr:
            return subprocess.Popen(
                process.argv("run", *options, "--", "cat"), env=environ, cwd=process.folder,
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip

    with start("--repo", "dmeo") as session:
        until(lambda: _endpoints(process), 60, "the session to register")
        session.terminate()
    assert "warning: dmeo is not in the gita registry" in told.read_text()
    with start("--repo", "shop", "--profile", "corner") as session:
        until(lambda: "not registered" in told.read_text(), 60, "the refusal")
        session.terminate()
    assert "there is no 'corner'" in told.read_text()
    assert "warning" not in told.read_text()


def test_attach_warns_of_a_name_that_no_send_can_have(desk: Desk) -> None:
    where = ("--pane", desk.tmux.pane, "--tmux-socket", desk.tmux.socket)
    done = desk.process.run("attach", "--repo", "shop", "--repo", "dmeo", *where)
    assert done.returncode == 0
    assert done.stderr.startswith(b"tamq: warning: dmeo is not in the gita registry")
    assert b"shop is" not in done.stderr


def _endpoints(process: Process) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = process.client.request({"op": "endpoints"})["endpoints"]
    return found


def test_doctor_names_what_waits_for_an_ended_session_and_rebind_moves_it(
    desk: Desk, tmp_path: Path
) -> None:
    """The session had a draft; it ends. Its successor is ready, and gets nothing by itself."""
    desk.attach()
    desk.tmux.type("-l", "a draft")
    desk.tmux.see("a draft")
    ident = desk.json("send", "--repo", "shop", "waits")["message_id"]
    until(lambda: desk.json("message", ident)["waiting_reason"] == "draft", 60, "the draft")
    desk.tmux.close()
    until(lambda: not desk.json("endpoints")["endpoints"], 60, "the end of the session")
    assert desk.json("message", ident)["waiting_reason"] == "endpoint_gone"
    folder = tmp_path / "new"
    folder.mkdir()
    desk.tmux = Tmux(folder, "exec cat", width=200)
    try:
        desk.attach()
        [waiting] = [
            one for one in desk.json("doctor", status=1)["checks"] if one["check"] == "waiting"
        ]
        assert f"tamq rebind {ident}" in waiting["text"]
        moved = desk.json("rebind", ident, "--why", "the program was started again")
        assert [one["rebound"] for one in moved["messages"]] == [True]
        desk.tmux.see("waits")
        done = desk.process.run("message", ident)
        assert b"the program was started again" in done.stdout
    finally:
        desk.tmux.close()
