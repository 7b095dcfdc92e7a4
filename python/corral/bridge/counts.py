"""What the worker and the ledger count. No label names a room, a user or an id."""

from typing import Final

from corral.bridge.database import Ledger
from corral.bridge.domain import OPEN, Reason, State
from corral.bridge.jobs import Job
from corral.core.metrics import Metrics
from corral.core.sqlfiles import load_sql

SQL: Final = load_sql("corral.bridge", "sql/operator.sql")
UNRESOLVED: Final = (State.AMBIGUOUS, State.DEAD)
FULL: Final = (Reason.ROOM_QUEUE_FULL, Reason.GLOBAL_QUEUE_FULL)


class Counts:
    """Metrics of the ledger's side, named `bridge_…`."""

    def __init__(self, metrics: Metrics) -> None:
        self._open = metrics.gauge("jobs", "Jobs that have not ended, by state", ["state"])
        self._oldest = metrics.gauge(
            "oldest_job_age_seconds", "Of the oldest job that has not ended, by state", ["state"]
        )
        self._unresolved = metrics.gauge(
            "jobs_unresolved", "Jobs that ended uncertain or dead and nobody resolved", ["state"]
        )
        self._conflicts = metrics.gauge(
            "transaction_conflicts", "Transactions that came with other events than before"
        )
        self._transitions = metrics.counter("transitions", "Changes of state", ["state"])
        self._ended = metrics.counter("jobs_ended", "Jobs that ended here", ["state", "reason"])
        self._recoveries = metrics.counter(
            "recoveries", "Jobs taken over after their lease had run out or ended"
        )
        self._denied = metrics.counter("queue_full", "Mentions denied for want of room", ["reason"])
        for reason in FULL:  # from the start, or a first one could not be seen to rise
            self._denied.labels(reason.value)

    def changed(self, before: State, job: Job) -> None:
        if job.state is not before:
            self._transitions.labels(job.state.value).inc()
        if job.terminal and job.reason is not None:
            self._ended.labels(job.state.value, job.reason.value).inc()

    def recovered(self) -> None:
        self._recoveries.inc()

    def denied(self, reason: Reason) -> None:
        if reason in FULL:
            self._denied.labels(reason.value).inc()

    async def refresh(self, ledger: Ledger) -> None:
        """Reads the gauges: of open rows only, so what has ended costs nothing."""
        found = {row["state"]: row for row in await ledger.fetch(SQL["gauges"])}
        for state in OPEN:
            row = found.get(state.value)
            self._open.labels(state.value).set(row["jobs"] if row else 0)
            self._oldest.labels(state.value).set(row["oldest_s"] if row else 0)
        rows = {row["state"]: row["jobs"] for row in await ledger.fetch(SQL["unresolved"])}
        for state in UNRESOLVED:
            self._unresolved.labels(state.value).set(rows.get(state.value, 0))
        self._conflicts.set(await ledger.fetchval(SQL["conflicts"]))
