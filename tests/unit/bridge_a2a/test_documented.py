"""Every code that the A2A side can answer with is in its reference page."""

import re

from corral.bridge.a2a import verdict
from tests.lint.repository import ROOT

PAGE = ROOT / "docs" / "reference" / "bridge-a2a.md"
SOURCES = ROOT / "python" / "corral" / "bridge" / "a2a"
CODE = re.compile(r'"((?:a2a|card|url|token|agent)_[a-z_]+[a-z])"')


def test_codes_are_documented() -> None:
    codes = {
        found[1] for path in SOURCES.glob("*.py") for found in CODE.finditer(path.read_text())
    } | set(verdict.known_codes())
    page = PAGE.read_text()
    missing = sorted(code for code in codes if f"`{code}`" not in page)
    assert len(codes) > 30
    assert missing == []


def test_what_is_documented_exists() -> None:
    source = "".join(path.read_text() for path in SOURCES.glob("*.py"))
    documented = re.findall(r"`(a2a_[a-z_]+[a-z]|card_[a-z_]+)`", PAGE.read_text())
    known = set(verdict.known_codes())
    assert [code for code in documented if f'"{code}"' not in source and code not in known] == []
