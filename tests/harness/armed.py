"""Runs a program of ours with armed crash points: `python -m tests.harness.armed … -- run A`.

    python -m tests.harness.armed [options] [POINT:N[=VICTIM[+VICTIM]]]… -- run scout

The program is cowboy, or the `--program` that is named: `bridge`, `gateway`.

At the n-th pass of POINT the victims are killed with SIGKILL: `self` (the default), or another
process of the deployment by the name of its pid file (`daemon`, `runner`, `redis`). A victim is
gone before the armed process takes its next step. `--hits FILE` gets one line for the first pass
of each point, and one for each kill, written before the kill. With `--orders FILE` it can be armed
while it runs: on SIGUSR2 it reads points from there, counted from then on, and removes the file.

Nothing of this can be reached from the packaged services: they read no such argument.
"""

import argparse
import asyncio
import faulthandler
import importlib
import os
import pkgutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from corral.core import crashpoints

if TYPE_CHECKING:
    from blockbuster import BlockBuster

SELF = "self"
GONE_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Arm:
    """One armed point."""

    point: str
    nth: int = 1
    victims: tuple[str, ...] = (SELF,)

    @classmethod
    def parse(cls, text: str) -> "Arm":
        """From `POINT:N[=VICTIM[+VICTIM]]`. ValueError when it is not of that form."""
        where, _, victims = text.partition("=")
        point, _, nth = where.partition(":")
        arm = cls(point, int(nth or 1), tuple(victims.split("+")) if victims else (SELF,))
        if arm.nth < 1 or not point:
            raise ValueError(f"{text!r} is not POINT:N=VICTIM")
        return arm

    def __str__(self) -> str:
        return f"{self.point}:{self.nth}={'+'.join(self.victims)}"


def known_points(program: str = "cowboy") -> dict[str, str]:
    """The crash points of a program with their texts, after importing all modules that have any."""
    for package in ("corral.core", f"corral.{program}"):
        module = importlib.import_module(package)
        for info in pkgutil.walk_packages(module.__path__, prefix=f"{package}."):
            importlib.import_module(info.name)
    own = ("cowboy.", "runner.") if program == "cowboy" else (f"{program}.",)
    return {
        name: text
        for name, text in crashpoints.registered().items()
        if name.startswith(("core.", *own))
    }


class Trap:
    """The observer of an armed process."""

    def __init__(self, arms: Sequence[Arm], hits: Path | None, pids: Path | None) -> None:
        self.arms = list(arms)
        self.pids = pids
        self.counts: dict[str, int] = {}
        self.detector: BlockBuster | None = None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._hits = os.open(hits, flags, 0o600) if hits is not None else -1

    def set(self) -> None:
        for arm in self.arms:
            if arm.victims == (SELF,):
                crashpoints.arm(arm.point, arm.nth)
        crashpoints.set_observer(self.passed)

    def obey(self, orders: Path) -> None:
        """Arms what the file says, counted from now; the file is gone when that is done."""
        for text in orders.read_text(encoding="utf-8").split():
            arm = Arm.parse(text)
            arm = replace(arm, nth=arm.nth + self.counts.get(arm.point, 0))
            self.arms.append(arm)
            if arm.victims == (SELF,):
                crashpoints.arm(arm.point, arm.nth)
        orders.unlink()

    def passed(self, name: str) -> None:
        """Called at every pass, in the thread that passes."""
        # What follows is the harness's own, and may block. Only the event loop is watched: if the
        # ledger's thread did this too, it would end the pause of the other.
        watched = self.detector if _in_event_loop() else None
        if watched is not None:
            watched.deactivate()
        try:
            self._note(name)
        finally:
            if watched is not None:
                watched.activate()

    def _note(self, name: str) -> None:
        count = self.counts[name] = self.counts.get(name, 0) + 1
        if count == 1:
            self._write("pass", name, "")
        for arm in self.arms:
            if (arm.point, arm.nth) == (name, count):
                self._write("kill", name, "+".join(arm.victims))
                self._strike(arm)

    def _strike(self, arm: Arm) -> None:
        others = [victim for victim in arm.victims if victim != SELF]
        for victim in others:
            self._kill(victim)
        if others and SELF in arm.victims:
            os.kill(os.getpid(), signal.SIGKILL)

    def _kill(self, victim: str) -> None:
        if self.pids is None:
            raise ValueError("a victim needs --pids")
        pid = int((self.pids / victim).read_text(encoding="ascii"))
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while alive(pid) and time.monotonic() < deadline:
            os.sched_yield()

    def _write(self, what: str, name: str, victims: str) -> None:
        if self._hits >= 0:
            os.write(self._hits, f"{what}\t{name}\t{victims}\n".encode())


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def alive(pid: int) -> bool:
    """Whether a process still executes (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def read_hits(folder: Path) -> tuple[set[str], list[tuple[str, str]]]:
    """Points passed, and (point, victims) of each kill, from all files in a folder."""
    passed: set[str] = set()
    kills: list[tuple[str, str]] = []
    for file in sorted(folder.glob("*.hits")):
        for line in file.read_text(encoding="utf-8").splitlines():
            what, name, victims = line.split("\t")
            passed.add(name)
            if what == "kill":
                kills.append((name, victims))
    return passed, kills


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    own, rest = list(argv), []
    if "--" in own:
        at = own.index("--")
        own, rest = own[:at], own[at + 1 :]
    parser = argparse.ArgumentParser(prog="python -m tests.harness.armed")
    parser.add_argument("arms", nargs="*", type=Arm.parse, metavar="POINT:N[=VICTIMS]")
    parser.add_argument("--hits", type=Path)
    parser.add_argument("--pids", type=Path)
    parser.add_argument("--orders", type=Path)
    parser.add_argument("--program", default="cowboy", choices=["cowboy", "bridge", "gateway"])
    parser.add_argument("--plant", action="append", default=[])
    parser.add_argument("--blockbuster", action="store_true")
    return parser.parse_args(own), rest


def tell_where(number: int, frame: FrameType | None) -> None:
    """SIGUSR1: where the event loop's tasks are, for a process that does not end."""
    del number, frame
    faulthandler.dump_traceback(all_threads=True)
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return
    for task in tasks:
        task.print_stack(file=sys.stderr)
    sys.stderr.flush()


def main(argv: Sequence[str], cli: Callable[[], object] | None = None) -> None:
    options, rest = parse(argv)
    trap = Trap(options.arms, options.hits, options.pids)
    trap.set()
    signal.signal(signal.SIGUSR1, tell_where)
    if options.orders is not None:
        signal.signal(signal.SIGUSR2, lambda *_: trap.obey(options.orders))
    if cli is None:
        cli = importlib.import_module(f"corral.{options.program}.main").cli
    if options.plant:
        from tests.harness import plants

        for name in options.plant:
            plants.plant(name)
    if options.blockbuster:
        from blockbuster import BlockBuster

        trap.detector = BlockBuster("corral", excluded_modules=["corral.local"])
        trap.detector.activate()
    sys.argv = [options.program, *rest]
    cli()


if __name__ == "__main__":
    main(sys.argv[1:])
