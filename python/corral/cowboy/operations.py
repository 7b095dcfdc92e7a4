"""What the control socket offers, the heartbeat, and the figures that both give."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from corral import __version__
from corral.core import logs
from corral.core.errors import CorralError, UsageError
from corral.cowboy.domain import TERMINAL, State, parse_turn_id, unpack_id
from corral.cowboy.engine import Engine
from corral.cowboy.gauges import Gauges
from corral.cowboy.session import Session
from corral.cowboy.turn import Turn

if TYPE_CHECKING:
    from corral.cowboy.daemon import Daemon

POLL_AGE_MARGIN_S = 8.0  # beyond the longest block: older than this is no poll
TURNS_SHOWN_MAX = 1_000
HEARTBEAT_S = 1.0
WRITER_ANSWER_S = 5.0
METRICS_EVERY = 5

Request = Mapping[str, Any]

_log = logs.get("cowboy.operations")


OPEN_STATES = tuple(state for state in State if state not in TERMINAL)


class Operations:
    """Handlers of the control socket. All run in the daemon's event loop."""

    def __init__(self, daemon: "Daemon") -> None:
        self._daemon = daemon

    def table(self) -> dict[str, Callable[[Request], Awaitable[Mapping[str, object]]]]:
        return {
            "status": self.status,
            "adopt": self.adopt,
            "backup": self.backup,
            "turns": self.turns,
            "turn": self.turn,
            "release": self.release,
            "abandon": self.abandon,
        }

    # ------------------------------------------------------------ status

    async def status(self, _request: Request) -> dict[str, object]:
        daemon = self._daemon
        sources = [await self._source(name) for name in daemon.engines]
        runner = daemon.runner
        return {
            "agent": daemon.agent,
            "version": __version__,
            "pid": os.getpid(),
            "clock_step_s": daemon.clock_step_s(),
            "healthy": all(source["healthy"] for source in sources),
            "runner": None
            if runner is None
            else {"connected": runner.connected, "runner": runner.runner_id},
            "ledger": {
                "uuid": daemon.uuid,
                "schema": daemon.writer.version,
                "commits": daemon.writer.commits,
                "wal_bytes": daemon.writer.wal_bytes(),
            },
            "sources": sources,
        }

    async def _source(self, name: str) -> dict[str, object]:
        engine, session = self._daemon.engines[name], self._daemon.sessions[name]
        book = engine.machine.book
        state, reason = self._health(engine, session)
        oldest = book.oldest_unanswered()
        now_ms = engine.shared.clock.wall_ms()
        unacked = sum(turn.ack != "acked" for turn in list(book.open.values()))
        return {
            "source": name,
            "state": state,
            "healthy": not reason,
            "reason": reason,
            "last_poll_age_s": self._poll_age_s(session),
            "turns": self._counts(engine),
            "open": len(book.open) + sum(book.parked.values()),
            "parked": sum(book.parked.values()),
            "unacked": unacked + sum(book.parked.values()),
            "acknowledged_unanswered": sum(
                turn.ack == "acked" and not turn.terminal for turn in list(book.open.values())
            ),
            "oldest_unanswered": None
            if oldest is None
            else {"turn_id": oldest.id, "age_s": max(now_ms - oldest.received_at_ms, 0) / 1000},
            "incarnation": engine.intake.incarnation,
            "sequence": engine.sequence,
            **engine.intake.describe(),
            "counters": dict(engine.tallies),
            "events": await self._notes(engine),
        }

    def _counts(self, engine: Engine) -> dict[str, int]:
        """Turns by state: open ones as they are, ended ones as counted since the ledger began."""
        counts = engine.machine.book.states()
        for state in (State.DONE, State.DEAD, State.CANCELLED, State.EMPTY):
            if engine.tallies.get(state):
                counts[state] = engine.tallies[state]
        return counts

    async def _notes(self, engine: Engine) -> list[dict[str, object]]:
        if engine.storage_error is not None or not engine.ledger.source_id:
            return []
        try:
            notes = await engine.shared.writer.submit(engine.read_notes)
        except CorralError:
            return []
        return [
            {"at_ms": n.at_ms, "kind": n.kind, "entry": n.entry, "detail": n.detail} for n in notes
        ]

    def _poll_age_s(self, session: Session) -> float | None:
        if session.last_poll_s is None:
            return None
        return round(self._daemon.clock.mono_s() - session.last_poll_s, 3)

    def _health(self, engine: Engine, session: Session) -> tuple[str, str]:
        """The state of a source and, when it is not healthy, the reason."""
        if engine.storage_error is not None:
            full = engine.storage_error.ids.get("sqlite") == "SQLITE_FULL" or "full" in str(
                engine.storage_error
            )
            return ("storage_full" if full else "storage_failed"), str(engine.storage_error)
        if session.state != "running":
            reason = str(session.fault) if session.fault else f"the source is {session.state}"
            return session.state, "" if session.state == "draining" else reason
        age_s = self._poll_age_s(session)
        limit_s = engine.config.block_ms / 1000 + POLL_AGE_MARGIN_S
        if age_s is None or age_s > limit_s:
            return "stalled", f"the last poll is {age_s} s old, expected at most {limit_s:g} s"
        runner = self._daemon.runner
        if engine.needs_runner and (runner is None or not runner.connected):
            return "running", "the runner does not answer: no turn can start"
        return "running", ""

    def summary(self) -> str:
        """One line for systemd's status."""
        parts = []
        for name, engine in self._daemon.engines.items():
            state, _ = self._health(engine, self._daemon.sessions[name])
            parts.append(f"{name}: {state}, {len(engine.machine.book.open)} open")
        return "; ".join(parts)

    # ------------------------------------------------------------ turns

    def engine_of(self, request: Request) -> tuple[Engine, str]:
        turn_id = request.get("turn_id")
        if not isinstance(turn_id, str):
            raise UsageError("turn_id is missing")
        try:
            agent, source, _, _ = parse_turn_id(turn_id)
        except (ValueError, OverflowError):
            raise UsageError(
                f"{turn_id[:100]!r} is not a turn id", hint="as scout.a2a.1.1732935482123-0"
            ) from None
        engine = self._daemon.engines.get(source)
        if agent != self._daemon.agent or engine is None:
            raise UsageError(f"{turn_id} is not a turn of agent {self._daemon.agent}")
        return engine, turn_id

    async def turns(self, request: Request) -> dict[str, object]:
        """Open turns, oldest first; `source` and `state` narrow the list, and must be known."""
        for name, known in (("source", self._daemon.engines), ("state", OPEN_STATES)):
            value = request.get(name)
            if value is not None and value not in known:
                raise UsageError(
                    f"no {name} {value!r}", hint="there are: " + ", ".join(str(k) for k in known)
                )
        found: list[Turn] = []
        for name, engine in self._daemon.engines.items():
            if request.get("source") in (None, name):
                found += engine.machine.book.open.values()
        wanted = request.get("state")
        found = [turn for turn in found if wanted in (None, turn.state)]
        found.sort(key=lambda turn: turn.received_at_ms)
        return {
            "turns": [describe(turn) for turn in found[:TURNS_SHOWN_MAX]],
            "more": max(len(found) - TURNS_SHOWN_MAX, 0),
        }

    async def turn(self, request: Request) -> dict[str, object]:
        """One turn, open or not."""
        engine, turn_id = self.engine_of(request)
        _, _, incarnation, entry = parse_turn_id(turn_id)
        open_turn = engine.machine.book.by_id.get(turn_id)
        if open_turn is not None:
            return {"turn": describe(open_turn)}
        rows = await engine.shared.writer.submit(
            lambda conn: engine.read_turn(conn, incarnation, entry)
        )
        if rows is None:
            raise UsageError(f"no turn {turn_id}", hint="ended turns go after their retention")
        return {"turn": describe(rows)}

    async def release(self, request: Request) -> dict[str, object]:
        """Let a held turn go on, as a resumed run in its channel."""
        engine, turn_id = self.engine_of(request)
        machine = engine.machine
        await engine.command(
            lambda: machine.release(engine.held_turn(machine.book.by_id.get(turn_id)))
        )
        return {"turn_id": turn_id, "released": True}

    async def abandon(self, request: Request) -> dict[str, object]:
        """End a held turn: a dead letter and a notice to its sender."""
        engine, turn_id = self.engine_of(request)
        machine = engine.machine
        await engine.command(
            lambda: machine.abandon(engine.held_turn(machine.book.by_id.get(turn_id)))
        )
        return {"turn_id": turn_id, "abandoned": True}

    # ------------------------------------------------------------ the ledger

    async def adopt(self, _request: Request) -> dict[str, object]:
        """Take over the streams of sources that are blocked by another ledger's mark."""
        adopted = []
        for name, session in self._daemon.sessions.items():
            if session.state == "blocked":
                session.adopt = True
                self._daemon.engines[name].settled.clear()
                session.retry_now()
                adopted.append(name)
        for name in adopted:
            async with asyncio.timeout(10):
                await self._daemon.engines[name].settled.wait()
            _log.warning("adopted", source=name)
        states = {name: self._daemon.sessions[name].state for name in adopted}
        return {"adopted": adopted, "states": states}

    async def backup(self, _request: Request) -> dict[str, object]:
        """A consistent copy of the ledger, beside it."""
        daemon = self._daemon
        stamp = daemon.clock.wall_ms()
        dest = daemon.settings.state_path(daemon.agent) / "backups" / f"ledger-{stamp}.db"
        await asyncio.to_thread(dest.parent.mkdir, mode=0o700, exist_ok=True)
        await daemon.writer.backup(dest)
        return {"path": str(dest)}

    # ------------------------------------------------------------ heartbeat

    async def heartbeat(self) -> None:
        """Feed the watchdog while the ledger's writer answers, and write the metrics."""
        daemon = self._daemon
        path = daemon.settings.metrics_path(daemon.agent)
        # The metrics library reads files when it is loaded: not in the event loop.
        gauges = await asyncio.to_thread(Gauges) if path is not None else None
        beats = 0
        while True:
            if await self._writer_answers():
                daemon.notifier.watchdog()
            if beats % METRICS_EVERY == 0:
                daemon.notifier.status(self.summary())
                if gauges is not None and path is not None:
                    gauges.update(daemon, self)
                    try:
                        await asyncio.to_thread(gauges.metrics.write_textfile, path)
                    except OSError as error:
                        _log.warning("metrics_not_written", errno=error.errno)
            beats += 1
            await daemon.clock.sleep(HEARTBEAT_S)

    async def _writer_answers(self) -> bool:
        """False when the writer's thread hangs; a full disk is an answer."""
        try:
            async with asyncio.timeout(WRITER_ANSWER_S):
                await self._daemon.writer.submit(lambda _conn: None)
        except TimeoutError:
            _log.error("ledger_writer_hangs", waited_s=WRITER_ANSWER_S)
            return False
        except CorralError:
            pass
        return True

    def figures(self, name: str) -> dict[str, float]:
        """The gauges of one source, by the names in `gauges.SOURCE`."""
        engine, session = self._daemon.engines[name], self._daemon.sessions[name]
        book = engine.machine.book
        oldest = book.oldest_unanswered()
        age_ms = engine.shared.clock.wall_ms() - oldest.received_at_ms if oldest else 0
        poll_age_s = self._poll_age_s(session)
        turns = list(book.open.values())
        return {
            "open_turns": len(turns) + sum(book.parked.values()),
            "parked_turns": sum(book.parked.values()),
            "unanswered_turns": sum(t.ack == "acked" and not t.terminal for t in turns),
            "oldest_unanswered_seconds": max(age_ms, 0) / 1000,
            "last_poll_age_seconds": -1.0 if poll_age_s is None else poll_age_s,
            "healthy": float(not self._health(engine, session)[1]),
            "backlog_max": engine.config.backlog_max,
        }

    def states(self, name: str) -> dict[str, int]:
        """Open turns of one source by state."""
        return self._daemon.engines[name].machine.book.states()


def describe(turn: Turn) -> dict[str, object]:
    """A turn without its content."""
    return {
        "turn_id": turn.id,
        "entry": unpack_id(turn.entry).decode(),
        "kind": turn.kind,
        "state": turn.state,
        "intent": turn.intent,
        "ack": turn.ack,
        "attempt": turn.attempt,
        "starts": turn.starts,
        "started_at_ms": turn.started_at_ms,
        "received_at_ms": turn.received_at_ms,
        "terminal_at_ms": turn.terminal_at_ms,
        "outcome": turn.outcome,
        "detail": turn.detail,
        "outbox_id": turn.outbox_id.decode() if turn.outbox_id else None,
        "dead_id": turn.dead_id.decode() if turn.dead_id else None,
        "channel": turn.channel.decode(errors="replace") if turn.channel else None,
        "sender": turn.sender.decode(errors="replace") if turn.sender else None,
        "message_id": turn.message_id.decode(errors="replace") if turn.message_id else None,
        "released": turn.release,
        "parked": turn.parked,
        "slot": turn.slot,
        "thread": turn.thread.decode(errors="replace") if turn.thread else None,
        "traceparent": turn.traceparent.decode(errors="replace") if turn.traceparent else None,
    }
