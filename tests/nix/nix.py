"""Evaluation of Nix expressions by Debian's `nix-instantiate` (2.8) or any later one.

Nothing of the machine takes part: no search path, no store, no files but the repository's. So an
expression that needs nixpkgs, the network or the environment fails here.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "modules" / "lib"
EXAMPLES = ROOT / "examples"
SHIM = ROOT / "tests" / "nix" / "shim"
SAMPLES = ROOT / "tests" / "nix" / "samples"
READABLE = (ROOT / "modules", ROOT / "services", EXAMPLES, SAMPLES, SHIM)
MISSING = (
    "nix-instantiate is not on PATH, so nothing can be said about the Nix files; install it with: "
    "apt-get install -y --no-install-recommends nix-bin"
)
TIMEOUT_S = 60
CHECKOUT_TIMEOUT_S = 900


class NixMissingError(AssertionError):
    """No evaluator: the tests fail, because what was not evaluated was not tested."""


class NixError(Exception):
    """An expression was refused. `message` is what the expression threw, one line per problem."""

    def __init__(self, stderr: str) -> None:
        super().__init__(stderr)
        self.message = thrown(stderr)


def program() -> str:
    """The evaluator's path. Raises NixMissingError, which names the package."""
    found = shutil.which("nix-instantiate")
    if found is None:
        raise NixMissingError(MISSING)
    return found


def evaluate(
    expression: str,
    *,
    cwd: Path = ROOT,
    environment: dict[str, str] | None = None,
    readable: Sequence[Path] = READABLE,
) -> Any:
    """The value of an expression, strictly evaluated. Raises NixError."""
    with tempfile.TemporaryDirectory(prefix="corral-nix-") as home:
        done = subprocess.run(
            _argv(expression, readable),
            cwd=cwd,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home, **(environment or {})},
            capture_output=True,
            text=True,
            timeout=CHECKOUT_TIMEOUT_S if os.environ.get("NIXPKGS") else TIMEOUT_S,
            check=False,
        )
    if done.returncode != 0:
        raise NixError(done.stderr)
    return json.loads(done.stdout)


def _argv(expression: str, readable: Sequence[Path]) -> list[str]:
    options = ["--store", "dummy://", "--option", "restrict-eval", "true"]
    for folder in readable:
        options += ["-I", f"corral={folder}"]
    return [program(), *options, "--eval", "--strict", "--json", "--expr", expression]


def thrown(stderr: str) -> str:
    """The last error of Nix's output, without its label, trace and indentation."""
    _, _, rest = stderr.rpartition("error: ")
    lines = [line.strip() for line in rest.splitlines()]
    end = next(
        (at for at, line in enumerate(lines) if line.startswith("(use '--show-trace'")), None
    )
    return "\n".join(lines[:end]).strip()


def with_lib(body: str) -> str:
    """An expression in which `corral` is the library."""
    return f"let corral = import {LIB}; in {body}"


def render(topology: str) -> dict[str, Any]:
    """The rendering of a topology that is written as a Nix expression."""
    rendered: dict[str, Any] = evaluate(with_lib(f"corral.render ({topology})"))
    return rendered
