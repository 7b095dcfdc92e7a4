"""`./corral demo` ends when it is asked to, whatever it is doing just then."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corral.local import wait
from corral.local.topology import base_environment

ENDS_WITHIN_S = 30.0


@pytest.mark.parametrize("after_ms", [0, 2, 5, 12, 40])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_when_interrupted_while_its_readers_connect(
    tmp_path: Path, number: signal.Signals, after_ms: int
) -> None:
    # A client that is cancelled while it connects may go on as if it had not been.
    printed = tmp_path / "printed"
    with (
        printed.open("w") as file,
        subprocess.Popen(
            [sys.executable, "-m", "corral.local.demo", "--seed", "6"],
            env=base_environment(),
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=file,
        ) as process,
    ):
        try:
            wait.until(lambda: "while nothing runs" in printed.read_text(), 60, "it to begin")
            moment = time.monotonic() + after_ms / 1000
            wait.until(lambda: time.monotonic() >= moment, 5, "the moment")
            process.send_signal(number)
            assert process.wait(ENDS_WITHIN_S) == 130
        finally:
            process.kill()
