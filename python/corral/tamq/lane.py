"""One endpoint's deliveries: one message at a time, the oldest first.

But before it the one whose text stands in the composer already: only its Enter makes room.

The terminal is asked whether it is ready before a lease is taken; while it is not, no attempt is
spent and the message says why it waits. What an attempt came to is recorded until that succeeds or
the lease is over.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.clock import Clock
from corral.core.crashpoints import crashpoint
from corral.core.errors import StorageError
from corral.tamq import points, store
from corral.tamq.domain import StaleError
from corral.tamq.errors import NotFoundError
from corral.tamq.rows import Endpoint, Message
from corral.tamq.schedule import Known
from corral.tamq.store import Failure, Unsure
from corral.tamq.terminal.base import Injection, Outcome, Readiness, Ready, Terminal, Wake

if TYPE_CHECKING:
    from corral.tamq.deliverer import Deliverer

STORAGE_RETRY_S: Final = 1.0

Opener = Callable[[Mapping[str, Any], str], Terminal]

_log = logs.get("tamq.lane")


@dataclass(frozen=True)
class Pace:
    """How often a terminal is looked at: while a message waits for it, and while nothing does."""

    look_first_s: float = 0.1
    look_max_s: float = 2.0
    idle_look_s: float = 5.0


class Lane:
    """Delivers to one live endpoint until that is gone or the lane is stopped."""

    def __init__(self, owner: "Deliverer", endpoint: Endpoint, open_terminal: Opener) -> None:
        self.endpoint = endpoint
        self.readiness = Readiness(Ready.BUSY, "not_looked_yet")
        self.readiness_since_ms = owner.clock.wall_ms()
        self.task: asyncio.Task[None] | None = None
        self._owner = owner
        self._open_terminal = open_terminal
        self._terminal = open_terminal(json.loads(endpoint.terminal), endpoint.profile)
        self._profile = endpoint.profile
        self._something = asyncio.Event()
        self._over = False
        self._waits_noted: tuple[int, str] | None = None
        pace = owner.pace
        self._pause = Backoff(pace.look_first_s, pace.look_max_s)

    def wake(self) -> None:
        """Something may be eligible."""
        self._something.set()

    def changed(self, endpoint: Endpoint) -> None:
        """It was registered again, perhaps with another profile."""
        self.endpoint = endpoint
        self.wake()

    def stop(self) -> None:
        """Deliver no more. An injection that runs is cut off: its outcome stays unknown."""
        self._over = True
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()

    async def run(self) -> None:
        watch = self._watch_process()
        try:
            await self._look(None)
            while not self._over:
                await self._step()
        finally:
            if watch is not None:
                asyncio.get_running_loop().remove_reader(watch)
                os.close(watch)
            await self._terminal.close()

    async def _step(self) -> None:
        self._something.clear()
        if self._profile != self.endpoint.profile:
            await self._reopen()
        known = self._owner.schedule.head(self.endpoint.row)
        if known is None:
            idle_s = self._owner.pace.idle_look_s
            if not await wait(self._something, idle_s, self._owner.clock):
                await self._look(None)
            return
        wake = await self._wake_of(known)
        if wake is None or not await self._look(wake):
            return
        if self.readiness.state is Ready.DRAFT or self.readiness.reason == "no_composer":
            known = await self._standing() or known
        if self.readiness.state is Ready.READY:
            self._pause.reset()
            await self._attempt(known)
        else:
            await self._note_waiting(known)
            await self._owner.clock.sleep(self._pause.next_s())

    async def _reopen(self) -> None:
        await self._terminal.close()
        self._profile = self.endpoint.profile
        self._terminal = self._open_terminal(json.loads(self.endpoint.terminal), self._profile)

    async def _wake_of(self, known: Known) -> Wake | None:
        """What would be written; `None` if that cannot be read now."""
        try:
            message, unsure = await self._owner.writer.submit(
                lambda conn: (store.get(conn, known.id), store.unsure_attempts(conn, known.id))
            )
        except StorageError as error:
            _log.error("message cannot be read", **error.as_dict())
            await self._owner.clock.sleep(STORAGE_RETRY_S)
            return None
        return _wake(message, known.serial + 1, unsure)

    async def _standing(self) -> Known | None:
        """Whose text the draft is, if it is one of ours that was not submitted."""
        begun = {known.id.row: known for known in self._owner.schedule.begun(self.endpoint.row)}
        if not begun:
            return None
        try:
            newest = await self._owner.writer.submit(
                lambda conn: store.newest_unsure(conn, self.endpoint, list(begun))
            )
        except StorageError as error:
            _log.error("messages cannot be read", **error.as_dict())
            return None
        for row in newest:
            wake = await self._wake_of(begun[row])
            if wake is None or not await self._look(wake):
                return None
            if self.readiness.pasted:
                return begun[row]
        return None

    async def _look(self, wake: Wake | None) -> bool:
        """Ask the terminal; whether it is still there."""
        try:
            found = await self._terminal.readiness(wake)
        except Exception as error:
            _log.error("looking failed", error=type(error).__name__, exc_info=True)
            found = Readiness(Ready.UNREACHABLE, "fault")
        if (found.state, found.reason) != (self.readiness.state, self.readiness.reason):
            self.readiness_since_ms = self._owner.clock.wall_ms()
            if found.state is Ready.UNREACHABLE:
                ident = self.endpoint.endpoint_id
                _log.warning("session unreachable", endpoint_id=ident, reason=found.reason)
        self.readiness = found
        if found.state is Ready.GONE:
            await self._gone(found.reason)
        return found.state is not Ready.GONE

    async def _gone(self, reason: str) -> None:
        try:
            await self._owner.endpoint_gone(self.endpoint.endpoint_id, reason)
        except NotFoundError:
            self._over = True
        except StorageError as error:
            _log.error("the end of an endpoint is not recorded", **error.as_dict())
            await self._owner.clock.sleep(STORAGE_RETRY_S)

    async def _note_waiting(self, known: Known) -> None:
        reason = self.readiness.reason
        if self._waits_noted == (known.id.row, reason):
            return
        now_ms = self._owner.clock.wall_ms()
        try:
            await self._owner.writer.submit(
                lambda conn: store.waiting(conn, known.id, reason, now_ms)
            )
        except StorageError as error:
            _log.warning("why a message waits is not recorded", **error.as_dict())
            return
        self._waits_noted = (known.id.row, reason)

    # ---- an attempt

    async def _attempt(self, known: Known) -> None:
        owner, endpoint = self._owner, self.endpoint
        now_ms = owner.clock.wall_ms()
        try:
            message, unsure = await owner.writer.submit(
                lambda conn: store.lease(conn, known.id, endpoint, owner.times, now_ms)
            )
        except StaleError:  # another change was committed before ours, and is about to be noted
            await owner.refresh(known.id)
            await owner.clock.sleep(self._pause.next_s())
            return
        except StorageError as error:
            _log.error("no lease was taken", **error.as_dict())
            await owner.clock.sleep(STORAGE_RETRY_S)
            return
        crashpoint(points.LEASED)
        self._waits_noted = None
        owner.note(message)
        injection = await self._inject(_wake(message, message.progress.serial, unsure))
        crashpoint(points.INJECTED)
        await self._record(message, injection)

    async def _inject(self, wake: Wake) -> Injection:
        try:
            return await self._terminal.inject(wake)
        except Exception as error:
            _log.error("injection failed", error=type(error).__name__, exc_info=True)
            return Injection(Outcome.UNKNOWN, "fault", typed=True)

    async def _record(self, message: Message, injection: Injection) -> None:
        owner, serial = self._owner, message.progress.serial
        if injection.outcome is Outcome.GONE:
            await self._gone(injection.reason)
            return
        while True:
            now_ms = owner.clock.wall_ms()
            try:
                after = await owner.writer.submit(
                    lambda conn, now_ms=now_ms: (  # type: ignore[misc]
                        store.written(conn, message.id, serial, owner.times, now_ms)
                        if injection.outcome is Outcome.INJECTED
                        else store.attempt_failed(
                            conn, message.id, serial,
                            Failure(injection.reason, injection.typed), owner.times, now_ms,
                        )
                    )
                )  # fmt: skip
            except StaleError:
                _log.info("result came too late", message_id=str(message.id), attempt=serial)
                return
            except StorageError as error:
                _log.error("result is not recorded yet", **error.as_dict())
                await owner.clock.sleep(STORAGE_RETRY_S)
                continue
            break
        crashpoint(points.RECORDED)
        owner.note(after)
        owner.attempt_ended(after, injection)

    # ---- the session's process

    def _watch_process(self) -> int | None:
        """Be told when the registered process ends; what is there to see is left to `_look`."""
        try:
            fd = os.pidfd_open(self._terminal.address.process.pid)
        except OSError:  # it ended already, or the kernel lets nobody watch
            self.wake()
            return None
        asyncio.get_running_loop().add_reader(fd, self._process_ended, fd)
        return fd

    def _process_ended(self, fd: int) -> None:
        asyncio.get_running_loop().remove_reader(fd)
        self._owner.spawn(self._gone("process_ended"))


def _wake(message: Message, attempt: int, unsure: Unsure) -> Wake:
    pid = f"pid {message.sender_pid}" if message.sender_pid else "pid unknown"
    sender = f"{message.sender_repo} (uid {os.getuid()}, {pid})"
    body = message.body or ""
    return Wake(str(message.id), attempt, sender, body, unsure.attempts, unsure.unread)


async def wait(event: asyncio.Event, seconds: float | None, clock: Clock) -> bool:
    """Whether the event was set within a time, on the clock given."""
    waiters: list[asyncio.Future[Any]] = [asyncio.ensure_future(event.wait())]
    if seconds is not None:
        waiters.append(asyncio.ensure_future(clock.sleep(seconds)))
    try:
        await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiter in waiters:
            waiter.cancel()
    return event.is_set()
