"""`cowboy doctor` on a real daemon and server: nothing when healthy, each planted fault by name."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from corral.cowboy import probing
from corral.cowboy.config import parse_sources
from corral.cowboy.settings import agent_username
from corral.local.deployment import DAEMON, RUNNER
from tests.contract.acl_policy import may
from tests.contract.conftest import AtPoint
from tests.contract.kit import AGENT, GHOST, Backend, House
from tests.contract.test_operator import OPERATOR
from tests.unit.cowboy_config import samples

INBOX = f"{AGENT}:a2a:inbox"
Checks = dict[str, Mapping[str, Any]]


async def doctor(
    house: House,
    *more: str,
    identity: str = OPERATOR,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, Checks]:
    """Exit status, and what is not green: by check."""
    words = ("doctor", AGENT, "--json", *more)
    done = await house.cowboy(*words, identity=identity, environment=environment)
    assert done.err == "", done.err
    (report,) = done.json()["agents"]
    assert (done.status == 0) == report["healthy"]
    found = {one["check"]: one for one in report["checks"] if one["result"] not in ("ok", "absent")}
    assert all(one["fix"] for one in found.values())
    return done.status, found


def tree(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Every file with its size, mode and time of change."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mode, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
    }


async def test_nothing_on_a_healthy_system_whatever_it_has_done(backend: Backend) -> None:
    async with House(backend, only=("a2a", "echo")) as house:
        assert (await doctor(house))[0] == 1  # not started
        await house.start()
        await house.until_state("echo", "running")
        await house.until_state("a2a", "running")
        assert await doctor(house) == (0, {})  # nothing was sent so far
        entries = [await house.send("echo", f"{n}", channel=f"c{n % 7}") for n in range(300)]
        await house.send("echo", "same", message_id="m")
        await house.send("echo", "same", message_id="m")
        await house.send("echo", "")
        for _ in range(2):  # while everything moves, too
            assert await doctor(house) == (0, {})
        await house.until_answered("echo", entries)
        await house.until_quiet("echo")
        assert await doctor(house) == (0, {})
        shown = await house.cowboy("doctor", AGENT, "--all", identity=OPERATOR)
        assert shown.out.splitlines()[0].endswith("checks ok")
        assert await house.denials() == []
        assert house.deployment.words_in_logs() == []


async def test_it_never_writes(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        await house.start()
        entry = await house.send("a2a", "x", channel="c")
        await house.until_answered("a2a", [entry])
        await house.until_quiet("a2a")
        await house.stop()
        await house.make_pending("a2a", 2)
        state, config = house.topology.state_dir, house.topology.config_dir
        files = tree(state) | tree(config)
        streams = [await house.admin("XINFO", "STREAM", INBOX, "FULL"), await house.admin("DBSIZE")]
        calls = [await house.calls(name) for name in ("xadd", "xack", "set", "hset", "xgroup")]
        assert (await doctor(house))[0] == 1
        await house.cowboy("doctor", AGENT, identity=OPERATOR)
        assert tree(state) | tree(config) == files
        after = [await house.admin("XINFO", "STREAM", INBOX, "FULL"), await house.admin("DBSIZE")]
        assert after == streams
        assert calls == [
            await house.calls(name) for name in ("xadd", "xack", "set", "hset", "xgroup")
        ]


async def test_files_that_others_may_use(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        await house.start(DAEMON)
        await house.until_state("echo", "running")
        ledger = house.topology.ledger(AGENT)
        for path, mode in ((ledger, 0o644), (house.topology.control_socket(AGENT), 0o666)):
            good = path.stat().st_mode & 0o777
            path.chmod(mode)
            status, found = await doctor(house)
            assert (status, list(found)) == (1, ["files"])
            assert found["files"]["fix"] == f"chmod 0600 {path}"
            path.chmod(good)
        assert await doctor(house) == (0, {})


async def test_a_missing_group_and_ghosts(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        await house.make_pending("a2a", 2)
        _, found = await doctor(house)
        assert found["consumers a2a"]["result"] == "failed"
        assert f"{GHOST!r} is not ours and has 2" in found["consumers a2a"]["text"]
        await house.admin("XGROUP", "DESTROY", INBOX, "cowboy")
        _, found = await doctor(house)
        assert found["group a2a"]["text"] == "the stream has no group 'cowboy'"
        await house.start()
        await house.until_quiet("a2a")
        assert await doctor(house) == (0, {})


@pytest.mark.parametrize("how", ["created", "moved"])
async def test_a_group_at_the_end_has_passed_over_entries(how: str, backend: Backend) -> None:
    # As on a host: what was passed over stays a while before the inbox is trimmed.
    changes = {"a2a": {"reclaim_idle_ms": 600_000}}
    async with House(backend, only=("a2a",), changes=changes) as house:
        await house.start()
        first = await house.send("a2a", "x", channel="c")
        await house.until_answered("a2a", [first])
        await house.stop()
        passed = await house.send("a2a", "nobody reads this", channel="c")
        if how == "created":
            await house.admin("XGROUP", "DESTROY", INBOX, "cowboy")
            await house.admin("XGROUP", "CREATE", INBOX, "cowboy", "$")
        else:
            await house.admin("XGROUP", "SETID", INBOX, "cowboy", "$")
        await house.start()
        await house.until_state("a2a", "running")

        async def on_record() -> bool:
            return (await house.events("a2a"))[:1] == ["passed_over"]

        await house.until_async(on_record, "the daemon to see it")
        status, found = await doctor(house)
        assert (status, list(found)) == (1, ["group a2a", "anomalies a2a"])
        assert f"1 entries were passed over, the first {passed}" in found["group a2a"]["text"]
        assert "passed_over: 1 in 24 h" in found["anomalies a2a"]["text"]
        later = await house.send("a2a", "this one is read", channel="c")
        await house.until_answered("a2a", [later])
        assert passed in (await doctor(house))[1]["group a2a"]["text"]


async def test_what_was_passed_over_is_on_record_when_it_is_trimmed(one_backend: Backend) -> None:
    """Also when the first that is read lies above it, so that nothing stands still."""
    async with House(one_backend, only=("echo",)) as house:
        await house.start(DAEMON)
        await house.until_answered("echo", [await house.send("echo", "x", channel="c")])
        await house.stop(DAEMON)
        inbox = f"{AGENT}:echo:inbox"
        passed = await house.send("echo", "nobody reads this", channel="c")
        await house.admin("XGROUP", "SETID", inbox, "cowboy", "$")
        later = await house.send("echo", "this one is read", channel="c")
        await house.start(DAEMON)
        await house.until_answered("echo", [later])

        async def trimmed() -> bool:
            return not await house.admin("XRANGE", inbox, passed, passed)

        await house.until_async(trimmed, "it to be trimmed", 60)
        (event,) = (await house.source("echo"))["events"]
        assert (event["kind"], event["entry"]) == ("passed_over", passed)
        _, found = await doctor(house)
        assert list(found) == ["anomalies echo"]
        told = await house.cowboy("explain", AGENT, passed, "--json", identity=OPERATOR)
        (case,) = told.json()["explanations"]
        assert case["verdict"] == "passed_over"
        assert "trimmed since" in case["certain"]
        await house.slay(DAEMON)  # it is noted once, not at each start
        await house.start(DAEMON)
        await house.until_answered("echo", [await house.send("echo", "y", channel="c")])
        assert await house.events("echo") == ["passed_over"]


async def test_a_foreign_and_a_lost_ledger(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        await house.start(DAEMON)
        await house.until_answered("echo", [await house.send("echo", "x")])
        await house.stop(DAEMON)
        for file in house.topology.ledger(AGENT).parent.glob("ledger.db*"):
            file.unlink()
        _, found = await doctor(house)
        assert found["ledger echo"]["text"].startswith("lost: Redis names ledger")
        assert found["ledger schema"]["text"] == "there is no ledger"
        await house.start(DAEMON)
        await house.until_state("echo", "blocked")
        _, found = await doctor(house)
        assert found["ledger echo"]["text"].startswith("Redis names ledger")
        assert "cowboy adopt" in found["poll echo"]["fix"]
        assert (await house.cowboy("adopt", AGENT, "--yes")).status == 0
        await house.until_state("echo", "running")
        assert await doctor(house) == (0, {})


async def test_f01_an_acknowledgement_that_finds_nothing_is_named(
    one_backend: Backend, at_point: AtPoint
) -> None:
    async with House(one_backend, only=("echo",)) as house, house.inside():
        first = await house.send("echo", "the right group")
        await house.until_answered("echo", [first])
        await house.until_quiet("echo")
        assert await doctor(house) == (0, {})

        def another_group() -> None:
            inbox = f"{AGENT}:echo:inbox"
            with house.server.client() as client, client.pipeline(transaction=True) as both:
                both.xgroup_destroy(inbox, "cowboy")
                both.xgroup_create(inbox, "cowboy", "$")
                both.execute()

        at_point("cowboy.received.committed", another_group)
        await house.until_answered("echo", [await house.send("echo", "another group by now")])

        async def noticed() -> bool:
            return "ack_short" in await house.events("echo")

        await house.until_async(noticed, "the short count to be noticed")
        status, found = await doctor(house)
        assert (status, list(found)) == (1, ["anomalies echo"])
        assert "compare the group of the stream" in found["anomalies echo"]["fix"]


async def test_f01_a_refused_acknowledgement_is_an_anomaly(one_backend: Backend) -> None:
    changes = {"echo": {"ack_attempts_max": 1}}
    async with House(one_backend, only=("echo",), changes=changes) as house, house.inside():
        await house.until_answered("echo", [await house.send("echo", "with every right")])
        await house.until_quiet("echo")
        await house.admin("ACL", "SETUSER", agent_username(AGENT), "-xack")
        await house.until_answered("echo", [await house.send("echo", "without xack")])

        async def forgotten() -> bool:
            return "ack_forgotten" in await house.events("echo")

        await house.until_async(forgotten, "the acknowledgement to be forgotten")
        _, found = await doctor(house)
        assert list(found) == ["anomalies echo"]
        assert "+xack" in found["anomalies echo"]["fix"]


async def test_f01_a_refused_acknowledgement_is_found_by_probes(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        await house.start()
        await house.until_state("a2a", "running")
        secrets = str(house.topology.credential_file("x").parent)
        assert await doctor(house, "--probe-acl", secrets) == (0, {})
        user = agent_username(AGENT)
        await house.admin("ACL", "SETUSER", user, "-xack")
        await house.admin("ACL", "SETUSER", OPERATOR, "+config|get")
        _, found = await doctor(house, "--probe-acl", secrets)
        assert list(found) == [f"acl {user}", "acl operator"]
        assert f"XACK {INBOX} cowboy 0-0 is refused" in found[f"acl {user}"]["text"]
        assert found["acl operator"]["text"] == "CONFIG GET maxmemory is not denied"
        await house.admin("ACL", "SETUSER", "metrics", "off")
        _, found = await doctor(house, "--probe-acl", secrets)
        assert found["acl metrics"]["result"] == "failed"
        _, found = await doctor(house, "--probe-acl", str(house.base / "nowhere"))
        assert {one["result"] for one in found.values()} == {"unknown"}


async def test_f15_anonymous_access(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house:
        await house.start(DAEMON)
        await house.until_state("echo", "running")
        await house.admin("ACL", "SETUSER", "default", "on", "nopass")
        status, found = await doctor(house)
        assert (status, list(found)) == (1, ["anonymous access"])
        assert "user default off" in found["anonymous access"]["fix"]


async def test_a_clock_behind_what_redis_has_seen(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        await house.start(DAEMON)
        await house.until_state("echo", "running")
        now_s, _ = await house.admin("TIME")
        future = f"{(int(now_s) + 3600) * 1000}-0"
        await house.admin("XADD", f"{AGENT}:echo:outbox", future, "content", "x")
        status, found = await doctor(house)
        assert (status, list(found)) == (1, ["clock"])
        assert "in the future of this host" in found["clock"]["text"]


async def test_what_stands_still(one_backend: Backend) -> None:
    """A stopped runner, daemon and server: each is named, and nothing is green by silence."""
    async with House(one_backend, only=("a2a",)) as house:
        await house.start()
        await house.until_state("a2a", "running")
        await house.slay(RUNNER)

        async def missed() -> bool:
            return not (await house.ask("status"))["healthy"]

        await house.until_async(missed, "the runner to be missed")
        _, found = await doctor(house)
        assert set(found) == {"runner", "poll a2a"}
        house.supervisor.pause(DAEMON)
        _, found = await doctor(house)
        assert "did not answer" in found["daemon"]["text"]
        assert found["poll a2a"]["result"] == "unknown"
        house.supervisor.resume(DAEMON)
        await house.slay(DAEMON, "redis")
        _, found = await doctor(house)
        assert found["redis"]["result"] == "failed"
        assert {"group a2a", "consumers a2a", "ledger a2a", "anonymous access"} <= set(found)
        _, found = await doctor(house, identity="source.scout.a2a")
        assert found["redis"]["result"] == "failed"


def test_probes_expect_what_the_published_policy_says() -> None:
    """Each identity's probes, compared with the same policy that the ACL's own tests use."""
    sources = parse_sources(json.dumps(samples.document())).sources
    for probe in probing.probes(AGENT, sources):
        for words in (*probe.allowed, *probe.denied):
            verb, key = words[0].lower(), words[1] if len(words) > 1 else ""
            if verb in ("acl", "config", "ping", "info"):
                continue
            assert may(probe.identity, verb, key) == (words in probe.allowed), words
