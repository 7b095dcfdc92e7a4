"""`gateway run` and its settings: what is refused, and that a second one is."""

import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import pytest

from corral.core.settings import load
from corral.gateway import daemon
from corral.gateway.settings import GatewaySettings
from corral.gateway.stream import Carrier
from corral.local.topology import base_environment
from corral.local.wait import until_async

WAIT_S = 60


def environment(folder: Path, **changes: str) -> dict[str, str]:
    for name in ("token", "password"):
        (folder / name).write_text(f"a-{name}")
    agents = {"scout": {"password_file": str(folder / "password")}}
    given = {
        "GATEWAY_SOCKET": str(folder / "s"),
        "GATEWAY_STATE_DIR": str(folder),
        "GATEWAY_REDIS_URL": f"unix://{folder / 'redis'}",
        "GATEWAY_AGENTS": json.dumps(agents),
        "GATEWAY_CLIENTS": json.dumps({"ann": str(folder / "token")}),
    }
    return base_environment() | given | changes


async def start(given: Mapping[str, str], *words: str) -> "asyncio.subprocess.Process":
    return await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "corral.gateway.main", *words,
        env=given, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip


async def ended(given: Mapping[str, str], *words: str) -> tuple[int | None, str]:
    process = await start(given, *words)
    _, err = await process.communicate()
    return process.returncode, err.decode()


async def test_it_serves_once_and_stops_when_asked(tmp_path: Path) -> None:
    """Redis is away all the time: messages are taken, and nothing else is affected."""
    given = environment(tmp_path)
    process = await start(given, "run")
    try:

        async def listens() -> bool:
            return (tmp_path / "s").exists()

        await until_async(listens, WAIT_S, "the gateway to listen")
        status, err = await ended(given, "run")
        assert (status, "another gateway serves" in err) == (69, True)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0
    assert not (tmp_path / "s").exists()


class Broken(Carrier):
    """As if nobody had foreseen what its leg meets."""

    async def _connect(self) -> NoReturn:
        raise KeyError("some words")


async def test_fault_of_a_leg_that_nobody_foresaw_ends_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(daemon, "Carrier", Broken)
    with pytest.raises(ExceptionGroup) as found:
        await daemon.run(load(GatewaySettings))
    assert found.group_contains(KeyError)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"GATEWAY_AGENTS": "{}"}, "agents"),
        ({"GATEWAY_AGENTS": '{"Scout": {"password_file": "/x"}}'}, "agents"),
        ({"GATEWAY_AGENTS": '{"scout": {"password": "secret"}}'}, "agents.scout"),
        ({"GATEWAY_CLIENTS": "{}"}, "clients"),
        ({"GATEWAY_BASE_URL": "ftp://x"}, "base_url"),
        ({"GATEWAY_SOCKET_MODE": "512"}, "socket_mode"),
        ({"GATEWAY_REDIS_URL": "redis://u:secret@h"}, "redis_url"),
        ({"GATEWAY_RETENTION_S": "1"}, "retention_s"),
    ],
)
async def test_settings_that_are_wrong(tmp_path: Path, changes: dict[str, str], wrong: str) -> None:
    status, err = await ended(environment(tmp_path, **changes), "check-config")
    assert status == 78
    assert err.startswith(f"corral-gateway: {wrong}")
    assert "secret" not in err


async def test_settings_that_are_right(tmp_path: Path) -> None:
    assert (await ended(environment(tmp_path), "check-config"))[0] == 0


@pytest.mark.parametrize("held", ["", "two words", "t\xfc"])
async def test_token_that_is_none(tmp_path: Path, held: str) -> None:
    given = environment(tmp_path)
    (tmp_path / "token").write_bytes(held.encode("latin-1"))
    status, err = await ended(given, "run")
    assert status == 78
    assert "clients.ann" in err
    assert "words" not in err


async def test_two_clients_need_two_tokens(tmp_path: Path) -> None:
    token = str(tmp_path / "token")
    clients = json.dumps({"ann": token, "bob": token})
    status, err = await ended(environment(tmp_path, GATEWAY_CLIENTS=clients), "run")
    assert (status, "same token" in err) == (78, True)
