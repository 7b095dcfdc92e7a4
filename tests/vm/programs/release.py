"""Another release of Corral on this machine: the installed one, with more migrations.

A migration says in its first line how many migrations a release must know of to run on the schema
that it makes; that of the last one here may exclude the installed release. The units of all
services run it until `installed` takes it away again.
"""

import re
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import corral

PACKAGE = Path(corral.__file__).parent
FOLDER = Path("/run/corral-vm/release")
UNITS = Path("/run/systemd/system")
CONFIGURED = Path("/etc/systemd/system")
OURS = ("a2a-*.service", "cowboy-*.service")
DROP_IN = "release.conf"
# Programs of units, and the package of each; one of its tables gets a column.
PROGRAMS = {
    "a2a-bridge": ("bridge", "bridge_delegations"),
    "corral-gateway": ("gateway", "tasks"),
    "cowboy": ("cowboy", "turns"),
}
MIGRATION = """-- oldest: {oldest}
-- Of a release that does not exist; every row that is written from now on has it.
ALTER TABLE {table} ADD COLUMN of_{number} text DEFAULT 'written by a later release';
"""
UNIT = """[Service]
Environment=PYTHONPATH={folder}
ExecStart=
ExecStart={python} -P -m corral.{package}.main {arguments}
"""


def known(package: str) -> int:
    """How many migrations the installed release has."""
    folder = resources.files(f"corral.{package}").joinpath("sql/migrations")
    return sum(1 for file in folder.iterdir() if file.name.endswith(".sql"))


def later(more: int, *, usable: bool) -> int:
    """Installs a release with `more` migrations; `usable`: the installed one can run on it."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(PACKAGE, FOLDER / "corral")
    for package, table in PROGRAMS.values():
        _migrate(package, table, more, usable=usable)
    for unit, (program, arguments) in commands().items():
        folder = UNITS / f"{unit}.d"
        folder.mkdir(parents=True, exist_ok=True)
        package, _ = PROGRAMS[program]
        text = UNIT.format(
            folder=FOLDER, python=sys.executable, package=package, arguments=arguments
        )
        (folder / DROP_IN).write_text(text, encoding="utf-8")
    return _reload()


def installed() -> int:
    """Back to the release that is installed: its units are as the host has them."""
    for file in UNITS.glob(f"*.service.d/{DROP_IN}"):
        file.unlink()
    return _reload()


def commands() -> dict[str, tuple[str, str]]:
    """By unit: its program and what that is told, of all services that are Corral's."""
    # A pattern would be one of the units in memory: not of those that have been stopped.
    units = [file.name for pattern in OURS for file in CONFIGURED.glob(pattern)]
    shown = subprocess.run(
        ["systemctl", "show", "--property=Id,ExecStart", *sorted(units)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return read(shown)


def read(shown: str) -> dict[str, tuple[str, str]]:
    """The same from what `systemctl show` prints. Pure."""
    found = {}
    for block in shown.strip().split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines())
        argv = re.search(
            r"argv\[\]=(\S*/)?(?P<program>\S+) (?P<rest>[^;]*) ;", fields.get("ExecStart", "")
        )
        if argv and argv["program"] in PROGRAMS:
            found[fields["Id"]] = (argv["program"], argv["rest"])
    return found


def _migrate(package: str, table: str, more: int, *, usable: bool) -> None:
    first = known(package)
    for number in range(first + 1, first + more + 1):
        oldest = first if usable or number < first + more else number
        file = FOLDER / f"corral/{package}/sql/migrations/{number:04d}_later.sql"
        text = MIGRATION.format(oldest=oldest, number=number, table=table)
        file.write_text(text, encoding="utf-8")


def _reload() -> int:
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    return 0
