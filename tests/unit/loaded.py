"""What a program loads: a command that is asked for often must not load what it does not need."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping


def modules_after(program: str, environ: Mapping[str, str] | None = None) -> set[str]:
    """The modules that are loaded when a fresh interpreter has run `program`."""
    done = subprocess.run(
        [sys.executable, "-c", program + "\nimport json, sys\nprint(json.dumps([*sys.modules]))"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **(environ or {})},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))
