"""What the test machine is made from: this machine's Debian release and package sources.

No address is written down anywhere: apt is asked for those that the machine has configured.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from corral.core.errors import CorralError

TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "busybox": "busybox-static",
    "lz4": "lz4",
    "zstd": "zstd",
    "/usr/bin/python3": "python3",
}
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")


class VmError(CorralError):
    """A test machine cannot be made or run here; the message says what is missing."""

    code = "vm_unavailable"
    exit_code = 69


@dataclass(frozen=True)
class Release:
    """A Debian release and where its packages come from, as lines of a sources.list."""

    name: str
    sources: tuple[str, ...]


def require_tools() -> None:
    """VmError names the packages that are missing."""
    missing = sorted(package for tool, package in TOOLS.items() if program(tool) is None)
    if missing:
        raise VmError(
            f"missing for test machines: {', '.join(missing)}",
            hint=f"install as root: apt-get install --no-install-recommends {' '.join(missing)}",
        )


def program(name: str) -> str | None:
    """The path of a program; a user's PATH may lack the folders for system programs."""
    found = shutil.which(name)
    return found or shutil.which(name, path=":".join(SBIN))


def release() -> Release:
    """This machine's. VmError when it is not Debian or has no package lists."""
    fields = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text(encoding="utf-8").splitlines()
        if "=" in line
    )
    name = fields.get("VERSION_CODENAME", "").strip('"')
    if fields.get("ID", "").strip('"') != "debian" or not name:
        raise VmError(
            "the image of the test machine is made from Debian's packages, on Debian",
            hint="on NixOS: nix flake check",
        )
    sources = _sources(name)
    if not sources:
        raise VmError("apt knows no Debian packages", hint="as root: apt-get update")
    return Release(name, sources)


def _sources(name: str) -> tuple[str, ...]:
    """The release itself and its updates; it does not matter whether lists were fetched yet."""
    wanted = {name, f"{name}-updates", f"{name}-security"}
    form = "$(CREATED_BY)\t$(RELEASE)\t$(COMPONENT)\t$(REPO_URI)"
    asked = subprocess.run(
        ["apt-get", "indextargets", "--no-release-info", "--format", form],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in asked.stdout.splitlines()]
    return tuple(
        sorted(
            {
                f"deb {uri} {suite} {component}"
                for created_by, suite, component, uri in rows
                if created_by == "Packages" and suite in wanted and component == "main"
            }
        )
    )
