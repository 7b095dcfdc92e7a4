"""The service as a process: one at a time, its socket's file, kills, other users, other tools."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from corral.local.wait import until
from corral.tamq.errors import UnavailableTamqError
from tests.contract.tamq.kit import SEND, Process
from tests.contract.terminal.panes import Tmux
from tests.lint.repository import ROOT

NOBODY_ELSE = 12_345  # a uid that no account has: the kernel does not mind


def test_the_socket_is_private_in_a_private_folder(process: Process) -> None:
    process.start()
    assert stat.S_IMODE(process.socket.lstat().st_mode) == 0o600
    assert stat.S_IMODE((process.folder / "state" / "queue.db").stat().st_mode) == 0o600
    assert process.stop() == 0
    assert not process.socket.exists()


def test_f33_the_mode_is_right_from_the_first_instant(process: Process) -> None:
    """A watcher that looks all the time never sees another mode, whatever the umask."""
    seen: set[int] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            try:
                seen.add(stat.S_IMODE(process.socket.lstat().st_mode))
            except FileNotFoundError:
                continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    before = os.umask(0)
    try:
        process.start()
        until(lambda: bool(seen), 60, "the watcher's first look")
    finally:
        os.umask(before)
        stop.set()
        watcher.join()
    assert seen == {0o600}


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_f33_a_folder_that_others_can_enter_is_refused(process: Process, mode: int) -> None:
    process.runtime.chmod(mode)
    done = process.run("serve")
    assert done.returncode == 78
    assert b"must be yours and of mode 0700" in done.stderr
    process.runtime.chmod(0o700)
    process.start()


def test_f33_a_path_at_the_limit_and_one_past_it(process: Process) -> None:
    room = 107 - len(os.fsencode(process.runtime)) - 1
    if room < 1:
        pytest.fail("the temporary folder's path is too long for this test")
    for extra, status in ((1, 78), (0, 0)):
        path = process.runtime / ("s" * (room + extra))
        process.environ["TAMQ_SOCKET"] = str(path)
        if status:
            done = process.run("serve")
            assert done.returncode == status
            assert b"has a path of 108 bytes, the system takes 107" in done.stderr
        else:
            process.socket, process.client.path = path, path
            process.start()


def test_f32_a_stale_socket_is_replaced_and_a_live_service_is_not(process: Process) -> None:
    process.start()
    process.kill()
    assert process.socket.exists()
    process.start()
    first = process.client.request({"op": "ping"})["instance"]
    other = process.run("serve")
    assert other.returncode == 69
    assert b"another TAMQ serves" in other.stderr
    elsewhere = process.run("serve", TAMQ_STATE_DIR=str(process.folder / "other"))
    assert elsewhere.returncode == 69
    assert process.client.request({"op": "ping"})["instance"] == first


def test_f32_a_service_that_is_too_slow_to_answer_is_still_the_only_one(process: Process) -> None:
    process.start()
    assert process.running is not None
    process.running.send_signal(signal.SIGSTOP)
    try:
        other = process.run("serve")
        assert other.returncode == 69
        assert process.socket.exists()
    finally:
        process.running.send_signal(signal.SIGCONT)
    assert process.client.request({"op": "ping"})


def test_f32_of_many_starters_one_serves(process: Process) -> None:
    """They start at once, over a stale socket; the losers unlink nothing."""
    process.start()
    process.kill()
    starters = [
        subprocess.Popen(process.argv("serve"), env=process.environ, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    try:
        until(lambda: sum(one.poll() is not None for one in starters) == 3, 60, "three losers")
        until(lambda: _answers(process), 60, "the winner's answer")
        assert sorted(one.poll() or 0 for one in starters) == [0, 69, 69, 69]
        assert process.client.request({"op": "ping"})
    finally:
        for one in starters:
            one.kill()
            one.communicate()


def _answers(process: Process) -> bool:
    try:
        return bool(process.client.request({"op": "ping"}))
    except UnavailableTamqError:
        return False


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_f32_what_is_no_socket_is_never_removed(process: Process, kind: str) -> None:
    other = process.folder / "precious"
    other.write_text("precious")
    match kind:
        case "file":
            process.socket.write_text("precious")
        case "folder":
            process.socket.mkdir()
        case "link":
            process.socket.symlink_to(other)
    done = process.run("serve")
    assert done.returncode == 78
    assert b"is there and is no socket" in done.stderr
    assert process.socket.exists()
    assert other.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.parametrize("uid", [NOBODY_ELSE, 65_534])
def test_another_user_is_refused_by_the_service_itself(process: Process, uid: int) -> None:
    """The file's mode is opened for the test, so that the refusal is the service's own."""
    process.start()
    shown = process.folder / "shown"
    shown.mkdir(mode=0o755)
    _open_the_way(process.folder)
    process.runtime.chmod(0o755)
    process.socket.chmod(0o666)
    told = _ask_as(process.socket, uid)
    assert told.returncode == 0, told.stderr
    theirs = json.loads(told.stdout)
    assert theirs["error"]["code"] == "unauthorized"
    assert str(uid) in theirs["error"]["message"]
    ours = _ask_as(process.socket, os.geteuid())
    assert json.loads(ours.stdout)["ok"] is True  # the positive control
    process.socket.chmod(0o600)
    barred = _ask_as(process.socket, uid)
    assert b"PermissionError" in barred.stderr


ASK_AS = """
import os, socket, sys
uid = int(sys.argv[2])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.sendall(b'{"op":"ping","protocol":"0.1"}\\n')
print(connection.makefile().read())
"""


def _ask_as(path: Path, uid: int) -> "subprocess.CompletedProcess[bytes]":
    """The interpreter starts as root, for its files may be nobody else's, and becomes the user."""
    argv = [sys.executable, "-I", "-c", ASK_AS, str(path), str(uid)]
    return subprocess.run(argv, capture_output=True, timeout=60, check=False)


def _open_the_way(folder: Path) -> None:
    for one in (folder, *folder.parents):
        if one.stat().st_uid == os.getuid() and one.name.startswith(("pytest", "test", "tmp")):
            one.chmod(one.stat().st_mode | 0o055)


def test_the_documented_line_without_python(process: Process) -> None:
    """Every shell line of the protocol's reference page, run as it stands there."""
    process.start()
    page = (ROOT / "docs" / "reference" / "tamq-protocol.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(echo .* \| socat .*)$", page, re.MULTILINE)
    assert lines
    for line in lines:
        done = subprocess.run(
            ["sh", "-c", line], env=process.environ, capture_output=True, timeout=60, check=True
        )
        assert json.loads(done.stdout)["ok"] is True


def test_what_was_answered_survives_a_kill(process: Process, tmp_path: Path) -> None:
    tmux = Tmux(tmp_path, "exec cat")
    try:
        process.start()
        attach = ("attach", "--repo", "shop", "--pane", tmux.pane, "--tmux-socket", tmux.socket)
        assert process.run(*attach, "--ack-mode", "injected").returncode == 0
        first = process.client.request(SEND)
        process.kill()
        process.start()
        again = process.client.request(SEND)
        assert again["message_id"] == first["message_id"]
        assert again["deduplicated"] is True
        shown = process.client.request({"op": "endpoints"})["endpoints"]
        assert len(shown) == 1  # the session is found again
        assert tmux.tell("#{pane_dead}") == "0"
    finally:
        tmux.close()


def test_f34_kills_do_not_let_the_log_grow(process: Process, tmp_path: Path) -> None:
    tmux = Tmux(tmp_path, "exec sleep 600")  # nothing takes the text: messages stay
    try:
        process.start()
        attach = ("attach", "--repo", "shop", "--pane", tmux.pane, "--tmux-socket", tmux.socket)
        assert process.run(*attach).returncode == 0
        wal = process.folder / "state" / "queue.db-wal"
        for turn in range(4):
            for number in range(50):
                process.client.request({**SEND, "idempotency_key": f"{turn}-{number}"})
            process.kill()
            process.start()
            assert not wal.exists() or wal.stat().st_size < 1_000_000
        history = process.client.request({"op": "history", "limit": 100})
        assert len(history["messages"]) == 100
        assert history["cursor"] is not None
    finally:
        tmux.close()


def test_a_damaged_database_is_refused_with_what_to_do(process: Process) -> None:
    process.start()
    process.stop()
    database = process.folder / "state" / "queue.db"
    database.write_bytes(b"garbage" * 1_000)
    done = process.run("serve")
    assert done.returncode == 74
    assert b"is not a database" in done.stderr
    assert database.read_bytes() == b"garbage" * 1_000


def test_another_program_s_database_is_refused(process: Process) -> None:
    import sqlite3

    (process.folder / "state").mkdir()
    connection = sqlite3.connect(process.folder / "state" / "queue.db")
    connection.execute("CREATE TABLE other (x)")
    connection.close()
    done = process.run("serve")
    assert done.returncode == 74
    assert b"application_id" in done.stderr


def test_a_socket_without_service_says_so(process: Process) -> None:
    with pytest.raises(UnavailableTamqError, match="no TAMQ listens") as caught:
        process.client.request({"op": "ping"})
    assert "tamq serve" in caught.value.hint
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(process.socket))
    with pytest.raises(UnavailableTamqError, match="no TAMQ listens"):
        process.client.request({"op": "ping"})
    assert process.run("ping").returncode == 69


def test_a_socket_that_was_removed_is_there_again(process: Process) -> None:
    process.start()
    assert process.running is not None
    first = process.client.request({"op": "ping"})["instance"]
    process.socket.unlink()
    other = process.run("serve")
    assert other.returncode == 69
    assert f"process {process.running.pid}".encode() in other.stderr
    until(lambda: _answers(process), 60, "the socket")
    assert process.client.request({"op": "ping"})["instance"] == first
    assert stat.S_IMODE(process.socket.lstat().st_mode) == 0o600
    assert process.stop() == 0
    assert not process.socket.exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o755])
def test_a_state_folder_of_others_is_refused_or_said(process: Process, mode: int) -> None:
    """Who can write there can put another queue in its place."""
    state = process.folder / "state"
    state.mkdir()
    state.chmod(mode)
    if mode & 0o022:
        done = process.run("serve")
        assert done.returncode == 78
        assert f"chmod 700 {state}".encode() in done.stderr
        return
    process.start()
    assert f"chmod 700 {state}" in process.log.read_text()


def test_an_empty_file_of_the_queue_is_a_new_queue_and_said(process: Process) -> None:
    state = process.folder / "state"
    state.mkdir(mode=0o700)
    (state / "queue.db").touch(mode=0o600)
    process.start()
    assert "a new queue begins" in process.log.read_text()


def test_a_queue_that_only_reads_is_named_and_leaves_nothing_beside_it(process: Process) -> None:
    process.start()
    assert process.stop() == 0
    queue = process.folder / "state" / "queue.db"
    queue.chmod(0o400)
    done = process.run("serve")
    assert done.returncode == 74
    assert f"chmod 600 {queue}".encode() in done.stderr
    left = queue.with_name("queue.db-wal")
    left.touch()
    left.chmod(0o400)  # as earlier releases left it
    queue.chmod(0o600)
    process.start()
    assert stat.S_IMODE(left.stat().st_mode) == 0o600
