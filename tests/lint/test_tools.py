"""ruff, mypy, shellcheck and Nix's parser over the repository, each with a planted violation."""

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lint import repository

RUFF = (sys.executable, "-m", "ruff")
MYPY = (sys.executable, "-m", "mypy")
SHELLCHECK = str(Path(sysconfig.get_path("scripts")) / "shellcheck")

# mypy has no cache the first time, and two cores.
MYPY_TIMEOUT_S = 400


def run(argv: Sequence[str], *, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run in the root; standard error is part of the output, so that a failure shows it all."""
    return subprocess.run(
        argv,
        cwd=repository.ROOT,
        input=text,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def assert_clean(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout


def ruff_check(text: str, name: str) -> str:
    argv = [*RUFF, "check", "--output-format=concise", "--stdin-filename", name, "-"]
    return run(argv, text=text).stdout


def test_ruff_finds_nothing() -> None:
    assert_clean(run([*RUFF, "check", "--no-fix", "--output-format=concise", "."]))


def test_ruff_format_would_change_nothing() -> None:
    assert_clean(run([*RUFF, "format", "--check", "."]))


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        ("T201", "print('x')\n"),
        ("ASYNC251", "import time\n\n\nasync def f() -> None:\n    time.sleep(1)\n"),
        ("S602", "import subprocess\n\nsubprocess.run('x', shell=True, check=True)\n"),
        ("F401", "import os\n"),
    ],
)
def test_ruff_catches_it_in_a_service(rule: str, text: str) -> None:
    assert rule in ruff_check(text, "python/corral/cowboy/planted.py")


def test_ruff_format_catches_it() -> None:
    assert run([*RUFF, "format", "--check", "-"], text="x = {  'a':1 }\n").returncode == 1


@pytest.mark.timeout(MYPY_TIMEOUT_S)
def test_mypy_finds_nothing() -> None:
    assert_clean(run(MYPY))


@pytest.mark.timeout(MYPY_TIMEOUT_S)
@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("no-untyped-def", "def f(x):\n    return x\n"),
        ("unreachable", "def f(x: int) -> int:\n    return 1\n    return x\n"),
        ("unused-coroutine", "async def g() -> None: ...\nasync def f() -> None:\n    g()\n"),
    ],
)
def test_mypy_catches_it(code: str, text: str, tmp_path: Path) -> None:
    planted = tmp_path / "planted.py"
    planted.write_text(text)
    assert f"[{code}]" in run([*MYPY, str(planted)]).stdout


def test_shellcheck_finds_nothing() -> None:
    assert_clean(run([SHELLCHECK, *map(str, repository.shell())]))


def test_shellcheck_catches_it() -> None:
    assert "SC2086" in run([SHELLCHECK, "-"], text="#!/bin/sh\necho $1\n").stdout


# No store: parsing needs none, and only root may make one.
NIX_PARSE = ("nix-instantiate", "--store", "dummy://", "--parse")

nix = pytest.mark.skipif(shutil.which("nix-instantiate") is None, reason="no nix-instantiate")


@nix
def test_nix_files_parse() -> None:
    if paths := repository.of_suffix(".nix"):
        assert_clean(run([*NIX_PARSE, *map(str, paths)]))


@nix
def test_nix_parser_catches_it() -> None:
    assert "syntax error" in run([*NIX_PARSE, "-E", "{ a = ; }"]).stdout
