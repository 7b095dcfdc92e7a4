"""Runs a scenario of this package in a process of its own, which may be killed or starved."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
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


def run(
    scenario: str,
    *arguments: object,
    within: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Ended:
    """Run `tests.unit.core.<scenario>` with arguments; `within` is a command put before it."""
    path = os.pathsep.join([str(REPOSITORY / "python"), str(REPOSITORY)])
    command = [sys.executable, "-W", "error", "-m", f"tests.unit.core.{scenario}"]
    done = subprocess.run(
        [*within, *command, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    return Ended(done.returncode, [json.loads(x) for x in done.stdout.splitlines()], done.stderr)


def say(value: object) -> None:
    """In the scenario: tell the test something."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
