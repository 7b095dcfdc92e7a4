"""Sentences of the contract that no other test is about; `tamq-contract.md` lists them all."""

import asyncio
import json
import re
import socket
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from corral.tamq import transport
from corral.tamq.adapter import (
    AsyncCoordinationEngineAdapter,
    CoordinationEngineAdapter,
    WakeRequest,
)
from corral.tamq.errors import UnavailableTamqError
from corral.tamq.main import cli
from corral.tamq.replay import replay
from corral.tamq.settings import TamqSettings
from corral.tamq.store import Peer
from corral.tamq.terminal.base import Readiness, Ready
from tests.contract.tamq.kit import Process, Service, attach
from tests.contract.terminal.panes import Tmux
from tests.unit.cowboy_cli.reference import leaves

WAKE = WakeRequest("lease-1", "trigger-1", "shop", "look at issue 7", sender_repo="local")
SECRET = re.compile(r"token|bearer|passw|secret|credential", re.IGNORECASE)


def inodes_of(pid: int) -> set[str]:
    """The sockets that a process has open."""
    found = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        match = re.fullmatch(r"socket:\[(\d+)\]", str(fd.readlink()))
        if match is not None:
            found.add(match[1])
    return found


def test_there_is_no_network_listener(process: Process) -> None:
    process.start()
    assert process.running is not None
    pid = process.running.pid
    open_sockets = inodes_of(pid)
    listed: dict[str, set[str]] = {}
    for kind, column in (("unix", 6), ("tcp", 9), ("tcp6", 9), ("udp", 9), ("udp6", 9), ("raw", 9)):
        file = Path(f"/proc/{pid}/net/{kind}")
        lines = file.read_text().splitlines()[1:] if file.exists() else []
        listed[kind] = {line.split()[column] for line in lines} & open_sockets
    assert listed.pop("unix")  # the positive control
    assert not any(listed.values()), listed


def test_no_secret_is_given_on_the_command_line_or_by_a_setting() -> None:
    names = set(TamqSettings.model_fields)
    for _, command in leaves(("tamq",), cli):
        names |= {str(one.name) for one in command.params}
    assert {"socket", "message_id"} <= names  # the positive control
    assert not {name for name in names if SECRET.search(name)}


def test_without_peer_credentials_the_file_mode_is_the_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a platform that has none; where there are some, they decide (see test_wire)."""
    monkeypatch.setattr(transport, "_TELLS_PEERS", False)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert transport.peer_of(ours, 1000) == Peer(1000, 0)


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_wake_pings_first_and_each_question_is_a_connection(
    tmp_path: Path, kind: str
) -> None:
    asked: list[dict[str, Any]] = []
    answers: Mapping[str, dict[str, object]] = {
        "ping": {"protocol": "0.7", "capabilities": [
            "idempotent_send_v1", "bounded_delivery_ack_v1", "what_nobody_knows_v9"]},
        "endpoints": {"endpoints": [{"endpoint_id": "e1"}], "cursor": None},
        "send": {"message_id": "1-ab", "endpoint_id": "e1", "state": "pending",
                 "attempt_count": 0, "deduplicated": False},
    }  # fmt: skip

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fields = json.loads(await reader.readline())
        asked.append(fields)
        writer.write(json.dumps({"ok": True, **answers[fields["op"]]}).encode() + b"\n")
        writer.close()

    path = tmp_path / "s"
    async with await asyncio.start_unix_server(serve, path):
        if kind == "async":
            receipt = await AsyncCoordinationEngineAdapter(path, 30).wake(WAKE)
        else:
            receipt = await asyncio.to_thread(CoordinationEngineAdapter(path, 30).wake, WAKE)
    assert [one["op"] for one in asked] == ["ping", "endpoints", "send"]
    assert {one["protocol"] for one in asked} == {"0.1"}
    assert (receipt.message_id, receipt.endpoint_id) == ("1-ab", "e1")
    assert (receipt.lease_id, receipt.trigger_id) == ("lease-1", "trigger-1")


def test_the_same_adapter_and_the_receipts_go_on_after_a_restart(
    process: Process, tmux: Tmux
) -> None:
    """Neither side keeps a session; what was admitted is found by what the engine knows of it."""
    process.start()
    attach(process, tmux)
    adapter = CoordinationEngineAdapter(process.socket, 30)
    first = adapter.wake(WAKE)
    process.kill()
    with pytest.raises(UnavailableTamqError):
        adapter.wake(WAKE)
    process.start()
    again = adapter.wake(WAKE)
    assert (again.message_id, again.deduplicated) == (first.message_id, True)
    for fields in ({"correlation_id": "trigger-1"}, {"client_id": "coordination-engine"}):
        [found] = process.client.request({"op": "history", **fields})["messages"]
        assert found["message_id"] == first.message_id
        assert found["idempotency_key"] == "lease-1"


async def test_a_receipt_has_state_attempts_deadlines_and_correlation(service: Service) -> None:
    await service.register()
    terminal = service.queue.terminals["a"]
    terminal.looks = Readiness(Ready.BUSY, "busy")
    sent = await service.send(correlation_id="c", metadata={"lease_id": "l"})

    async def receipt() -> dict[str, Any]:
        await service.queue.settle()
        return await service.ask("message", message_id=sent["message_id"])

    def deadlines(found: dict[str, Any]) -> set[str]:
        names = ("next_attempt_at", "lease_until", "ack_deadline_at")
        shown = {name for name in names if found[name] is not None}
        assert all(datetime.fromisoformat(found[name]) for name in shown)
        return shown

    waiting = await receipt()
    assert (waiting["state"], deadlines(waiting)) == ("pending", {"next_attempt_at"})
    assert (waiting["correlation_id"], waiting["metadata"]) == ("c", {"lease_id": "l"})
    terminal.free.clear()
    terminal.looks = Readiness(Ready.READY, "ready")
    await service.queue.advance(1)
    await service.queue.until_wakes("a", 1)
    leased = await receipt()
    assert (leased["state"], deadlines(leased)) == ("pending", {"lease_until"})
    assert leased["attempt_count"] == 1
    terminal.free.set()
    await service.queue.settle()
    written = await receipt()
    assert (written["state"], deadlines(written)) == ("awaiting_ack", {"ack_deadline_at"})
    assert [one["outcome"] for one in written["attempts"]] == ["written"]


def test_a_replay_only_sends_and_is_validated_like_any_other(process: Process, tmux: Tmux) -> None:
    process.start()
    attach(process, tmux)
    asked: list[object] = []

    def ask(fields: Mapping[str, object]) -> dict[str, Any]:
        asked.append(fields["op"])
        return process.client.request(fields)

    lines = [
        json.dumps({"sender_repo": sender, "target_repo": target, "body": "again"}).encode()
        for sender, target in (("local", "shop"), ("local", "none"), ("none", "shop"))
    ]
    report = replay(lines, ask)
    assert list(report.sent) == [1]
    assert {line: error["code"] for line, error in report.refused.items()} == {
        2: "unknown_repo", 3: "unknown_repo",
    }  # fmt: skip
    assert set(asked) == {"send"}
    assert list(replay(lines, ask).deduplicated) == [1]


def test_f31_a_wake_reaches_the_repository_it_names_and_no_other(
    process: Process, tmux: Tmux, tmp_path: Path
) -> None:
    """Two sessions in real tmux; names that begin alike are two names."""
    process.repos.write_text("/src/shop,shop,,\n/src/shop-api,shop-api,,\n")
    process.start()
    attach(process, tmux)
    (tmp_path / "other").mkdir()
    other = Tmux(tmp_path / "other", "exec cat", width=200)
    try:
        where = ("--pane", other.pane, "--tmux-socket", other.socket)
        assert process.run("attach", "--repo", "shop-api", *where).returncode == 0
        for repo in ("shop", "shop-api"):
            done = process.run("send", "--repo", repo, "--json", f"this is for {repo}.")
            assert done.returncode == 0, done.stderr
        tmux.see("this is for shop.")
        other.see("this is for shop-api.")
        assert "shop-api" not in tmux.shown
        assert "for shop." not in other.shown
    finally:
        other.close()
