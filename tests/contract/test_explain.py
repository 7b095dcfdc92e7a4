"""`cowboy explain` and `cowboy resubmit` on what really happened to real entries.

Every situation is made with the real daemon, runner and server; the command is the program itself.
"""

from typing import Any

from corral.local.agent import prompt_for
from corral.local.deployment import DAEMON, RUNNER
from tests.contract.kit import AGENT, Backend, House, only_answer
from tests.contract.test_operator import HOLD, OPERATOR, held_turn

KEPT = {"a2a": {"reclaim_idle_ms": 600_000}}  # as on a host: the content is not trimmed at once
POISON = {"a2a": {"on_interrupt": "resume", "dispatch_attempts_max": 1}}
SECRET = "a word of the message"


async def explained(house: House, name: str, *more: str) -> dict[str, Any]:
    """The one explanation of an id, as a program reads it."""
    done = await house.cowboy("explain", AGENT, name, "--json", *more, identity=OPERATOR)
    assert done.status == 0, done.out + done.err
    assert done.err == ""
    (found,) = done.json()["explanations"]
    assert isinstance(found, dict)
    return found


async def resubmitted(house: House, name: str, *more: str) -> Any:
    arguments = ("resubmit", AGENT, name, "--reconciled", "nothing was written", *more)
    return await house.cowboy(*arguments, "--json", identity=OPERATOR)


async def interrupted(house: House, text: str = "x", channel: str = "c") -> str:
    """An entry whose run was cut off by the runner's death; its sender has the notice."""
    known = len(house.starts())
    prompt = prompt_for(text.encode(), work_s=60)
    entry = await house.send("a2a", prompt, channel=channel, sender="bob", thread="t")
    await house.until(lambda: len(house.starts()) > known, "the agent to start")
    await house.slay(RUNNER)
    await house.start(RUNNER)
    await house.until_answered("a2a", [entry])
    return entry


async def test_a_healthy_entry(backend: Backend) -> None:
    async with House(backend, only=("a2a", "echo")) as house, house.inside():
        entry = await house.send("echo", SECRET, message_id="m-1")
        await house.until_answered("echo", [entry])
        await house.until_quiet("echo")
        for name in (entry, f"{AGENT}.echo.1.{entry}", "m-1"):
            found = await explained(house, name)
            assert (found["source"], found["verdict"]) == ("echo", "answered")
            assert "the agent answered (completed)" in found["certain"]
            assert "nobody reads yet" in found["certain"]  # no group 'source' so far
            assert SECRET not in str(found)
        outbox = "scout:echo:outbox"
        await house.admin("XGROUP", "CREATE", outbox, "source", "0")
        assert "has not read yet" in (await explained(house, entry))["certain"]
        reader = (house.as_identity, "source.scout.echo")
        await reader[0](
            reader[1], "XREADGROUP", "GROUP", "source", "r", "COUNT", 1, "STREAMS", outbox, ">"
        )
        assert "read and not acknowledged" in (await explained(house, entry))["certain"]
        ((answer, _),) = await house.admin("XRANGE", outbox, "-", "+")
        await reader[0](reader[1], "XACK", outbox, "source", answer)
        assert "reader has acknowledged" in (await explained(house, entry))["certain"]
        await house.admin("XTRIM", outbox, "MAXLEN", "0")
        assert "trimmed since" in (await explained(house, entry))["certain"]

        async def trimmed() -> bool:
            return not await house.admin("XLEN", "scout:echo:inbox")

        await house.until_async(trimmed, "the inbox to be trimmed")
        shown = await house.cowboy("explain", AGENT, entry, "--show-content", identity=OPERATOR)
        assert shown.out.splitlines()[1].startswith("Certain: the agent answered")
        assert shown.out.splitlines()[-1].split() == ["content", "gone"]  # scrubbed and trimmed
        assert await house.denials() == []
        refused = await resubmitted(house, entry)
        assert refused.status == 64
        assert "has a reply (completed)" in refused.json()["error"]["message"]


async def test_interrupted_then_sent_again(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=KEPT) as house:
        await house.start(RUNNER)
        async with house.inside():
            entry = await interrupted(house)
            found = await explained(house, entry)
            assert found["verdict"] == "interrupted"
            assert "what its run did" in found["uncertain"]
            assert any("files" in each for each in found["check"])
            done = await resubmitted(house, entry)
            assert done.status == 0, done.out
            new = done.json()
            assert (new["resubmit_of"], new["recorded"]) == (entry, True)
            second = await resubmitted(house, entry)
            assert (second.status, second.json()["error"]["code"]) == (64, "resubmit_refused")
            assert new["entry_id"] in second.json()["error"]["message"]
            running = await explained(house, new["entry_id"])
            assert running["verdict"] in {"starting", "acknowledged_unanswered", "running"}
            assert (await resubmitted(house, new["entry_id"])).status == 64
            turn = f"{AGENT}.a2a.1.{new['entry_id']}"
            assert (await house.cowboy("turns", "cancel", AGENT, turn)).status == 0
            answers = await house.until_answered("a2a", [new["entry_id"]])
            fields = only_answer(answers, new["entry_id"]).fields
            # Sender, channel and thread came back, so the reply is routed as the first would be.
            kept = (fields[b"sender"], fields[b"channel"], fields[b"thread"])
            assert kept == (b"bob", b"c", b"t")
            assert fields[b"message_id"] == new["message_id"].encode()
            linked = await explained(house, entry)
            assert linked["notes"][0]["kind"] == "resubmitted"
            assert new["entry_id"] in linked["notes"][0]["detail"]
            assert "nothing was written" in linked["notes"][0]["detail"]


async def test_a_command_repeated_after_a_lost_answer_is_taken_once(one_backend: Backend) -> None:
    """The same message id, so the second is a duplicate whatever the first did."""
    async with House(one_backend, only=("a2a",), changes=KEPT) as house:
        await house.start(RUNNER)
        async with house.inside():
            entry = await interrupted(house)
            new = (await resubmitted(house, entry)).json()
            ((_, fields),) = await house.admin(
                "XRANGE", "scout:a2a:inbox", new["entry_id"], new["entry_id"]
            )
            words = [word for pair in fields.items() for word in pair]
            again = await house.admin("XADD", "scout:a2a:inbox", "*", *words)
            await house.until(lambda: len(house.starts()) == 2, "the new turn to start")

            async def counted() -> bool:
                return (await house.counters("a2a")).get("duplicate") == 1

            await house.until_async(counted, "the duplicate to be counted")
            assert (await explained(house, again.decode()))["verdict"] == "duplicate"
            await house.slay(RUNNER)


async def test_f14_acknowledged_and_unanswered(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        await house.start()
        entry = await house.send("a2a", prompt_for(b"", action="hang"), channel="c")
        await house.until(lambda: len(house.starts()) == 1, "the agent to start")

        async def acked() -> bool:
            return await house.pending("a2a") == 0

        await house.until_async(acked, "the acknowledgement")
        found = await explained(house, entry)
        assert found["verdict"] == "acknowledged_unanswered"
        assert "Redis will not offer it again" in found["certain"]
        assert "whether its run has begun, and what it has done" in found["uncertain"]
        refused = await resubmitted(house, entry)
        assert "may still be going on" in refused.json()["error"]["message"]
        await house.slay(DAEMON)  # now Redis is all there is to ask, and that is said
        found = await explained(house, entry)
        assert found["verdict"] == "acknowledged_unanswered"
        assert "no answer was found in the outbox" in found["certain"]
        assert found["daemon"].startswith("no daemon listens")
        refused = await resubmitted(house, entry)
        assert "daemon cannot be asked" in refused.json()["error"]["message"]
        unknown = await house.cowboy("explain", AGENT, "m-1", identity=OPERATOR)
        assert (unknown.status, "only the daemon knows message ids" in unknown.err) == (69, True)
        await house.slay(RUNNER)


async def test_poisoned(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=POISON) as house:
        await house.start(RUNNER)
        async with house.inside():
            entry = await interrupted(house)
            found = await explained(house, entry)
            assert found["verdict"] == "poisoned"
            assert f"a dead letter is kept as {found['redis']['dead'][0]}" in found["certain"]
            await house.admin("XTRIM", "scout:a2a:inbox", "MAXLEN", "0")
            done = await resubmitted(house, entry)  # its content is in the dead letter
            assert done.status == 0, done.out


async def test_held(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=HOLD) as house:
        await house.start(RUNNER)
        async with house.inside():
            entry, turn = await held_turn(house)
            found = await explained(house, entry)
            assert (found["verdict"], turn in found["do"]) == ("held", True)
            refused = await resubmitted(house, turn)
            assert "held and could still run" in refused.json()["error"]["message"]


async def test_never_read_and_pending_and_passed_over(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        (ghostly,) = await house.make_pending("a2a", 1)
        entry = await house.send("a2a", SECRET, channel="c")
        before = await house.admin("XINFO", "STREAM", "scout:a2a:inbox", "FULL")
        found = await explained(house, entry)  # no daemon
        assert (found["verdict"], SECRET in str(found)) == ("never_read", False)
        shown = await house.cowboy("explain", AGENT, entry, "--show-content", identity=OPERATOR)
        assert SECRET in shown.out
        after = await house.admin("XINFO", "STREAM", "scout:a2a:inbox", "FULL")
        assert after == before, "explain writes nothing"
        pending = await explained(house, ghostly)
        assert (pending["verdict"], "by ghost" in pending["certain"]) == ("pending", True)
        await house.admin("XGROUP", "SETID", "scout:a2a:inbox", "cowboy", "$")
        async with house.inside():
            await house.until_state("a2a", "running")
            found = await explained(house, entry)
            assert found["verdict"] == "passed_over"
            refused = await resubmitted(house, entry)
            assert "could still run" in refused.json()["error"]["message"]


async def test_never_read_with_a_full_backlog(one_backend: Backend) -> None:
    full = {"a2a": {"backlog_max": 10, "read_count": 10, "channel_backlog_max": 10}}
    async with House(one_backend, only=("a2a",), changes=full) as house, house.inside():
        for _ in range(10):
            await house.send("a2a", "x", channel="c")  # no runner: they stay open
        entry = await house.send("a2a", "y", channel="c")

        async def taken() -> bool:
            return bool((await house.source("a2a"))["open"] == 10)

        await house.until_async(taken, "the backlog to be full")
        found = await explained(house, entry)
        assert (found["verdict"], "nothing ran" in found["certain"]) == ("never_read", True)
        assert "the runner does not answer" in found["do"]


async def test_trimmed_and_unknown(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        (entry,) = await house.make_pending("echo", 1, consumer="harness-echo")
        await house.admin("XDEL", "scout:echo:inbox", entry)
        async with house.inside():
            await house.until_state("echo", "running")
            await house.until_quiet("echo")

            async def noted() -> bool:
                return bool({"trimmed", "deleted"} & set(await house.events("echo")))

            await house.until_async(noted, "the loss to be noted")
            found = await explained(house, entry)
            assert found["verdict"] == "trimmed"
            assert "before it was read" in found["certain"]
            assert "what it said" in found["uncertain"]
            unknown = await explained(house, "99999999999999-0")
            assert unknown["verdict"] == "unknown_id"
            nobody = await house.cowboy("explain", AGENT, "m-9", identity=OPERATOR)
            assert (nobody.status, "message id" in nobody.err) == (64, True)
            elsewhere = await house.cowboy("explain", AGENT, "smith.echo.1.1-0", identity=OPERATOR)
            assert elsewhere.status == 64


async def test_without_a_way_to_redis_the_ledger_still_answers(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house, house.inside():
        entry = await house.send("echo", "x")
        await house.until_answered("echo", [entry])
        await house.until_quiet("echo")
        done = await house.cowboy("explain", AGENT, entry, "--json", identity="source.scout.echo")
        (found,) = done.json()["explanations"]
        assert (found["verdict"], found["redis"]["in_stream"]) == ("answered", None)
        assert found["redis"]["refused"] == ["Redis refused the credential"]
