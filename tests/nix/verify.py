"""Rendered units in the eyes of systemd: `systemd-analyze verify`, and references between them."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.nix.render import Rendered
from tests.nix.render.places import PROXY

MISSING = (
    "systemd-analyze is not on PATH, so nothing can be said about the units; install it with: "
    "apt-get install -y --no-install-recommends systemd"
)
UPSTREAM = Path("/usr/lib/systemd/system")
TIMEOUT_S = 60

_REFERENCE = re.compile(
    r"^(?:After|Before|Wants|Requires|Requisite|BindsTo|PartOf|Upholds|OnFailure|OnSuccess"
    r"|Conflicts|WantedBy)=(.*)$",
    re.MULTILINE,
)
# Units of NixOS or of the kernel's making that Debian's package has no file for.
_ELSEWHERE = frozenset({"nftables.service", "firewall.service", "network-setup.service"})


class AnalyzerMissingError(AssertionError):
    """No systemd: the tests fail, because what was not verified was not tested."""


def analyzer() -> str:
    found = shutil.which("systemd-analyze")
    if found is None or not UPSTREAM.is_dir():
        raise AnalyzerMissingError(MISSING)
    return found


def problems(rendered: Rendered) -> list[str]:
    """What systemd says of the units; nothing when all is well."""
    program = analyzer()
    with tempfile.TemporaryDirectory(prefix="corral-verify-") as name:
        root = Path(name)
        lay_out(rendered, root)
        done = subprocess.run(
            [program, "verify", "--man=no", f"--root={root}", *sorted(rendered.units)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    said = [line.removeprefix(str(root)) for line in done.stderr.splitlines()]
    if done.returncode != 0 and not said:
        said.append(f"exit status {done.returncode}")
    return said


def exposure(rendered: Rendered, unit: str) -> float:
    """What `systemd-analyze security` says of a unit: 0 is nothing, 10 is everything."""
    program = analyzer()
    with tempfile.TemporaryDirectory(prefix="corral-exposure-") as name:
        lay_out(rendered, Path(name))
        done = subprocess.run(
            [program, "security", "--no-pager", "--offline=yes", f"--root={name}", unit],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    level = re.search(rf"Overall exposure level for {re.escape(unit)}: ([0-9.]+)", done.stdout)
    assert level is not None, done.stdout
    return float(level[1])


def lay_out(rendered: Rendered, root: Path) -> None:
    """The machine's files below `root`; programs of Debian as empty executables."""
    units = root / "etc" / "systemd" / "system"
    shutil.copytree(UPSTREAM, root / str(UPSTREAM).lstrip("/"), symlinks=True)
    units.mkdir(parents=True)
    for name, text in rendered.units.items():
        (units / name).write_text(text, encoding="utf-8")
    for path, file in rendered.files.items():
        _write(root, path, file.text, int(file.mode, 8))
    for path, target in rendered.links.items():
        link = root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
        if "/bin/" in target or "/sbin/" in target or target.endswith(PROXY):
            _write(root, target, "#!/bin/false\n", 0o755)


def _write(root: Path, path: str, text: str, mode: int) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    file.chmod(mode)


def dangling(rendered: Rendered) -> list[str]:
    """References to units that exist nowhere: `UNIT: NAME`. systemd ignores most of them."""
    known = {path.name for path in UPSTREAM.iterdir()} | set(rendered.units) | _ELSEWHERE
    return [
        f"{unit}: {name}"
        for unit, text in rendered.units.items()
        for names in _REFERENCE.findall(text)
        for name in names.split()
        if name not in known and not name.startswith(("run-", "dev-", "sys-", "systemd-"))
    ]
