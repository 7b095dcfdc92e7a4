"""The page of the contract names a test for each rule, and every test that it names is there."""

import re

import pytest

from corral.tamq.requests import LOCAL_SENDER
from tests.lint.repository import ROOT
from tests.unit import contract_page

PAGE = ROOT / "docs" / "reference" / "tamq-contract.md"
ROWS = contract_page.rows_of(PAGE)


@pytest.mark.parametrize("name", contract_page.named_in(ROWS))
def test_a_named_test_is_there(name: str) -> None:
    file = name.partition("::")[0]
    assert re.fullmatch(r"tests/(unit|contract|crash)/(\w+/)?test_\w+\.py", file), name
    contract_page.check_named(name)


def test_every_rule_has_a_test_of_its_own() -> None:
    contract_page.check_rules(ROWS)


def test_the_page_names_what_the_code_has() -> None:
    page = PAGE.read_text()
    for word in (LOCAL_SENDER, "bounded_delivery_ack_v1", "idempotent_send_v1"):
        assert f"`{word}`" in page


def test_every_field_case_of_tamq_has_a_test_named_after_it() -> None:
    named = {name[:8] for name in contract_page.functions_of_tests()}
    assert {f"test_f{number}" for number in range(20, 36)} <= named
