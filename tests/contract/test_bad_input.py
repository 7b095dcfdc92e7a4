"""Bad input on a stream loses nothing and disturbs no neighbour; no channel holds up another."""

import random
from collections.abc import Mapping

import pytest

from corral.local.agent import prompt_for
from corral.local.deployment import RUNNER
from tests.contract.kit import CAT, Answer, Backend, House, each_completed, only_answer

MIB = 1 << 20
COUNT_BYTES = {"kind": "exec", "command": ["wc", "-c"], "turn_timeout_s": 60}
Entry = Mapping[bytes, bytes]

# Name, entry, and what its sender hears; None for what is counted and listed instead.
BAD: tuple[tuple[str, Entry, str | None], ...] = (
    ("binary content", {b"content": b"\xff\x00\xfe\x80 \r\n"}, "completed"),
    ("10 MB", {b"content": b"x" * (10 * MIB)}, "content_too_large"),
    ("one byte too many", {b"content": b"x" * (MIB + 1)}, "content_too_large"),
    ("as large as allowed", {b"content": b"x" * MIB}, "reply_too_large"),
    ("no content", {b"other": b"x"}, None),
    ("empty content", {b"content": b""}, None),
    ("blank content", {b"content": b" \t\r\n "}, None),
    ("unknown kind", {b"content": b"x", b"kind": b"order"}, "kind_unknown"),
    ("binary kind", {b"content": b"x", b"kind": b"\xff\0"}, "kind_unknown"),
    ("kind by another name", {b"content": b"x", b"kind": b"Message"}, "kind_unknown"),
    ("NUL in the channel", {b"content": b"x", b"channel": b"a\0b"}, "metadata_invalid"),
    ("no text as sender", {b"content": b"x", b"sender": b"\xff\xfe"}, "metadata_invalid"),
    ("surrogate in the thread", {b"content": b"x", b"thread": b"\xed\xa0\x80"}, "metadata_invalid"),
    ("1 MB channel", {b"content": b"x", b"channel": b"c" * MIB}, "metadata_invalid"),
    ("channel at the limit", {b"content": b"x", b"channel": b"c" * 1024}, "completed"),
    ("channel one past it", {b"content": b"x", b"channel": b"c" * 1025}, "metadata_invalid"),
    ("1 MB message id", {b"content": b"x", b"message_id": b"m" * MIB}, "metadata_invalid"),
    ("empty metadata", {b"content": b"x", b"channel": b"", b"sender": b""}, "completed"),
    ("terminal codes", {b"content": b"x", b"sender": b"\x1b[2J\x07\r\n"}, "completed"),
    ("an option as channel", {b"content": b"-x", b"channel": b"--help"}, "completed"),
    ("extra fields", {b"content": b"x", b"x" * 5000: b"y", b"\xff\0": b"\0"}, "completed"),
    (
        "many fields",
        {b"content": b"x"} | {b"f%d" % n: b"v%d" % n for n in range(20_000)},
        "completed",
    ),
    ("a cancel of nothing", {b"kind": b"cancel"}, "cancel_unknown"),
    ("a hostile cancel", {b"kind": b"cancel", b"cancels": b"9" * 1000}, "cancel_unknown"),
    ("a cancel like an id", {b"kind": b"cancel", b"cancels": b"-1--1"}, "cancel_unknown"),
    ("a cancel like a turn", {b"kind": b"cancel", b"cancels": b"a.b.c.d"}, "cancel_unknown"),
    ("cancel, not text", {b"kind": b"cancel", b"cancels": b"\xff\0"}, "metadata_invalid"),
    ("a false trace", {b"content": b"x", b"traceparent": b"00-\n-=;"}, "completed"),
)


async def add(house: House, source: str, fields: Entry) -> str:
    """Adds an entry, field by field, as the source's identity."""
    words = [word for pair in fields.items() for word in pair]
    inbox = f"scout:{source}:inbox"
    added = await house.as_identity(f"source.scout.{source}", "XADD", inbox, "*", *words)
    return bytes(added).decode()


def judge(
    name: str, fields: Entry, answers: list[Answer], expected: str | None, source: str
) -> None:
    """Whether an entry got exactly what it must get."""
    if expected is None:
        assert answers == [], name
        return
    (answer,) = answers
    if expected == "reply_too_large" and source == "a2a":
        expected = "completed"  # the largest prompt has a short answer there
    assert answer.outcome == expected, name
    assert answer.slot == ("reply" if expected == "completed" else "notice"), name
    if expected == "completed" and source == "a2a":  # the agent got every byte of it
        assert int(answer.content) == len(fields[b"content"]), name


@pytest.mark.parametrize("source", ["echo", "a2a"])
async def test_bad_entries_are_answered_and_so_is_each_neighbour(
    backend: Backend, source: str, rng: random.Random
) -> None:
    cases = list(BAD)
    rng.shuffle(cases)
    changes = {"a2a": {"runner": COUNT_BYTES}}
    async with House(backend, only=(source,), changes=changes) as house:
        if source == "a2a":
            await house.start(RUNNER)
        bad: list[tuple[str, str, Entry, str | None]] = []
        neighbours = [await house.send(source, "first", channel="n")]
        async with house.inside():
            for name, fields, expected in cases:
                bad.append((await add(house, source, fields), name, fields, expected))
                neighbours.append(await house.send(source, f"after {name}", channel="n"))
            answered = [entry for entry, *_, expected in bad if expected is not None]
            found = await house.until_answered(source, [*neighbours, *answered], timeout_s=60)
            await house.until_quiet(source)
            found = await house.by_entry(source)
            for entry, name, fields, expected in bad:
                judge(name, fields, found.get(entry, []), expected, source)
            each_completed(found, neighbours)
            in_order = [entry for entry in found if entry in set(neighbours)]
            assert in_order == neighbours
            state = await house.source(source)
            assert (state["healthy"], state["open"]) == (True, 0)
            silent = sum(expected is None for *_, expected in bad)
            assert state["counters"]["empty"] == silent  # counted, and listed
            assert {event["kind"] for event in state["events"]} == {"empty"}


async def test_a_binding_is_given_back_byte_by_byte(every_backend: Backend) -> None:
    binding = {
        b"sender": "Zoë <z@x> ;rm -rf".encode(), b"channel": "ch\r\n\x1b[31m é".encode(),
        b"thread": b"t" * 1024, b"message_id": b" m 1 ", b"traceparent": b"00-ab-cd-01",
    }  # fmt: skip
    async with House(every_backend, only=("echo",)) as house, house.inside():
        whole = await add(house, "echo", {b"content": b"\0\xff", **binding})
        odd = await add(house, "echo", {b"content": b"x", **binding, b"sender": b"\xff"})
        bare = await add(house, "echo", {b"content": b"bare"})
        found = await house.until_answered("echo", [whole, odd, bare])
        answer = only_answer(found, whole)
        assert answer.content == b"\0\xff"
        assert {name: answer.fields.get(name) for name in binding} == binding
        # A field that is no text comes back too: the sender must be able to tell whose it was.
        refused = only_answer(found, odd)
        assert refused.outcome == "metadata_invalid"
        assert {n: refused.fields.get(n) for n in binding} == {**binding, b"sender": b"\xff"}
        assert not set(binding) & set(only_answer(found, bare).fields)


async def test_one_message_id_with_other_words_is_another_message(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house:
        entries = [
            await house.send("echo", text, channel=channel, message_id="m1")
            for text, channel in (("a", "c"), ("b", "c"), ("a", "d"), ("a", "c"), ("b", "c"))
        ]
        async with house.inside():
            await house.until_answered("echo", entries[:3])
            await house.until_quiet("echo")
            found = await house.by_entry("echo")
            assert [only_answer(found, entry).content for entry in entries[:3]] == [
                b"a",
                b"b",
                b"a",
            ]
            assert set(found) == set(entries[:3])
            counters = await house.counters("echo")
            assert (counters["conflict"], counters["duplicate"]) == (2, 2)
            events = await house.events("echo")
            assert (events.count("conflict"), events.count("duplicate")) == (2, 2)


# --------------------------------------------------------------------- channels beside each other


async def test_a_long_turn_holds_up_no_other_channel(backend: Backend) -> None:
    async with House(backend, only=("a2a",)) as house:
        await house.start(RUNNER)
        async with house.inside():
            hanging = await house.send("a2a", prompt_for(b"", action="hang"), channel="slow")
            behind = await house.send("a2a", "behind it", channel="slow")
            others = [await house.send("a2a", f"{n}", channel=f"c{n % 3}") for n in range(9)]
            found = await house.until_answered("a2a", others)
            each_completed(found, others)
            assert not {hanging, behind} & set(found)
            cancel = await house.send("a2a", kind="cancel", cancels=hanging)
            found = await house.until_answered("a2a", [hanging, behind, cancel])
            assert only_answer(found, hanging).outcome == "cancelled"
            assert only_answer(found, behind).outcome == "completed"
            assert only_answer(found, cancel).outcome == "cancel_applied"
            await house.until_quiet("a2a")


async def test_a_flooded_channel_holds_up_no_other_and_keeps_its_order(backend: Backend) -> None:
    changes = {
        "a2a": {
            "runner": CAT, "channel_backlog_max": 8, "backlog_max": 24, "read_count": 10,
        }
    }  # fmt: skip
    async with House(backend, only=("a2a",), changes=changes) as house:
        await house.start(RUNNER)
        flood = [await house.send("a2a", f"flood {n}", channel="flood") for n in range(80)]
        others = [await house.send("a2a", f"other {n}", channel=f"c{n}") for n in range(6)]
        async with house.inside():
            found = await house.until_answered("a2a", others)
            assert len(set(found) & set(flood)) < len(flood) // 2  # they did not wait for it
            each_completed(found, others)
            later = await house.send("a2a", "later", channel="c1")  # nor did this one
            found = await house.until_answered("a2a", [later])
            assert len(set(found) & set(flood)) < len(flood)
            found = await house.until_answered("a2a", flood, timeout_s=60)
            assert [only_answer(found, entry).content for entry in flood] == [
                b"flood %d" % n for n in range(80)
            ]
            assert [entry for entry in found if entry in set(flood)] == flood
            await house.until_quiet("a2a")
            state = await house.source("a2a")
            assert (state["parked"], state["open"], state["healthy"]) == (0, 0, True)


async def test_a_message_sent_while_nothing_runs_is_answered_after_the_start(
    one_backend: Backend,
) -> None:
    async with House(one_backend) as house:
        waiting = {source: await house.send(source, "hello") for source in ("a2a", "chat", "echo")}
        await house.start()
        for source, entry in waiting.items():
            found = await house.until_answered(source, [entry])
            assert only_answer(found, entry).outcome == "completed"
        await house.stop()
        again = {source: await house.send(source, "again") for source in waiting}
        await house.start()
        for source, entry in again.items():
            found = await house.until_answered(source, [entry])
            assert len(found) == 2
            only_answer(found, waiting[source])
