"""The reference pages say what the code says."""

import re
from pathlib import Path

import pytest

import corral.cowboy
from corral.core.errors import CorralError
from corral.cowboy import gauges
from corral.cowboy.domain import State
from corral.cowboy.main import cli
from tests.unit.cowboy_cli import reference


def test_every_generated_part_is_in_exactly_one_page() -> None:
    found = [name for page in reference.pages() for name in reference.names(page.read_text())]
    assert sorted(found) == sorted(reference.PARTS)


@pytest.mark.parametrize("page", reference.pages(), ids=lambda page: page.name)
def test_the_page_is_up_to_date(page: Path) -> None:
    """To make it so: `python -m tests.unit.cowboy_cli.reference`."""
    assert page.read_text() == reference.rendered(page.read_text())


def test_every_command_has_an_example() -> None:
    for words, command in reference.leaves(("cowboy",), cli):
        assert "\b\n" in (command.help or ""), words
        assert f"  {' '.join(words)}" in (command.help or ""), words


DOCUMENTED_EXIT_CODES = {1, 64, 69, 70, 74, 78}


def test_every_error_has_a_documented_exit_code_and_a_meaning() -> None:
    for code, kind in reference.error_classes().items():
        assert reference.exit_code(kind) in DOCUMENTED_EXIT_CODES, code
        assert kind.__doc__, code
        assert code == code.lower().replace("-", "_")


def test_errors_of_one_code_share_their_exit_code() -> None:
    level: list[type[CorralError]] = [CorralError]
    by_code = reference.error_classes()
    while level:
        for kind in level:
            if kind.__module__.startswith(("corral.core.", "corral.cowboy.")):
                assert kind.exit_code == by_code[kind.code].exit_code, kind
        level = [inner for kind in level for inner in kind.__subclasses__()]


def test_every_count_has_its_meaning() -> None:
    """The kinds that the code counts are those of the reference."""
    package = Path(corral.cowboy.__path__[0])
    calls = r"\.(?:count|note)\(\s*\"(\w+)\""
    used = {kind for file in package.glob("*.py") for kind in re.findall(calls, file.read_text())}
    assert used <= set(gauges.KINDS)
    assert set(gauges.KINDS) - used == {State.DONE, State.DEAD, State.CANCELLED}
