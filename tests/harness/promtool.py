"""`promtool`: from PATH, or unpacked from Debian's package beside the environment.

The package brings a server that would start on this machine, so it is never installed: only the
one program is taken out of it. The sources of packages are those that the machine has.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FETCH_TIMEOUT_S = 300
_APT = ("apt-get", "-q", "-y", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=300")


def find() -> Path:
    """The program. AssertionError says what to install when there is none."""
    known = shutil.which("promtool")
    if known is not None:
        return Path(known)
    environment = os.environ.get("CORRAL_VENV") or str(ROOT / ".venv")
    program = Path(f"{environment}-tools") / "promtool"
    if not program.exists():
        _unpack(program)
    return program


def _unpack(program: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="promtool-") as name:
        folder = Path(name)
        if not _download(folder) and os.geteuid() == 0:
            _run([*_APT, "update"], folder)  # the lists may be old, or none may be there
            _download(folder)
        packages = list(folder.glob("prometheus_*.deb"))
        if not packages:
            raise AssertionError("promtool is missing: install it, or Debian's package prometheus")
        _run(["dpkg-deb", "-x", str(packages[0]), "x"], folder)
        program.parent.mkdir(exist_ok=True)
        # Another run may do the same: each renames a whole file.
        copy = program.with_name(f"promtool.{os.getpid()}")
        shutil.copy(folder / "x" / "usr" / "bin" / "promtool", copy)
        copy.replace(program)


def _download(folder: Path) -> bool:
    return _run([*_APT, "download", "prometheus"], folder).returncode == 0


def _run(argv: list[str], folder: Path) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            argv, cwd=folder, capture_output=True, timeout=FETCH_TIMEOUT_S, check=False
        )
    except FileNotFoundError:
        return subprocess.CompletedProcess(argv, 127)
