"""The capture's files: what is in them, how they rotate; and which lines a replay takes."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from corral.local.wait import until_true
from corral.tamq.capture import Capture
from corral.tamq.errors import InvalidRequestError, InvalidStateError, UnavailableTamqError
from corral.tamq.replay import replay, request_of
from corral.tamq.store import Peer

PEER = Peer(1000, 42)
SEND: dict[str, Any] = {
    "op": "send", "sender_repo": "local", "target_repo": "shop", "body": "secret words",
    "metadata": {"a": "secret"},
}  # fmt: skip


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(one) for one in (folder / "capture.jsonl").read_text().splitlines()]


def taken(capture: Capture, count: int) -> bool:
    return capture.written >= count


async def answer(fields: dict[str, Any], peer: Peer) -> dict[str, object]:
    del peer
    return {"message_id": "1-" + "0" * 32, "body": fields["body"], "messages": [dict(SEND)]}


async def refuse(fields: dict[str, Any], peer: Peer) -> dict[str, object]:
    raise InvalidStateError("no")


@pytest.mark.parametrize("bodies", [False, True])
async def test_content_is_there_only_when_it_was_asked_for(tmp_path: Path, bodies: bool) -> None:
    folder = tmp_path / "capture"
    async with Capture(folder, bodies=bodies, file_max_bytes=100_000, files=3) as capture:
        await capture.around(answer, dict(SEND), PEER)
        with pytest.raises(InvalidStateError):
            await capture.around(refuse, dict(SEND), PEER)
        capture.note({"kind": "attempt", "message_id": "m", "outcome": "injected"})
    first, second, third = lines(folder)
    assert (first["uid"], first["pid"], first["answer"]["ok"]) == (1000, 42, True)
    assert second["answer"]["error"]["code"] == "invalid_state"
    assert (third["kind"], third["outcome"]) == ("attempt", "injected")
    assert ("secret" in (folder / "capture.jsonl").read_text()) is bodies
    assert (folder / "capture.jsonl").stat().st_mode & 0o777 == 0o600


async def test_files_rotate_at_their_size_and_the_oldest_goes(tmp_path: Path) -> None:
    async with Capture(tmp_path, bodies=False, file_max_bytes=300, files=3) as capture:
        for number in range(40):
            capture.note({"kind": "attempt", "number": number})
            await until_true(partial(taken, capture, number + 1), 30, "the line to be written")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["capture.jsonl", "capture.jsonl.1", "capture.jsonl.2"]
    assert all(path.stat().st_size <= 300 for path in tmp_path.iterdir())
    newest = [json.loads(one)["number"] for one in (tmp_path / names[0]).read_text().splitlines()]
    before = [json.loads(one)["number"] for one in (tmp_path / names[1]).read_text().splitlines()]
    assert newest[-1] == 39
    assert before[-1] == newest[0] - 1


async def test_a_disk_that_refuses_is_counted_and_nobody_waits(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    async with Capture(blocked / "in", bodies=False, file_max_bytes=300, files=3) as capture:
        assert (await capture.around(answer, dict(SEND), PEER))["body"] == "secret words"
    assert capture.dropped == 1


async def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    async with Capture(None, bodies=True, file_max_bytes=300, files=3) as capture:
        capture.note({"kind": "attempt"})
    assert list(tmp_path.iterdir()) == []


# ---- replay ----


def exchange(**changes: Any) -> bytes:
    entry = {
        "kind": "exchange", "request": SEND, "answer": {"ok": True, "message_id": "7-abc"},
    } | changes  # fmt: skip
    return json.dumps(entry).encode() + b"\n"


def test_the_key_is_the_original_id_or_a_digest() -> None:
    from_capture = request_of(exchange())
    assert from_capture is not None
    assert (from_capture["client_id"], from_capture["idempotency_key"]) == ("tamq-replay", "7-abc")
    assert "endpoint_id" not in from_capture
    plain = {name: SEND[name] for name in ("sender_repo", "target_repo", "body")}
    one, two = (request_of(json.dumps(order).encode())
                for order in (plain, dict(reversed(plain.items()))))  # fmt: skip
    assert one is not None
    assert two is not None
    assert one["idempotency_key"] == two["idempotency_key"]
    other = request_of(json.dumps({**plain, "body": "other"}).encode())
    assert other is not None
    assert other["idempotency_key"] != one["idempotency_key"]


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b'{"kind": "attempt", "message_id": "x"}',
        exchange(request={"op": "ack"}),
        exchange(answer={"ok": False, "error": {}}),
    ],
)
def test_what_is_no_admitted_send_is_skipped(line: bytes) -> None:
    assert request_of(line) is None


@pytest.mark.parametrize(
    "line", [b"x", b"[]", b'{"target_repo": "shop"}', exchange(request={"op": "send"}),
             b'{"body": "\\ud800"}', b"[" * 50_000]
)  # fmt: skip
def test_garbage_is_refused_by_its_line(line: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        request_of(line)
    report = replay([line], lambda fields: {"deduplicated": False})
    assert list(report.refused) == [1]


def test_a_service_that_is_gone_ends_the_replay_and_a_session_that_is_not() -> None:
    def gone(_: object) -> dict[str, Any]:
        raise UnavailableTamqError("no TAMQ listens")

    with pytest.raises(UnavailableTamqError, match="line 1: no TAMQ listens"):
        replay([exchange(), exchange()], gone)

    def nobody(_: object) -> dict[str, Any]:
        raise UnavailableTamqError("no live endpoint", ids={"target_repo": "shop"})

    report = replay([exchange(), exchange()], nobody)
    assert list(report.refused) == [1, 2]
