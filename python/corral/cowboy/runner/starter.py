"""Makes a prepared run of a request: its program waits at the barrier and its record is written."""

import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from corral.cowboy.runner import cgroup as cgroups
from corral.cowboy.runner import spawn
from corral.cowboy.runner.cgroup import CgroupRoot
from corral.cowboy.runner.containment import (
    CgroupContainment,
    Containment,
    GroupContainment,
    Strays,
)
from corral.cowboy.runner.domain import PrepareRequest
from corral.cowboy.runner.plan import (
    EchoPlan,
    ExecPlan,
    MetadataError,
    Plan,
    TamqPlan,
    run_environment,
)
from corral.cowboy.runner.proof import Scanner
from corral.cowboy.runner.run import EchoRun, ExecRun
from corral.cowboy.runner.spawn import Child
from corral.cowboy.runner.store import RecordPhase, RecordStore, RunRecord
from corral.cowboy.runner.wake import TamqRun

RUNS_MAX = 1024
FDS_PER_RUN = 6
FDS_RESERVED = 64

Run = ExecRun | TamqRun | EchoRun


def source_of(turn: str) -> str:
    """A turn's id is `<agent>.<source>.…`; empty for what is none."""
    _, _, rest = turn.partition(".")
    return rest.partition(".")[0]


class RefusedError(Exception):
    """The run is not prepared; the text is the reason in the answer."""


@dataclass(frozen=True, slots=True)
class Started:
    run: Run
    record: RunRecord


class Starter:
    """``runs_max`` is how many runs the limit of open descriptors allows, at most ``RUNS_MAX``."""

    def __init__(
        self,
        agent: str,
        plans: Mapping[str, Plan],
        store: RecordStore,
        boot: str,
        cgroup_root: CgroupRoot | None,
    ) -> None:
        self._agent = agent
        self._plans = plans
        self._store = store
        self._boot = boot
        self._cgroup_root = cgroup_root
        self._scanner = Scanner(os.getpid())
        self._strays = Strays()
        self._nofile_soft, nofile_hard = spawn.raise_nofile_limit()
        self.runs_max = max(1, min(RUNS_MAX, (nofile_hard - FDS_RESERVED) // FDS_PER_RUN))

    def start(self, request: PrepareRequest, on_over: Callable[[], None]) -> Started:
        """Raises `RefusedError`, and `OSError` when the system refuses; nothing is left then.

        ``on_over`` is called once, when the run is over and its result is set.
        """
        plan = self._plans.get(request.source)
        token = secrets.token_hex(16)
        match plan:
            case None:
                raise RefusedError("source_unknown")
            case EchoPlan():
                record = self._record(request, token, None, None)
                self._store.save(record)
                return Started(EchoRun(plan, request.prompt, on_over), record)
            case TamqPlan():
                record = self._record(request, token, None, None)
                self._store.save(record)
                return Started(TamqRun(plan, request, on_over), record)
            case ExecPlan():
                return self._start_exec(plan, request, token, on_over)

    def awake(self, turn: str, attempt: int, on_over: Callable[[], None]) -> Started | None:
        """A run that is for ending only: that withdraws the wake of this attempt, if there is one.

        None when the turn's source wakes no session. Raises `OSError` as `start` does.
        """
        plan = self._plans.get(source_of(turn))
        if not isinstance(plan, TamqPlan):
            return None
        request = PrepareRequest(
            turn, attempt, source_of(turn), b"", "", None, None, "", False, None, waited_ms=1
        )
        record = self._record(request, secrets.token_hex(16), None, None)
        self._store.save(record)
        return Started(TamqRun(plan, request, on_over), record)

    def _start_exec(
        self, plan: ExecPlan, request: PrepareRequest, token: str, on_over: Callable[[], None]
    ) -> Started:
        try:
            environment = run_environment(plan, self._agent, request, token)
        except MetadataError as error:
            raise RefusedError(f"metadata_invalid: {error}") from error
        cgroup = None if self._cgroup_root is None else self._cgroup_root.create(token)
        child: Child | None = None
        try:
            child = spawn.spawn(plan.command, environment, cgroup, self._nofile_soft)
            record = self._record(request, token, child, cgroup)
            self._store.save(record)
        except OSError:
            if child is not None:
                spawn.abandon(child)
            if cgroup is not None:
                cgroups.removed(cgroup)
            raise
        containment = self._contain(child, token, cgroup)
        return Started(ExecRun(plan, request.prompt, child, containment, on_over), record)

    def _contain(self, child: Child, token: str, cgroup: Path | None) -> Containment:
        if cgroup is not None:
            return CgroupContainment(child.pid, cgroup, self._strays)
        return GroupContainment(child.pid, child.start_ticks, token, self._scanner)

    def _record(
        self, request: PrepareRequest, token: str, child: Child | None, cgroup: Path | None
    ) -> RunRecord:
        return RunRecord(
            turn=request.turn,
            attempt=request.attempt,
            pid=0 if child is None else child.pid,
            start_ticks=0 if child is None else child.start_ticks,
            pgid=0 if child is None else child.pid,
            token=token,
            cgroup=None if cgroup is None else str(cgroup),
            boot=self._boot,
            phase=RecordPhase.PREPARED,
        )
