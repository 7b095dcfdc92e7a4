"""TAMQ's reference pages and its schema say what the code says."""

from pathlib import Path

import pytest

from corral.tamq.main import cli
from corral.tamq.schema import ANSWERS, REQUESTS, schema_text
from tests.unit.cowboy_cli.reference import leaves
from tests.unit.tamq import reference


def test_every_written_part_is_in_exactly_one_page() -> None:
    found = [name for page in reference.pages() for name in reference.names(page.read_text())]
    assert sorted(found) == sorted(reference.PARTS)


@pytest.mark.parametrize("page", reference.pages(), ids=lambda page: page.name)
def test_the_page_is_up_to_date(page: Path) -> None:
    """To make it so: `python -m tests.unit.tamq.reference`."""
    assert page.read_text() == reference.rendered(page.read_text())


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert schema_text() == reference.SCHEMA.read_text()


def test_every_operation_is_documented_and_has_both_schemas() -> None:
    page = (reference.PAGES / "tamq-protocol.md").read_text()
    assert set(REQUESTS) == set(ANSWERS)
    for op in REQUESTS:
        assert f"| `{op}` |" in page


def test_every_command_has_an_example() -> None:
    for words, command in leaves(("tamq",), cli):
        assert f"  {' '.join(words)}" in (command.help or ""), words


def test_every_exit_status_of_an_error_is_documented() -> None:
    from corral.tamq.errors import CODES

    page = (reference.PAGES / "tamq-cli.md").read_text()
    for kind in CODES.values():
        assert f"\n| {kind.exit_code} |" in page
