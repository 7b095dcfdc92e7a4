"""Brings messages into terminals, and ends what expired: all lanes and timers of one queue.

The store decides about every change, this only carries it out. `note` takes each committed change,
from whoever made it; what is due is then known on a clock that does not jump.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from corral.core import logs
from corral.core.clock import Clock
from corral.core.crashpoints import crashpoint
from corral.core.errors import CorralError, StorageError
from corral.core.sqlite import SqliteWriter
from corral.tamq import domain, points, roster, store
from corral.tamq.domain import Due, StaleError, Times
from corral.tamq.lane import STORAGE_RETRY_S, Lane, Opener, Pace, wait
from corral.tamq.requests import MessageId
from corral.tamq.rows import Endpoint, Message
from corral.tamq.schedule import Known, Schedule
from corral.tamq.store import Failure
from corral.tamq.terminal.base import Injection

OPEN_MESSAGES_MAX: Final = 10_000

Observer = Callable[[Mapping[str, object]], None]

_log = logs.get("tamq.deliverer")


class Deliverer:
    """Runs in the event loop that opened the writer; `load` before `run`."""

    def __init__(
        self,
        writer: SqliteWriter,
        clock: Clock,
        open_terminal: Opener,
        *,
        times: Times = Times(),  # noqa: B008  frozen
        pace: Pace = Pace(),  # noqa: B008  frozen
        open_messages_max: int = OPEN_MESSAGES_MAX,
        observe: Observer | None = None,
    ) -> None:
        self.writer = writer
        self.clock = clock
        self.times = times
        self.pace = pace
        self.schedule = Schedule(times)
        self.lanes: dict[int, Lane] = {}
        self._observe = observe
        self._open_terminal = open_terminal
        self._open_messages_max = open_messages_max
        self._reserved = 0
        self._group: asyncio.TaskGroup | None = None
        self._timer_changed = asyncio.Event()

    async def load(self) -> None:
        """Learn what the store has: open messages and live endpoints."""
        messages = await self.writer.submit(store.open_messages)
        for endpoint in await self.writer.submit(roster.live):
            try:
                self._add(endpoint)
            except CorralError as error:  # its profile, for example, is not there any more
                _log.error("endpoint cannot be used", **error.as_dict())
                await self.endpoint_gone(endpoint.endpoint_id, "unusable")
        for message in messages:
            self.note(message)

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for lane in self.lanes.values():
                self._start(lane)
            try:
                await self._timers()
            finally:
                self._group = None
                for lane in self.lanes.values():
                    lane.stop()

    def note(self, message: Message) -> None:
        """A change of a message is committed."""
        before = self.schedule.next_s()
        endpoint = self.schedule.note(message, self.clock.wall_ms(), self.clock.mono_s())
        if endpoint is not None:
            self._wake(endpoint)
        after = self.schedule.next_s()
        if after is not None and (before is None or after < before):
            self._timer_changed.set()

    async def refresh(self, ident: MessageId) -> None:
        """Look at a message in the store again."""
        with contextlib.suppress(StorageError):
            self.note(await self.writer.submit(lambda conn: store.get(conn, ident)))

    def reserve(self) -> bool:
        """Whether one more message may be admitted; the place is held until `release`."""
        self._reserved += 1
        return len(self.schedule) + self._reserved <= self._open_messages_max

    def release(self) -> None:
        """A send is over, whether or not it was admitted."""
        self._reserved -= 1

    def add_endpoint(self, endpoint: Endpoint) -> None:
        """An endpoint was registered, or registered again."""
        lane = self.lanes.get(endpoint.row)
        if lane is not None:
            lane.changed(endpoint)
        else:
            self._start(self._add(endpoint))

    async def endpoint_gone(self, endpoint_id: str, reason: str) -> None:
        """The session is no more. `NotFoundError` when that is known already."""
        now_ms = self.clock.wall_ms()
        changed = await self.writer.submit(
            lambda conn: roster.gone(conn, endpoint_id, reason, self.times, now_ms)
        )
        crashpoint(points.GONE)
        _log.info("endpoint gone", endpoint_id=endpoint_id, reason=reason)
        for row, lane in list(self.lanes.items()):
            if lane.endpoint.endpoint_id == endpoint_id:
                del self.lanes[row]
                self.schedule.forget_queue(row)
                lane.stop()
        for message in changed:
            self.note(message)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it beside the lanes; not at all when the deliverer is ending."""
        if self._group is None:
            work.close()
        else:
            self._group.create_task(work)

    def attempt_ended(self, message: Message, injection: Injection) -> None:
        """For the logs and the capture."""
        fields: dict[str, object] = {
            "message_id": str(message.id),
            "endpoint_id": message.endpoint_id,
            "attempt": message.progress.serial,
            "outcome": injection.outcome.value,
            "reason": injection.reason,
            "state": message.progress.state.value,
        }
        _log.info("attempt ended", **fields)
        if self._observe is not None:
            self._observe({"kind": "attempt", **fields})

    # ---- lanes

    def _add(self, endpoint: Endpoint) -> Lane:
        lane = self.lanes[endpoint.row] = Lane(self, endpoint, self._open_terminal)
        return lane

    def _start(self, lane: Lane) -> None:
        if self._group is not None:
            lane.task = self._group.create_task(lane.run(), name=f"lane {lane.endpoint.row}")

    def _wake(self, endpoint: int) -> None:
        lane = self.lanes.get(endpoint)
        if lane is not None:
            lane.wake()

    # ---- timers

    async def _timers(self) -> None:
        while True:
            self._timer_changed.clear()
            expired, ready = self.schedule.take_due(self.clock.mono_s())
            for endpoint in ready:
                self._wake(endpoint)
            for known in expired:
                self.spawn(self._expire(known))
            at_s = self.schedule.next_s()
            left_s = None if at_s is None else max(0.0, at_s - self.clock.mono_s())
            await wait(self._timer_changed, left_s, self.clock)

    async def _expire(self, known: Known) -> None:
        try:
            message = await self._expired(known)
        except StaleError:  # acknowledged, or recorded, a moment before
            await self.refresh(known.id)
            return
        except StorageError as error:
            _log.error("an expiry is not recorded yet", **error.as_dict())
            self.schedule.postpone(known, self.clock.mono_s() + STORAGE_RETRY_S)
            self._timer_changed.set()
            return
        crashpoint(points.EXPIRED)
        self.note(message)
        reason = message.progress.last_failure_reason
        _log.warning("expired", message_id=str(message.id), attempt=known.serial, reason=reason)

    async def _expired(self, known: Known) -> Message:
        now_ms, serial = self.clock.wall_ms(), known.serial
        if known.due is Due.ACK:
            return await self.writer.submit(
                lambda conn: store.ack_timed_out(conn, known.id, serial, now_ms)
            )
        failure = Failure(domain.LEASE_EXPIRED)
        return await self.writer.submit(
            lambda conn: store.attempt_failed(conn, known.id, serial, failure, self.times, now_ms)
        )
