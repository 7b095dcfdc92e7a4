"""The library depends on its argument alone, and a machine without Nix says so."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.nix import golden, nix


def test_the_rendering_depends_on_nothing_around_it(tmp_path: Path) -> None:
    expression = nix.with_lib(f"corral.render (import {nix.EXAMPLES / 'demo.nix'})")
    elsewhere = nix.evaluate(
        expression, cwd=tmp_path, environment={"NIX_PATH": "nixpkgs=/nonexistent", "USER": "x"}
    )
    assert elsewhere == golden.demo()


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        pytest.param("import <nixpkgs> { }", "nixpkgs", id="search path"),
        pytest.param("import /etc/passwd", "restricted mode", id="other files"),
    ],
)
def test_the_evaluator_keeps_the_machine_out(expression: str, reason: str) -> None:
    """The denial behind the test above; the control is every other test here."""
    with pytest.raises(nix.NixError) as refused:
        nix.evaluate(expression)
    assert reason in refused.value.message


def test_the_evaluator_shows_no_environment() -> None:
    assert not nix.evaluate('builtins.getEnv "HOME"')


def test_an_error_is_the_last_one_without_its_trace() -> None:
    newer = (
        "error:\n       … while calling 'throw'\n\n"
        "       error: a.b: is missing\n       a.c: is missing\n"
    )
    assert nix.thrown(newer) == "a.b: is missing\na.c: is missing"
    older = "warning: x\nerror: a.b: is missing\n(use '--show-trace' to show detailed location)\n"
    assert nix.thrown(older) == "a.b: is missing"


def test_without_nix_the_failure_names_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert nix.evaluate("1 + 1") == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(nix.NixMissingError, match=r"apt-get install .*nix-bin"):
        nix.evaluate("1 + 1")
    assert issubclass(nix.NixMissingError, AssertionError), "a failure, never a skip"


def test_the_command_in_the_documentation_works() -> None:
    """As `modules/lib/default.nix` says it, without the options of these tests."""
    command = (nix.LIB / "default.nix").read_text(encoding="utf-8")
    assert "--expr '(import ./modules/lib).render (import ./examples/demo.nix)'" in command
    done = subprocess.run(
        [
            *(nix.program(), "--store", "dummy://", "--eval", "--strict", "--json", "--expr"),
            "(import ./modules/lib).render (import ./examples/demo.nix)",
        ],
        cwd=nix.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == golden.demo()
