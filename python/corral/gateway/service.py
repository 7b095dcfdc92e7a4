"""What clients may do with tasks, and what the agent's side reports. Commits before it answers."""

import asyncio
import contextlib
import sqlite3
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from corral.core.clock import Clock, SystemClock
from corral.core.crashpoints import crashpoint
from corral.core.errors import StorageError
from corral.core.sqlite import SqliteReader
from corral.gateway import domain, points, store, upkeep
from corral.gateway.domain import Answer, Delivery, Limits, Send, State, Task
from corral.gateway.figures import Standing, standing
from corral.gateway.store import Caller, Page, Wanted

T = TypeVar("T")


def _begun() -> asyncio.Event:
    """Set from the beginning: an earlier process may have left something."""
    event = asyncio.Event()
    event.set()
    return event


def _whatever_comes(_value: object, _error: BaseException | None) -> None:
    """Nobody waits for this one."""


class Gateway:
    """`async with Gateway(path) as gateway`. Belongs to one event loop.

    The methods raise the errors of `corral.gateway.errors`, and `StorageError`.
    """

    def __init__(
        self, path: Path, *, limits: Limits | None = None, clock: Clock | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.clock = clock or SystemClock()
        self._writer = store.open_writer(path)
        self._reader = SqliteReader(path)
        self._watchers: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._work: defaultdict[str, asyncio.Event] = defaultdict(_begun)

    async def __aenter__(self) -> Self:
        await self._writer.open()
        await self._reader.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._reader.__aexit__(kind, error, trace)
        await self._writer.close()

    # ---- clients -------------------------------------------------------------------------

    async def send(self, caller: Caller, message: Send) -> Task:
        """Takes a message; its task as it is now."""
        now_ms = self.clock.wall_ms()

        def write(conn: sqlite3.Connection) -> str:
            return store.send(conn, caller, message, self.limits, now_ms)

        task_id = await self._commit(write, points.SENT)
        return await self.get(caller, task_id)

    async def get(self, caller: Caller, task_id: str) -> Task:
        return await store.look(self._reader, caller, task_id)

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        now_ms = self.clock.wall_ms()
        await self._commit(
            lambda conn: store.cancel(conn, caller, task_id, now_ms), points.CANCELED, task_id
        )
        return await self.get(caller, task_id)

    def handed_out(self, task: Task) -> None:
        """The client gets this; of an end that is kept, for its content's time begins."""
        if task.state in domain.ENDED and not task.read:
            now_ms = self.clock.wall_ms()
            with contextlib.suppress(StorageError):
                self._writer.ask(
                    lambda conn: upkeep.mark_read(conn, task.task_id, now_ms), _whatever_comes
                )

    async def page(self, caller: Caller, wanted: Wanted) -> Page:
        return await store.page(self._reader, caller, wanted)

    async def rested(self, caller: Caller, task_id: str) -> Task:
        """The task when nothing follows without the client, or after `wait_max_s`."""
        task = await self.get(caller, task_id)
        try:
            async with asyncio.timeout(self.limits.wait_max_s):
                async with contextlib.aclosing(self.follow(caller, task_id)) as tasks:
                    async for task in tasks:  # noqa: B007  the last one counts
                        pass
        except TimeoutError:
            pass
        return task

    async def follow(self, caller: Caller, task_id: str) -> AsyncGenerator[Task, None]:
        """The task as it is, then after each change, until nothing follows without the client."""
        changed = asyncio.Event()
        watchers = self._watchers[task_id]
        watchers.add(changed)
        try:
            seen = 0
            while True:
                changed.clear()
                task = await self.get(caller, task_id)
                if task.generation > seen:
                    seen = task.generation
                    yield task
                if task.state in domain.RESTING:
                    return
                await changed.wait()
        finally:
            watchers.discard(changed)
            if not watchers:
                self._watchers.pop(task_id, None)

    # ---- the agent's side ----------------------------------------------------------------

    async def work(self, agent: str) -> None:
        """Waits until there may be something to pass on to an agent."""
        await self._work[agent].wait()
        self._work[agent].clear()

    async def take(self, agent: str, count: int) -> Sequence[Delivery]:
        """What is to be passed on, in order; passing on the same again must be idempotent."""
        return await self._writer.submit(lambda conn: store.take(conn, agent, count))

    async def unrecorded(self, agent: str) -> frozenset[str]:
        """The entry keys of what was taken and is not `published`."""
        return await self._writer.submit(lambda conn: store.unrecorded(conn, agent))

    async def published(self, delivery: Delivery) -> None:
        """The agent's stream has it."""
        now_ms = self.clock.wall_ms()
        await self._commit(
            lambda conn: store.published(conn, delivery, now_ms),
            points.PUBLISHED,
            delivery.task.task_id,
        )

    async def settle(self, task_id: str, state: State, text: str) -> bool:
        """What became of a task. False: it had ended before, so nobody is told."""
        now_ms = self.clock.wall_ms()
        return await self._commit(
            lambda conn: store.settle(conn, task_id, state, domain.storable(text), now_ms),
            points.SETTLED,
            task_id,
        )

    async def answered(self, answer: Answer) -> bool:
        """An entry of the agent's outbox. False: it changed nothing."""
        now_ms = self.clock.wall_ms()
        clean = replace(answer, text=domain.storable(answer.text))
        return await self._commit(
            lambda conn: store.answered(conn, clean, now_ms), points.SETTLED, answer.task_id
        )

    # ---- what happens by itself ----------------------------------------------------------

    async def sweep(self) -> upkeep.Done:
        """Ends what is overdue, and forgets what is old; until nothing is left to do."""
        whole = upkeep.Done()
        while True:
            done = await self._writer.submit(
                lambda conn: upkeep.sweep(conn, self.limits, self.clock.wall_ms())
            )
            crashpoint(points.SWEPT)
            for task_id in done.ended:
                self._changed(task_id)
            whole += done
            if not done.more:
                return whole

    async def standing(self) -> Standing:
        return await standing(self._reader)

    def wal_bytes(self) -> int:
        return self._writer.wal_bytes()

    # ---- what both share -----------------------------------------------------------------

    async def _commit(
        self, write: Callable[[sqlite3.Connection], T], point: str, task_id: str | None = None
    ) -> T:
        """Commits, then wakes those who follow the task (the one that `write` answers, if none).

        Whoever asked may go away in the middle: what was begun is done, and others are woken.
        """

        async def whole() -> T:
            answer = await self._writer.submit(write)
            crashpoint(point)
            self._changed(task_id if task_id is not None else str(answer))
            return answer

        return await asyncio.shield(whole())

    def _changed(self, task_id: str) -> None:
        for work in self._work.values():
            work.set()
        for watcher in self._watchers.get(task_id, ()):
            watcher.set()
