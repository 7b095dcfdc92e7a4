"""A worker's session: the lock that shows it lives, what it listens to, who is dead.

The lock is a session's advisory lock: it is free as soon as the session has ended, whatever became
of the process. A worker whose session is lost claims nothing new until it has another. Behind a
pooler of transactions there are no sessions: no lock, no notifications, leases only expire.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from corral.bridge.database import Target, close, connect, faults_named
from corral.bridge.errors import LedgerError
from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.ids import new_uuid
from corral.core.sqlfiles import load_sql

if TYPE_CHECKING:
    import asyncpg

SQL: Final = load_sql("corral.bridge", "sql/work.sql")
CHANNEL: Final = "bridge_work"
PROBE_S: Final = 5.0  # how often a silent session is asked whether it lives

_log = logs.get("bridge.session")


@dataclass(frozen=True, slots=True)
class Process:
    """What makes a process recognisable on its host, for as long as the host is up."""

    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int

    @classmethod
    def this(cls) -> Self:
        pid = os.getpid()
        return cls(
            boot_id=_boot_id(),
            pid_namespace=_namespace(),
            pid=pid,
            start_ticks=_start_ticks(pid) or 0,
        )

    def gone(self) -> bool:
        """Whether it was a process of this host, in sight of this one, and is no more."""
        if (self.boot_id, self.pid_namespace) != (_boot_id(), _namespace()):
            return False
        return _start_ticks(self.pid) != self.start_ticks


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _start_ticks(pid: int) -> int | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


class Session:
    """Registers the worker, holds its lock, hears of new work.

    `worker_id` names every lease of this process. `heard` is called with a job id, or with nothing
    when there is new work.
    """

    def __init__(self, target: Target, heard: Callable[[str], None]) -> None:
        self.worker_id = new_uuid()
        self.alive = asyncio.Event()
        self._target = target
        self._heard = heard
        self._lock_id: int | None = None
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    @property
    def may_claim(self) -> bool:
        return self._target.pooled or self.alive.is_set()

    async def run(self) -> None:
        """Keeps the session until it is cancelled; begins another when one is lost."""
        if self._target.pooled:
            return
        backoff = Backoff(0.05, 2.0)
        try:
            while True:
                with contextlib.suppress(LedgerError):
                    await self._hold()
                    backoff.reset()
                    await self._live()
                if self.alive.is_set():
                    _log.warning("session lost", worker_id=self.worker_id)
                self.alive.clear()
                await self._drop()
                await asyncio.sleep(backoff.next_s())
        finally:
            self.alive.clear()
            await self._drop()

    async def _hold(self) -> None:
        made = self._connection = await connect(self._target)
        process = await asyncio.to_thread(Process.this)
        with faults_named():
            # Nobody sees the one without the other: whoever has no lock is taken for dead.
            async with made.transaction():
                self._lock_id = await made.fetchval(
                    SQL["register"],
                    self.worker_id,
                    process.boot_id,
                    process.pid_namespace,
                    process.pid,
                    process.start_ticks,
                )
                # An earlier session of ours may not have been noticed as dead yet.
                if not await made.fetchval(SQL["hold"], self._lock_id):
                    raise LedgerError("the session's lock is still held")
            await made.add_listener(CHANNEL, self._notified)
        self.alive.set()
        self._heard("")

    async def _live(self) -> None:
        lost = asyncio.Event()
        connection = self._connection
        if connection is None:
            return
        connection.add_termination_listener(lambda _: lost.set())
        while not lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROBE_S):
                    await lost.wait()
                return
            with faults_named():
                if not await connection.fetchval(SQL["lives"], self.worker_id, self._lock_id):
                    raise LedgerError("the session is not ours any more")

    def _notified(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self._heard(str(payload))

    async def _drop(self) -> None:
        made, self._connection = self._connection, None
        if made is not None:
            await close(made)


def dead_workers(rows: list[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Of the registered workers: whose session ended, and of these whose process is gone, too."""
    ended = [row for row in rows if not row["alive"]]
    gone = [
        row
        for row in ended
        if Process(row["boot_id"], row["pid_namespace"], row["pid"], row["start_ticks"]).gone()
    ]
    return [row["worker_id"] for row in ended], [row["worker_id"] for row in gone]
