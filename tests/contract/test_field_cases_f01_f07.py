"""What breaks in the field, F01 to F07: a consumer and its server."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from corral.core.errors import ConfigError
from corral.cowboy.config import SourceConfig, parse_sources
from corral.cowboy.domain import pack_id
from corral.cowboy.redisconn import Refused, Unreachable, Wire
from corral.cowboy.session import BLOCK_MARGIN_S
from corral.cowboy.transport import Reader, claimed_of, entries_of
from corral.local.deployment import REDIS, RUNNER
from corral.local.topology import load_rendered
from corral.local.wait import until_true
from tests.contract.conftest import AtPoint
from tests.contract.kit import GHOST, Backend, House, each_completed, only_answer

INBOX = "scout:echo:inbox"
LONG_AGO_MS = 3_600_000


def sources_text(**changes: object) -> str:
    """The demo's `sources.json` with changes to one source."""
    sources = load_rendered()["agents"]["scout"]["sources_json"]
    sources["sources"]["echo"] |= changes
    return json.dumps(sources)


async def test_f01_a_refused_acknowledgement_is_retried_then_forgotten(backend: Backend) -> None:
    changes = {"a2a": {"ack_attempts_max": 2}}
    async with House(backend, only=("a2a",), changes=changes) as house:
        await house.start(RUNNER)
        async with house.inside():
            first = await house.send("a2a", "with every right")
            await house.until_answered("a2a", [first])
            await house.until_quiet("a2a")  # the control: acknowledged
            await house.admin("ACL", "SETUSER", "agent-scout", "-xack")

            second = await house.send("a2a", "without xack")
            found = await house.until_answered("a2a", [second])
            assert only_answer(found, second).outcome == "completed"

            async def forgotten() -> bool:
                return "ack_forgotten" in await house.events("a2a")

            await house.until_async(forgotten, "the acknowledgement to be forgotten")
            denied = await house.denials()
            assert {(d["username"], d["object"]) for d in denied} == {("agent-scout", "xack")}
            assert sum(int(d["count"]) for d in denied) >= 2  # the first, and a retry
            assert (await house.source("a2a"))["unacked"] == 1
            assert await house.pending("a2a") == 1

            await house.admin("ACL", "SETUSER", "agent-scout", "+xack")
            await house.until_quiet("a2a")  # the reclaim offers it again: acknowledged
            found = await house.by_entry("a2a")
            only_answer(found, first)
            only_answer(found, second)
            assert len(house.starts()) == 2


@pytest.mark.parametrize("ack", ["dispatch", "reply"])
async def test_f01_a_count_below_the_entries_is_an_anomaly(
    backend: Backend, ack: str, at_point: AtPoint
) -> None:
    house = House(backend, only=("echo",), changes={"echo": {"ack": ack}})
    async with house, house.inside():
        first = await house.send("echo", "the right group")
        await house.until_answered("echo", [first])
        await house.until_quiet("echo")
        assert await house.events("echo") == []  # the control: one of one

        def another_group() -> None:
            with house.server.client() as client, client.pipeline(transaction=True) as both:
                both.xgroup_destroy(INBOX, "cowboy")
                both.xgroup_create(INBOX, "cowboy", "$")
                both.execute()

        at_point("cowboy.received.committed", another_group)
        second = await house.send("echo", "its group is another by now")
        found = await house.until_answered("echo", [second])
        assert only_answer(found, second).outcome == "completed"

        async def noticed() -> bool:
            return "ack_short" in await house.events("echo")

        await house.until_async(noticed, "the short count to be noticed")
        third = await house.send("echo", "as before")
        await house.until_answered("echo", [third])
        assert (await house.counters("echo"))["ack_short"] == 1


async def test_f02_a_scan_reaches_old_entries_behind_young_ones(backend: Backend) -> None:
    changes = {"echo": {"reclaim_idle_ms": 20_000}}
    async with House(backend, only=("echo",), changes=changes) as house:
        entries = await house.make_pending("echo", 150)
        old = entries[100:]  # and a hundred young ones before them
        await house.claim_for(GHOST, "echo", old, idle_ms=LONG_AGO_MS)
        # The control: a scan that restarts sees the young ones alone, again and again.
        for _ in range(3):
            cursor, batch, *_ = await house.admin(
                "XAUTOCLAIM", INBOX, "cowboy", GHOST, 20_000, "0-0", "COUNT", 10
            )
            assert (cursor != b"0-0", batch) == (True, [])
        async with house.inside():
            await house.until_answered("echo", old)
            found = await house.by_entry("echo")
            assert sorted(found) == sorted(old)  # nobody took what is not idle for long enough


async def test_f02_own_entries_are_reached_young_and_old(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house:
        entries = await house.make_pending("echo", 150, "harness-echo")
        await house.claim_for("harness-echo", "echo", entries[100:], idle_ms=LONG_AGO_MS)
        async with house.inside():
            found = await house.until_answered("echo", entries)
            each_completed(found, entries)
            await house.until_quiet("echo")


async def test_f02_young_entries_of_another_consumer_are_reached_once_they_are_old(
    backend: Backend,
) -> None:
    changes = {"echo": {"reclaim_idle_ms": 5_000}}
    async with House(backend, only=("echo",), changes=changes) as house:
        young = await house.make_pending("echo", 5)
        async with house.inside():
            newer = await house.send("echo", "newer, and answered first")
            await house.until_answered("echo", [newer])
            await house.claim_for(GHOST, "echo", young, idle_ms=LONG_AGO_MS)
            found = await house.until_answered("echo", young)
            each_completed(found, young)


async def test_f02_the_cursor_is_carried_and_not_moved_by_a_failure(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house:
        entries = await house.make_pending("echo", 150)
        await house.claim_for(GHOST, "echo", entries[100:], idle_ms=LONG_AGO_MS)
        config = house.config("echo").model_copy(update={"reclaim_idle_ms": 20_000})
        await house.admin("SET", config.fence_key, "7")
        async with house.wire() as wire:
            reader = Reader(wire, config, b"7")
            claimed, _ = await reader.poll(0)
            assert (claimed.entries, claimed.cursor != b"0-0") == ([], True)
            assert reader.cursor == claimed.cursor  # empty with a cursor: more to scan
            await house.admin("ACL", "SETUSER", "agent-scout", "-xautoclaim")
            with pytest.raises(Refused, match="Redis refused"):
                await reader.poll(0)
            assert reader.cursor == claimed.cursor
            await house.admin("ACL", "SETUSER", "agent-scout", "+xautoclaim")
            taken = []
            while reader.cursor != b"0-0":
                claimed, _ = await reader.poll(0)
                taken += [entry.entry for entry in claimed.entries]
            assert taken == [pack_id(entry.encode()) for entry in entries[100:]]


@pytest.mark.parametrize("consumer", ["harness-a2a", GHOST])
async def test_f03_a_deleted_pending_entry_never_starts(backend: Backend, consumer: str) -> None:
    async with House(backend, only=("a2a",)) as house:
        gone, kept = await house.make_pending("a2a", 2, consumer)
        await house.claim_for(consumer, "a2a", [gone, kept], idle_ms=LONG_AGO_MS)
        await house.admin("XDEL", "scout:a2a:inbox", gone)
        await house.start(RUNNER)
        async with house.inside():
            found = await house.until_answered("a2a", [kept])
            assert only_answer(found, kept).outcome == "completed"

            async def noted() -> bool:
                return bool({"deleted", "trimmed"} & set(await house.events("a2a")))

            await house.until_async(noted, "the loss to be on record")
            await house.until_quiet("a2a")
            assert list(await house.by_entry("a2a")) == [kept]
            assert "ack_short" not in await house.events("a2a")
            assert [turn.rpartition(".")[2] for turn in house.starts()] == [kept]


async def test_f03_a_deleted_entry_that_waits_for_its_channel_gets_a_notice(
    backend: Backend,
) -> None:
    changes = {"a2a": {"channel_backlog_max": 2}}
    async with House(backend, only=("a2a",), changes=changes) as house:
        entries = [await house.send("a2a", f"{n}", channel="c") for n in range(6)]
        async with house.inside():  # without a runner nothing starts: four are parked

            async def parked() -> bool:
                return bool((await house.source("a2a"))["parked"] == 4)

            await house.until_async(parked, "four turns to be parked")
            await house.admin("XDEL", "scout:a2a:inbox", entries[4])
            await house.start(RUNNER)
            found = await house.until_answered("a2a", entries)
            assert only_answer(found, entries[4]).outcome == "payload_lost"
            each_completed(found, entries[:4] + entries[5:])
            await house.until_quiet("a2a")


@pytest.mark.parametrize("loss", ["FLUSHALL", "DEL", "DESTROY"])
async def test_f04_a_lost_stream_or_group_is_made_again(
    backend: Backend, loss: str, capfd: pytest.CaptureFixture[str]
) -> None:
    house = House(backend, only=("echo",), changes={"echo": {"block_ms": 1000}})
    async with house, house.inside():
        first = await house.send("echo", "before")
        await house.until_answered("echo", [first])
        await house.until_quiet("echo")
        await house.until_async(house.blocked_clients, "the read to block")
        polls = await house.calls("evalsha")
        capfd.readouterr()

        commands = {
            "FLUSHALL": ("FLUSHALL",),
            "DEL": ("DEL", INBOX),
            "DESTROY": ("XGROUP", "DESTROY", INBOX, "cowboy"),
        }
        await house.admin(*commands[loss])

        async def again() -> bool:
            return bool(await house.admin("EXISTS", INBOX)) and await house.has_group("echo")

        await house.until_async(again, "the group to be made again")
        state = await house.until_state("echo", "running")
        assert state["incarnation"] == (1 if loss == "DESTROY" else 2)
        second = await house.send("echo", "after")
        found = await house.until_answered("echo", [second])
        only_answer(found, second)
        assert await house.errors("NOGROUP") <= 3  # no storm of them
        assert await house.calls("evalsha") - polls < 60
        await house.until_quiet("echo")
        assert len(await house.outbox("echo")) == (1 if loss == "FLUSHALL" else 2)
    warnings = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert any(INBOX in line for line in warnings), warnings


async def test_f04_a_group_that_cannot_be_made_again_is_tried_with_back_off(
    backend: Backend,
) -> None:
    async with House(backend, only=("echo",)) as house, house.inside():
        first = await house.send("echo", "before")
        await house.until_answered("echo", [first])
        await house.until_quiet("echo")
        await house.admin("ACL", "SETUSER", "agent-scout", "-xgroup|create")
        await house.admin("XGROUP", "DESTROY", INBOX, "cowboy")

        async def refused() -> bool:
            return "Redis refused" in (await house.source("echo"))["reason"]

        await house.until_async(refused, "the group to be refused")
        began_s, tried = time.monotonic(), await house.calls("xgroup|create")

        async def tries() -> bool:
            return await house.calls("xgroup|create") >= tried + 4

        await house.until_async(tries, "four more tries")
        # 0.05 s, doubled each time: four tries cannot come quicker, whatever the machine does.
        assert time.monotonic() - began_s > 0.5
        await house.admin("ACL", "SETUSER", "agent-scout", "+xgroup|create")
        second = await house.send("echo", "after")
        await house.until_answered("echo", [second])


async def test_f05_a_stopped_server_shows_and_work_goes_on_afterwards(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house, house.inside():
        first = await house.send("echo", "before")
        await house.until_answered("echo", [first])
        assert (await house.source("echo"))["healthy"]
        await house.until_async(house.blocked_clients, "the read to block")
        began_s = time.monotonic()
        assert house.supervisor.pause(REDIS)
        state = await house.until_state("echo", "disconnected", "stalled")
        limit_s = house.config("echo").block_ms / 1000 + BLOCK_MARGIN_S
        assert time.monotonic() - began_s < limit_s + 5
        assert (state["healthy"], state["reason"] != "") == (False, True)
        house.supervisor.resume(REDIS)
        second = await house.send("echo", "after")
        found = await house.until_answered("echo", [first, second])
        only_answer(found, first)
        only_answer(found, second)
        assert (await house.until_state("echo", "running"))["healthy"]


class Refusing(Wire):
    """Notes with which time-out it was made, and never connects."""

    def __init__(self, timeout_s: float, made: list[float]) -> None:
        made.append(timeout_s)

    async def connect(self) -> None:
        raise Unreachable("never")

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("block_ms", [10, 2_000, 30_000])
async def test_f06_the_time_out_is_above_every_block_time(
    one_backend: Backend, block_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []
    monkeypatch.setattr(
        "corral.cowboy.daemon.Daemon._wire", lambda _, timeout_s: Refusing(timeout_s, made)
    )
    house = House(one_backend, only=("echo",), changes={"echo": {"block_ms": block_ms}})
    async with house, house.inside():
        await until_true(lambda: len(made) >= 2, 10, "two connections")
    read, answers = made[:2]
    assert read > block_ms / 1000 + 1
    assert answers >= 1  # on this one nothing blocks


def test_f06_no_setting_sets_the_time_out_apart() -> None:
    with pytest.raises(ConfigError, match=r"sources\.echo\.block_ms"):
        parse_sources(sources_text(block_ms=30_001))
    with pytest.raises(ConfigError, match=r"sources\.echo\.socket_timeout"):
        parse_sources(sources_text(socket_timeout_s=1))
    assert parse_sources(sources_text(block_ms=30_000)).sources["echo"].block_ms == 30_000
    assert not [name for name in SourceConfig.model_fields if "socket" in name]


async def test_f06_an_idle_read_outlives_many_block_times(backend: Backend) -> None:
    house = House(backend, only=("echo",), changes={"echo": {"block_ms": 200}})
    async with house, house.inside():
        await house.until_state("echo", "running")
        connections = (await house.admin("INFO", "stats"))["total_connections_received"]
        reads = await house.calls("xread")

        async def idled() -> bool:
            return await house.calls("xread") >= reads + 5

        await house.until_async(idled, "five idle reads")
        stats = await house.admin("INFO", "stats")
        assert stats["total_connections_received"] == connections
        assert (await house.source("echo"))["healthy"]


@pytest.mark.parametrize(
    "reply",
    [None, [], {}, [[b"s", []]], {b"s": []}, [[b"s", [[b"1-1", None]]]], {b"s": [[b"1-1", None]]}],
)
def test_f07_empty_replies_of_a_read(reply: object) -> None:
    assert [entry.fields for entry in entries_of(reply)] in ([], [None])


@pytest.mark.parametrize("wrap", [lambda rows: [[b"s", rows]], lambda rows: {b"s": rows}])
def test_f07_entries_of_a_read(wrap: Callable[[Any], Any]) -> None:
    rows = [[b"1-1", [b"content", b"x"]], [b"2-0", []], [b"3-0", None]]
    found = entries_of(wrap(rows))
    assert [(entry.entry, entry.fields) for entry in found] == [
        (pack_id(b"1-1"), {b"content": b"x"}),
        (pack_id(b"2-0"), {}),
        (pack_id(b"3-0"), None),
    ]


def test_f07_answers_of_a_claim_with_two_and_three_elements() -> None:
    for tail, deleted in (([], []), ([[]], []), ([[b"5-0"]], [pack_id(b"5-0")])):
        claimed = claimed_of([b"0-0", [[b"1-1", [b"content", b"x"]], None], *tail])
        assert claimed.cursor == b"0-0"
        assert [entry.fields for entry in claimed.entries] == [{b"content": b"x"}]
        assert claimed.deleted == deleted


async def test_f07_every_shape_of_a_real_server(every_backend: Backend) -> None:
    async with House(every_backend, only=("echo",)) as house:
        config = house.config("echo").model_copy(update={"block_ms": 10})
        await house.admin("XGROUP", "CREATE", INBOX, "cowboy", "0", "MKSTREAM")
        await house.admin("SET", config.fence_key, "1")
        async with house.wire() as wire:
            reader = Reader(wire, config, b"1")
            assert await reader.pending(bytes(16)) == []
            claimed, new = await reader.poll(10)
            assert (claimed.entries, claimed.deleted, new) == ([], [], [])
            assert not await reader.wait(bytes(16))
            assert not await reader.wait(None)

            ids = [await house.send("echo", f"{n}", channel="c") for n in range(3)]
            assert await reader.wait(bytes(16))
            _, new = await reader.poll(2)
            assert [entry.entry for entry in new] == [pack_id(i.encode()) for i in ids[:2]]
            assert new[0].fields == {b"content": b"0", b"channel": b"c"}
            await house.admin("XDEL", INBOX, ids[0])
            pending = await reader.pending(bytes(16))
            assert [entry.fields for entry in pending] == [
                None, {b"content": b"1", b"channel": b"c"},
            ]  # fmt: skip
            await house.claim_for(GHOST, "echo", ids[:2], idle_ms=LONG_AGO_MS)
            claimed, new = await reader.poll(10)
            assert [entry.fields for entry in new] == [{b"content": b"2", b"channel": b"c"}]
            assert [entry.entry for entry in claimed.entries] == [pack_id(ids[1].encode())]


async def test_f07_the_daemon_answers_with_each_server_and_protocol(
    every_backend: Backend,
) -> None:
    async with House(every_backend) as house:
        await house.start(RUNNER)
        async with house.inside():
            for source in ("a2a", "chat", "echo"):
                entry = await house.send(source, "hello", channel="c", message_id="m1")
                again = await house.send(source, "hello", channel="c", message_id="m1")
                found = await house.until_answered(source, [entry])
                assert only_answer(found, entry).outcome == "completed"
                await house.until_quiet(source)
                assert again not in await house.by_entry(source)
