"""A runner as the daemon sees it: one run per turn, results held until they may be forgotten."""

from collections import Counter, deque
from dataclasses import dataclass, field

from corral.cowboy.runner.domain import (
    Finished,
    Prepared,
    Refused,
    RunIdentity,
    RunnerEvent,
    RunPhase,
    RunResult,
    RunState,
)

_SOMEWHERE = RunIdentity(1, 1, "none")


@dataclass
class Run:
    """`ending`: a kill was asked for, and the run goes on until it is proven over."""

    attempt: int
    lane: bytes
    resumed: bool
    phase: RunPhase = RunPhase.PREPARED
    result: RunResult | None = None
    ending: bool = False

    @property
    def over(self) -> bool:
        return self.phase is RunPhase.FINISHED


@dataclass
class ModelRunner:
    """`events` is what its live connection has not delivered yet; nothing is kept without one.

    `refusing` is the reason with which it refuses whatever it is asked to prepare. `repeats`: to
    go again with the same attempt is the same wake of a live session.
    """

    connected: bool = False
    runs: dict[str, Run] = field(default_factory=dict)
    never_went: dict[str, int] = field(default_factory=dict)
    events: deque[RunnerEvent] = field(default_factory=deque)
    went: Counter[str] = field(default_factory=Counter)  # how often a turn's agent really ran
    refusing: str = ""
    repeats: bool = False
    woken: set[tuple[str, int]] = field(default_factory=set)

    @property
    def running(self) -> list[str]:
        return [turn for turn, run in self.runs.items() if run.phase is RunPhase.RUNNING]

    # ------------------------------------------------------------ requests

    def prepare(self, turn: str, attempt: int, lane: bytes, *, resumed: bool) -> None:
        former = self.runs.get(turn)
        if former is None or former.attempt != attempt:
            if self.refusing:
                self._tell(Refused(turn, attempt, self.refusing))
                return
            assert former is None or former.over, f"{turn}: attempt {former.attempt} is not over"
            beside = [t for t, run in self.runs.items() if run.lane == lane and not run.over]
            # A session that has answered is told so while the next one is woken.
            assert self.repeats or not beside, f"{turn} is to run beside {beside} of its channel"
            self.never_went.pop(turn, None)
            self.runs[turn] = Run(attempt, lane, resumed)
        self._tell(Prepared(turn, attempt, _SOMEWHERE))

    def go(self, turn: str, attempt: int) -> None:
        run = self._find(turn, attempt)
        if run is None or run.result is not None:
            self._tell_end(turn, attempt, run)
        elif run.phase is RunPhase.PREPARED:
            run.phase = RunPhase.RUNNING
            known = self.repeats and (turn, attempt) in self.woken
            self.woken.add((turn, attempt))
            self.went[turn] += not known

    def query(self, turn: str, attempt: int) -> None:
        self._tell_state(turn, attempt)

    def kill(self, turn: str, attempt: int) -> None:
        run = self._find(turn, attempt)
        if run is None or run.result is not None:
            self._tell_end(turn, attempt, run)
        elif run.phase is RunPhase.PREPARED:
            self._over(turn, RunResult("killed", b"", "cancel", went=False))
        else:
            run.ending = True

    def forget(self, turn: str, attempt: int) -> None:
        run = self._find(turn, attempt)
        if run is None:
            if self.never_went.get(turn) == attempt:
                del self.never_went[turn]
        else:
            assert run.over, f"{turn} was to be forgotten while it runs"
            del self.runs[turn]

    # ------------------------------------------------------------ what happens to it

    def end(self, turn: str, outcome: str, reply: bytes = b"", detail: str = "") -> None:
        """A run ends by itself, or by the kill that it was asked for (outcome `killed`)."""
        assert self.runs[turn].phase is RunPhase.RUNNING
        self._over(turn, RunResult(outcome, reply, detail, went=True))

    def disconnect(self) -> None:
        self.connected = False
        self.events.clear()

    def die(self) -> None:
        """The process is killed, and its runs with it, before another one answers."""
        self.disconnect()
        self.never_went = {
            turn: run.attempt for turn, run in self.runs.items() if run.phase is RunPhase.PREPARED
        }
        self.runs.clear()

    # ------------------------------------------------------------

    def _find(self, turn: str, attempt: int) -> Run | None:
        run = self.runs.get(turn)
        return run if run is not None and run.attempt == attempt else None

    def _over(self, turn: str, result: RunResult) -> None:
        run = self.runs[turn]
        run.phase, run.result = RunPhase.FINISHED, result
        self._tell(Finished(turn, run.attempt, result))

    def _tell(self, event: RunnerEvent) -> None:
        if self.connected:
            self.events.append(event)

    def _tell_end(self, turn: str, attempt: int, run: Run | None) -> None:
        if run is not None and run.result is not None:
            self._tell(Finished(turn, attempt, run.result))
        else:
            self._tell_state(turn, attempt)

    def _tell_state(self, turn: str, attempt: int) -> None:
        run = self._find(turn, attempt)
        if run is not None:
            self._tell(RunState(turn, attempt, run.phase, run.result))
        elif self.never_went.get(turn) == attempt:
            self._tell(RunState(turn, attempt, RunPhase.NEVER_WENT, None))
        else:
            self._tell(RunState(turn, attempt, RunPhase.UNKNOWN, None))
