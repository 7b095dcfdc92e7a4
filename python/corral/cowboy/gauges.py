"""What the daemon writes for a node exporter's textfile collector: gauges, and counts as gauges.

The tables below are the reference (docs/reference/metrics.md is made from them). Labels are names,
states and kinds, never content. Every kind and state is there from the start, with 0, because
what appears with its first event cannot be seen to rise.
"""

from typing import TYPE_CHECKING, Final

from corral.core.metrics import Metrics
from corral.cowboy.domain import TERMINAL, State

if TYPE_CHECKING:
    from corral.cowboy.daemon import Daemon
    from corral.cowboy.operations import Operations

NAMESPACE: Final = "cowboy"
SOURCE: Final = {
    "healthy": "1 when nothing stops the source.",
    "last_poll_age_seconds": "Since Redis last answered a poll; -1 before the first.",
    "open_turns": "Turns that are not closed, parked ones among them.",
    "parked_turns": "Turns whose content still waits in Redis.",
    "backlog_max": "At this many open turns nothing is read.",
    "unanswered_turns": "Turns whose entry is acknowledged and that have no answer yet.",
    "oldest_unanswered_seconds": "Age of the oldest message without an answer.",
}
STATE: Final = {"turns": "Open turns by state."}
KIND: Final = {"events": "Counted since the ledger began, by kind; a new ledger begins at 0."}
AGENT: Final = {
    "runner_connected": "1 when the runner answers, or when no source needs one.",
    "ledger_wal_bytes": "Size of the ledger's write-ahead log.",
    "ledger_commits": "Commits since the daemon started.",
    "written_timestamp_seconds": "When this file was written, in seconds since 1970.",
}
STATES: Final = tuple(state for state in State if state not in TERMINAL)
# What is counted: `kind` of cowboy_events, and what it means.
KINDS: Final = {
    "entries": "entries that became turns",
    "starts": "starts of runs",
    "done": "turns that ended with an answer or a notice",
    "dead": "turns that were given up, with a dead letter",
    "cancelled": "turns that were cancelled",
    "empty": "entries without usable content",
    "duplicate": "entries that repeat an earlier message",
    "conflict": "message ids that came again with other words",
    "interrupted": "runs that ended with an unknown outcome",
    "poisoned": "turns given up after too many interruptions",
    "outbox_refused": "answers that the outbox refused for good",
    "notice_undelivered": "last notices that the outbox refused, too",
    "ack_short": "acknowledgements that found fewer entries than they named",
    "ack_forgotten": "acknowledgements that Redis refused for good",
    "trimmed": "entries removed before they were read",
    "deleted": "pending entries that were deleted",
    "payload_lost": "parked turns whose content was removed",
    "passed_over": "times that the group did not offer the next entry of its stream",
    "below_watermark": "entries offered again long after they ended",
    "incarnation_began": "times that Redis had lost the stream",
    "adopted": "times that a ledger took the stream over",
    "resubmitted": "messages that an operator sent again",
    "purged": "rows of ended turns that were deleted",
}


class Gauges:
    """The metrics of one daemon. Making them reads files: not for the event loop."""

    def __init__(self) -> None:
        self.metrics = Metrics(NAMESPACE)
        labels = ("agent", "source")
        self._source = {n: self.metrics.gauge(n, doc, labels) for n, doc in SOURCE.items()}
        self._state = self.metrics.gauge("turns", STATE["turns"], (*labels, "state"))
        self._kind = self.metrics.gauge("events", KIND["events"], (*labels, "kind"))
        self._agent = {n: self.metrics.gauge(n, doc, ("agent",)) for n, doc in AGENT.items()}

    def update(self, daemon: "Daemon", operations: "Operations") -> None:
        agent = daemon.agent
        for source, engine in daemon.engines.items():
            for name, value in operations.figures(source).items():
                self._source[name].labels(agent, source).set(value)
            states = operations.states(source)
            for state in STATES:
                self._state.labels(agent, source, state.value).set(states.get(state, 0))
            for kind in {**KINDS, **engine.tallies}:
                self._kind.labels(agent, source, kind).set(engine.tallies.get(kind, 0))
        runner = daemon.runner
        figures = {
            "runner_connected": float(runner is None or runner.connected),
            "ledger_wal_bytes": daemon.writer.wal_bytes(),
            "ledger_commits": daemon.writer.commits,
            "written_timestamp_seconds": daemon.clock.wall_ms() / 1000,
        }
        for name, value in figures.items():
            self._agent[name].labels(agent).set(value)
