"""What the tests of the queue share: a store, a scripted terminal, a deliverer whose time stands.

The scripted terminal stands for the real ones, which have tests of their own, where the order of a
look, a lease and a result must be chosen by the test.
"""

import asyncio
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from corral.core.clock import ManualClock
from corral.core.errors import UsageError
from corral.core.sqlite import SqliteWriter
from corral.local.wait import until_async, until_true
from corral.tamq import admission, roster, store
from corral.tamq.deliverer import Deliverer
from corral.tamq.domain import Times
from corral.tamq.lane import Pace
from corral.tamq.requests import MessageId, Register, Send
from corral.tamq.rows import Endpoint, Message
from corral.tamq.store import Peer
from corral.tamq.terminal.base import (
    Address,
    Injection,
    Outcome,
    ProcessId,
    PtyAddress,
    Readiness,
    Ready,
    Terminal,
    Wake,
)
from tests.unit.later import later

T = TypeVar("T")

PEER = Peer(os.getuid(), 4242)
READY = Readiness(Ready.READY, "ready")
DONE = Injection(Outcome.INJECTED, "drained", typed=True, enters=1)
BOUND_S = 30.0
QUIET_ROUNDS = 3


def send(**changes: Any) -> Send:
    fields = {
        "client_id": "engine",
        "idempotency_key": "k1",
        "sender_repo": "local",
        "target_repo": "shop",
        "body": "look at issue 7",
    }
    return Send.parse({**fields, **changes})


def register(name: str = "a", **changes: Any) -> Register:
    fields: dict[str, Any] = {
        "repos": ["shop"],
        "terminal": {"kind": "scripted", "name": name},
        "profile": "plain",
    }
    return Register.parse({**fields, **changes})


def anything() -> None:
    """Every repository is registered."""


@dataclass
class Scripted(Terminal):
    """Answers what the test put there; an injection waits while it is held."""

    looks: Readiness = READY
    result: Injection = DONE
    wakes: list[Wake] = field(default_factory=list)
    looked: int = 0
    closed: bool = False
    free: asyncio.Event = field(default_factory=asyncio.Event)
    broken: bool = False
    standing: str = ""  # the message whose text is in the composer

    def __post_init__(self) -> None:
        self.free.set()

    @property
    def address(self) -> Address:
        process = ProcessId(os.getpid(), 1, "boot")
        return PtyAddress("/none", process, process)

    async def readiness(self, wake: Wake | None = None) -> Readiness:
        self.looked += 1
        if wake is not None and wake.message_id == self.standing:
            return Readiness(Ready.READY, "pasted", pasted=True)
        return self.looks

    async def inject(self, wake: Wake) -> Injection:
        self.wakes.append(wake)
        await self.free.wait()
        if self.broken:
            raise RuntimeError("a fault of the terminal")
        return self.result

    async def capture(self) -> tuple[str, ...]:
        return ()

    async def close(self) -> None:
        self.closed = True


class Counting(SqliteWriter):
    """Counts what it is asked, so that a test knows when nobody asks any more."""

    asked = 0

    async def submit(self, fn: Callable[[sqlite3.Connection], T]) -> T:
        self.asked += 1
        return await super().submit(fn)

    def ask(
        self,
        fn: Callable[[sqlite3.Connection], T],
        call: Callable[[T | None, BaseException | None], None],
    ) -> None:
        self.asked += 1
        super().ask(fn, call)


class Queue:
    """A store, and a deliverer in a time that the test moves."""

    def __init__(
        self, path: Path, times: Times | None = None, open_messages_max: int = 100
    ) -> None:
        self.path = path
        self.times = times or Times()
        self.clock = ManualClock()
        self.terminals: dict[str, Scripted] = {}
        self.open_messages_max = open_messages_max
        self.refused: str | None = None
        self.writer: Counting
        self.deliverer: Deliverer
        self._stack = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        if not self.path.exists():
            of_later = later(store.MIGRATIONS)
            ident = store.APPLICATION_ID
            async with SqliteWriter(self.path, application_id=ident, migrations=of_later):
                pass
        self.writer = Counting(
            self.path, application_id=store.APPLICATION_ID, migrations=store.MIGRATIONS
        )
        await self.writer.open()
        self.deliverer = Deliverer(
            self.writer, self.clock, self.terminal, times=self.times,
            pace=Pace(1.0, 1.0, 600.0), open_messages_max=self.open_messages_max,
        )  # fmt: skip
        await self.deliverer.load()
        self._task = asyncio.create_task(self.deliverer.run())

    async def stop(self) -> None:
        """As a kill does it: nothing is finished."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()
        await self.writer.close()

    def terminal(self, fields: Mapping[str, Any], profile: str) -> Scripted:
        del profile
        if fields["name"] == self.refused:
            raise UsageError("there is no such profile any more")
        return self.terminals.setdefault(str(fields["name"]), Scripted())

    async def register(self, name: str = "a", **changes: Any) -> Endpoint:
        request = register(name, **changes)
        now_ms = self.clock.wall_ms()
        endpoint, _ = await self.writer.submit(lambda conn: roster.register(conn, request, now_ms))
        self.deliverer.add_endpoint(endpoint)
        return endpoint

    async def send(self, **changes: Any) -> Message:
        request, now_ms = send(**changes), self.clock.wall_ms()
        done = await self.writer.submit(
            lambda conn: admission.send(conn, request, PEER, self.times, now_ms, anything)
        )
        self.deliverer.note(done.message)
        return done.message

    async def ack(self, ident: MessageId) -> Message:
        now_ms = self.clock.wall_ms()
        message, _ = await self.writer.submit(lambda conn: store.acknowledge(conn, ident, now_ms))
        self.deliverer.note(message)
        return message

    async def get(self, ident: MessageId) -> Message:
        return await self.writer.submit(lambda conn: store.get(conn, ident))

    async def details(self, ident: MessageId) -> dict[str, Any]:
        return await self.writer.submit(lambda conn: store.details(conn, ident))

    async def until(self, ident: MessageId, state: str) -> Message:
        """The message once it has that state, without time passing."""
        seen: list[Message] = []

        async def there() -> bool:
            seen.append(await self.get(ident))
            return seen[-1].progress.state == state and not seen[-1].progress.leased

        await until_async(there, BOUND_S, f"{ident} to be {state}")
        return seen[-1]

    async def until_wakes(self, name: str, count: int) -> list[Wake]:
        terminal = self.terminals[name]
        await until_true(lambda: len(terminal.wakes) >= count, BOUND_S, f"{count} injections")
        return terminal.wakes

    async def advance(self, seconds: float) -> None:
        """Let time pass, once everybody who waits for it does wait."""
        await self.settle()
        self.clock.advance(seconds)

    async def settle(self) -> None:
        """Let everything that needs no time come to an end: until nobody asks the writer more."""
        quiet = 0
        while quiet < QUIET_ROUNDS:
            before = self.writer.asked
            await self.writer.submit(lambda conn: None)
            for _ in range(20):
                await asyncio.sleep(0)
            quiet = quiet + 1 if self.writer.asked == before + 1 else 0
