"""`nix flake` on a copy of the checkout, offline, with the stand-in as nixpkgs."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.lint import repository
from tests.nix.nix import MISSING, ROOT, SHIM, NixError, NixMissingError

PARTS = (
    *("flake.nix", "flake.lock", "modules", "services", "examples", "python", "tests"),
    *("README.md", "CHANGELOG.md", "docs", "monitoring"),
)
TIMEOUT_S = 300


def override(nixpkgs: Path) -> tuple[str, ...]:
    return ("--override-input", "nixpkgs", f"path:{nixpkgs}", "--no-write-lock-file")


WITH_SHIM = override(SHIM)

_OPTIONS = (
    "--extra-experimental-features",
    "nix-command flakes",
    "--option",
    "substitute",
    "false",
)


def copy(target: Path) -> None:
    """What the flake is made of: the tracked files, as Nix takes them from a clone."""
    for source in repository.files():
        name = source.relative_to(ROOT)
        if name.parts[0] in PARTS:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)


def run(folder: Path, root: Path, *arguments: str, command: str = "flake") -> str:
    """`nix flake …`, or another command, in `folder`, its store below `root`. Raises NixError."""
    program = shutil.which("nix")
    if program is None:
        raise NixMissingError(MISSING)
    done = subprocess.run(
        [program, *_OPTIONS, "--store", str(root), command, *arguments],
        cwd=folder,
        env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(root)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        raise NixError(done.stderr)
    return done.stdout


def check(folder: Path, root: Path, nixpkgs: Path = SHIM) -> None:
    """`nix flake check`, everything evaluated and nothing built. Raises NixError."""
    run(folder, root, "check", "--no-build", "path:.", *override(nixpkgs))
