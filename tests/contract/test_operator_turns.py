"""`cowboy turns cancel` and what the control socket finds: a real daemon, runner and server."""

from corral.cowboy import points
from corral.cowboy.inquiry import FOUND_MAX
from corral.local.agent import prompt_for
from corral.local.deployment import DAEMON, RUNNER
from tests.contract.kit import AGENT, Backend, House, only_answer
from tests.contract.test_operator import HOLD, held_turn


async def test_a_running_turn_is_cancelled_when_its_run_is_over(backend: Backend) -> None:
    async with House(backend, only=("a2a",)) as house:
        await house.start(RUNNER)
        async with house.inside():
            running = await house.send("a2a", prompt_for(b"", action="hang"), channel="c")
            waiting = await house.send("a2a", "waits", channel="c")
            await house.until(lambda: len(house.starts()) == 1, "the agent to start")
            turn = f"{AGENT}.a2a.1.{running}"
            shown = await house.cowboy("turns", "cancel", AGENT, turn, "--json")
            assert (shown.status, shown.json()["cancelled"]) == (0, True), shown.err
            assert shown.json()["outcome"] == "cancelled"
            found = await house.until_answered("a2a", [running, waiting])
            assert only_answer(found, running).outcome == "cancelled"
            assert only_answer(found, waiting).outcome == "completed"
            again = await house.cowboy("turns", "cancel", AGENT, turn)  # as it was asked for
            assert (again.status, again.out) == (0, f"cancelled {turn}\n"), again.err
            late = await house.cowboy("turns", "cancel", AGENT, f"{AGENT}.a2a.1.{waiting}")
            assert (late.status, late.err) == (1, "")
            assert late.out == f"too late: {AGENT}.a2a.1.{waiting} is done (completed)\n"
            await house.until_quiet("a2a")
            assert len(await house.outbox("a2a")) == 2  # no further notice


async def test_a_waiting_and_a_held_turn_are_cancelled_at_once(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=HOLD) as house:
        await house.start(RUNNER)
        async with house.inside():
            _, held = await held_turn(house)
            blocker = await house.send("a2a", prompt_for(b"", action="hang"), channel="c")
            waiting = await house.send("a2a", "waits", channel="c")
            turn = f"{AGENT}.a2a.1.{waiting}"

            async def taken() -> bool:
                return bool((await house.ask("turn", turn_id=turn))["ok"])

            await house.until_async(taken, "the second to be taken")
            for each in (turn, held):
                shown = await house.cowboy("turns", "cancel", AGENT, each)
                assert (shown.status, shown.out) == (0, f"cancelled {each}\n"), shown.err
            await house.cowboy("turns", "cancel", AGENT, f"{AGENT}.a2a.1.{blocker}")
            await house.until_answered("a2a", [blocker, waiting])
            unknown = await house.cowboy("turns", "cancel", AGENT, f"{AGENT}.a2a.1.1-1")
            assert (unknown.status, "no such turn" in unknown.err) == (64, True)


async def test_find_by_each_kind_of_id(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a", "echo")) as house, house.inside():
        entry = await house.send("echo", "x", message_id="m-1")
        await house.until_answered("echo", [entry])
        again = await house.send("echo", "x", message_id="m-1")
        await house.until_quiet("echo")
        turn = f"{AGENT}.echo.1.{entry}"
        for name, by in ((entry, "entry"), (turn, "turn"), ("m-1", "message")):
            answer = await house.ask("find", id=name, source="echo")
            assert answer["by"] == by
            (source,) = answer["sources"]
            assert [found["turn_id"] for found in source["turns"]] == [turn]
            assert source["turns"][0]["outcome"] == "completed"
        (duplicate,) = (await house.ask("find", id=again, source="echo"))["sources"]
        assert (duplicate["turns"], [n["kind"] for n in duplicate["notes"]]) == ([], ["duplicate"])
        everywhere = await house.ask("find", id=entry)
        assert [len(source["turns"]) for source in everywhere["sources"]] == [0, 1]
        assert not (await house.ask("find", id=""))["ok"]
        nowhere = await house.ask("find", id="9" * 20 + "-0")  # beyond any entry id
        assert (nowhere["by"], nowhere["sources"][0]["turns"]) == ("message", [])
        assert (await house.ask("integrity"))["integrity"] == "ok"


async def test_a_resubmission_is_put_on_record(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house, house.inside():
        entry = await house.send("echo", "x")
        await house.until_answered("echo", [entry])
        turn = f"{AGENT}.echo.1.{entry}"
        for number in range(FOUND_MAX + 1):
            fields = {"turn_id": turn, "as": f"{number}-1", "note": "nothing was written"}
            assert (await house.ask("resubmitted", **fields))["ok"]
        (source,) = (await house.ask("find", id=entry))["sources"]
        assert len(source["notes"]) == FOUND_MAX
        assert source["notes"][0]["detail"] == f"as {FOUND_MAX}-1: nothing was written"
        bad = await house.ask("resubmitted", turn_id=turn, **{"as": "x", "note": ""})
        assert (bad["ok"], bad["error"]["code"]) == (False, "usage")


async def test_f17_status_shows_lag_and_pending_beside_the_daemons_word(
    one_backend: Backend,
) -> None:
    """F17: lag and pending of the group, and the outbox with its readers; not lengths alone."""
    async with House(one_backend, only=("echo",)) as house, house.inside():
        entry = await house.send("echo", "x")
        await house.until_answered("echo", [entry])
        outbox = f"{AGENT}:echo:outbox"
        await house.admin("XGROUP", "CREATE", outbox, "source", "0")
        shown = await house.cowboy("status", AGENT, "--json", identity="operator")
        (agent,) = shown.json()["agents"]
        (redis,) = agent["redis"]
        assert (redis["inbox"]["lag"], redis["inbox"]["pending"]) == (0, 0)
        assert redis["outbox"] == {"length": 1, "readers": {"source": {"lag": 1, "pending": 0}}}
        text = (await house.cowboy("status", AGENT, identity="operator")).out
        assert "source: lag 1, pending 0" in text
        assert "1 done" in text
        assert {"uuid", "schema", "commits", "wal_bytes"} == set(agent["daemon"]["ledger"])
        # Without the operator's credential the daemon's word is all there is, and that is said.
        shown = await house.cowboy("status", AGENT, "--json", identity="source.scout.echo")
        (agent,) = shown.json()["agents"]
        assert (shown.status, agent["redis"]) == (0, None)
        assert agent["redis_error"]["code"] == "redis_denied"


async def test_a_daemon_killed_while_it_cancels_leaves_one_end_and_one_notice(
    one_backend: Backend,
) -> None:
    """The command got no answer, so nothing was promised; the turn still ends once, and is told."""
    arms = {DAEMON: {0: (f"{points.CANCEL}:1",)}}
    async with House(one_backend, only=("a2a",), arms=arms) as house:
        await house.start()
        entry = await house.send("a2a", prompt_for(b"", action="hang"), channel="c")
        turn = f"{AGENT}.a2a.1.{entry}"
        await house.until(lambda: len(house.starts()) == 1, "the agent to start")
        shown = await house.cowboy("turns", "cancel", AGENT, turn)
        assert (shown.status, "gave no answer" in shown.err) == (69, True), shown.err
        assert points.CANCEL in house.kills()
        found = await house.until_answered("a2a", [entry])
        outcome = only_answer(found, entry).outcome
        assert outcome in {"cancelled", "interrupted"}
        await house.until_quiet("a2a")
        assert house.starts() == [turn]
        again = await house.cowboy("turns", "cancel", AGENT, turn)
        assert again.status == (0 if outcome == "cancelled" else 1), again.err


async def test_a_source_or_state_that_does_not_exist_is_no_empty_list(
    one_backend: Backend,
) -> None:
    async with House(one_backend) as house:
        await house.start(RUNNER)
        async with house.inside():
            for request, message in (
                ({"state": "bogus"}, "no state 'bogus'"),
                ({"state": "done"}, "no state 'done'"),
                ({"source": "zz"}, "no source 'zz'"),
            ):
                answer = await house.ask("turns", **request)
                assert (answer["ok"], answer["error"]["message"]) == (False, message)
            answer = await house.ask("turns", state="held", source="a2a")
            assert (answer["ok"], answer["turns"]) == (True, [])
