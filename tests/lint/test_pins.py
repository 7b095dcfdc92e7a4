"""The pins and the metadata say the same: floor = lower bound, ceiling inside the range."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.lint.repository import ROOT

REQUIREMENTS = ROOT / "python" / "requirements"
PINNED = ["floor", "runtime", "ceiling", "build", "bench", "synapse", "docs", "a2a-1", "a2a-0.3"]
PIN = re.compile(r"^([a-z0-9-]+)==([^\s;\\]+)(.*)$", re.MULTILINE)


def pins(name: str) -> dict[str, Version]:
    text = (REQUIREMENTS / f"{name}.txt").read_text()
    return {found[1]: Version(found[2]) for found in PIN.finditer(text)}


def asked_for(path: Path) -> dict[str, Requirement]:
    """The direct requirements of an .in file, with those of the files that it includes."""
    found: dict[str, Requirement] = {}
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            found |= asked_for(path.parent / line.removeprefix("-r "))
        elif line and not line.startswith("#"):
            requirement = Requirement(line)
            found[canonicalize_name(requirement.name)] = requirement
    return found


def dependencies() -> dict[str, Requirement]:
    metadata = tomllib.loads((ROOT / "python" / "pyproject.toml").read_text())
    parsed = [Requirement(one) for one in metadata["project"]["dependencies"]]
    return {canonicalize_name(one.name): one for one in parsed}


def lower_bound(requirement: Requirement) -> Version:
    [lowest] = [one.version for one in requirement.specifier if one.operator == ">="]
    return Version(lowest)


@pytest.mark.parametrize("name", list(dependencies()))
def test_floor_is_the_lower_bound_and_ceiling_is_in_the_range(name: str) -> None:
    requirement = dependencies()[name]
    assert pins("floor")[name] == lower_bound(requirement)
    assert pins("ceiling")[name] in requirement.specifier
    assert any(one.operator == "<" for one in requirement.specifier)


@pytest.mark.parametrize("name", ["floor", "ceiling"])
def test_only_dependencies_and_test_tools_are_asked_for(name: str) -> None:
    tools = asked_for(REQUIREMENTS / "test.in")
    assert set(asked_for(REQUIREMENTS / f"{name}.in")) == set(dependencies()) | set(tools)


@pytest.mark.parametrize("name", PINNED)
def test_pinned_is_what_was_asked_for(name: str) -> None:
    pinned = pins(name)
    for asked, requirement in asked_for(REQUIREMENTS / f"{name}.in").items():
        assert pinned[asked] in requirement.specifier


def test_ceiling_holds_all_of_runtime() -> None:
    """So that an environment with what the tests need serves the demo, too."""
    runtime, ceiling = (
        (REQUIREMENTS / f"{name}.txt").read_text().replace("\\\n", " ").splitlines()
        for name in ("runtime", "ceiling")
    )
    assert set(runtime) < set(ceiling)


@pytest.mark.parametrize("name", list(asked_for(REQUIREMENTS / "test.in")))
def test_test_tools_are_the_same_in_both(name: str) -> None:
    assert pins("floor")[name] == pins("ceiling")[name]


@pytest.mark.parametrize("name", PINNED)
def test_every_pin_has_a_hash(name: str) -> None:
    text = (REQUIREMENTS / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert lines
    assert [line for line in lines if "--hash=sha256:" not in line] == []


def test_a_pin_outside_the_range_would_be_seen() -> None:
    requirement = Requirement("redis[hiredis]>=7.4.0,<9")
    assert lower_bound(requirement) == Version("7.4.0")
    assert Version("9.0") not in requirement.specifier
    assert Version("7.3.9") not in requirement.specifier
