"""Processes side by side: at most so many at a time, begun in their order, shown one at a time.

Tests wait more than they work, so three stages at once end sooner than one after the other, or two.
What the oldest that still runs prints is shown as it comes; what the others print waits in a file.
"""

import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

SIDE_BY_SIDE = 3
LOOK_EVERY_S = 0.2


@dataclass(frozen=True)
class Job:
    """A command. One that works `alone` begins after all before it, and none runs beside it."""

    name: str
    argv: Sequence[str]
    alone: bool = False


@dataclass
class _Running:
    job: Job
    process: "subprocess.Popen[bytes]"
    printed: BinaryIO
    over: int  # a descriptor that is readable when the process has ended

    def show(self) -> None:
        if new := self.printed.read():
            sys.stdout.buffer.write(new)
            sys.stdout.buffer.flush()


@dataclass
class Lanes:
    """Runs jobs; `folder` keeps what they print. Each is a process group of its own."""

    folder: Path
    env: Mapping[str, str]
    side_by_side: int = SIDE_BY_SIDE
    _begun: list[_Running] = field(default_factory=list)

    def run(self, jobs: Sequence[Job]) -> dict[str, int]:
        """The exit status of each job that began, by name; minus the signal that ended it.

        A KeyboardInterrupt is passed on as SIGTERM: no other job begins, and those that run are
        waited for.
        """
        waiting = list(jobs)
        shown = 0
        sys.stdout.flush()
        try:
            while waiting or self._running():
                while waiting and self._has_room(waiting[0]):
                    self._begin(waiting.pop(0))
                shown = self._show(shown)
                select.select([one.over for one in self._running()], [], [], LOOK_EVERY_S)
        except KeyboardInterrupt:
            for one in self._running():
                with suppress(ProcessLookupError):
                    one.process.terminate()
        for one in self._begun:
            one.process.wait()
        self._show(shown)
        for one in self._begun:
            one.printed.close()
            os.close(one.over)
        return {one.job.name: one.process.returncode for one in self._begun}

    def _running(self) -> list[_Running]:
        return [one for one in self._begun if one.process.poll() is None]

    def _has_room(self, job: Job) -> bool:
        running = self._running()
        if job.alone or any(one.job.alone for one in running):
            return not running
        return len(running) < self.side_by_side

    def _begin(self, job: Job) -> None:
        path = self.folder / f"{len(self._begun)}.out"
        with path.open("wb") as out:
            process = subprocess.Popen(
                job.argv,
                env=dict(self.env),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._begun.append(_Running(job, process, path.open("rb"), os.pidfd_open(process.pid)))

    def _show(self, shown: int) -> int:
        """Of those from number `shown` on: the first that runs, and all that ended before it."""
        for one in self._begun[shown:]:
            over = one.process.poll() is not None
            one.show()
            if not over:
                break
            shown += 1
        return shown
