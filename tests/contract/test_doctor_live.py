"""`cowboy doctor` while everything runs: faults beside a live daemon, each found by its check.

Each fault is repaired again, and the doctor must then find nothing.
"""

import hashlib
import resource
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from corral.cowboy.settings import agent_username
from corral.local.deployment import DAEMON, REDIS
from tests.contract.kit import AGENT, Backend, House
from tests.contract.test_doctor import INBOX, Checks, doctor
from tests.contract.test_limits_of_servers import full_disk, inside_of, on_a_small_disk
from tests.contract.test_operator import OPERATOR

MARK = f"{AGENT}:a2a:ledger"
AT_NIGHT = {"a2a": {"reclaim_idle_ms": 600_000}}  # as on a host: nothing is reclaimed meanwhile


async def at_work(house: House, source: str = "a2a") -> None:
    await house.start()
    await house.until_answered(source, [await house.send(source, "hello", channel="c")])
    await house.until_quiet(source)
    assert await doctor(house) == (0, {})


async def until_found(
    house: House, check: str, words: str, environment: Mapping[str, str] | None = None
) -> Checks:
    """Asks the doctor until a check says so; all that it then finds."""

    async def asked() -> Checks | None:
        _, found = await doctor(house, environment=environment)
        return found if words in found.get(check, {"text": ""})["text"] else None

    found = await house.until_async(asked, f"{check}: {words}", 60)
    assert found is not None
    return found


async def until_healthy(house: House) -> None:
    async def healthy() -> bool:
        return await doctor(house) == (0, {})

    await house.until_async(healthy, "the doctor to find nothing", 60)


# ------------------------------------------------------------ the group and its consumers


async def test_a_group_that_was_set_to_the_end_and_a_ghost(backend: Backend) -> None:
    async with House(backend, only=("a2a",), changes=AT_NIGHT) as house:
        await at_work(house)
        house.supervisor.pause(DAEMON)
        passed = await house.send("a2a", "nobody reads this", channel="c")
        await house.admin("XGROUP", "SETID", INBOX, "cowboy", "$")
        (taken,) = await house.make_pending("a2a", 1, "impostor")
        house.supervisor.resume(DAEMON)
        found = await until_found(house, "group a2a", "1 entries were passed over")
        assert passed in found["group a2a"]["text"]
        assert found["consumers a2a"]["text"] == "'impostor' is not ours and has 1 entries pending"
        found = await until_found(house, "anomalies a2a", "passed_over: 1 in 24 h")
        assert set(found) == {"group a2a", "consumers a2a", "anomalies a2a"}
        # Given back, both: the ghost's by a claim, the other by the group's place before it.
        await house.claim_for("harness-a2a", "a2a", [taken], idle_ms=700_000)
        await house.admin("XGROUP", "DELCONSUMER", INBOX, "cowboy", "impostor")
        await house.admin("XGROUP", "SETID", INBOX, "cowboy", "0")
        await house.slay(DAEMON)
        await house.start(DAEMON)
        await house.until_answered("a2a", [passed, taken])
        assert list((await doctor(house))[1]) == ["anomalies a2a"]  # for a day


async def test_a_group_that_is_missing_and_may_not_be_made_again(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        await at_work(house)
        await house.admin("ACL", "SETUSER", agent_username(AGENT), "-xgroup|create")
        await house.admin("XGROUP", "DESTROY", INBOX, "cowboy")
        found = await until_found(house, "group a2a", "the stream has no group 'cowboy'")
        assert found["consumers a2a"]["text"] == "could not be checked: there is no group"
        found = await until_found(house, "poll a2a", "xgroup")  # and why it is not made again
        await house.admin("ACL", "SETUSER", agent_username(AGENT), "+xgroup|create")
        await until_healthy(house)


# ------------------------------------------------------------ the ledger


async def test_marks_of_another_ledger_of_a_newer_copy_and_of_none(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",), changes=AT_NIGHT) as house:
        await at_work(house)
        good = await house.admin("HGETALL", MARK)
        uuid, sequence = good[b"uuid"].decode(), int(good[b"sequence"])
        for field, planted, says in (
            ("uuid", "another", f"Redis names ledger another, the daemon has {uuid}"),
            ("sequence", sequence + 1000, f"seen commit {sequence + 1000}: this is an older copy"),
        ):
            await house.admin("HSET", MARK, field, planted)
            status, found = await doctor(house)
            assert (status, list(found)) == (1, ["ledger a2a"])
            assert says in found["ledger a2a"]["text"]
            await house.admin("HSET", MARK, field, good[field.encode()])
            assert await doctor(house) == (0, {})
        await house.admin("DEL", MARK)
        status, found = await doctor(house)
        assert (status, found["ledger a2a"]["result"]) == (1, "unknown")
        assert "lost its mark" in found["ledger a2a"]["text"]
        await house.send("a2a", "more", channel="c")
        found = await until_found(house, "anomalies a2a", "incarnation_began")
        assert list(found) == ["anomalies a2a"]


@pytest.mark.parametrize(
    ("pragma", "says"),
    [
        ("user_version = 99", "schema 99, this program knows"),
        ("user_version = 1", "schema 1 is older than"),
        ("application_id = 7", "the file is another program's"),
    ],
)
async def test_a_schema_of_another_version(pragma: str, says: str, one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        await at_work(house, "echo")
        name = pragma.split(maxsplit=1)[0]
        with closing(sqlite3.connect(house.topology.ledger(AGENT), timeout=20)) as planted:
            ((good,),) = planted.execute(f"PRAGMA {name}").fetchall()
            planted.execute(f"PRAGMA {pragma}")
            status, found = await doctor(house)
            assert (status, list(found)) == (1, ["ledger schema"])
            assert says in found["ledger schema"]["text"]
            planted.execute(f"PRAGMA {name} = {good}")
            assert await doctor(house) == (0, {})


async def test_a_disk_that_takes_nothing_more(one_backend: Backend) -> None:
    """The kernel refuses the daemon's writes, as a full disk or a quota would."""
    async with House(one_backend, only=("a2a",)) as house:
        await at_work(house)
        pid = (await house.ask("status"))["pid"]
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, before[1]))
        waiting = await house.send("a2a", "must wait", channel="c")
        found = await until_found(house, "poll a2a", "storage_f")
        assert "ledger's disk" in found["poll a2a"]["fix"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        await house.until_answered("a2a", [waiting])
        await until_healthy(house)


async def test_a_full_disk_is_found_before_it_is_full_and_then(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        on_a_small_disk(house)
        await house.start()
        await house.until_answered("a2a", [await house.send("a2a", "hello", channel="c")])
        there = {"COWBOY_STATE_DIR": str(inside_of(house, house.topology.state_dir))}
        status, found = await doctor(house, environment=there)
        assert (status, list(found)) == (1, ["disk"])  # 16 MiB are too few
        async with full_disk(house):
            waiting = await house.send("a2a", "x" * 12_000, channel="c")
            found = await until_found(house, "poll a2a", "storage_full", there)
            assert found["disk"]["text"].endswith("/scout: 0 MiB free")
        await house.until_answered("a2a", [waiting], timeout_s=60)
        found = await until_found(house, "disk", "MiB free", there)
        assert list(found) == ["disk"]


# ------------------------------------------------------------ Redis


async def test_a_poll_that_gets_no_answer(backend: Backend) -> None:
    """Redis holds back whatever writes, which a poll does: the operator is still answered."""
    async with House(backend, only=("a2a",)) as house:
        await at_work(house)
        await house.admin("CLIENT", "PAUSE", 300_000, "WRITE")

        async def stale() -> Checks | None:
            _, found = await doctor(house)
            return found if "poll a2a" in found else None

        found = await house.until_async(stale, "the poll to be stale", 60)
        assert found is not None
        assert found["poll a2a"]["result"] == "failed"
        assert "redis" not in found
        await house.admin("CLIENT", "UNPAUSE")
        await until_healthy(house)


async def test_f05_a_server_that_stands_still_is_named_in_a_bounded_time(
    one_backend: Backend,
) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        await at_work(house)
        house.supervisor.pause(REDIS)
        try:
            status, found = await doctor(house)  # within the time that `cowboy` has in these tests
        finally:
            house.supervisor.resume(REDIS)
        assert status == 1
        assert found["redis"]["result"] == "failed"
        assert {"anonymous access", "group a2a", "consumers a2a", "ledger a2a"} <= set(found)
        await until_healthy(house)


async def test_f15_a_wrong_credential_is_named(one_backend: Backend) -> None:
    async with House(one_backend, only=("a2a",)) as house:
        await at_work(house)
        user = agent_username(AGENT)
        await house.admin("ACL", "SETUSER", user, "resetpass", ">another")
        await house.admin("CLIENT", "KILL", "USER", user)
        await until_found(house, "poll a2a", "Redis refused the credential")
        password = house.topology.login(user).password
        await house.admin("ACL", "SETUSER", user, "resetpass", f">{password}")
        await until_healthy(house)


async def test_f16_a_verb_of_the_clients_handshake_is_missing(backend: Backend) -> None:
    """`SELECT` is in no list, `PING` is in all: who needs the one, or lacks the other, is told."""
    async with House(backend, only=("a2a",)) as house:
        await at_work(house)
        secrets = str(house.topology.credential_file("x").parent)
        assert await doctor(house, "--probe-acl", secrets) == (0, {})
        users = (agent_username(AGENT), f"source.{AGENT}.a2a", OPERATOR, "metrics")
        for user in users:
            await house.admin("ACL", "SETUSER", user, "-ping")
        _, found = await doctor(house, "--probe-acl", secrets)
        assert list(found) == [f"acl {user}" for user in users]
        assert all(one["text"].startswith("PING is refused") for one in found.values())
        for user in users:
            await house.admin("ACL", "SETUSER", user, "+ping")
        assert await doctor(house, "--probe-acl", secrets) == (0, {})
        elsewhere = {"COWBOY_REDIS_URL": f"unix://{house.topology.redis_socket}?db=1"}
        status, found = await doctor(house, environment=elsewhere)
        assert (status, found["redis"]["result"]) == (1, "failed")
        assert "'select'" in found["redis"]["text"]
        assert found["group a2a"]["result"] == "unknown"


# ------------------------------------------------------------ files


async def test_folders_in_which_others_may_replace_a_file(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        await at_work(house, "echo")
        topology = house.topology
        for path, mode in (
            (topology.config_dir, 0o777),
            (topology.config_dir / AGENT, 0o722),
            (topology.state_dir, 0o777),
            (topology.state_dir / AGENT, 0o755),
            (topology.runtime_dir, 0o777),
            (topology.runtime_dir / AGENT, 0o777),
            (topology.config_dir / AGENT / "sources.json", 0o666),
            (topology.credential_file("redis-operator"), 0o640),
        ):
            good = path.stat().st_mode & 0o7777
            path.chmod(mode)
            status, found = await doctor(house)
            assert (status, list(found)) == (1, ["files"]), path
            assert found["files"]["fix"].endswith(f" {path}")
            path.chmod(good)
        assert await doctor(house) == (0, {})


# ------------------------------------------------------------ it looks, and that is all


async def test_it_writes_nothing_while_everything_runs(backend: Backend) -> None:
    changes = AT_NIGHT | {"echo": AT_NIGHT["a2a"]}  # nor is anything trimmed
    async with House(backend, only=("a2a", "echo"), changes=changes) as house:
        await at_work(house)
        await house.until_answered("echo", [await house.send("echo", "x")])
        await house.until_quiet("echo")
        before = await everything(house)
        for _ in range(3):
            assert await doctor(house) == (0, {})
        assert await everything(house) == before
        assert await house.denials() == []


async def everything(house: House) -> Mapping[str, Any]:
    """Every key of Redis by its content, and every file below the state and the configuration."""
    keys = sorted(await house.admin("KEYS", "*"))
    found: dict[str, Any] = {}
    for key in keys:
        kind = await house.admin("TYPE", key)
        read: Mapping[bytes, tuple[object, ...]] = {
            b"stream": ("XRANGE", key, "-", "+"),
            b"hash": ("HGETALL", key),
            b"string": ("GET", key),
        }
        words = read[kind.encode() if isinstance(kind, str) else kind]
        found[key.decode()] = await house.admin(*words)  # type: ignore[arg-type]
        if words[0] == "XRANGE":
            groups = await house.admin("XINFO", "GROUPS", key)
            found[f"{key.decode()} groups"] = groups
    for folder in (house.topology.state_dir, house.topology.config_dir):
        for path in sorted(folder.rglob("*")):
            whole = path.is_file() and path.suffix != ".db-shm"  # SQLite's own locks
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if whole else ""
            found[str(path)] = (path.lstat().st_mode, digest)
    return found
