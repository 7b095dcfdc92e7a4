"""Runs the cases of `cases/` against a `lib`: the stand-in's, or nixpkgs'."""

import functools
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.nix import nix

SHIM_LIB = nix.SHIM / "lib"
CASES = Path(__file__).with_name("cases")
TIMEOUT_S = 120


def evaluate(lib: Path, file: str, select: str) -> Any:
    """What `select` makes of `cases`, those of a file. Raises NixError."""
    cases = f"import {CASES / file} {{ lib = import {lib}; }}"
    with tempfile.TemporaryDirectory(prefix="corral-shim-") as home:
        done = subprocess.run(
            [
                *(nix.program(), "--store", "dummy://", "--eval", "--strict", "--json"),
                *("--expr", f"let cases = {cases}; in {select}"),
            ],
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": home},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode != 0:
        raise nix.NixError(done.stderr)
    return json.loads(done.stdout)


def names(file: str) -> list[str]:
    """The cases of a file, read without any `lib`."""
    text = (CASES / file).read_text(encoding="utf-8")
    return re.findall(r'^  "(.+)" = \{$', text, re.MULTILINE)


def values(lib: Path, file: str) -> dict[str, dict[str, Any]]:
    """Every case with what it `is` and `wants`, in one evaluation. Raises NixError."""
    found: dict[str, dict[str, Any]] = evaluate(lib, file, "cases")
    return found


def value(lib: Path, file: str, case: str) -> dict[str, Any]:
    """One case. Raises NixError."""
    found: dict[str, Any] = evaluate(lib, file, f"cases.{json.dumps(case)}")
    return found


@functools.cache
def reasons(lib: Path) -> dict[str, str]:
    """Why each case of `refusals.nix` should be refused: regular expressions."""
    found: dict[str, str] = evaluate(lib, "refusals.nix", "builtins.mapAttrs (_: c: c.why) cases")
    return found


def refusal(lib: Path, case: str) -> tuple[str, str]:
    """Why a case should be refused, and Nix's whole complaint; empty when it has none."""
    try:
        evaluate(lib, "refusals.nix", f"cases.{json.dumps(case)}.is")
    except nix.NixError as error:
        return reasons(lib)[case], " ".join(str(error).split())
    return reasons(lib)[case], ""
