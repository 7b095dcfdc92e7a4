"""Faults from outside: SIGKILL, SIGSTOP for a while, and a kill of a process that hangs."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from corral.local import wait
from corral.local.supervisor import Supervisor

What = Literal["kill", "pause", "stall"]


@dataclass(frozen=True)
class Fault:
    """Something done to processes, `at_s` after the workload began.

    `pause` stops them for `for_s` seconds; `stall` stops them and kills them after `for_s`, so that
    what was sent to them meanwhile is never answered.
    """

    at_s: float
    what: What
    processes: tuple[str, ...]
    for_s: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.for_s:.2f} s" if self.for_s else ""
        return f"{self.at_s:.2f} s: {self.what} {'+'.join(self.processes)}{lasting}"


async def inflict(supervisor: Supervisor, fault: Fault, start_s: float) -> None:
    """Waits for the fault's time, then does it."""
    await wait.at(start_s + fault.at_s)
    if fault.what == "kill":
        _each(supervisor.kill, fault.processes)
        return
    stopped = _each(supervisor.pause, fault.processes)
    await wait.at(time.monotonic() + fault.for_s)
    for name in stopped:
        if not supervisor.services[name].paused:
            continue  # it was killed by something else meanwhile
        if fault.what == "stall":
            supervisor.kill(name, "stalled")
        else:
            supervisor.resume(name)


def _each(act: Callable[[str], bool], names: Iterable[str]) -> list[str]:
    return [name for name in names if act(name)]


def resume_all(supervisor: Supervisor) -> None:
    """No process stays stopped."""
    for name, service in supervisor.services.items():
        if service.paused and service.running:
            supervisor.resume(name)
