"""The bridge's reference says what the code says."""

import re
from pathlib import Path

from corral.bridge import doctor, http, service
from corral.bridge.main import cli
from tests.unit.bridge import reference
from tests.unit.cowboy_cli.reference import leaves


def test_the_page_is_up_to_date() -> None:
    """To make it so: `python -m tests.unit.bridge.reference`."""
    text = reference.PAGE.read_text()
    assert sorted(reference.names(text)) == sorted(reference.PARTS)
    assert text == reference.rendered(text)


def test_every_command_has_an_example() -> None:
    for words, command in leaves(("a2a-bridge",), cli):
        assert f"  {' '.join(words)}" in (command.help or ""), words


def test_every_fault_that_doctor_finds_is_documented() -> None:
    source = Path(doctor.__file__).read_text()
    codes = set(re.findall(r'(?:fault|warning)\(\s*"[a-z]+", "([a-z_]+)"', source))
    codes |= {code for code, _, _ in doctor._PINGS.values()}
    codes |= {f"ghost_{code}" for code in doctor._ROOMS} | {"database_unreachable", "schema_wrong"}
    assert len(codes) > 15
    page = reference.PAGE.read_text()
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []


def test_every_reason_of_readiness_and_every_answer_is_documented() -> None:
    page = reference.PAGE.read_text()
    ready = Path(service.__file__).read_text().partition("async def ready")[2]
    reasons = set(re.findall(r'return "([a-z_]+)"', ready)) | {"probe_timeout"}
    answers = set(re.findall(r'"(M_[A-Z_]+)"', Path(http.__file__).read_text())) | {http.CONFLICT}
    assert len(reasons) >= 5
    assert [name for name in sorted(reasons | answers) if f"`{name}`" not in page] == []
