"""The official SDK's clients, 1.x and 0.3, unchanged, streaming included."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from corral.gateway.domain import Limits
from tests.contract.gateway.kit import CLIENTS, gateway
from tests.harness.a2a_peers import RELEASES, ROOT, sdk_python

PROGRAM = ROOT / "tests" / "harness" / "a2a_sdk_client.py"


@pytest.fixture(params=RELEASES)
async def told(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """What the client of one release saw."""
    async with gateway(tmp_path, limits=Limits(open_tasks_max=4)):
        process = await asyncio.create_subprocess_exec(
            sdk_python(request.param), "-P", PROGRAM,
            tmp_path / "socket", "http://localhost/a2a/scout", CLIENTS["ann"],
            stdout=subprocess.PIPE,
        )  # fmt: skip
        out, _ = await process.communicate()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


def state(event: dict[str, str]) -> tuple[str, str]:
    return event["state"], event["text"]


async def test_sdk_client(told: dict[str, Any]) -> None:
    assert told["name"] == "scout"
    assert state(told["blocking"]) == ("completed", "grüße")
    assert told["blocking"]["context"] == "c-1"
    one, two = told["again"]
    assert one == two
    assert "used for another message" in told["conflict"]
    assert state(told["asked"]) == ("input-required", "how many?")
    assert state(told["answered"]) == ("completed", "seven")
    assert told["answered"]["task"] == told["asked"]["task"]
    assert state(told["failed"]) == ("failed", "because")
    assert told["polling"]["state"] in {"submitted", "working"}
    assert told["working"]["state"] in {"submitted", "working"}
    assert state(told["canceled"]) == ("canceled", "")
    assert "canceled" in told["canceled again"]
    assert "no such task" in told["unknown"]
    assert state(told["streaming"][-1]) == ("completed", "bit by bit")
    assert told["streaming"][0]["state"] in {"submitted", "working", "completed"}
    assert told["followed"]["state"] == "canceled"
    if told["listed"]:
        assert told["listed"] == [[told["blocking"]["task"]]]
    more(told)


def more(told: dict[str, Any]) -> None:
    assert state(told["stream asks"][-1]) == ("input-required", "which?")
    assert state(told["stream answered"][-1]) == ("completed", "blue")
    assert {one["task"] for one in told["stream answered"]} == {told["stream asks"][0]["task"]}
    assert told["history"] == ["which?", "say blue", "blue"]
    assert "no such task" in told["stream of nothing"]
    assert "used for another message" in told["stream conflict"]
    assert "calls nobody" in told["called"]
    assert "all that it may" in told["full"]
    for name in ("stranger", "stranger's stream"):
        assert "401" in told[name]
    if told["listed"]:  # 1.x
        assert "the task is completed" in told["stream over"]
        assert [len(page) for page in told["pages"]] == [2, 1]
        assert len({task for page in told["pages"] for task in page}) == 3
        assert told["failed pages"] == [told["pages"][0]]
    else:
        assert [state(one) for one in told["stream over"]] == [("completed", "blue")]
