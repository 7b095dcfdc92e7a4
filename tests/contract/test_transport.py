"""Between cowboy and Redis: scripts, fences, cut and held connections, cancelled commands."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from corral.core.errors import UnavailableError
from corral.cowboy import redisconn, redisops
from corral.cowboy.config import SourceConfig
from corral.cowboy.domain import pack_id, unpack_id
from corral.cowboy.redisconn import RedisFault, Unreachable, Wire, fault_of
from corral.cowboy.transport import (
    SCRIPTS,
    Effect,
    Fenced,
    LedgerGone,
    Reader,
    Settled,
    Settlement,
    Settler,
)
from corral.local.deployment import REDIS
from tests.contract.kit import TIMEOUT_S, Backend, House, each_completed, only_answer
from tests.contract.proxy import Cut, Proxy

UUID = "11111111-2222-3333-4444-555555555555"
INBOX, OUTBOX, DEAD = "scout:echo:inbox", "scout:echo:outbox", "scout:echo:inbox:dead"


def sha(script: str) -> bytes:
    """What `EVALSHA` names a script by."""
    return hashlib.sha1(SCRIPTS[script].encode()).hexdigest().encode()  # noqa: S324


def answer(name: str, *, ack: str = "", dead: bool = False) -> Effect:
    return Effect(name, dead, ack.encode(), ["content", f"answer {name}", "turn_id", name])


class Attached:
    """A settler and a reader that hold the source's fence and ledger key."""

    def __init__(self, wire: Wire, config: SourceConfig) -> None:
        self.config = config
        self.settler = Settler(wire, config)
        self._wire = wire
        self.reader: Reader

    async def attach(self) -> "Attached":
        found = await self.settler.attach(UUID, 1, take_over=False)
        if found.uuid != UUID:
            await self.settler.claim_ledger(found.uuid, UUID, 1, 1)
        self.reader = Reader(self._wire, self.config, found.fence)
        return self

    async def settle(self, *effects: Effect, acks: tuple[str, ...] = ()) -> Settled:
        work = Settlement(1, [ack.encode() for ack in acks], [], list(effects))
        return await self.settler.settle(UUID, work)


@asynccontextmanager
async def attached(house: House, proxy: Proxy | None = None) -> AsyncIterator[Attached]:
    async with house.wire(proxy.path if proxy else None) as wire:
        yield await Attached(wire, house.config("echo")).attach()


# ---------------------------------------------------------------------------------- the scripts


async def test_an_outbox_entry_is_added_once_however_often_it_is_asked_for(
    every_backend: Backend,
) -> None:
    async with House(every_backend, only=("echo",)) as house, attached(house) as one:
        entry = await house.send("echo", "x")
        await one.reader.poll(10)
        letter = answer("t1:dead", dead=True)
        first = await one.settle(letter, answer("t1", ack=entry))
        again = await one.settle(letter, answer("t1", ack=entry))
        assert [found[0] for found in first.effects] == [found[0] for found in again.effects]
        assert [found[1] for found in first.effects] == [None, 1]
        assert [found[1] for found in again.effects] == [None, 1]  # repeated, not missing
        assert (await house.admin("XLEN", OUTBOX), await house.admin("XLEN", DEAD)) == (1, 1)
        assert await one.settler.markers() == ["t1:dead", "t1"]
        await one.settler.settle(UUID, Settlement(2, [], ["t1:dead", "t1"]))
        assert await one.settler.markers() == []
        assert await house.admin("HGET", one.config.ledger_key, "sequence") == b"2"
        # The control: another marker is another entry.
        await one.settle(answer("t2"))
        assert await house.admin("XLEN", OUTBOX) == 2


async def test_a_refused_entry_leaves_no_marker_and_acknowledges_nothing(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house, attached(house) as one:
        entry = await house.send("echo", "x")
        await one.reader.poll(10)
        await house.admin("SET", OUTBOX, "not a stream")
        settled = await one.settle(answer("t1", ack=entry))
        fault, own = settled.effects[0]
        assert isinstance(fault, redisconn.Refused)
        assert "WRONGTYPE" in str(fault)
        assert (own, await one.settler.markers(), await house.pending("echo")) == (None, [], 1)
        await house.admin("DEL", OUTBOX)
        settled = await one.settle(answer("t1", ack=entry))
        assert (settled.effects[0][1], await house.pending("echo")) == (1, 0)


async def test_scripts_that_the_server_forgot_are_loaded_again(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house:
        async with attached(house) as one:
            await one.reader.poll(1)
            await house.admin("SCRIPT", "FLUSH")
            await one.reader.poll(1)
            await house.admin("SCRIPT", "FLUSH")
            await one.settle(answer("t1"))
            assert await house.admin("XLEN", OUTBOX) == 1
        await house.admin("FLUSHALL")
        async with house.inside():
            for text in ("before", "after"):
                entry = await house.send("echo", text)
                only_answer(await house.until_answered("echo", [entry]), entry)
                await house.until_quiet("echo")
                await house.admin("SCRIPT", "FLUSH")
            assert await house.events("echo") == []


# ------------------------------------------------------------------------------------- the fence


async def test_an_older_connection_adds_and_takes_nothing(every_backend: Backend) -> None:
    async with (
        House(every_backend, only=("echo",)) as house,
        attached(house) as old,
        attached(house) as new,
    ):
        entry = await house.send("echo", "x")
        with pytest.raises(Fenced):
            await old.reader.poll(10)
        with pytest.raises(Fenced):
            await old.settle(answer("t1"), acks=(entry,))
        with pytest.raises(Fenced):
            await old.settler.claim_ledger(UUID, "another", 9, 9)
        assert await house.deployment.state_of("echo") == (0, 1, 0)  # unread, nothing in flight
        assert await house.admin("XLEN", OUTBOX) == 0
        assert await house.admin("HGET", old.config.ledger_key, "uuid") == UUID.encode()
        # The control: the newer one does all three.
        _, taken = await new.reader.poll(10)
        assert [unpack_id(found.entry).decode() for found in taken] == [entry]
        settled = await new.settle(answer("t1"), acks=(entry,))
        assert (settled.acked, await house.admin("XLEN", OUTBOX)) == (1, 1)
        await new.settler.claim_ledger(UUID, UUID, 9, 9)


@pytest.mark.parametrize("emptied", [False, True])
async def test_delayed_bytes_of_a_dead_connection_do_nothing(
    backend: Backend, emptied: bool
) -> None:
    async with (
        House(backend, only=("echo",)) as house,
        Proxy(house.topology.redis_socket, house.base / "proxy.sock") as proxy,
    ):
        entry = await house.send("echo", "x")
        commands: dict[str, Callable[[Attached], Any]] = {
            "settle": lambda one: one.settle(answer("t1"), acks=(entry,)),
            "poll": lambda one: one.reader.poll(10),
        }
        for script, command in commands.items():
            async with attached(house, proxy) as dying:
                await dying.reader.poll(0)
                await dying.settle()
                proxy.arm(sha(script), Cut.HOLD)
                waiting = asyncio.ensure_future(command(dying))
                await house.until(lambda: proxy.holds == 1, "the command to be held")
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    await waiting
            if emptied:  # and its fence begins anew
                await house.admin("FLUSHALL")
                entry = await house.send("echo", "x")
            async with attached(house) as heir:
                assert b"fenced" in await proxy.release()
                assert await house.deployment.state_of("echo") == (0, 1, 0)
                assert await house.admin("XLEN", OUTBOX) == 0
                await heir.settle()  # the control: the heir is not fenced
        assert proxy.cuts == len(commands)


async def test_a_ledger_key_that_is_gone_or_anothers_stops_a_settlement(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house, attached(house) as one:
        await one.settle(answer("t1"))
        await house.admin("HSET", one.config.ledger_key, "uuid", "another")
        with pytest.raises(LedgerGone):
            await one.settle(answer("t2"))
        await house.admin("DEL", one.config.ledger_key)
        with pytest.raises(LedgerGone):
            await one.settle(answer("t2"))
        await house.admin("DEL", one.config.fence_key)
        for attempt in (one.settle(answer("t2")), one.reader.poll(1)):
            with pytest.raises(LedgerGone):
                await attempt
        assert await house.admin("XLEN", OUTBOX) == 1


# -------------------------------------------------------------------------- cut connections


@pytest.mark.parametrize("ack", ["dispatch", "reply"])
async def test_whatever_is_cut_each_message_is_answered_once(backend: Backend, ack: str) -> None:
    async with (
        House(backend, only=("echo",), changes={"echo": {"ack": ack}}) as house,
        Proxy(house.topology.redis_socket, house.base / "proxy.sock") as proxy,
        house.inside(proxy.path),
    ):
        entries: list[str] = []
        cuts = [cut for cut in Cut if cut is not Cut.HOLD]
        for script in ("settle", "poll"):
            for cut in cuts:
                await house.until_quiet("echo")
                await house.until_state("echo", "running")
                proxy.arm(sha(script), cut)
                entries.append(await house.send("echo", "x", message_id=f"{script} {cut}"))
                await house.until(lambda: proxy.cuts == len(entries), f"a {script} to be cut")
                await house.until_answered("echo", entries)
        await house.until_quiet("echo")
        found = await house.by_entry("echo")
        each_completed(found, entries)
        assert proxy.cuts == 2 * len(cuts)
        assert (await house.until_state("echo", "running"))["events"] == []


@pytest.mark.parametrize(("cut", "added"), [(Cut.BEFORE, 0), (Cut.AFTER, 1)])
async def test_a_send_whose_answer_was_cut_is_sent_once(
    backend: Backend, cut: Cut, added: int
) -> None:
    async with (
        House(backend, only=("echo",)) as house,
        Proxy(house.topology.redis_socket, house.base / "proxy.sock") as proxy,
    ):
        settings = await asyncio.to_thread(house.settings, proxy.path)
        endpoint = settings.redis_endpoint("agent-scout")
        message = redisops.Message(b"hello", "m1")
        proxy.arm(b"XADD", cut, times=5)
        with pytest.raises(redisops.UncertainSendError) as caught:
            await redisops.send(endpoint, house.config("echo"), message)
        assert "--message-id m1" in caught.value.hint
        assert (await house.admin("XLEN", INBOX), proxy.cuts) == (added, 1)
        # The trap: a client that retries adds one more with each answer that is lost.
        retrying = redis.asyncio.Redis(
            unix_socket_path=str(proxy.path), username=endpoint.username,
            password=endpoint.password, driver_info=None, retry=Retry(NoBackoff(), 10),
        )  # fmt: skip
        await retrying.xadd("scout:echo:trap", {"content": "hello"})
        await retrying.aclose()
        assert await house.admin("XLEN", "scout:echo:trap") == 1 + 4 * added

        entry = await redisops.send(endpoint, house.config("echo"), message)  # repeated by hand
        async with house.inside():
            await house.until_quiet("echo")
            found = await house.by_entry("echo")
            (only,) = found
            assert only_answer(found, only).content == b"hello"
            assert (only == entry) == (added == 0)


# ----------------------------------------------------------------------- cancelled commands


async def test_a_cancelled_command_drops_its_connection(every_backend: Backend) -> None:
    async with House(every_backend, only=("echo",)) as house, house.wire() as wire:
        number = await client_number(house)
        waiting = asyncio.ensure_future(wire.call("XREAD", "BLOCK", 20_000, "STREAMS", INBOX, "$"))
        await house.until_async(house.blocked_clients, "the read to block")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # The server sees it go, so what is added now is nobody's late answer.
        await house.until_async(lambda: none_blocked(house), "the read to end")
        await house.send("echo", "x")
        assert await wire.call("PING") == b"PONG"
        assert await client_number(house) != number


async def none_blocked(house: House) -> bool:
    return await house.blocked_clients() == 0


async def client_number(house: House) -> list[int]:
    """The connections of the agent's identity, by the server's own numbers."""
    admin = await house.deployment.admin()
    clients: list[dict[str, str]] = await admin.client_list()
    return [int(one["id"]) for one in clients if one["user"] == "agent-scout"]


async def test_no_cancellation_is_swallowed(one_backend: Backend) -> None:
    async with House(one_backend, only=("echo",)) as house:
        settings = await asyncio.to_thread(house.settings)
        endpoint = settings.redis_endpoint("agent-scout")

        async def connect_and_ask() -> None:
            wire = Wire(redisconn.connection_to(endpoint, 5.0))
            try:
                await wire.connect()
                while True:
                    await wire.pipeline([("PING",), ("PING",)])
            finally:
                await wire.close()

        for steps in range(60):
            task = asyncio.ensure_future(connect_and_ask())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            async with asyncio.timeout(TIMEOUT_S):
                with pytest.raises(asyncio.CancelledError):
                    await task


async def test_a_late_answer_is_not_the_next_ones(backend: Backend) -> None:
    async with House(backend, only=("echo",)) as house, house.wire(timeout_s=0.2) as wire:
        assert await wire.call("PING") == b"PONG"
        house.supervisor.pause(REDIS)
        with pytest.raises(Unreachable, match="in time"):
            await wire.call("SET", "scout:echo:x", "1")
        house.supervisor.resume(REDIS)
        await house.until_async(lambda: house.admin("EXISTS", "scout:echo:x"), "the late SET")
        assert await wire.call("GET", "scout:echo:x") == b"1"  # and not the OK of the SET


# --------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", "redis_full"),
        ("LOADING Redis is loading the dataset in memory", "redis_not_now"),
        ("BUSY Redis is busy running a script.", "redis_not_now"),
        ("MISCONF Errors writing to the AOF file", "redis_not_now"),
        ("READONLY You can't write against a read only replica.", "redis_not_now"),
        ("UNBLOCKED force unblock from blocking operation", "redis_not_now"),
        ("NOAUTH Authentication required.", "redis_denied"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "redis_denied"),
        ("NOGROUP No such key 's' or consumer group 'g'", "redis_no_group"),
        ("NOSCRIPT No matching script.", "redis_script_gone"),
        ("NOPERM this user has no permissions to run the 'xadd' command", "redis_refused"),
        ("BUSYGROUP Consumer Group name already exists", "redis_refused"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "redis_refused"),
        ("ERR unknown command", "redis_refused"),
    ],
)
def test_what_an_error_text_means(text: str, code: str) -> None:
    fault = fault_of(text)
    assert fault.code == code
    assert isinstance(fault, RedisFault | UnavailableError)


async def test_what_the_errors_of_a_real_server_mean(every_backend: Backend) -> None:
    async with House(every_backend, only=("echo",)) as house, house.wire() as wire:

        async def fault(*words: object) -> str:
            with pytest.raises(RedisFault) as caught:
                await wire.call(*words)
            return caught.value.code

        await house.admin("SET", "scout:echo:text", "x")
        assert await fault("XADD", "smith:echo:inbox", "*", "a", "b") == "redis_refused"  # NOPERM
        assert await fault("FLUSHALL") == "redis_refused"
        assert await fault("XLEN", INBOX) == "redis_refused"
        assert await fault("XADD", "scout:echo:text", "*", "a", "b") == "redis_refused"
        assert await fault("EVALSHA", "0" * 40, 0) == "redis_script_gone"
        group = ("GROUP", "cowboy", "harness-echo", "STREAMS", INBOX, ">")
        assert await fault("XREADGROUP", *group) == "redis_no_group"
        await house.admin("CONFIG", "SET", "maxmemory", "1mb")
        assert await fault("XADD", INBOX, "*", "a", "b") == "redis_full"
        await house.admin("CONFIG", "SET", "maxmemory", "0")
        added = await wire.call("XADD", INBOX, "*", "a", "b")  # the control, on one connection
        assert pack_id(added) > bytes(16)


@pytest.mark.parametrize("change", [(">other",), ("off",)])
async def test_a_wrong_credential_shows_and_a_right_one_is_enough(
    backend: Backend, change: tuple[str, ...]
) -> None:
    async with House(backend, only=("echo",)) as house:
        await house.admin("ACL", "SETUSER", "agent-scout", "resetpass", *change)
        async with house.inside():

            async def said() -> bool:
                state = await house.source("echo")
                return not state["healthy"] and "credential" in state["reason"]

            await house.until_async(said, "the credential to be named")
            password = house.topology.login("agent-scout").password
            await house.admin("ACL", "SETUSER", "agent-scout", "on", f">{password}")
            entry = await house.send("echo", "hello")
            await house.until_answered("echo", [entry])
            assert (await house.until_state("echo", "running"))["healthy"]
