"""The service without enough file descriptors: sessions stay what they are, clients are told."""

import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from corral.local.wait import until
from corral.tamq.errors import BusyError
from tests.contract.tamq.kit import SEND, Process, attach
from tests.contract.terminal.hosted import Hosted
from tests.contract.terminal.panes import Tmux

PATIENCE_S = 90.0
HARD_LIMIT = 256
ALLOWED = 96  # connections, of that limit
CROWD = 400


class Limited(Process):
    """`tamq serve` that may open few files."""

    def argv(self, *arguments: str) -> list[str]:
        limit = (
            ["prlimit", f"--nofile={HARD_LIMIT}:{HARD_LIMIT}"] if arguments[0] == "serve" else []
        )
        return [*limit, *super().argv(*arguments)]


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Limited]:
    made = Limited(tmp_path)
    try:
        yield made
    finally:
        made.close()


def endpoints(process: Process) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = process.client.request({"op": "endpoints"})["endpoints"]
    return found


def test_f28_sessions_outlive_a_service_without_descriptors(process: Process) -> None:
    """Nothing can be opened for a while. tmux, `tamq run` and their programs live, and are kept."""
    process.environ["TAMQ_IDLE_LOOK_S"] = "0.1"
    process.start()
    assert process.running is not None
    with ExitStack() as stack:
        tmux = Tmux(process.folder, "exec cat")
        stack.callback(tmux.close)
        attach(process, tmux, "--ack-mode", "injected")
        run = process.argv("run", "--repo", "lib", "--", "cat")
        hosted = Hosted.of(process.folder, run, process.environ)
        stack.callback(hosted.close)
        until(lambda: len(endpoints(process)) == 2, PATIENCE_S, "both sessions")
        pid = process.running.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, before[1]))
        seen = "session unreachable"
        until(lambda: process.log.read_text().count(seen) >= 2, PATIENCE_S, "looks that fail")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        assert len(endpoints(process)) == 2
        until(
            lambda: all(one["ready"] == "ready" for one in endpoints(process)), PATIENCE_S, "ready"
        )
        process.client.request(SEND)
        tmux.see("[end of TAMQ message")
        log = process.log.read_text()
    assert "endpoint gone" not in log


def test_a_crowd_is_busy_before_descriptors_run_out(limited: Limited) -> None:
    """Readers are few, however many ask; connections leave room for looks at sessions."""
    limited.start()
    tmux = Tmux(limited.folder, "exec cat")
    try:
        attach(limited, tmux, "--ack-mode", "injected")
        with ThreadPoolExecutor(ALLOWED // 2) as pool:
            pages = [pool.submit(limited.client.request, {"op": "history"}) for _ in range(CROWD)]
            assert all(one.result()["messages"] == [] for one in pages)
        with ExitStack() as stack:
            for _ in range(CROWD):
                one = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                one.settimeout(PATIENCE_S)
                one.connect(str(limited.socket))
                one.sendall(b"{")
            until(lambda: answered(limited), PATIENCE_S, "an answer in the crowd")
            assert [one["ready"] for one in endpoints(limited)] == ["ready"]
        limited.client.request(SEND)
        tmux.see("[end of TAMQ message")
    finally:
        tmux.close()
    log = limited.log.read_text()
    assert "cannot accept" not in log
    assert "session unreachable" not in log
    assert f'"connections":{ALLOWED}' in log.replace(" ", "")


def answered(process: Process) -> bool:
    try:
        return bool(process.client.request({"op": "ping"}))
    except BusyError:
        return False
