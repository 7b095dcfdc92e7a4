"""The operator's commands against a live daemon, and what a functional run leaves in `ACL LOG`."""

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import redis

from corral.cowboy import redisops
from corral.cowboy.settings import RedisEndpoint
from corral.local.agent import prompt_for
from corral.local.deployment import RUNNER
from corral.local.workload import Reader
from tests.contract.kit import AGENT, Backend, House, only_answer

OPERATOR = "operator"
HOLD = {"a2a": {"on_interrupt": "hold"}}


async def held_turn(house: House, channel: str = "c") -> tuple[str, str]:
    """A turn whose run was cut off, with the policy `hold`: entry id and turn id."""
    known = len(house.starts())
    entry = await house.send("a2a", prompt_for(b"once", work_s=60), channel=channel, sender="bob")
    await house.until(lambda: len(house.starts()) > known, "the agent to start")
    await house.slay(RUNNER)
    await house.start(RUNNER)
    found = await house.until_answered("a2a", [entry])
    notice = only_answer(found, entry)
    assert (notice.slot, notice.outcome) == ("notice", "held")
    return entry, notice.turn_id


# ---------------------------------------------------------------------------------------- status


async def test_status_of_a_daemon_at_work(backend: Backend) -> None:
    async with House(backend) as house:
        await house.start(RUNNER)
        async with house.inside():
            running = await house.send("a2a", prompt_for(b"", action="hang"), channel="c")
            waiting = await house.send("a2a", "waits", channel="c")
            done = await house.send("echo", "done")
            await house.until_answered("echo", [done])
            await house.until(lambda: len(house.starts()) == 1, "the agent to start")

            async def taken() -> bool:
                a2a = await house.source("a2a")
                both: bool = a2a["turns"] == {"dispatched": 1, "received": 1}
                return both and a2a["acknowledged_unanswered"] == 1

            await house.until_async(taken, "both to be taken")
            answer = await house.ask("status")
            sources = {source["source"]: source for source in answer["sources"]}
            assert (answer["healthy"], set(sources)) == (True, {"a2a", "chat", "echo"})
            a2a = sources["a2a"]
            assert (a2a["state"], a2a["open"], a2a["incarnation"]) == ("running", 2, 1)
            assert a2a["oldest_unanswered"]["turn_id"] == f"{AGENT}.a2a.1.{running}"
            assert a2a["oldest_unanswered"]["age_s"] >= 0
            assert 0 <= a2a["last_poll_age_s"] < 10
            assert sources["echo"]["turns"] == {"done": 1}

            await house.slay(RUNNER)  # a living daemon that can start nothing is not healthy

            async def unhealthy() -> bool:
                return not (await house.ask("status"))["healthy"]

            await house.until_async(unhealthy, "the runner to be missed")
            assert "runner" in (await house.source("a2a"))["reason"]
            assert (await house.source("echo"))["reason"] == ""
            await house.start(RUNNER)
            found = await house.until_answered("a2a", [running, waiting])
            assert only_answer(found, waiting).outcome == "completed"
            assert (await house.ask("status"))["healthy"]


async def test_the_status_command_asks_the_daemon_or_else_redis(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a", "echo")) as house:
        await house.make_pending("a2a", 2)
        await house.send("a2a", "unread")
        shown = await house.cowboy("status", AGENT, "--json", identity=OPERATOR)
        (agent,) = shown.json()["agents"]
        assert (shown.status, agent["healthy"]) == (1, False)
        assert agent["error"]["code"] == "unavailable"
        inbox = {source["source"]: source for source in agent["redis"]}["a2a"]["inbox"]
        assert (inbox["pending"], inbox["lag"], inbox["length"]) == (2, 1, 3)

        async with house.inside():
            shown = await house.cowboy("status", AGENT, identity=OPERATOR)
            assert (shown.status, "UNHEALTHY" in shown.out) == (1, True)  # no runner
            await house.start(RUNNER)
            await house.until_quiet("a2a")
            shown = await house.cowboy("status", AGENT, "--json", identity=OPERATOR)
            (agent,) = shown.json()["agents"]
            assert (shown.status, agent["healthy"], agent["error"]) == (0, True, None)
            assert {source["source"] for source in agent["sources"]} == {"a2a", "echo"}


async def test_status_while_everything_moves(backend: Backend, tmp_path: Path) -> None:
    """Asked again and again, beside ticks in another thread, and with metrics being written."""
    async with House(backend, only=("echo",), changes={"echo": {"read_count": 50}}) as house:
        entries = [await house.send("echo", f"{n}", channel=f"c{n % 50}") for n in range(600)]
        async with house.inside(metrics_dir=tmp_path):

            async def ask_on() -> int:
                asked = 0
                while True:
                    for op in ("status", "turns"):
                        answer = await house.ask(op)
                        assert answer["ok"], answer
                    asked += 1
                    if await house.deployment.state_of("echo") == (0, 0, 0):
                        return asked

            asking = [asyncio.ensure_future(ask_on()) for _ in range(3)]
            entries += [await house.send("echo", f"{n}", channel=f"d{n}") for n in range(300)]
            found = await house.until_answered("echo", entries)
            assert min(await asyncio.gather(*asking)) > 0
            for entry in entries:
                only_answer(found, entry)
            metrics = tmp_path / f"cowboy-{AGENT}.prom"
            await house.until(metrics.exists, "metrics to be written")
            assert f'cowboy_healthy{{agent="{AGENT}",source="echo"}}' in metrics.read_text()


# ----------------------------------------------------------------------------------- held turns


async def test_a_held_turn_is_listed_and_released(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=HOLD) as house:
        await house.start(RUNNER)
        async with house.inside():
            entry, turn_id = await held_turn(house)
            behind = await house.send("a2a", "behind it", channel="c")  # its channel goes on
            await house.until_answered("a2a", [behind])
            listed = await house.cowboy("turns", "list", AGENT, "--state", "held", "--json")
            assert [turn["turn_id"] for turn in listed.json()["turns"]] == [turn_id]
            shown = await house.cowboy("turns", "show", AGENT, turn_id, "--json")
            facts = shown.json()
            assert (facts["state"], facts["starts"], facts["entry"]) == ("held", 1, entry)
            assert "once" not in shown.out  # no content
            refused = await house.cowboy("turns", "release", AGENT, f"{AGENT}.a2a.1.{behind}")
            assert (refused.status != 0, "not held" in refused.err) == (True, True)
        async with house.inside():  # the hold outlives the daemon
            await house.until_state("a2a", "running")
            released = await house.cowboy("turns", "release", AGENT, turn_id)
            assert (released.status, turn_id in released.out) == (0, True)
            await house.until(lambda: len(house.starts()) == 3, "the turn to run again")
            (resumed,) = [e for e in house.effects() if e.ev == "start" and e.resumed == "1"]
            assert (resumed.turn, resumed.sender, resumed.channel) == (turn_id, "bob", "c")
            cancel = await house.send("a2a", kind="cancel", cancels=entry)
            found = await house.until_answered("a2a", [cancel])
            assert [answer.outcome for answer in found[entry]] == ["held", "cancelled"]
            await house.until_quiet("a2a")


async def test_a_held_turn_that_is_released_twice_runs_once(backend: Backend) -> None:
    async with House(backend, only=("a2a",), changes=HOLD) as house:
        await house.start()
        entry, turn_id = await held_turn(house)
        blocking = await house.send("a2a", prompt_for(b"", action="hang"), channel="c")
        await house.until(lambda: len(house.starts()) == 2, "the channel to be busy")
        first = await house.ask("release", turn_id=turn_id)
        assert first["ok"]
        await house.ask("release", turn_id=turn_id)  # refused or nothing: not a second run
        cancel = await house.send("a2a", kind="cancel", cancels=blocking)
        await house.until_answered("a2a", [cancel, blocking])
        await house.until(lambda: len(house.starts()) == 3, "the released turn to run")
        cancel = await house.send("a2a", kind="cancel", cancels=entry)
        await house.until_answered("a2a", [cancel])
        after = await house.send("a2a", "after", channel="c")
        await house.until_answered("a2a", [after])
        await house.until_quiet("a2a")
        assert house.starts().count(turn_id) == 2  # cut off once, run again once
        assert "tick_failed" not in house.log()


async def test_a_held_turn_is_abandoned(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=HOLD) as house:
        await house.start()
        entry, turn_id = await held_turn(house)
        abandoned = await house.cowboy("turns", "abandon", AGENT, turn_id, "--json")
        assert abandoned.json()["abandoned"] is True

        async def told() -> bool:
            return len((await house.by_entry("a2a"))[entry]) == 2

        await house.until_async(told, "the sender to be told")
        outcomes = [answer.outcome for answer in (await house.by_entry("a2a"))[entry]]
        assert outcomes == ["held", "abandoned"]
        (letter,) = await house.dead("a2a")
        assert letter[b"turn_id"] == turn_id.encode()
        assert letter[b"content"] == prompt_for(b"once", work_s=60)
        again = await house.cowboy("turns", "abandon", AGENT, turn_id)
        assert (again.status != 0, "not held" in again.err) == (True, True)
        await house.until_quiet("a2a")
        assert house.starts() == [turn_id]


# ------------------------------------------------------------------------------ backup and send


async def test_a_backup_is_private_whole_and_of_the_same_ledger(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house, house.inside():
        entry = await house.send("echo", "hello")
        await house.until_answered("echo", [entry])
        await house.until_quiet("echo")
        made = await house.cowboy("backup", AGENT, "--json")
        path = Path(made.json()["path"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert path.is_relative_to(house.topology.state_dir)
        with closing(sqlite3.connect(path)) as copy:
            ((uuid,),) = copy.execute("SELECT uuid FROM ledger").fetchall()
            turns = copy.execute("SELECT turn_id, state FROM turns").fetchall()
        assert uuid.encode() == await house.admin("HGET", "scout:echo:ledger", "uuid")
        assert turns == [(f"{AGENT}.echo.1.{entry}", "done")]
        assert (await house.cowboy("backup", "nobody")).status == 69


async def test_send_adds_one_message_that_is_answered(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house, house.inside():
        text = "from a pipe, with \N{SNOWMAN}\n"
        sent = await house.cowboy(
            *("send", AGENT, "echo", "--content", "-", "--channel", "ops", "--sender", "root"),
            *("--message-id", "m1", "--thread", "t1", "--json"),
            identity=OPERATOR,
            stdin=text.encode(),
        )
        assert sent.status == 0, sent.err
        entry = sent.json()["entry_id"]
        found = await house.until_answered("echo", [entry])
        answer = only_answer(found, entry)
        assert answer.content == text.encode()
        fields = {b"channel": b"ops", b"sender": b"root", b"message_id": b"m1", b"thread": b"t1"}
        assert {name: answer.fields[name] for name in fields} == fields
        again = await house.cowboy(
            *("send", AGENT, "echo", "--content", text, "--channel", "ops", "--sender", "root"),
            *("--message-id", "m1", "--thread", "t1"),
            identity=OPERATOR,
        )
        assert again.status == 0
        await house.until_quiet("echo")
        assert len(await house.outbox("echo")) == 1
        unknown = await house.cowboy("send", AGENT, "nowhere", "--content", "x", identity=OPERATOR)
        assert unknown.status == 64


# -------------------------------------------------------------------------------------- ACL LOG


async def test_a_functional_run_leaves_nothing_in_the_acl_log(every_backend: Backend) -> None:
    """Every identity does what it is for, with the ACL as rendered; only an admin is added."""
    async with House(every_backend) as house:
        await house.start(RUNNER)
        readers = [
            Reader(house.topology, AGENT, source, house.deployment.board,
                   protocol=every_backend.protocol, trim=True)
            for source in house.deployment.sources
        ]  # fmt: skip
        reading = [asyncio.ensure_future(reader.run()) for reader in readers]
        try:
            for _ in range(2):  # twice: another connection, another drain
                async with house.inside():
                    await busy(house)
                    await command(house)
                    assert await house.deployment.until_quiet(20, awaiting=False)
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
        await house.as_identity("metrics", "INFO")
        await house.as_identity("metrics", "XINFO", "STREAM", "scout:a2a:inbox")
        await house.as_identity("metrics", "XLEN", "scout:a2a:outbox")
        assert await house.denials() == []
        assert house.deployment.words_in_logs() == []
        # The control: a denial does show there, with who it was.
        with pytest.raises(redis.ResponseError, match="permission"):
            await house.as_identity("source.scout.a2a", "XLEN", "scout:a2a:inbox")
        (denied,) = await house.denials()
        assert denied["username"] == "source.scout.a2a"


async def command(house: House) -> None:
    """What `cowboy send` and `cowboy status` do in Redis, as the operator."""
    login = house.topology.login(OPERATOR)
    endpoint = RedisEndpoint(
        login.username, login.password, house.backend.protocol, str(house.topology.redis_socket)
    )
    source = house.config("echo")
    await redisops.send(endpoint, source, redisops.Message(b"hello", "from the operator"))
    (seen,) = await redisops.look(endpoint, [source])
    assert seen["refused"] == []


async def busy(house: House) -> None:
    """Every kind of work once, for every source."""
    for source in house.deployment.sources:
        entries = [
            await house.send(source, prompt_for(b"x", action=action), channel=action)
            for action in ("answer", "exit", "garbage")
        ]
        entries.append(await house.send(source, channel="c"))
        slow = await house.send(source, prompt_for(b"", action="hang"), channel="slow")
        await house.send(source, kind="cancel", cancels=slow)

        async def all_answered(wanted: tuple[str, ...] = (*entries[:3], slow)) -> bool:
            seen = {one.in_reply_to for one in house.deployment.board.seen.values()}
            return set(wanted) <= seen

        await house.until_async(all_answered, f"{source} to be answered")
