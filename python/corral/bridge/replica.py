"""Which of several processes takes transactions: the one that holds the intake's lock.

The lock belongs to a database transaction that stays open. So it ends with the connection, also
behind a pooler of transactions, where a session's lock would stay with a server connection that
nobody has any more; and a process that stands still is cut off by the server and loses it. The
transaction reads no table and holds back no cleaning.

What is admitted does not depend on it: the admission has a lock of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from corral.bridge import database
from corral.bridge.database import Target, connection, faults_named
from corral.bridge.errors import LedgerError
from corral.core import logs
from corral.core.sqlfiles import load_sql

SQL: Final = load_sql("corral.bridge", "sql/work.sql")
PROBE: Final = load_sql("corral.bridge", "sql/health.sql")["probe"]
LOOK_S: Final = 0.5

_log = logs.get("bridge.replica")


class Replica:
    """`active` is set while this process is the one. `told` hears of every change, first of all
    how it begins."""

    def __init__(self, target: Target, told: Callable[[bool], None] = lambda _: None) -> None:
        self.active = asyncio.Event()
        self._target = target
        self._told = told
        self._last: bool | None = None

    async def run(self) -> None:
        """Holds the lock, or waits for it, until it is cancelled."""
        try:
            while True:
                try:
                    async with connection(self._target) as made:
                        await self._hold(made)
                except LedgerError as error:
                    _log.debug("waits for the database", code=error.code)
                self.active.clear()  # who has it now is not known yet
                await asyncio.sleep(LOOK_S)
        finally:
            self.active.clear()

    async def _hold(self, made: Any) -> None:
        made.add_termination_listener(lambda _: self.active.clear())
        idle = f"{database.IDLE_IN_TRANSACTION_S}s"
        while True:
            with faults_named():
                if self.active.is_set():
                    await made.fetchval(PROBE)
                else:
                    await made.execute(SQL["begin"])
                    await made.fetchval(SQL["idle"], idle)
                    if await made.fetchval(SQL["hold_intake"]):
                        self._is(active=True)
                    else:
                        await made.execute(SQL["rollback"])
                        self._is(active=False)
            await asyncio.sleep(LOOK_S)

    def _is(self, *, active: bool) -> None:
        if active:
            self.active.set()
        else:
            self.active.clear()
        if active is not self._last:
            self._last = active
            _log.info("takes transactions" if active else "another replica takes transactions")
            self._told(active)
