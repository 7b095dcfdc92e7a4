"""A process that a stand starts, kills and looks at."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from corral.core.errors import UnavailableError
from corral.local.tether import tethered
from tests.bench.stand import Usage, usage

END_S = 60.0
LAST_WORDS_BYTES = 600


class Process:
    """Whoever uses it starts it. What it says goes to the file `log`."""

    def __init__(self, argv: list[str], environ: Mapping[str, str], log: Path) -> None:
        self._argv = argv
        self._environ = dict(environ)
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise UnavailableError("the server of the stand is not running")
        return self._process.pid

    def start(self) -> None:
        """Do not wait for it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                tethered(self._argv), env=self._environ, stdout=log, stderr=log
            )

    def must_run(self) -> None:
        """`UnavailableError` with its last words when it has ended."""
        if self._process is not None and self._process.poll() is not None:
            said = self._log.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
            raise UnavailableError(f"{self._argv[-2:]} ended; its last words: {said}")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(END_S)

    def usage(self) -> Usage:
        return usage(self.pid)
