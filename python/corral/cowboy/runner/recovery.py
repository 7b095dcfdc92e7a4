"""Ends what an earlier runner process left behind, before this one listens.

Here a leader may be long reaped and its number given to a stranger, so numbers count only while
something proves that they are still the run's: the leader itself, or a member with the token.
"""

import asyncio
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.clock import mono_s
from corral.core.crashpoints import crashpoint, register
from corral.cowboy.runner import cgroup as cgroups
from corral.cowboy.runner import processes
from corral.cowboy.runner.cgroup import CgroupRoot
from corral.cowboy.runner.processes import Process
from corral.cowboy.runner.proof import CLEAN_SCANS, STUCK_WARNING_EVERY_S, TokensOf
from corral.cowboy.runner.store import RecordPhase, RecordStore, RunRecord

RECOVER_BEFORE = register("runner.recover.before", "records are read, nothing is killed yet")
RECOVER_KILLED = register("runner.recover.killed", "old runs are gone, their records are not")

# How long a process may be without a visible environment before it counts as one without any.
EXEC_MAX_S = 0.1

_log = logs.get("cowboy.runner")


async def recover(store: RecordStore, boot: str, cgroup_root: CgroupRoot | None) -> dict[str, int]:
    """Proves that every recorded run is over; gives turn and attempt of those that never went.

    Raises `StorageError` for a record that cannot be read. Returns only when all is gone.
    """
    records = store.load()
    crashpoint(RECOVER_BEFORE)
    of_this_boot = [record for record in records if record.boot == boot]
    groups = {Path(record.cgroup) for record in of_this_boot if record.cgroup is not None}
    if cgroup_root is not None:
        cgroup_root.sweep()
        groups.update(cgroup_root.existing())
    await _until_gone([record for record in of_this_boot if record.pid], groups)
    crashpoint(RECOVER_KILLED)
    for record in records:
        _log.info("run_ended_by_restart", turn_id=record.turn, phase=record.phase.value)
        store.remove(record)
    prepared = [record for record in of_this_boot if record.phase is RecordPhase.PREPARED]
    return {record.turn: record.attempt for record in prepared}


async def _until_gone(records: Collection[RunRecord], groups: Collection[Path]) -> None:
    pauses = Backoff(initial_s=0.001, max_s=0.1, jitter=0.0)
    veiled = _Veiled()
    clean_scans = 0
    warned_s = mono_s()
    while records and clean_scans < CLEAN_SCANS:
        table = processes.table()
        left = leftovers(table, records, os.getpid(), processes.tokens)
        for process in left:
            processes.kill(process)
        sure = veiled.none_new(table, min(record.start_ticks for record in records))
        clean_scans = clean_scans + 1 if sure and not left else 0
        if left and mono_s() - warned_s > STUCK_WARNING_EVERY_S:
            warned_s = mono_s()
            _log.warning("old_run_not_gone", pids=[process.pid for process in left])
        await asyncio.sleep(pauses.next_s())
    for group in sorted(groups):
        await end_cgroup(group)


class _Veiled:
    """Young processes without a visible environment: inside execve, or started without one."""

    def __init__(self) -> None:
        self._since_s: dict[tuple[int, int], float] = {}

    def none_new(self, table: Mapping[int, Process], oldest_ticks: int) -> bool:
        """Whether all there are have been so for longer than an execve takes."""
        now_s = mono_s()
        self._since_s = {
            key: self._since_s.get(key, now_s)
            for process in table.values()
            if process.start_ticks >= oldest_ticks and processes.in_exec(process)
            for key in [(process.pid, process.start_ticks)]
        }
        return all(now_s - since_s >= EXEC_MAX_S for since_s in self._since_s.values())


async def end_cgroup(path: Path) -> None:
    """Kills the cgroup, returns when nothing lives in it, and removes it."""
    pauses = Backoff(initial_s=0.0005, max_s=0.1, jitter=0.0)
    warned_s = mono_s()
    while True:
        cgroups.kill(path)
        if not cgroups.populated(path) and cgroups.removed(path):
            return
        if mono_s() - warned_s > STUCK_WARNING_EVERY_S:
            warned_s = mono_s()
            _log.warning("cgroup_not_gone", cgroup=str(path))
        await asyncio.sleep(pauses.next_s())


def leftovers(
    table: Mapping[int, Process],
    records: Collection[RunRecord],
    own_pid: int,
    tokens_of: TokensOf,
) -> list[Process]:
    """The living processes of the recorded runs, their descendants included.

    A process that has a run's number is taken only when that number is still the run's.
    """
    oldest = min((record.start_ticks for record in records), default=0)
    young = [process for process in table.values() if process.start_ticks >= oldest]
    tokens = {process.pid: tokens_of(process.pid) for process in young if process.alive}
    taken: set[int] = set()
    for record in records:
        taken |= _named(young, record, tokens)
    children: dict[int, list[int]] = {}
    for process in young:
        children.setdefault(process.ppid, []).append(process.pid)
    below = list(taken)
    while below:
        new = set(children.get(below.pop(), ())) - taken
        taken |= new
        below.extend(new)
    return [table[pid] for pid in sorted(taken) if table[pid].alive and pid != own_pid]


def _named(
    young: Collection[Process], record: RunRecord, tokens: Mapping[int, Collection[str]]
) -> set[int]:
    marked = {process.pid for process in young if record.token in tokens.get(process.pid, ())}
    leader = {
        process.pid
        for process in young
        if process.pid == record.pid and process.start_ticks == record.start_ticks
    }
    group = {process.pid for process in young if record.pid in {process.session, process.pgid}}
    return marked | leader | (group if leader or group & marked else set())
