"""The page of the contract names a test for each rule, and every test that it names is there."""

import re

import pytest

from tests.lint.repository import ROOT
from tests.unit import contract_page

PAGE = ROOT / "docs" / "reference" / "bridge-contract.md"
ROWS = contract_page.rows_of(PAGE)
NAMED = [name for name in contract_page.named_in(ROWS) if name.startswith("tests/")]


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_is_there(name: str) -> None:
    contract_page.check_named(name)


def test_every_rule_has_a_test() -> None:
    contract_page.check_rules(ROWS)


def test_the_field_cases_of_the_bridge_have_tests_named_after_them() -> None:
    names = contract_page.functions_of_tests()
    found = {int(number) for name in names for number in re.findall(r"_f(\d\d)(?=_)", name)}
    assert set(range(39, 56)) <= found
