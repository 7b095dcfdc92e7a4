"""A full disk and a full Redis: work stops with a clear status, loses nothing, and goes on."""

import asyncio
import os
import resource
import shutil
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
import redis

from corral.local.agent import prompt_for
from corral.local.deployment import DAEMON, RUNNER, plain_launch
from corral.local.ledger import copy_ledger
from tests.contract.kit import AGENT, TIMEOUT_S, Backend, House, each_completed

DISK_BYTES = 16 << 20
LOG_MAX_BYTES = 1 << 15
LARGE_BYTES = 60_000
# Mounts a small disk over the state directory, for this process alone, then becomes the daemon.
ON_A_SMALL_DISK = 'mount -t tmpfs -o "size=$1,mode=700" none "$2" && shift 2 && exec "$@"'


def unshared() -> list[str]:
    """The command that gives a process mounts of its own; skips the test where that is refused."""
    command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare on this machine")
    trial = subprocess.run(
        [*command, "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False
    )
    if trial.returncode:
        pytest.skip(f"no mounts of our own here: {trial.stderr.decode().strip()}")
    return command


def on_a_small_disk(house: House) -> None:
    """The daemon's state directory is a disk of `DISK_BYTES`, gone when the daemon ends."""
    prefix = [
        *unshared(), "sh", "-c", ON_A_SMALL_DISK, "sh", str(DISK_BYTES),
        str(house.topology.state_dir),
    ]  # fmt: skip

    def command(start: int) -> Sequence[str]:
        return [*prefix, *plain_launch(AGENT)(DAEMON, start)]

    house.supervisor.services[DAEMON].command = command


def inside_of(house: House, path: Path) -> Path:
    """A path as the daemon sees it."""
    process = house.supervisor.services[DAEMON].process
    assert process is not None
    return Path(f"/proc/{process.pid}/root") / path.relative_to("/")


def fill(path: Path) -> None:
    """Writes a file until the disk is full."""
    with path.open("wb", buffering=0) as file:
        for size in (65_536, 4_096, 512, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue


@asynccontextmanager
async def full_disk(house: House) -> AsyncIterator[None]:
    filler = inside_of(house, house.topology.state_dir) / "filler"
    await asyncio.to_thread(fill, filler)
    try:
        yield
    finally:
        filler.unlink()


@asynccontextmanager
async def full_files(house: House) -> AsyncIterator[None]:
    """No file of the daemon may be larger than its log may still become.

    Not even the write-ahead log, emptied: its first `LARGE_BYTES` do not go into it.
    """
    process = house.supervisor.services[DAEMON].process
    assert process is not None
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    limit = house.supervisor.log_file(DAEMON).stat().st_size + LOG_MAX_BYTES
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)


def committed(house: House) -> set[str]:
    """Entries that the ledger has, from a copy of it."""
    copy = copy_ledger(
        inside_of(house, house.topology.ledger(AGENT)), house.base / "copy-of-the-small-disk"
    )
    with closing(sqlite3.connect(copy)) as connection:
        rows = connection.execute("SELECT turn_id FROM turns").fetchall()
    return {turn_id.split(".", 3)[3] for (turn_id,) in rows}


async def acknowledged(house: House, source: str, entries: Iterable[str]) -> set[str]:
    """Of these entries, the ones that were read and are not pending any more."""
    inbox = f"{AGENT}:{source}:inbox"
    admin = await house.deployment.admin()
    groups: list[Any] = await admin.xinfo_groups(inbox)
    last = _order(groups[0]["last-delivered-id"].decode())
    rows: list[Any] = await admin.xpending_range(inbox, "cowboy", "-", "+", 10_000)
    pending = {row["message_id"].decode() for row in rows}
    return {entry for entry in entries if _order(entry) <= last} - pending


def _order(entry: str) -> tuple[int, int]:
    ms, _, seq = entry.partition("-")
    return int(ms), int(seq)


@pytest.mark.parametrize("limit", [full_disk, full_files])
async def test_a_full_disk_stops_work_and_loses_nothing(backend: Backend, limit: Any) -> None:
    changes = {"a2a": {"on_interrupt": "hold"}}
    async with House(backend, only=("a2a", "echo"), changes=changes) as house:
        on_a_small_disk(house)
        await house.start()
        sent: dict[str, list[str]] = {"a2a": [], "echo": []}

        async def send(count: int, size: int = 12_000) -> None:
            for source, entries in sent.items():
                for _ in range(count):
                    n = len(entries)
                    text = prompt_for(b"%d " % n + b"x" * size, work_s=0.01)
                    entries.append(await house.send(source, text, channel=f"c{n % 4}"))

        await send(2)
        for source, entries in sent.items():
            await house.until_answered(source, entries)
        async with limit(house):
            await send(10, LARGE_BYTES)
            for source in sent:
                state = await house.until_state(source, "storage_full")
                assert not state["healthy"]
                assert "full" in state["reason"]
            # What is acknowledged is in the ledger: sending more changes nothing about that.
            await send(3, LARGE_BYTES)
            for source, entries in sent.items():
                done = await acknowledged(house, source, entries)
                assert done <= await asyncio.to_thread(committed, house)
                assert len(done) < len(entries)
            if limit is full_disk:
                refused = await house.ask("backup")
                assert (refused["ok"], refused["error"]["code"]) == (False, "storage")
            turn_id = f"{AGENT}.a2a.1.{sent['a2a'][-1]}"
            for op in ("release", "abandon"):
                refused = await house.ask(op, turn_id=turn_id)
                assert not refused["ok"]
        await send(1)
        for source, entries in sent.items():
            found = await house.until_answered(source, entries, timeout_s=40)
            each_completed(found, entries)
            await house.until_quiet(source)
            assert (await house.until_state(source, "running"))["healthy"]
        starts = [turn.rpartition(".")[2] for turn in house.starts()]
        assert sorted(starts, key=_order) == sent["a2a"]
        assert (await house.ask("backup"))["ok"]


async def test_a_start_without_space_says_so_and_ends(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        environment = house.topology.environment(AGENT, redis=True)
        command = [*plain_launch(AGENT)(DAEMON, 0)]
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *command),
            cwd=house.base,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(TIMEOUT_S):
            _, err = await process.communicate()
        assert process.returncode == 74
        assert b"ledger.db" in err
        assert b"full" in err  # what to look at
        house.topology.ledger(AGENT).unlink(missing_ok=True)
        async with house.inside():  # the control: with space it starts
            entry = await house.send("echo", "hello")
            await house.until_answered("echo", [entry])


async def full(house: House) -> None:
    """From now on Redis has no memory for anything new."""
    await house.admin("CONFIG", "SET", "maxmemory", "1mb")


async def roomy(house: House) -> None:
    await house.admin("CONFIG", "SET", "maxmemory", "256mb")


@pytest.mark.parametrize("source", ["a2a", "chat"])
async def test_a_full_redis_stops_work_and_loses_nothing(
    every_backend: Backend, source: str
) -> None:
    changes = {source: {"turns_concurrent_max": 2}}
    async with House(every_backend, only=(source,), changes=changes) as house:
        await house.start(RUNNER)
        async with house.inside():
            first = await house.send(source, "first")
            await house.until_answered(source, [first])
            entries = [
                await house.send(source, prompt_for(b"%d" % n, work_s=0.2), channel=f"c{n}")
                for n in range(6)
            ]
            await house.until(lambda: len(house.starts()) > 1, "a run to start")
            await full(house)
            before = len(await house.outbox(source))
            state = await house.until_state(source, "redis_full")
            assert (state["healthy"], "maxmemory" in state["reason"]) == (False, True)
            # Every run ends meanwhile; the state stays clear, no attempt is spent, none is lost.

            async def all_replying() -> bool:
                found = await house.source(source)
                assert (found["state"], found["healthy"]) == ("redis_full", False)
                return bool(found["turns"].get("replying") == 7 - before)

            await house.until_async(all_replying, "every answer to wait")
            assert len(await house.outbox(source)) == before
            assert house.ledger_rows("SELECT max(effect_attempts) FROM turns") == [(0,)]
        async with house.inside():  # a restart finds it full, and says so
            state = await house.until_state(source, "redis_full")
            assert not state["healthy"]
            await roomy(house)
            each_completed(await house.until_answered(source, entries), entries)
            await house.until_quiet(source)
            state = await house.until_state(source, "running")
            assert (state["healthy"], state["events"]) == (True, [])
        assert len(house.starts()) == 7


async def test_a_full_redis_recovers_without_a_restart(backend: Backend) -> None:
    async with House(backend) as house:
        await house.start(RUNNER)
        async with house.inside():
            entries = {
                source: [await house.send(source, f"{n}", channel="c") for n in range(4)]
                for source in ("a2a", "chat", "echo")
            }
            await full(house)
            await roomy(house)
            for source, ids in entries.items():
                each_completed(await house.until_answered(source, ids), ids)
            await full(house)
            with pytest.raises(Exception, match="maxmemory"):
                await house.send("echo", "refused: its producer knows")
            await roomy(house)
            for source, ids in entries.items():
                after = await house.send(source, "after")
                each_completed(await house.until_answered(source, [*ids, after]), [*ids, after])
                await house.until_quiet(source)
                assert await house.events(source) == []


async def test_f04_a_failover_while_blocked(backend: Backend) -> None:
    house = House(backend, only=("echo",), changes={"echo": {"block_ms": 5_000}})
    async with house, house.inside():
        first = await house.send("echo", "before")
        await house.until_answered("echo", [first])
        await house.until_quiet("echo")
        await house.until_async(house.blocked_clients, "the read to block")
        tried, began_s = await house.calls("evalsha"), time.monotonic()
        await house.admin("REPLICAOF", "127.0.0.1", "1")  # a replica of nobody: it may not write

        async def read_only() -> bool:
            state = await house.source("echo")
            return not state["healthy"] and "read only replica" in state["reason"]

        await house.until_async(read_only, "the read-only server to be named")
        assert await house.errors("UNBLOCKED") == 1

        async def tries() -> bool:
            return await house.calls("evalsha") >= tried + 5

        await house.until_async(tries, "five tries")
        assert time.monotonic() - began_s > 0.5  # with back-off, and not 600 a second
        await house.admin("REPLICAOF", "NO", "ONE")
        second = await house.send("echo", "after")
        each_completed(await house.until_answered("echo", [first, second]), [first, second])
        state = await house.until_state("echo", "running")
        assert (state["healthy"], state["events"]) == (True, [])


async def test_a_busy_redis_spends_no_attempt(backend: Backend) -> None:
    async with House(backend, only=("a2a",)) as house:
        await house.start(RUNNER)
        async with house.inside():
            entry = await house.send("a2a", prompt_for(b"x", work_s=0.3))
            await house.until(lambda: len(house.starts()) == 1, "the agent to start")
            await house.admin("CONFIG", "SET", "busy-reply-threshold", 50)
            with house.server.client() as client:
                looping = asyncio.ensure_future(asyncio.to_thread(for_ever, client))

                async def busy() -> bool:
                    state = await house.source("a2a")
                    return not state["healthy"] and "busy running a script" in state["reason"]

                await house.until_async(busy, "the busy server to be named")
                await house.admin("SCRIPT", "KILL")
                await looping
            each_completed(await house.until_answered("a2a", [entry]), [entry])
            await house.until_quiet("a2a")
            assert await house.events("a2a") == []
            assert house.ledger_rows("SELECT effect_attempts, ack_attempts FROM turns") == [(0, 1)]


def for_ever(client: "redis.Redis") -> None:
    """Keeps the server busy until somebody kills the script, or the client gives up."""
    with suppress(redis.RedisError):
        client.eval("while true do end", 0)
