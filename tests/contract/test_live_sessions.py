"""A turn is answered by a live session: cowboy, its runner, TAMQ and a session, all real."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.local.deployment import DAEMON, RUNNER
from tests.contract.kit import AGENT, Backend, House, only_answer
from tests.contract.live import PATIENCE_S, Live, turn_of


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with Live(tmp_path) as made:
        made.tamq.start()
        yield made


def only(backend: Backend, live: Live, policy: str = "notify", **runner: object) -> House:
    """A house with one source, which wakes the session."""
    changes = {"a2a": {**live.source(**runner)["a2a"], "on_interrupt": policy}}
    return House(backend, only=("a2a",), changes=changes)


async def shown(house: House, live: Live, count: int = 1) -> None:
    await house.until(lambda: len(live.shown) == count, f"{count} wakes to be shown")


async def woken(house: House, live: Live, words: str = "take your time") -> str:
    """The entry with which a session was woken that says nothing by itself."""
    await house.start()
    await live.open(house, "silent")
    entry = await house.send("a2a", words)
    await shown(house, live)
    return entry


async def test_a_session_is_woken_and_answers(live: Live, backend: Backend) -> None:
    async with only(backend, live) as house:
        await house.start(RUNNER)
        await live.open(house)
        async with house.inside():
            entry = await house.send("a2a", "close issue 7", sender="anna", channel="ops")
            found = await house.until_answered("a2a", [entry])
            answer = only_answer(found, entry)
            assert (answer.outcome, answer.slot) == ("completed", "reply")
            assert answer.content == f"done: {turn_of(entry)}".encode()
            await house.until(lambda: live.replies, "the reply to be answered")
            assert live.replies == [(0, f"taken: {turn_of(entry)}")]
            (woken,) = live.shown
            assert "from anna, in ops" in woken["body"]
            assert woken["body"].endswith("close issue 7")
            await live.until_withdrawn(1)
            (receipt,) = await live.receipts()
            assert receipt["idempotency_key"] == f"{turn_of(entry)}#1"
            await house.until_quiet("a2a")


async def test_a_cancel_withdraws_the_wake_and_a_late_answer_is_refused(
    live: Live, one_backend: Backend
) -> None:
    async with only(one_backend, live) as house:
        entry = await woken(house, live)
        cancelled = await house.cowboy("turns", "cancel", AGENT, turn_of(entry))
        assert cancelled.status == 0, cancelled.err
        found = await house.until_answered("a2a", [entry])
        assert only_answer(found, entry).outcome == "cancelled"
        await live.until_withdrawn(1)
        late = await house.cowboy("reply", turn_of(entry), "here it is", "--json")
        assert (late.status, late.json()["error"]["code"]) == (64, "turn_not_waiting")
        assert "is over (cancelled)" in late.json()["error"]["message"]
        await house.until_quiet("a2a")
        assert len(await house.outbox("a2a")) == 1


async def test_time_runs_out_and_the_notice_says_whether_a_session_was_shown_it(
    live: Live, one_backend: Backend
) -> None:
    async with only(one_backend, live, turn_timeout_s=1) as house:
        await house.start()
        nobody = await house.send("a2a", "is anybody there?")
        found = await house.until_answered("a2a", [nobody])
        notice = only_answer(found, nobody)
        assert notice.outcome == "timeout"
        assert b"(after 1 s; no session was shown it)" in notice.content
        await live.open(house, "silent")
        silent = await house.send("a2a", "and now?")
        notice = only_answer(await house.until_answered("a2a", [silent]), silent)
        assert b"(after 1 s)" in notice.content
        await live.until_withdrawn(1)


@pytest.mark.parametrize("policy", ["notify", "resume", "hold"])
async def test_the_session_that_was_shown_it_ends(
    live: Live, one_backend: Backend, policy: str
) -> None:
    async with only(one_backend, live, policy) as house:
        await house.start()
        first = await live.open(house, "silent")
        entry = await house.send("a2a", "close issue 7")
        await shown(house, live)
        live.end(first)
        if policy == "resume":
            await live.open(house)
        found = await house.until_answered("a2a", [entry])
        outcomes = {"notify": "interrupted", "resume": "completed", "hold": "held"}
        assert only_answer(found, entry).outcome == outcomes[policy]
        assert [one["turn"] for one in live.shown] == [turn_of(entry)] * len(live.shown)
        if policy == "resume":
            assert "it may be partly done" in live.shown[1]["body"]
            keys = [one["idempotency_key"] for one in await live.receipts()]
            assert keys == [f"{turn_of(entry)}#1", f"{turn_of(entry)}#2"]
        if policy == "hold":
            late = await house.cowboy("reply", turn_of(entry), "here it is")
            assert (late.status, "is held" in late.err) == (64, True)


async def test_a_wake_that_nobody_was_shown_goes_to_the_next_session(
    live: Live, one_backend: Backend
) -> None:
    async with only(one_backend, live) as house:
        await house.start()
        first = await live.open(house)
        os.kill(first.pid, signal.SIGSTOP)  # so that TAMQ cannot look whether it is ready
        entry = await house.send("a2a", "close issue 7")

        async def admitted() -> bool:
            return len(await live.receipts()) == 1

        await house.until_async(admitted, "the wake to be admitted")
        live.end(first)
        await live.open(house)
        found = await house.until_answered("a2a", [entry], PATIENCE_S)
        assert only_answer(found, entry).outcome == "completed"
        await live.until_withdrawn(1)
        assert len(live.shown) == 1


async def test_tamq_need_not_be_there_when_a_turn_comes(live: Live, one_backend: Backend) -> None:
    async with only(one_backend, live) as house:
        await asyncio.to_thread(live.tamq.stop)
        await house.start()
        entry = await house.send("a2a", "close issue 7")
        await house.until(lambda: "wake_waits" in house.log(RUNNER), "a wake that is not taken")
        await asyncio.to_thread(live.tamq.start)
        await live.open(house)
        found = await house.until_answered("a2a", [entry])
        assert only_answer(found, entry).outcome == "completed"
        assert len(await live.receipts()) == 1


async def test_the_wait_outlives_daemon_and_runner(live: Live, one_backend: Backend) -> None:
    async with only(one_backend, live) as house:
        entry = await woken(house, live)
        await house.slay(DAEMON, RUNNER)
        refused = await house.cowboy("reply", turn_of(entry), "too soon", "--wait", "0")
        assert (refused.status, "no daemon listens" in refused.err) == (69, True)
        await house.start()
        await house.until(lambda: house.log(RUNNER).count('"wake_sent"') == 2, "a repeated wake")
        for again in ("taken", "taken already"):
            taken = await house.cowboy("reply", turn_of(entry), "at last", "--wait", "60")
            assert (taken.status, taken.out) == (0, f"{again}: {turn_of(entry)}\n"), taken.err
        found = await house.until_answered("a2a", [entry])
        assert only_answer(found, entry).content == b"at last"
        other = await house.cowboy("reply", turn_of(entry), "something else")
        assert (other.status, "is over (completed)" in other.err) == (64, True)
        await live.until_withdrawn(1)
        assert len(live.shown) == 1


async def test_an_answer_that_came_without_a_runner_withdraws_the_wake(
    live: Live, one_backend: Backend
) -> None:
    """The next runner does it: it has no such run, and the session must not be shown it again."""
    async with only(one_backend, live) as house:
        entry = await woken(house, live)
        await house.slay(RUNNER)
        taken = await house.cowboy("reply", turn_of(entry), "at last", "--wait", "60")
        assert taken.status == 0, taken.err
        await house.until_answered("a2a", [entry])
        assert [one["state"] for one in await live.receipts()] == ["awaiting_ack"]
        await house.start(RUNNER)
        await live.until_withdrawn(1)
        await house.until_quiet("a2a")
        assert len(live.shown) == 1


async def test_what_tamq_refuses_is_not_waited_for(live: Live, one_backend: Backend) -> None:
    async with only(one_backend, live, repo="elsewhere") as house:
        await house.start()
        entry = await house.send("a2a", "hello?")
        notice = only_answer(await house.until_answered("a2a", [entry]), entry)
        assert notice.outcome == "start_failed"
        assert b"(tamq refused: unknown_repo)" in notice.content
        long = await house.send("a2a", "x" * 7_169)
        notice = only_answer(await house.until_answered("a2a", [long]), long)
        assert notice.outcome == "content_too_large"


async def test_what_is_no_answer_is_refused_and_changes_nothing(
    live: Live, one_backend: Backend
) -> None:
    changes = live.source(reply_max_bytes=10)
    async with House(one_backend, only=("a2a", "chat"), changes=changes) as house:
        entry = await woken(house, live, "well?")
        turn = turn_of(entry)
        for arguments, stdin, why in (
            ((turn, "01234567890"), b"", "at most 10 are taken"),
            ((turn, "--file", "-"), b"\xff", "UTF-8"),
            ((turn,), b"", "give the answer as TEXT"),
            ((turn, "--file", "/nowhere"), b"", "cannot be read"),
            (("nonsense", "x"), b"", "not a turn id"),
            ((f"{AGENT}.a2a.1.1-1", "x"), b"", "no turn"),
            ((f"{AGENT}.chat.1.1-1", "x"), b"", "by their own program"),
        ):
            refused = await house.cowboy("reply", *arguments, stdin=stdin)
            assert (refused.status, why in refused.err) == (64, True), refused.err
        taken = await house.cowboy("reply", turn, "0123456789", "--state", "input_required")
        assert taken.status == 0, taken.err
        answer = only_answer(await house.until_answered("a2a", [entry]), entry)
        assert (answer.outcome, answer.content) == ("input_required", b"0123456789")
