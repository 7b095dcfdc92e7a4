"""The intake's one database transaction: a Matrix transaction becomes jobs and controls.

Everything is decided by `corral.bridge.intake`, from what the ledger said in one statement, and
written only if no other transaction was admitted since: else it is decided anew. What was decided
is committed before it is answered. A round trip to the database costs more than what is asked
there: jobs alone are written by one statement, which is a database transaction of its own
(docs/explanation/decisions/0004-counted-admissions.md).
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from corral.bridge import audit, identities, intake, points
from corral.bridge.database import Target, close, connect, faults_named
from corral.bridge.domain import Limits, Reason
from corral.bridge.errors import LedgerError
from corral.bridge.incoming import Admitted, Committed, Conflict, Incoming, Mention, Replay
from corral.bridge.intake import Known, Plan
from corral.core.crashpoints import crashpoint
from corral.core.sqlfiles import load_sql

if TYPE_CHECKING:
    import asyncpg

SQL: Final = load_sql("corral.bridge", "sql/intake.sql")
TURNS_MAX: Final = 50  # each that is lost is another's that was won
T = TypeVar("T")


class LedgerAdmission:
    """Admits transactions, one after the other, over a connection of its own."""

    def __init__(
        self,
        target: Target,
        limits: Limits,
        *,
        epochs: bool = False,
        by_power: bool = False,
        denied: Callable[[Reason], None] = lambda _: None,
    ) -> None:
        self._target = target
        self._limits = limits
        self._epochs = epochs
        self._by_power = by_power
        self._denied = denied
        self._turn = asyncio.Lock()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def admit(self, incoming: Incoming) -> Admitted:
        """As `corral.bridge.incoming.Admission`."""
        return await self._alone(lambda: self._admit(incoming))

    async def fresh(self, mentions: Sequence[Mention]) -> Sequence[Mention]:
        """As `corral.bridge.incoming.Admission`."""
        return await self._alone(lambda: self._fresh(mentions))

    async def _alone(self, work: Callable[[], Awaitable[T]]) -> T:
        async with self._turn:
            try:
                with faults_named():
                    return await work()
            except BaseException:
                # Nobody knows what of it arrived: the next one begins with a new connection.
                if self._connection is not None:
                    self._connection.terminate()
                    self._connection = None
                raise

    async def close(self) -> None:
        async with self._turn:
            made, self._connection = self._connection, None
            if made is not None:
                await close(made)

    async def _connected(self) -> "asyncpg.Connection[asyncpg.Record]":
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await connect(self._target)
        return connection

    async def _fresh(self, mentions: Sequence[Mention]) -> Sequence[Mention]:
        marks = [identities.seen(one.event_id, one.ghost) for one in mentions]
        connection = await self._connected()
        row = await connection.fetchrow(SQL["seen"], marks, [one.event_id for one in mentions])
        seen, processed = set(row["seen"] or ()), set(row["processed"] or ())
        return [
            one
            for mark, one in zip(marks, mentions, strict=True)
            if mark not in seen and one.event_id not in processed
        ]

    async def _admit(self, incoming: Incoming) -> Admitted:
        connection = await self._connected()
        for _ in range(TURNS_MAX):
            admitted = await self._try(connection, incoming)
            if admitted is not None:
                return admitted
        raise LedgerError(
            f"others were admitted {TURNS_MAX} times in a row",
            hint="let one bridge take transactions: a2a-bridge doctor",
        )

    async def _try(self, connection: Any, incoming: Incoming) -> Admitted | None:
        """None, and nothing is changed: another transaction was admitted meanwhile."""
        known = Known.of(await connection.fetchrow(SQL["look"], *intake.question(incoming)))
        seen = intake.compare(incoming, known)
        if isinstance(seen, Replay):
            if since := intake.redacted_since(incoming, known):
                audit.redacted(await self._write_redactions(connection, since))
            return seen
        if isinstance(seen, Conflict) and not self._epochs:
            await self._write_conflict(connection, incoming, "reject")
            audit.conflict(incoming.txn_id, "reject")
            return seen
        epoch = 0 if known.epoch is None else known.epoch + 1
        plan = intake.plan(incoming, known, self._limits, by_power=self._by_power)
        several = epoch > 0 or not plan.jobs_alone  # statements, so a transaction around them
        redacted: list[str] = []
        if several:
            await connection.execute(SQL["begin"])
        written = await self._write_jobs(connection, incoming, plan, known.admissions, epoch)
        if written and epoch:
            await self._write_conflict(connection, incoming, "epoch")
        if written and several:
            redacted = await self._write_rest(connection, plan)
        if several:
            await connection.execute(SQL["commit" if written else "rollback"])
        return self._committed(incoming, plan, epoch, redacted) if written else None

    @staticmethod
    async def _write_jobs(
        connection: Any, incoming: Incoming, plan: Plan, admissions: int, epoch: int
    ) -> bool:
        """The transaction and its new jobs; whether they were written: nobody came in between."""
        columns = plan.job_columns() if plan.jobs else ()
        written = await connection.fetchrow(
            SQL["admit" if plan.jobs else "record"],
            admissions,
            incoming.txn_id,
            epoch,
            incoming.body_digest,
            [event.event_id for event in incoming.events],
            [event.digest for event in incoming.events],
            *columns,
        )
        return written is not None

    async def _write_rest(self, connection: Any, plan: Plan) -> list[str]:
        """What it is to older jobs, too; those that ended as their mention was redacted."""
        if plan.answered:
            await connection.execute(SQL["answered"], plan.answered)
        if plan.canceled:
            asked = [one.job_id for one in plan.canceled], [one.sender for one in plan.canceled]
            over = await connection.fetch(SQL["cancel_queued"], *asked)
            plan.claimed({row["job_id"] for row in over})
        redacted = []
        if plan.redacted:
            redacted = await self._write_redactions(connection, plan.redacted)
        if plan.controls:
            await connection.fetchrow(SQL["control"], *plan.control_columns())
        return redacted

    def _committed(
        self, incoming: Incoming, plan: Plan, epoch: int, redacted: list[str]
    ) -> Committed:
        crashpoint(points.INTAKE)
        # The homeserver has its answer first.
        asyncio.get_running_loop().call_soon(_tell, incoming.txn_id, plan, epoch, redacted)
        if plan.denied:
            crashpoint(points.DENIED)
        for one in plan.jobs:
            if one.reason is not None:
                self._denied(one.reason)
        if plan.controls or plan.canceled:
            crashpoint(points.CONTROLLED)
        return Committed(
            accepted=len(plan.jobs) - plan.denied,
            denied=plan.denied,
            controls=len(plan.controls) + len(plan.canceled),
            ignored=plan.ignored,
            epoch=epoch,
        )

    @staticmethod
    async def _write_conflict(connection: Any, incoming: Incoming, answer: str) -> None:
        await connection.execute(SQL["conflict"], incoming.txn_id, answer, incoming.body_digest)

    @staticmethod
    async def _write_redactions(connection: Any, events: list[str]) -> list[str]:
        """The jobs that ended with that."""
        rows = await connection.fetch(SQL["redact_queued"], events)
        return [row["job_id"] for row in rows]


def _tell(txn_id: str, plan: Plan, epoch: int, redacted: list[str]) -> None:
    if epoch:
        audit.conflict(txn_id, "epoch")
    audit.decided(txn_id, plan)
    audit.redacted(redacted)


async def drain(admission: LedgerAdmission) -> None:
    """Closes, whatever the state of the connection."""
    with contextlib.suppress(Exception):
        await admission.close()
