"""House style of every Nix file, and builtins only in the library; each rule catches a plant."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lint import repository
from tests.nix import nix, style

FILES = repository.of_suffix(".nix")
# Whole hosts are modules of NixOS; the library and the topology of the demo are neither.
PURE_FILES = [path for path in FILES if path.parent == nix.LIB or path.name == "demo.nix"]


def test_there_are_files() -> None:
    assert nix.LIB / "default.nix" in PURE_FILES
    assert nix.EXAMPLES / "demo.nix" in PURE_FILES


@pytest.mark.parametrize("path", FILES, ids=repository.name)
def test_style(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [problem for rule in style.STYLE for problem in rule(text)] == []


@pytest.mark.parametrize("path", PURE_FILES, ids=repository.name)
def test_builtins_only(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert [problem for rule in style.PURE for problem in rule(text)] == []


@pytest.mark.parametrize(
    ("rule", "text", "problem"),
    [
        (style.whitespace, "{\n\ta = 1;\n}\n", "2: a tab"),
        (style.whitespace, "{ }\r\n", "1: a carriage return"),
        (style.whitespace, "{ } \n", "1: space at the end"),
        (style.whitespace, "{ }", "0: not exactly one newline at the end"),
        (style.whitespace, "{ }\n\n", "2: not exactly one newline at the end"),
        (style.indentation, "{\n   a = 1;\n}\n", "2: 3 spaces"),
        (style.indentation, "{\n    a = 1;\n}\n", "2: 4 spaces deeper than the line above"),
        (style.long_lines, "#" * 101 + "\n", "1: 101 characters"),
        (style.with_scopes, "with lib; { }\n", "1: with lib;"),
        (style.with_scopes, "x: with (import x); y\n", "1: with (import x);"),
        (style.purity, "import <nixpkgs> { }\n", "1: <nixpkgs>"),
        (style.purity, 'builtins.getEnv "HOME"\n', "1: getEnv"),
        (style.purity, "{ pkgs }: pkgs.redis\n", "1: pkgs"),
        (style.purity, "{ lib }: lib.id\n", "1: lib"),
        (style.purity, "builtins.currentTime\n", "1: currentTime"),
        (style.purity, "builtins.fetchTarball x\n", "1: fetchTarball"),
        (style.imports, "import ../x.nix\n", "1: import ../x.nix"),
        (style.imports, "(import x)\n", "1: import x)"),
    ],
)
def test_a_planted_fault_is_found(
    rule: Callable[[str], list[str]], text: str, problem: str
) -> None:
    assert problem in rule(text)


@pytest.mark.parametrize(
    "text",
    [
        "# a comment may say with lib; and pkgs\n{ }\n",
        '{ message = "without pkgs, with care;"; }\n',
        "#" * 100 + "\n",
        "let\n  x = import ./x.nix;\nin\n{\n  inherit (x) y;\n}\n",
    ],
)
def test_what_is_in_order_is_left_alone(text: str) -> None:
    assert [problem for rule in (*style.STYLE, *style.PURE) for problem in rule(text)] == []
