"""Runs a scenario of this package in a process of its own, which may be killed or starved."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Ended:
    """How a scenario ended: `status` is negative for a signal, `said` its JSON lines."""

    status: int
    said: list[Any]
    stderr: str

    def only(self) -> Any:
        """What a scenario that ended well said in its one line."""
        assert self.status == 0, self.stderr
        assert len(self.said) == 1, self.said
        return self.said[0]


def _command(scenario: str, arguments: Sequence[object]) -> list[str]:
    module = f"tests.unit.core.{scenario}"
    return [sys.executable, "-W", "error", "-m", module, *map(str, arguments)]


def _environ(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    path = os.pathsep.join([str(REPOSITORY / "python"), str(REPOSITORY)])
    return {**os.environ, "PYTHONPATH": path, **(extra or {})}


def run(
    scenario: str,
    *arguments: object,
    within: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Ended:
    """Run `tests.unit.core.<scenario>` with arguments; `within` is a command put before it."""
    done = subprocess.run(
        [*within, *_command(scenario, arguments)],
        env=_environ(environ),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(done.returncode, [json.loads(x) for x in done.stdout.splitlines()], done.stderr)


@contextlib.contextmanager
def start(scenario: str, *arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """Start a scenario whose standard output the test reads; killed at the end if need be."""
    command = _command(scenario, arguments)
    with subprocess.Popen(command, env=_environ(), stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def say(value: object) -> None:
    """In the scenario: tell the test something."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
