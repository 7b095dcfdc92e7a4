"""The runs of this runner process, and what each request of the daemon does to them.

One entry per turn: two attempts of a turn never live at one time. An entry stays, its result with
it, until the daemon says ``forget`` (or prepares a later attempt, which says as much).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from corral.core import logs
from corral.core.clock import mono_s
from corral.core.crashpoints import crashpoint, register
from corral.cowboy.runner.domain import (
    Finished,
    Forget,
    Go,
    Kill,
    Prepared,
    PrepareRequest,
    Query,
    Refused,
    RunnerEvent,
    RunPhase,
    RunResult,
    RunState,
)
from corral.cowboy.runner.outcome import Cause
from corral.cowboy.runner.starter import RefusedError, Run, Started, Starter, source_of
from corral.cowboy.runner.store import RecordPhase, RecordStore, RunRecord

PREPARE_RECEIVED = register("runner.prepare.received", "a prepare arrived, nothing was forked")
PREPARED_RECORDED = register("runner.prepared.recorded", "the child waits, its record is written")
PREPARED_SENT = register("runner.prepared.sent", "the daemon was told that the run is prepared")
GO_RECORDED = register("runner.go.recorded", "the record says went, the byte is not written")
GO_WRITTEN = register("runner.go.written", "the barrier's byte is written")
RESULT_HELD = register("runner.result.held", "the result is held, the daemon was not told")
RESULT_SENT = register("runner.result.sent", "the daemon was told the result")
FORGET_DONE = register("runner.forget.done", "the result and its record are dropped")

RESULTS_HELD_MAX = 4096

BookRequest = PrepareRequest | Go | Query | Kill | Forget

_log = logs.get("cowboy.runner")


@dataclass(slots=True)
class _Entry:
    attempt: int
    source: str
    run: Run
    record: RunRecord
    since_s: float

    @property
    def over(self) -> bool:
        return self.run.phase is RunPhase.FINISHED

    @property
    def told(self) -> RunResult | None:
        """The result that the daemon may know: not that of a run which our own stop ended."""
        return None if self.run.stopped else self.run.result

    @property
    def state(self) -> RunPhase:
        if not self.over or self.told is not None:
            return self.run.phase
        went = self.record.phase is RecordPhase.WENT
        return RunPhase.UNKNOWN if went else RunPhase.NEVER_WENT


class RunBook:
    """``send`` gives an event to the live connection, and drops it when there is none.

    ``on_change`` is called whenever `unfinished` or `held` may have changed.
    """

    def __init__(
        self,
        starter: Starter,
        store: RecordStore,
        never_went: Mapping[str, int],
        send: Callable[[RunnerEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self._starter = starter
        self._store = store
        self._never_went = dict(never_went)
        self._send = send
        self._on_change = on_change
        self._entries: dict[str, _Entry] = {}
        self._stopping = False

    @property
    def unfinished(self) -> int:
        return sum(not entry.over for entry in self._entries.values())

    @property
    def held(self) -> int:
        """Results that the daemon has not said ``forget`` to."""
        return sum(entry.told is not None for entry in self._entries.values())

    @property
    def leaders(self) -> frozenset[int]:
        """Pids that only their own run may reap."""
        return frozenset(
            entry.run.identity.pid for entry in self._entries.values() if not entry.over
        )

    def handle(self, request: BookRequest) -> None:
        match request:
            case PrepareRequest():
                self._prepare(request)
            case Go(turn, attempt):
                self._go(turn, attempt)
            case Query(turns):
                for turn, attempt in turns:
                    self._tell_state(turn, attempt)
            case Kill(turn, attempt, reason):
                self._kill(turn, attempt, reason)
            case Forget(turn, attempt):
                self._forget(turn, attempt)

    def stop(self) -> None:
        """Answers no prepare and kills what runs. What became of it is left unknown."""
        self._stopping = True
        for entry in list(self._entries.values()):
            if not entry.over:
                entry.run.end(Cause.STOP, "the runner stopped")

    def _find(self, turn: str, attempt: int) -> _Entry | None:
        entry = self._entries.get(turn)
        return entry if entry is not None and entry.attempt == attempt else None

    def _prepare(self, request: PrepareRequest) -> None:
        if self._stopping:
            return  # not refused: the daemon asks again after its next hello
        entry = self._find(request.turn, request.attempt)
        if entry is None:
            crashpoint(PREPARE_RECEIVED)
            try:
                entry = self._start(request)
            except RefusedError as error:
                self._refuse(request, str(error))
                return
            except OSError as error:
                self._refuse(request, f"system_refused: {error.strerror}")
                return
            crashpoint(PREPARED_RECORDED)
        self._send(Prepared(request.turn, request.attempt, entry.run.identity))
        crashpoint(PREPARED_SENT)

    def _start(self, request: PrepareRequest) -> _Entry:
        turn, attempt = request.turn, request.attempt
        former = self._entries.get(turn)
        self._admit(attempt, former)
        started: Started = self._starter.start(request, lambda: self._over(turn))
        if former is not None:
            self._drop(turn, former)
        self._never_went.pop(turn, None)
        entry = _Entry(attempt, request.source, started.run, started.record, mono_s())
        self._entries[turn] = entry
        return entry

    def _admit(self, attempt: int, former: _Entry | None) -> None:
        if former is not None and not former.over:
            raise RefusedError("other_attempt_not_over")
        if former is not None and former.attempt > attempt:
            raise RefusedError("later_attempt_known")
        if self.unfinished >= self._starter.runs_max:
            raise RefusedError("runs_max")
        if self.held >= RESULTS_HELD_MAX:
            raise RefusedError("results_held_max")

    def _refuse(self, request: PrepareRequest, reason: str) -> None:
        _log.warning("run_refused", turn_id=request.turn, source=request.source, reason=reason)
        self._send(Refused(request.turn, request.attempt, reason))

    def _go(self, turn: str, attempt: int) -> None:
        entry = self._find(turn, attempt)
        if entry is None:
            self._tell_state(turn, attempt)
        elif entry.over:
            self._tell_result(turn, entry)
        elif entry.run.phase is RunPhase.PREPARED and not entry.run.ending:
            self._let_go(entry)

    def _let_go(self, entry: _Entry) -> None:
        went = entry.record.at(RecordPhase.WENT)
        try:
            self._store.save(went)
        except OSError as error:
            entry.run.end(Cause.KILL, f"not recorded: {error.strerror}")
            return
        entry.record = went
        crashpoint(GO_RECORDED)
        entry.run.go()
        crashpoint(GO_WRITTEN)

    def _kill(self, turn: str, attempt: int, reason: str) -> None:
        entry = self._find(turn, attempt) or self._awake(turn, attempt)
        if entry is None:
            self._tell_state(turn, attempt)
        elif entry.over:
            self._tell_result(turn, entry)
        else:
            entry.run.end(Cause.KILL, reason)

    def _awake(self, turn: str, attempt: int) -> _Entry | None:
        """A run in place of one that a dead runner may have woken a session with: its answer came
        while no runner was there, and somebody must withdraw the wake."""
        if turn in self._entries:
            return None
        try:
            started = self._starter.awake(turn, attempt, lambda: self._over(turn))
        except OSError as error:
            _log.warning("wake_not_withdrawn", turn_id=turn, why=f"system: {error.strerror}")
            return None
        if started is None:
            return None
        self._never_went.pop(turn, None)
        entry = _Entry(attempt, source_of(turn), started.run, started.record, mono_s())
        self._entries[turn] = entry
        entry.run.go()
        return entry

    def _forget(self, turn: str, attempt: int) -> None:
        entry = self._find(turn, attempt)
        if entry is None:
            if self._never_went.get(turn) == attempt:
                del self._never_went[turn]
        elif entry.over:
            self._drop(turn, entry)
            crashpoint(FORGET_DONE)
        else:
            _log.warning("forget_ignored", turn_id=turn, attempt=attempt, why="it is not over")

    def _drop(self, turn: str, entry: _Entry) -> None:
        del self._entries[turn]
        self._store.remove(entry.record)
        self._on_change()

    def _over(self, turn: str) -> None:
        entry = self._entries[turn]
        self._on_change()
        result = entry.told
        if result is None:
            return
        _log.info(
            "run_over",
            turn_id=turn,
            attempt=entry.attempt,
            source=entry.source,
            outcome=result.outcome,
            detail=result.detail,
            went=result.went,
            reply_bytes=len(result.reply),
            stderr_bytes=entry.run.stderr_bytes,
            seconds=round(mono_s() - entry.since_s, 3),
        )
        crashpoint(RESULT_HELD)
        self._tell_result(turn, entry)

    def _tell_result(self, turn: str, entry: _Entry) -> None:
        result = entry.told
        if result is None:
            self._send(RunState(turn, entry.attempt, entry.state, None))
        else:
            self._send(Finished(turn, entry.attempt, result))
            crashpoint(RESULT_SENT)

    def _tell_state(self, turn: str, attempt: int) -> None:
        entry = self._find(turn, attempt)
        if entry is not None:
            self._send(RunState(turn, attempt, entry.state, entry.told))
            if entry.told is not None:
                crashpoint(RESULT_SENT)
        elif self._never_went.get(turn) == attempt:
            self._send(RunState(turn, attempt, RunPhase.NEVER_WENT, None))
        else:
            self._send(RunState(turn, attempt, RunPhase.UNKNOWN, None))
