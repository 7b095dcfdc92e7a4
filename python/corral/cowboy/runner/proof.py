"""Proves that nothing of a run is left, where it has no cgroup of its own.

A process belongs to a run when one of these names the run, or does so for one of its ancestors:
its session, its process group, the token in the environment it was started with. The runner adopts
orphans, so whatever a run starts stays below the runner as long as that lives. A process below the
runner that belongs to no run has hidden its origin: it goes when the next run ends.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from corral.core import logs
from corral.core.clock import mono_s
from corral.cowboy.runner import processes
from corral.cowboy.runner.processes import Process
from corral.cowboy.runner.watched import watched

# One empty look could have missed a process that was just being forked; two in a row do not.
CLEAN_SCANS = 2
SCAN_PAUSE_FIRST_S = 0.001
SCAN_PAUSE_MAX_S = 0.1
STUCK_WARNING_EVERY_S = 5.0

TokensOf = Callable[[int], Collection[str]]
_BELOW_US = ""  # in a set of owners: a descendant of the runner

_log = logs.get("cowboy.runner")


@dataclass(frozen=True, slots=True)
class Marks:
    """What names a run: its token, and its leader, whose pid is the run's session and group."""

    token: str
    leader: int
    start_ticks: int


def survivors(
    table: Mapping[int, Process],
    ending: Collection[Marks],
    live: Iterable[Marks],
    own_pid: int,
    tokens_of: TokensOf,
) -> dict[str, list[Process]]:
    """The living processes of each run in ``ending``, by its token.

    ``live`` are all runs whose leader is not reaped yet, those in ``ending`` included: only their
    numbers are certainly still theirs. Environments are read by ``tokens_of``, and only of
    processes that are not older than the oldest run in ``ending``.
    """
    found: dict[str, list[Process]] = {marks.token: [] for marks in ending}
    oldest = min(marks.start_ticks for marks in ending)
    ownership = _Ownership(table, live, own_pid, tokens_of, oldest)
    for process in table.values():
        if process.alive and process.start_ticks >= oldest and process.pid != own_pid:
            owners = ownership.of(process.pid)
            hidden = owners == {_BELOW_US}
            for token, processes_left in found.items():
                if hidden or token in owners:
                    processes_left.append(process)
    return found


class _Ownership:
    def __init__(
        self,
        table: Mapping[int, Process],
        live: Iterable[Marks],
        own_pid: int,
        tokens_of: TokensOf,
        oldest: int,
    ) -> None:
        self._table = table
        self._by_leader = {marks.leader: marks.token for marks in live}
        self._live = frozenset(self._by_leader.values())
        self._own_pid = own_pid
        self._tokens_of = tokens_of
        self._oldest = oldest
        self._known: dict[int, frozenset[str]] = {own_pid: frozenset({_BELOW_US})}

    def of(self, pid: int) -> frozenset[str]:
        """Tokens of the runs that the process belongs to, and `_BELOW_US` for descendants."""
        chain = []
        while pid not in self._known:
            process = self._table.get(pid)
            # Loops cannot be, but the table was not taken at one instant.
            if process is None or pid in chain:
                break
            chain.append(pid)
            pid = process.ppid
        owners = self._known.get(pid, frozenset())
        for below in reversed(chain):
            owners |= self._named(self._table[below])
            self._known[below] = owners
        return owners

    def _named(self, process: Process) -> frozenset[str]:
        numbers = {process.pid, process.session, process.pgid} & self._by_leader.keys()
        named = frozenset(self._by_leader[number] for number in numbers)
        if process.start_ticks >= self._oldest and process.alive:
            named |= self._live.intersection(self._tokens_of(process.pid))
        return named


@dataclass(slots=True)
class _Ending:
    marks: Marks
    over: asyncio.Future[None]
    clean_scans: int = 0
    warned_s: float = field(default_factory=mono_s)


class Scanner:
    """Kills what is left of runs and proves them gone; one scan serves all runs that are ending."""

    def __init__(self, own_pid: int) -> None:
        self._own_pid = own_pid
        self._live: dict[str, Marks] = {}
        self._ending: dict[str, _Ending] = {}
        self._scanning: asyncio.Task[None] | None = None

    def add(self, marks: Marks) -> None:
        """A leader was forked."""
        self._live[marks.token] = marks

    def discard(self, marks: Marks) -> None:
        """The leader is about to be reaped: its numbers may be given away."""
        self._live.pop(marks.token, None)

    async def prove_gone(self, marks: Marks) -> None:
        """Returns when two scans in a row found nothing of the run; kills what they find."""
        ending = _Ending(marks, asyncio.get_running_loop().create_future())
        self._ending[marks.token] = ending
        if self._scanning is None or self._scanning.done():
            self._scanning = watched(asyncio.create_task(self._scan_until_idle()))
        await ending.over

    async def _scan_until_idle(self) -> None:
        pause_s = SCAN_PAUSE_FIRST_S
        while self._ending:
            clean = self._scan()
            pause_s = SCAN_PAUSE_FIRST_S if clean else min(pause_s * 2, SCAN_PAUSE_MAX_S)
            if self._ending:
                await asyncio.sleep(pause_s)

    def _scan(self) -> bool:
        """One look at all processes; true when nothing of any ending run was found."""
        ending = [entry.marks for entry in self._ending.values()]
        try:
            table = processes.table()
            left = survivors(table, ending, self._live.values(), self._own_pid, processes.tokens)
        except OSError as error:
            _log.warning("scan_failed", error=error.strerror)
            left = {marks.token: [] for marks in ending}
            for entry in self._ending.values():
                entry.clean_scans = -1
        for token, found in left.items():
            self._judge(self._ending[token], found)
        return not any(left.values())

    def _judge(self, entry: _Ending, found: list[Process]) -> None:
        for process in found:
            processes.kill(process)
        entry.clean_scans = 0 if found else entry.clean_scans + 1
        if entry.clean_scans >= CLEAN_SCANS:
            del self._ending[entry.marks.token]
            entry.over.set_result(None)
        elif found and mono_s() - entry.warned_s > STUCK_WARNING_EVERY_S:
            entry.warned_s = mono_s()
            _log.warning("run_not_gone", leader=entry.marks.leader, pids=[p.pid for p in found])
