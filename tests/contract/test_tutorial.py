"""The tutorial's commands, run as they stand in the page."""

import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from corral.local.servers import find_servers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/tutorial/first-agent.md"
ENTRY = """#!/bin/sh
# Stands for the entry script, with the interpreter that runs this test.
shift
PYTHONPATH={python} exec {interpreter} -m corral.cowboy.main "$@"
"""


def script() -> str:
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6, "the page has lost its commands"
    return "set -eu\n" + "\n".join(blocks)


def stop_what_was_started(work: Path) -> None:
    for name in ("daemon.pid", "runner.pid", "redis.pid"):
        with suppress(OSError, ValueError):
            os.kill(int((work / name).read_text()), signal.SIGKILL)


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    if shutil.which("redis-cli") is None:
        pytest.fail("redis-cli is missing: apt-get install redis-tools")
    work = tmp_path / "w"
    commands = tmp_path / "bin"
    work.mkdir()
    commands.mkdir()
    (commands / "redis-server").symlink_to(find_servers()["redis"])
    entry = commands / "corral"
    entry.write_text(ENTRY.format(python=ROOT / "python", interpreter=sys.executable))
    entry.chmod(0o700)
    environment = {
        "PATH": f"{commands}:{os.environ['PATH']}",
        "HOME": str(work),
        "CORRAL": str(entry),
    }
    try:
        done = subprocess.run(
            ["/bin/bash", "-c", script()],
            cwd=work,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        stop_what_was_started(work)
    assert done.returncode == 0, done.stderr + done.stdout
    assert "You said: is anybody there?" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1] == "2"  # the duplicate started nothing
