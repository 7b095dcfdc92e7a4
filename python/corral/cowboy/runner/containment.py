"""What holds a run together: a cgroup of its own, or session, group, token and ancestry.

A kill may come at any time and any number of times. `Containment.prove_gone` is asked after the
leader has ended; the leader is reaped only after it returned.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from corral.core import logs
from corral.cowboy.runner import cgroup as cgroups
from corral.cowboy.runner import processes
from corral.cowboy.runner.processes import Process
from corral.cowboy.runner.proof import CLEAN_SCANS, SCAN_PAUSE_FIRST_S, Marks, Scanner
from corral.cowboy.runner.recovery import end_cgroup

_log = logs.get("cowboy.runner")


class Containment(Protocol):
    """Of one run, from the fork of its leader until that is reaped."""

    @property
    def group(self) -> str:
        """As in the protocol: ``pgid:<number>`` or ``cgroup:<path>``."""

    def kill(self) -> None:
        """SIGKILLs the leader and all that can be reached at once."""

    async def prove_gone(self) -> None:
        """Returns when nothing of the run lives any more, and kills until then."""

    def release(self) -> None:
        """The leader is about to be reaped."""


class GroupContainment:
    def __init__(self, leader: int, start_ticks: int, token: str, scanner: Scanner) -> None:
        self._marks = Marks(token, leader, start_ticks)
        self._scanner = scanner
        scanner.add(self._marks)

    @property
    def group(self) -> str:
        return f"pgid:{self._marks.leader}"

    def kill(self) -> None:
        kill_leader(self._marks.leader)
        kill_group(self._marks.leader)

    async def prove_gone(self) -> None:
        await self._scanner.prove_gone(self._marks)

    def release(self) -> None:
        self._scanner.discard(self._marks)


class Strays:
    """Finds processes that moved themselves out of their run's cgroup, which their uid may do.

    When their run's cgroup has ended, the topmost of them is a child of the runner, which adopts
    orphans. A child that is no leader and in no run's cgroup is such a stray.
    """

    def __init__(self) -> None:
        self._cgroups: dict[int, str] = {}  # by leader: a fork may not have joined its own yet

    def add(self, leader: int, cgroup: str) -> None:
        self._cgroups[leader] = cgroup

    def discard(self, leader: int) -> None:
        del self._cgroups[leader]

    async def end(self) -> None:
        """Kills strays; returns when two looks in a row found none."""
        clean_looks = 0
        while True:
            found = self._find()
            for process in found:
                processes.kill(process)
            clean_looks = 0 if found else clean_looks + 1
            if clean_looks >= CLEAN_SCANS:
                return
            await asyncio.sleep(SCAN_PAUSE_FIRST_S)

    def _find(self) -> list[Process]:
        others = (pid for pid in processes.children() if pid not in self._cgroups)
        found = (processes.read(pid) for pid in others)
        return [
            process
            for process in found
            if process is not None and process.alive and not self._in_a_run(process.pid)
        ]

    def _in_a_run(self, pid: int) -> bool:
        return not cgroups.names_of(pid).isdisjoint(self._cgroups.values())


class CgroupContainment:
    def __init__(self, leader: int, path: Path, strays: Strays) -> None:
        self._leader = leader
        self._path = path
        self._strays = strays
        strays.add(leader, path.name)

    @property
    def group(self) -> str:
        return f"cgroup:{self._path}"

    def kill(self) -> None:
        # The leader may not have joined yet; it does so before it reads the barrier.
        kill_leader(self._leader)
        cgroups.kill(self._path)

    async def prove_gone(self) -> None:
        await end_cgroup(self._path)
        await self._strays.end()

    def release(self) -> None:
        self._strays.discard(self._leader)


def kill_leader(leader: int) -> None:
    """The leader is not reaped, so its pid is certainly its own."""
    with _refusals_logged(leader):
        os.kill(leader, signal.SIGKILL)


def kill_group(leader: int) -> None:
    """All of the leader's process group in one instant; nobody can fork out of that."""
    # ESRCH: the leader was killed before it called setsid.
    with _refusals_logged(leader), contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@contextlib.contextmanager
def _refusals_logged(leader: int) -> Iterator[None]:
    try:
        yield
    except PermissionError:
        # A program with another uid (setuid). The run is over when it ends by itself.
        _log.warning("kill_refused", leader=leader)
