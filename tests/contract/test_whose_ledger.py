"""One ledger serves a stream: locks, other hosts, older copies, an emptied Redis, a lost group."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from corral.core.errors import UnavailableError
from corral.core.settings import load
from corral.cowboy.control import ask
from corral.cowboy.daemon import Daemon
from corral.cowboy.settings import CowboySettings
from corral.local.agent import prompt_for
from corral.local.deployment import DAEMON, RUNNER
from tests.contract.kit import AGENT, Backend, House, each_completed, only_answer


@asynccontextmanager
async def other_host(house: House, where: Path) -> AsyncIterator[Daemon]:
    """A daemon of the same agent with directories of its own, as on another host."""
    (where / "run" / AGENT).mkdir(parents=True)
    login = house.topology.login(f"agent-{AGENT}")

    def make() -> Daemon:
        settings = load(
            CowboySettings,
            config_dir=house.topology.config_dir,
            state_dir=where / "state",
            runtime_dir=where / "run",
            redis_url=f"unix://{house.topology.redis_socket}",
            redis_password=login.password,
            redis_protocol=house.backend.protocol,
        )
        return Daemon(settings, AGENT)

    daemon = await asyncio.to_thread(make)
    task = asyncio.create_task(daemon.run())
    try:
        yield daemon
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def state_of(daemon: Daemon, source: str) -> dict[str, Any]:
    socket = daemon.settings.control_socket(AGENT)
    try:
        answer = await asyncio.to_thread(ask, socket, {"op": "status"})
    except UnavailableError:
        return {"state": "starting"}
    found: dict[str, Any] = {s["source"]: s for s in answer["sources"]}[source]
    return found


def move_state(house: House, name: str) -> Path:
    """Puts the ledger away, as if the disk were another one; where it is now."""
    kept = house.base / name
    house.topology.state_dir.rename(kept)
    house.topology.state_dir.mkdir(mode=0o700)
    return kept


# ------------------------------------------------------------------------------ two daemons


async def test_a_second_daemon_of_one_ledger_is_refused(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        async with house.inside():
            first = await house.send("echo", "one")
            await house.until_answered("echo", [first])
            fence = await house.admin("GET", "scout:echo:fence")
            second = await house.cowboy("run", AGENT)
            assert second.status == 69
            assert "another daemon serves this agent" in second.err
            assert await house.admin("GET", "scout:echo:fence") == fence  # it never came that far
            entry = await house.send("echo", "two")
            only_answer(await house.until_answered("echo", [entry]), entry)
            assert (await house.source("echo"))["healthy"]
        async with house.inside():  # the control: the lock ends with its holder
            entry = await house.send("echo", "three")
            await house.until_answered("echo", [entry])


async def test_another_hosts_daemon_is_blocked_and_disturbs_nobody(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house, house.inside():
        first = await house.send("echo", "one")
        await house.until_answered("echo", [first])
        await house.until_quiet("echo")
        fence = await house.admin("GET", "scout:echo:fence")
        async with other_host(house, house.base / "b") as other:

            async def blocked() -> bool:
                return bool((await state_of(other, "echo"))["state"] == "blocked")

            await house.until_async(blocked, "the other host to be blocked")
            found = await state_of(other, "echo")
            assert not found["healthy"]
            assert "cowboy adopt" in found["reason"]
            for _ in range(3):  # it tries again now and then: that must cut nobody off
                tries = await connections(house)
                other.sessions["echo"].retry_now()
                await house.until_async(partial(more, house, tries), "another try")
            entries = [await house.send("echo", f"{n}") for n in range(5)]
            found = await house.until_answered("echo", entries)
            assert (await state_of(other, "echo"))["turns"] == {}
        for entry in entries:
            assert only_answer(found, entry).turn_id == f"{AGENT}.echo.1.{entry}"
        assert await house.admin("GET", "scout:echo:fence") == fence
        assert (await house.source("echo"))["healthy"]


async def connections(house: House) -> int:
    return int((await house.admin("INFO", "stats"))["total_connections_received"])


async def more(house: House, than: int) -> bool:
    return await connections(house) > than


# ------------------------------------------------------------------------------ another ledger


async def test_a_lost_ledger_blocks_until_it_is_adopted(backend: Backend) -> None:
    async with House(backend, only=("a2a", "echo")) as house:
        await house.start(RUNNER)
        async with house.inside():
            first = await house.send("a2a", "before")
            await house.until_answered("a2a", [first])
            await house.until_quiet("a2a")
        await asyncio.to_thread(move_state, house, "lost")
        waiting = await house.send("a2a", "meanwhile")
        async with house.inside():
            state = await house.until_state("a2a", "blocked")
            assert (state["healthy"], "cowboy adopt" in state["reason"]) == (False, True)
            assert await house.deployment.state_of("a2a") == (0, 1, 0)  # it took nothing

            adopted = await house.ask("adopt")
            assert set(adopted["adopted"]) == {"a2a", "echo"}
            assert adopted["states"] == {"a2a": "running", "echo": "running"}
            found = await house.until_answered("a2a", [waiting])
            assert only_answer(found, waiting).outcome == "completed"
            assert "adopted" in await house.events("a2a")
            assert (await house.ask("adopt"))["adopted"] == []
        async with house.inside():  # and it stays adopted
            assert (await house.until_state("a2a", "running"))["healthy"]
        await asyncio.to_thread(move_state, house, "adopted")
        shutil.copytree(house.base / "lost", house.topology.state_dir, dirs_exist_ok=True)
        async with house.inside():  # the former one is foreign now
            await house.until_state("a2a", "blocked")
        assert [turn.rpartition(".")[2] for turn in house.starts()] == [first, waiting]


async def test_the_adopt_command_explains_and_asks(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        async with house.inside():
            await house.until_state("echo", "running")
        await asyncio.to_thread(move_state, house, "lost")
        async with house.inside():
            await house.until_state("echo", "blocked")
            asked = await house.cowboy("adopt", AGENT)  # nobody is there to be asked
            assert (asked.status, "--yes" in asked.err) == (64, True)
            assert "starts the agent again" in asked.err  # what it can lead to
            assert (await house.source("echo"))["state"] == "blocked"
            adopted = await house.cowboy("adopt", AGENT, "--yes")
            assert (adopted.status, "running" in adopted.out) == (0, True)
            assert (await house.until_state("echo", "running"))["healthy"]


async def test_an_older_copy_is_blocked_and_starts_nothing(backend: Backend) -> None:
    async with House(backend, only=("a2a",)) as house:
        async with house.inside():  # without a runner: received, not started
            entry = await house.send("a2a", "once", channel="c")

            async def received() -> bool:
                return bool((await house.source("a2a"))["turns"].get("received"))

            await house.until_async(received, "the turn to be received")
            backup = Path((await house.ask("backup"))["path"])
        kept = await asyncio.to_thread(shutil.copy, backup, house.base / "old.db")
        await house.start(RUNNER)
        async with house.inside():
            await house.until_answered("a2a", [entry])
            await house.until_quiet("a2a")
        ledger = house.topology.ledger(AGENT)
        for name in (ledger.name, f"{ledger.name}-wal", f"{ledger.name}-shm"):
            ledger.with_name(name).unlink(missing_ok=True)
        await asyncio.to_thread(shutil.copy, kept, ledger)
        for _ in range(3):  # nor does it grow into a newer one by being started
            async with house.inside():
                state = await house.until_state("a2a", "blocked")
                assert "older copy" in state["reason"]
                await house.until(lambda: runner_there(house), "the runner to be connected")
                assert (await house.source("a2a"))["turns"] == {"received": 1}
        assert len(house.starts()) == 1
        after = await house.send("a2a", "after", channel="d")
        async with house.inside():
            await house.until_state("a2a", "blocked")
            assert (await house.ask("adopt"))["states"] == {"a2a": "running"}
            found = await house.until_answered("a2a", [after])
            assert only_answer(found, after).outcome == "completed"


def runner_there(house: House) -> bool:
    return bool(house.supervisor.services[RUNNER].running)


# ------------------------------------------------------------------------- Redis lost something


async def test_an_emptied_redis_answers_what_was_open_and_what_comes(backend: Backend) -> None:
    changes = {"a2a": {"channel_backlog_max": 2, "turns_concurrent_max": 1}}
    async with House(backend, only=("a2a",), changes=changes) as house:
        await house.start()
        running = await house.send("a2a", prompt_for(b"running", work_s=1.0), channel="c")
        queued = [await house.send("a2a", f"{n}", channel="c") for n in range(1)]
        parked = [await house.send("a2a", f"parked {n}", channel="c") for n in range(3)]
        await house.until(lambda: len(house.starts()) == 1, "the first to run")

        async def all_taken() -> bool:
            return bool((await house.source("a2a"))["open"] == 5)

        await house.until_async(all_taken, "all to be taken")
        await house.admin("FLUSHALL")
        after = await house.send("a2a", "after", channel="d")
        found = await house.until_answered("a2a", [running, *queued, *parked, after])
        each_completed(found, [running, *queued, after])
        for entry in parked:  # their content was in Redis alone
            assert only_answer(found, entry).outcome == "payload_lost"
        assert only_answer(found, after).turn_id == f"{AGENT}.a2a.2.{after}"
        assert only_answer(found, running).turn_id == f"{AGENT}.a2a.1.{running}"
        await house.until_quiet("a2a")
        state = await house.source("a2a")
        assert (state["incarnation"], state["open"]) == (2, 0)
        assert "incarnation_began" in [event["kind"] for event in state["events"]]
        assert "redis_was_emptied" in house.log(DAEMON)
        await house.slay(DAEMON)
        await house.start(DAEMON)
        assert (await house.until_state("a2a", "running"))["incarnation"] == 2
        starts = [turn.rpartition(".")[2] for turn in house.starts()]
        assert sorted(starts) == sorted([running, *queued, after])


async def test_a_lost_group_starts_nothing_again(backend: Backend) -> None:
    async with House(backend, only=("a2a", "chat")) as house:
        await house.start(RUNNER)
        async with house.inside():
            done: dict[str, list[str]] = {}
            slow: dict[str, str] = {}
            for source in ("a2a", "chat"):
                done[source] = [await house.send(source, f"{n}", channel="c") for n in range(3)]
                await house.until_answered(source, done[source])
                slow[source] = await house.send(source, prompt_for(b"slow", work_s=1.0))
            await house.until(lambda: len(house.starts()) == 8, "both to run")
            for source in slow:
                await house.admin("XGROUP", "DESTROY", f"scout:{source}:inbox", "cowboy")
            for source, entry in slow.items():
                await house.until_async(partial(house.has_group, source), "the group")
                after = await house.send(source, "after", channel="c")
                entries = [*done[source], entry, after]
                found = await house.until_answered(source, entries)
                each_completed(found, entries)
                await house.until_quiet(source)
                assert (await house.source(source))["incarnation"] == 1
            assert len(house.starts()) == len(set(house.starts())) == 10
