"""A page that maps each rule of a contract to its tests, read for the tests of such pages."""

import ast
import functools
import re
from collections.abc import Sequence
from pathlib import Path

from tests.lint.repository import ROOT

Row = tuple[str, str]


def rows_of(page: Path) -> list[Row]:
    """The rules and the cells that name their tests."""
    return re.findall(r"^\| (?!rule |---)(.*?) \| (.*) \|$", page.read_text(), re.MULTILINE)


def named_in(rows: Sequence[Row]) -> list[str]:
    """What stands in backquotes beside the rules."""
    return sorted({name for _, cell in rows for name in re.findall(r"`([^`]+)`", cell)})


@functools.cache
def functions_of(file: str) -> frozenset[str]:
    path = ROOT / file
    assert path.is_file(), file
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def functions_of_tests() -> list[str]:
    """The functions of all unit and contract tests."""
    files = [*ROOT.glob("tests/unit/**/test_*.py"), *ROOT.glob("tests/contract/**/test_*.py")]
    return [name for file in files for name in functions_of(str(file.relative_to(ROOT)))]


def check_named(name: str) -> None:
    file, _, function = name.partition("::")
    assert function.startswith("test_")
    assert function in functions_of(file), name


def check_rules(rows: Sequence[Row]) -> None:
    """Every rule has a test."""
    assert len(rows) > 50
    for rule, cell in rows:
        assert re.search(r"`tests/[^`]+::test_[^`]+`", cell), rule
