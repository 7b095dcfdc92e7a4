"""`a2a-bridge card AGENT`, as an operator runs it."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from corral.local.topology import base_environment
from tests.contract.bridge_a2a.kit import served

MINIMAL = {
    "homeserver_url": "http://127.0.0.1:1",
    "server_name": "example.org",
    "as_token": "made-up-as-token-0123456789abcdef",
    "hs_token": "made-up-hs-token-0123456789abcdef",
    "database": "postgresql://nobody@localhost/none",
}


async def asked(folder: Path, url: str, *words: str) -> tuple[int | None, str, str]:
    config = folder / "bridge.json"
    config.write_text(json.dumps(MINIMAL | {"agents": {"scout": {"url": url}}}))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "corral.bridge.main", "card", *words,
        env=base_environment() | {"BRIDGE_CONFIG": os.fspath(config)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_good_card_and_agents_that_are_not_there(tmp_path: Path) -> None:
    async with served(tmp_path, card_version="0.3") as (_, url):
        status, out, err = await asked(tmp_path, url, "scout", "--json")
        assert (status, err) == (0, "")
        assert json.loads(out) | {"findings": []} == {
            "agent": "scout", "healthy": True, "name": "scripted", "protocol": "0.3",
            "endpoint": "http://localhost/rpc", "idempotent_for_s": None, "findings": [],
        }  # fmt: skip
        assert (await asked(tmp_path, url, "nobody"))[0] == 64
    status, out, _ = await asked(tmp_path, url, "scout")
    assert status == 1
    assert "[a2a_connect]" in out
