"""The stand-in for nixpkgs does what `cases/` promises, in seconds, on Debian's nix."""

import functools
import re
from typing import Any

import pytest

from tests.nix import shim_runs

FILES = ("values.nix", "functions.nix")
CASES = [(file, name) for file in FILES for name in shim_runs.names(file)]


@functools.cache
def found(file: str) -> dict[str, dict[str, Any]]:
    return shim_runs.values(shim_runs.SHIM_LIB, file)


def test_every_case_is_run() -> None:
    assert {(file, name) for file in FILES for name in found(file)} == set(CASES)


@pytest.mark.parametrize(("file", "case"), CASES)
def test_value(file: str, case: str) -> None:
    one = found(file)[case]
    assert one["is"] == one["wants"]


@pytest.mark.parametrize("case", shim_runs.names("refusals.nix"))
def test_refusal(case: str) -> None:
    why, said = shim_runs.refusal(shim_runs.SHIM_LIB, case)
    assert re.search(why, said)
