"""PostgreSQL's programs where the user who runs them cannot reach them: they are copied."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from corral.local.postgres import Binaries, PostgresServer, find_postgres
from tests.harness.postgres import FAST

WHEEL = 18


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_the_wheels_programs_run_from_an_environment_that_only_root_can_enter() -> None:
    installed = find_postgres()[WHEEL].folder.parent
    libraries = installed.parent.with_name(f"{installed.parent.name}.libs")
    with tempfile.TemporaryDirectory(prefix="corral-pg-") as made:
        reachable = Path(made)
        reachable.chmod(0o755)
        private = reachable / "private"
        private.mkdir(mode=0o700)
        package = private / installed.parent.name
        shutil.copytree(installed, package / installed.name)
        shutil.copytree(libraries, private / libraries.name)
        hidden = Binaries(WHEEL, package / installed.name / "bin")
        with PostgresServer(reachable / "pg", hidden, settings=FAST) as server:
            assert server.running
            assert Path(f"/proc/{server.pid}/exe").resolve().is_relative_to(reachable / "pg")
