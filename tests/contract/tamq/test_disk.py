"""A disk that takes nothing: a clear error, and no answer that lies."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral.tamq.errors import UnavailableTamqError
from tests.contract.tamq.kit import SEND, Process
from tests.contract.terminal.panes import Tmux


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    made = Tmux(tmp_path, "exec cat")
    try:
        yield made
    finally:
        made.close()


def attach(process: Process, tmux: Tmux) -> None:
    where = ("--pane", tmux.pane, "--tmux-socket", tmux.socket)
    done = process.run("attach", "--repo", "shop", "--ack-mode", "injected", *where)
    assert done.returncode == 0, done.stderr


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
    attach(process, tmux)
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
