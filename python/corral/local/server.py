"""The life of a real server that a deployment or a test starts: one process, private files."""

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from corral.core.errors import UnavailableError


class ServerProcess:
    """What every server has: subclasses bring `start`, which ends in `_spawn` and a wait.

    Data survive `kill` and `stop`; `start` continues with them.
    """

    what: ClassVar[str] = "server"
    end_signal: ClassVar[signal.Signals] = signal.SIGTERM
    stop_timeout_s: ClassVar[float] = 20.0

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the server with the data it has and waits until it answers."""
        raise NotImplementedError

    def _spawn(self, argv: list[str], log_file: Path, env: Mapping[str, str] | None = None) -> None:
        """Starts the process; `argv` is tethered, so it ends with the thread that is in here."""
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                cwd=self.directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _must_run(self, hint: str) -> None:
        """UnavailableError when the server that is waited for has ended."""
        if not self.running:
            raise UnavailableError(
                f"the {self.what} in {self.directory} ended at its start", hint=hint
            )

    @property
    def pid(self) -> int:
        """The process id of the running server; UnavailableError when it is not running."""
        if self._process is None or self._process.poll() is not None:
            raise UnavailableError(f"the {self.what} in {self.directory} is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout_s: float | None = None) -> None:
        """Ends the server in good order; kills it when it does not end in time."""
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(signal.SIGCONT)  # a paused one could not end
            self._process.send_signal(self.end_signal)
        try:
            self._process.wait(self.stop_timeout_s if timeout_s is None else timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL, and waits until the process is gone."""
        os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
