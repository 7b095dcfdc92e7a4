"""A program with crash points, as a process that is started, killed, and started again."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from corral.local.tether import tethered
from corral.local.wait import until_true
from tests.harness.armed import read_hits

PATIENCE_S = 120.0


class ArmedProcess:
    """`module` takes what `tests.harness.armed` does. In `folder`: a log for all its lives, and a
    file for each with the points that it passed."""

    def __init__(
        self,
        folder: Path,
        name: str,
        module: str,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.name = name
        self.module = module
        self.arguments = tuple(arguments)
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(sys.path),
            **(environ or {}),
        }
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arms: str) -> None:
        """`arms`: `POINT:N`, see `tests.harness.armed`."""
        self.starts += 1
        hits = self.folder / "hits"
        hits.mkdir(exist_ok=True)
        argv = self.words(hits / f"{self.name}{self.starts}.hits", arms)
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                tethered(argv), env=self.environ, stdout=log, stderr=log
            )

    def words(self, hits: Path, arms: Sequence[str]) -> list[str]:
        """The command line of a life."""
        python = [sys.executable, "-W", "error", "-P", "-m", self.module]
        return [*python, "--hits", str(hits), *arms, "--", *self.arguments]

    def ended(self) -> int | None:
        """The status of a process that has ended by itself."""
        return None if self.process is None else self.process.poll()

    async def died(self) -> None:
        """It killed itself at its point."""
        process = self.process
        assert process is not None
        await until_true(lambda: process.poll() is not None, PATIENCE_S, "the kill")
        assert process.returncode == -signal.SIGKILL, self.log()

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text()

    def kills(self) -> list[str]:
        return [point for point, _ in read_hits(self.folder / "hits")[1]]
