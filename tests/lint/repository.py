"""Which files the checks read: what git tracks, and what it would if it were added."""

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SHELL_SUFFIXES = {".sh", ".bash"}
SHELL_SHEBANGS = (b"#!/usr/bin/env bash", b"#!/bin/bash", b"#!/bin/sh", b"#!/usr/bin/env sh")


@functools.cache
def files() -> tuple[Path, ...]:
    """Absolute paths, sorted; without those that are deleted, ignored or binary."""
    # The checkout may belong to somebody else than the user who tests it.
    argv = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    argv += ["--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, capture_output=True, check=True).stdout
    paths = {ROOT / name.decode() for name in listed.split(b"\0") if name}
    return tuple(sorted(path for path in paths if path.is_file() and not _is_binary(path)))


def of_suffix(suffix: str) -> list[Path]:
    return [path for path in files() if path.suffix == suffix]


def under(*folders: str) -> list[Path]:
    """Python files below the folders."""
    roots = [ROOT / folder for folder in folders]
    return [path for path in of_suffix(".py") if any(path.is_relative_to(one) for one in roots)]


def shell() -> list[Path]:
    return [path for path in files() if path.suffix in SHELL_SUFFIXES or _has_shebang(path)]


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _has_shebang(path: Path) -> bool:
    return path.suffix == "" and path.read_bytes().startswith(SHELL_SHEBANGS)


def _is_binary(path: Path) -> bool:
    return b"\0" in path.read_bytes()[:8192]
