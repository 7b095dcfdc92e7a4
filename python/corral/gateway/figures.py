"""What the gateway counts, and what it writes for a node exporter's textfile collector.

The tables are the reference: docs/reference/gateway.md is checked against them. No label names a
task, a user or a message.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from corral.core.metrics import Metrics
from corral.core.sqlite import SqliteReader
from corral.gateway import upkeep
from corral.gateway.domain import Limits, State
from corral.gateway.wire import Method

if TYPE_CHECKING:
    from corral.gateway.stream import Carrier

NAMESPACE: Final = "gateway"
GAUGES: Final = {
    "tasks": (("agent", "client", "state"), "Tasks that have not ended, by state."),
    "oldest_task_seconds": (("agent",), "Age of the oldest task that has not ended."),
    "open_tasks_max": ((), "At this many tasks that have not ended a client is refused."),
    "open_tasks": (("client",), "Tasks of a client that have not ended."),
    "known_tasks": ((), "Tasks that are known, ended ones too; at most."),
    "tasks_max": ((), "At this many known tasks no message is taken."),
    "deliveries": (("agent",), "Messages and cancellations that the agent has yet to get."),
    "oldest_delivery_seconds": (("agent",), "How long the oldest of them waits."),
    "leg_works": (("agent", "leg"), "1 when `publish` or `read` got its last answer from Redis."),
    "wal_bytes": ((), "Size of the write-ahead log of the tasks."),
    "written_timestamp_seconds": ((), "When this file was written, in seconds since 1970."),
}
COUNTERS: Final = {
    "calls": (("method", "result"), "Calls by what they were answered: `ok`, or a reason."),
    "unauthorized": ((), "Calls without the token of a client."),
    "overdue": ((), "Tasks that ended because nothing came in time."),
    "cleared": ((), "Tasks whose content was removed."),
    "forgotten": ((), "Tasks that were forgotten."),
}
OPEN: Final = (State.SUBMITTED, State.WORKING, State.INPUT_REQUIRED)
NO_METHOD: Final = "none"  # of calls that could not be read


@dataclass(frozen=True, slots=True)
class Standing:
    """How full the gateway is. Times are milliseconds since 1970, 0 for none."""

    tasks: dict[tuple[str, str, State], int]
    oldest_ms: dict[str, int]
    deliveries: dict[str, tuple[int, int]]
    known: int

    def open_of(self, client: str) -> int:
        return sum(count for (_, whose, _), count in self.tasks.items() if whose == client)


async def standing(reader: SqliteReader) -> Standing:
    """Reads open rows only, and counts all."""
    tasks: dict[tuple[str, str, State], int] = {}
    oldest: dict[str, int] = {}
    for row in await reader.fetch(upkeep.SQL["gauge_tasks"], {}):
        agent = row["agent"]
        tasks[agent, row["client"], State(row["state"])] = row["tasks"]
        oldest[agent] = min(oldest.get(agent, row["oldest_ms"]), row["oldest_ms"])
    deliveries = {
        row["agent"]: (row["deliveries"], row["oldest_ms"])
        for row in await reader.fetch(upkeep.SQL["gauge_deliveries"], {})
    }
    [known] = await reader.fetch(upkeep.SQL["count_all"], {})
    return Standing(tasks, oldest, deliveries, known["tasks"])


class Figures:
    """The metrics of one gateway. Making them reads files: not for the event loop."""

    def __init__(self, agents: Sequence[str], clients: Sequence[str], limits: Limits) -> None:
        self.metrics = Metrics(NAMESPACE)
        self._agents, self._clients, self._limits = agents, clients, limits
        self._gauges = {
            name: self.metrics.gauge(name, doc, labels) for name, (labels, doc) in GAUGES.items()
        }
        self._counters = {
            name: self.metrics.counter(name, doc, labels)
            for name, (labels, doc) in COUNTERS.items()
        }
        for method in Method:
            self._counters["calls"].labels(method.value, "ok")

    def called(self, method: str, result: str) -> None:
        known = method if method in set(Method) else NO_METHOD
        self._counters["calls"].labels(known, result).inc()

    def unauthorized(self) -> None:
        self._counters["unauthorized"].inc()

    def swept(self, done: upkeep.Done) -> None:
        self._counters["overdue"].inc(len(done.ended))
        self._counters["cleared"].inc(done.cleared)
        self._counters["forgotten"].inc(done.forgotten)

    def update(
        self, now: Standing, carriers: "Sequence[Carrier]", *, wal_bytes: int, now_ms: int
    ) -> None:
        def age(at_ms: int) -> float:
            return max(0.0, (now_ms - at_ms) / 1000) if at_ms else 0.0

        gauges = self._gauges
        for agent in self._agents:
            for client in self._clients:
                for state in OPEN:
                    count = now.tasks.get((agent, client, state), 0)
                    gauges["tasks"].labels(agent, client, state.value).set(count)
            count, oldest_ms = now.deliveries.get(agent, (0, 0))
            gauges["deliveries"].labels(agent).set(count)
            gauges["oldest_delivery_seconds"].labels(agent).set(age(oldest_ms))
            gauges["oldest_task_seconds"].labels(agent).set(age(now.oldest_ms.get(agent, 0)))
        for client in self._clients:
            gauges["open_tasks"].labels(client).set(now.open_of(client))
        for carrier in carriers:
            for leg, trouble in carrier.trouble.items():
                gauges["leg_works"].labels(carrier.agent, leg).set(0 if trouble else 1)
        gauges["open_tasks_max"].set(self._limits.open_tasks_max)
        gauges["known_tasks"].set(now.known)
        gauges["tasks_max"].set(self._limits.tasks_max)
        gauges["wal_bytes"].set(wal_bytes)
        gauges["written_timestamp_seconds"].set(now_ms / 1000)
