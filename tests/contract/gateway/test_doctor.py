"""`corral-gateway doctor` finds planted faults, and is green without; `tasks` shows ids."""

import asyncio
import contextlib
import json
import signal
import sqlite3
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from corral.core.settings import load
from corral.gateway import facts, looking
from corral.gateway.domain import Send, entry_key
from corral.gateway.service import Gateway
from corral.gateway.settings import GatewaySettings
from corral.gateway.store import Caller
from corral.local.deployment import REDIS
from corral.local.topology import base_environment
from corral.local.wait import until_async
from tests.contract.kit import AGENT, CAT, House
from tests.contract.streams import Backend

SOURCE = "echo"
WAIT_S = 60
ANN = Caller("ann", AGENT)
IDENTITY = f"source.{AGENT}.{SOURCE}"


@pytest.fixture
async def house(one_backend: Backend) -> AsyncIterator[House]:
    changes = {SOURCE: {"runner": dict(CAT)}}
    async with House(one_backend, only=(SOURCE,), changes=changes) as found:
        await found.start(REDIS)
        yield found


def settings(house: House, folder: Path, **changes: Any) -> GatewaySettings:
    credential = house.topology.rendered["identities"][IDENTITY]["credential"]
    token = folder / "token"
    if not token.exists():
        token.write_text("a-token")
        token.chmod(0o600)
    given: dict[str, Any] = {
        "socket": folder / "s",
        "state_dir": folder,
        "redis_url": f"unix://{house.topology.redis_socket}",
        "agents": {
            AGENT: {
                "password_file": house.topology.credential_file(credential),
                "source": SOURCE,
            }
        },
        "clients": {"ann": token},
    }
    return load(GatewaySettings, **given | changes)


def environment(given: GatewaySettings) -> dict[str, str]:
    one = given.model_dump(mode="json", include={"socket", "state_dir", "redis_url"})
    many = given.model_dump(mode="json", include={"agents", "clients"})
    texts = {name: str(value) for name, value in one.items()}
    texts |= {name: json.dumps(value) for name, value in many.items()}
    return base_environment() | {f"GATEWAY_{name.upper()}": text for name, text in texts.items()}


async def program(given: Mapping[str, str], *words: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "corral.gateway.main", *words,
        env=given, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return process.returncode, out.decode()


@contextlib.asynccontextmanager
async def serving(given: GatewaySettings) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "corral.gateway.main", "run",
        env=environment(given), stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip

    async def ready() -> bool:
        found = await facts.service(given)
        return not found.trouble and not found.legs

    try:
        await until_async(ready, WAIT_S, "the gateway to be ready")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def found(given: GatewaySettings) -> set[str]:
    """The codes of what is wrong."""
    return {one.code for one in await facts.examine(given)} - {"ok"}


async def test_green_while_it_serves(house: House, tmp_path: Path) -> None:
    given = settings(house, tmp_path)
    async with serving(given):
        status, out = await program(environment(given), "doctor", "--json")
        assert (status, json.loads(out)["healthy"]) == (0, True), out
        await house.admin("ACL", "LOG", "RESET")
        assert await found(given) == set()
        assert await house.admin("ACL", "LOG") == []
        # Nothing was changed by looking.
        assert await house.admin("XLEN", f"{AGENT}:{SOURCE}:inbox") == 0
        assert await house.admin("HKEYS", f"{AGENT}:{SOURCE}:sent") == [b"fence"]
        given.clients["ann"].write_text("another-token")
        assert await found(given) == {"token_stale"}
    assert await found(given) == {"not_serving"}


async def test_redis_that_is_away_or_refuses(house: House, tmp_path: Path) -> None:
    given = settings(house, tmp_path)
    assert await found(given) == {"not_serving", "database_missing", "group_missing"}
    outbox = f"{AGENT}:{SOURCE}:outbox"
    await house.admin("XGROUP", "CREATE", outbox, "source", "0", "MKSTREAM")
    quiet = {"not_serving", "database_missing"}
    assert await found(given) == quiet
    await house.admin("CONFIG", "SET", "maxmemory", "1")
    assert await found(given) == quiet | {"redis_full"}
    await house.admin("CONFIG", "SET", "maxmemory", "0")
    await house.admin("ACL", "SETUSER", IDENTITY, "clearselectors")
    assert await found(given) == quiet | {"acl_wrong"}
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-password")
    wrong.chmod(0o600)
    agents = {AGENT: {"password_file": wrong, "source": SOURCE}}
    assert await found(settings(house, tmp_path, agents=agents)) == quiet | {"redis_denied"}
    await house.slay(REDIS)
    assert await found(given) == quiet | {"redis_unreachable"}


async def test_secrets_and_database(house: House, tmp_path: Path) -> None:
    outbox = f"{AGENT}:{SOURCE}:outbox"
    await house.admin("XGROUP", "CREATE", outbox, "source", "0", "MKSTREAM")
    given = settings(house, tmp_path)
    given.clients["ann"].chmod(0o644)
    assert await found(given) == {"not_serving", "database_missing", "secret_readable"}
    given.clients["ann"].unlink()
    with contextlib.closing(sqlite3.connect(given.database)) as conn:
        conn.execute("PRAGMA application_id = 7")
    assert await found(given) == {"not_serving", "foreign_database", "secret_missing"}


async def test_full(house: House, tmp_path: Path) -> None:
    outbox = f"{AGENT}:{SOURCE}:outbox"
    await house.admin("XGROUP", "CREATE", outbox, "source", "0", "MKSTREAM")
    given = settings(house, tmp_path, open_tasks_max=1)
    async with Gateway(given.database, limits=given.limits) as gateway:
        await gateway.send(ANN, Send("m", "x"))
    assert await found(given) == {"not_serving", "tasks_full"}


async def test_tasks_are_shown_without_content(house: House, tmp_path: Path) -> None:
    given = settings(house, tmp_path)
    async with Gateway(given.database) as gateway:
        first = await gateway.send(ANN, Send("m-1", "secret words", context_id="c"))
        second = await gateway.send(ANN, Send("m-2", "secret words"))
        await gateway.cancel(ANN, second.task_id)
    env = environment(given)
    status, out = await program(env, "tasks")
    assert (status, out.split()[:4]) == (0, [first.task_id, "submitted", AGENT, "ann"])
    assert second.task_id not in out
    both = json.loads((await program(env, "tasks", "--all", "--json"))[1])["tasks"]
    assert [one["task_id"] for one in both] == [second.task_id, first.task_id]
    for any_id in (first.task_id, "m-1", "c"):
        status, out = await program(env, "tasks", any_id)
        assert status == 0
        assert "nothing of it was executed" in out
        assert entry_key("ann", "m-1") in out
        assert "secret" not in out
    assert (await program(env, "tasks", "nobodys"))[0] == looking.NoSuchTaskError.exit_code
    given.database.unlink()
    assert (await program(env, "tasks"))[0] == 69


async def test_a_backup_is_a_private_copy_that_knows_each_task(
    tmp_path: Path, house: House
) -> None:
    given = settings(house, tmp_path)
    status, out = await program(environment(given), "backup", "--json")
    assert (status, json.loads(out)["error"]["code"]) == (69, "unavailable")
    async with Gateway(given.database) as gateway:
        task = await gateway.send(ANN, Send("m-1", "hello"))
        status, out = await program(environment(given), "backup", "--json")
    assert status == 0, out
    made = Path(json.loads(out)["path"])
    assert (made.parent.parent, stat.S_IMODE(made.stat().st_mode)) == (tmp_path, 0o600)
    async with Gateway(made) as restored:
        assert (await restored.send(ANN, Send("m-1", "hello"))).task_id == task.task_id
