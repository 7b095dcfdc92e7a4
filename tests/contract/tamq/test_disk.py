"""A disk that takes nothing: a clear error, and no answer that lies."""

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corral.tamq.errors import TamqError, UnavailableTamqError
from tests.contract.tamq.kit import SEND, Process, attach
from tests.contract.terminal.panes import Tmux


def sends(process: Process, first: int, count: int) -> tuple[dict[str, Any], list[str]]:
    """Answers by key, and what the refused ones were told."""
    answered: dict[str, Any] = {}
    refused = []
    for number in range(first, first + count):
        key = f"k{number}"
        try:
            answered[key] = process.client.request(
                {**SEND, "idempotency_key": key, "body": "x" * 8000}
            )
        except UnavailableTamqError as error:
            refused.append(f"{error} retryable={error.retryable}")
    return answered, refused


def test_a_disk_that_is_full_refuses_and_heals_by_itself(process: Process, tmux: Tmux) -> None:
    """The limit on the size of files stands for the disk: the kernel refuses to write more."""
    process.start()
    attach(process, tmux, "--ack-mode", "injected")
    assert process.running is not None
    before, _ = sends(process, 0, 3)
    pid = process.running.pid
    limits = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    size = (process.folder / "state" / "queue.db-wal").stat().st_size
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 40_000, limits[1]))
    during, refused = sends(process, 3, 20)
    assert refused
    assert all("nothing was stored" in one and "retryable=True" in one for one in refused)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, limits)
    after, none = sends(process, 3, 20)
    assert not none
    for key, answer in (before | during).items():
        again = process.client.request({**SEND, "idempotency_key": key, "body": "x" * 8000})
        assert again["message_id"] == answer["message_id"]
        assert again["deduplicated"] is True
    assert all(after[key]["message_id"] == during[key]["message_id"] for key in during)
    process.kill()
    process.start()
    seen = process.client.request({"op": "history", "limit": 100})["messages"]
    assert {one["idempotency_key"] for one in seen} == {f"k{number}" for number in range(23)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_disk_that_only_reads_is_refused_at_the_start(process: Process) -> None:
    state = process.folder / "state"
    state.mkdir(mode=0o700)
    script = 'mount -t tmpfs none "$0" && mount -o remount,ro "$0" && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", script, str(state), *process.argv("serve")]
    done = subprocess.run(argv, env=process.environ, capture_output=True, timeout=60, check=False)
    assert done.returncode == 74, done.stderr
    assert b"Read-only file system" in done.stderr
    assert not process.socket.exists()


class Mounted(Process):
    """Its state is on a file system of its own, of 3 MiB, in a mount namespace."""

    def argv(self, *arguments: str) -> list[str]:
        argv = super().argv(*arguments)
        if arguments != ("serve",):
            return argv
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        script = 'mount -t tmpfs -o size=3m,mode=700 none "$0" && exec "$@"'
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
        return [*enter, script, str(state), *argv]

    def inside(self, script: str) -> None:
        assert self.running is not None
        enter = ["nsenter", "--target", str(self.running.pid), "--mount", "sh", "-c", script]
        subprocess.run([*enter, str(self.folder / "state")], check=True, timeout=60)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_disk_that_is_really_full_and_has_room_again(tmp_path: Path, tmux: Tmux) -> None:
    """What was answered is there; what was refused is not; an acknowledgement is never invented."""
    process = Mounted(tmp_path)
    try:
        process.start()
        attach(process, tmux, "--ack-mode", "injected")
        before, _ = sends(process, 0, 3)
        process.inside('dd if=/dev/zero of="$0/full" bs=4k 2>/dev/null || :')
        during, refused = sends(process, 3, 30)
        assert len(refused) > 20
        assert all("nothing was stored" in one and "retryable=True" in one for one in refused)
        one = next(iter(before.values()))["message_id"]
        assert process.client.request({"op": "message", "message_id": one})["message_id"] == one
        if not during:  # the log of the database was full at once, too
            with pytest.raises(UnavailableTamqError, match="nothing was stored"):
                process.client.request({"op": "ack", "message_id": one})
        process.inside('rm "$0/full"')
        known = {key: answer["message_id"] for key, answer in (before | during).items()}
        after, none = sends(process, 0, 33)
        assert not none
        assert {key: after[key]["message_id"] for key in known} == known
        assert {key for key, answer in after.items() if answer["deduplicated"]} == set(known)
        answer = process.client.request({"op": "ack", "message_id": one})
        assert answer["state"] == "acknowledged"
    finally:
        process.close()


@pytest.mark.parametrize("damage", ["zeros", "noise", "one letter", "half"])
@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_damaged_queue_says_so_and_never_another_text(
    process: Process, tmux: Tmux, damage: str, acknowledged: bool
) -> None:
    """Whatever the damage: refused at the start, or at the message that it fell on."""
    process.start()
    attach(process, tmux, "--ack-mode", "injected")
    tmux.run("copy-mode", "-t", tmux.pane)  # all wait
    bodies = {f"k{number}": f"{number:04}" * 1500 for number in range(30)}
    ids = {}
    for key, body in bodies.items():
        answer = process.client.request({**SEND, "idempotency_key": key, "body": body})
        ids[key] = answer["message_id"]
        if acknowledged:
            process.client.request({"op": "ack", "message_id": answer["message_id"]})
    assert process.stop() == 0
    database = process.folder / "state" / "queue.db"
    database.write_bytes(damaged(database.read_bytes(), damage))
    assert process.running is not None
    refused = 0
    try:
        process.start()
    except AssertionError:  # it ended: the reason is in its log
        assert process.running.wait(60) == 74
        assert any(word in process.log.read_text() for word in ("malformed", "damaged"))
        return
    for key, body in bodies.items():
        for fields in (
            {"op": "message", "message_id": ids[key]},
            {**SEND, "idempotency_key": key, "body": body},
        ):
            found, problem = told(process, fields)
            refused += problem is not None
            if problem is None:
                assert found["message_id"] == ids[key]
                assert found.get("body", body) == body
            else:
                assert problem.code == "unavailable"
                assert "malformed" in problem.message or "damaged" in problem.message
    assert refused


def told(process: Process, fields: dict[str, Any]) -> tuple[dict[str, Any], TamqError | None]:
    """The answer, or what was said in its place."""
    try:
        return process.client.request(fields), None
    except TamqError as error:
        return {}, error


def damaged(content: bytes, how: str) -> bytes:
    """A file of the queue after something else wrote into it."""
    page = 4_096
    pages = [content[at : at + page] for at in range(0, len(content), page)]
    match how:
        case "zeros":
            pages[5::7] = [bytes(page)] * len(pages[5::7])
        case "noise":
            pages[4::5] = [os.urandom(page)] * len(pages[4::5])
        case "half":
            del pages[len(pages) // 2 :]
        case "one letter":
            return content.replace(b"00070007", b"00070008", 1)
    return b"".join(pages)


def test_a_queue_that_is_truncated_while_it_is_used_answers_no_more_sends(
    process: Process, tmux: Tmux
) -> None:
    process.start()
    attach(process, tmux, "--ack-mode", "injected")
    assert told(process, {**SEND, "idempotency_key": "before"})[1] is None
    os.truncate(process.folder / "state" / "queue.db", 0)
    for key in ("first", "second", "third"):
        _, error = told(process, {**SEND, "idempotency_key": key})
        assert error is not None
        assert error.code == "unavailable"
        assert "truncated" in str(error)
