"""Another release of the bridge on this machine: the installed one, with more migrations.

The first line of a migration says how many migrations a release must know of to run on the schema
that it makes; that of the last one here may exclude the installed release. The bridge's unit runs
it until `installed` takes it away again.
"""

import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import corral

PACKAGE = Path(corral.__file__).parent
FOLDER = Path("/run/corral-vm/release")
DROP_IN = Path("/run/systemd/system/a2a-bridge.service.d/release.conf")
MIGRATION = """-- oldest: {oldest}
-- Of a release that does not exist; every row that is written from now on has it.
ALTER TABLE bridge_delegations ADD COLUMN of_{number} text DEFAULT 'written by a later release';
"""
UNIT = """[Service]
Environment=PYTHONPATH={folder}
ExecStart=
ExecStart={python} -P -m corral.bridge.main run
"""


def known() -> int:
    """How many migrations the installed release has."""
    folder = resources.files("corral.bridge").joinpath("sql/migrations")
    return sum(1 for file in folder.iterdir() if file.name.endswith(".sql"))


def later(more: int, *, usable: bool) -> int:
    """Installs a release with `more` migrations; `usable`: the installed one can run on it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(PACKAGE, FOLDER / "corral")
    for number in range(known() + 1, known() + more + 1):
        oldest = known() if usable or number < known() + more else number
        file = FOLDER / "corral/bridge/sql/migrations" / f"{number:04d}_later.sql"
        file.write_text(MIGRATION.format(oldest=oldest, number=number), encoding="utf-8")
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    DROP_IN.write_text(UNIT.format(folder=FOLDER, python=sys.executable), encoding="utf-8")
    return _reload()


def installed() -> int:
    """Back to the release that is installed: its unit is as the host has it."""
    DROP_IN.unlink(missing_ok=True)
    return _reload()


def _reload() -> int:
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    return 0
