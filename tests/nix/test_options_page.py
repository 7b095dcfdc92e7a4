"""The reference of the options is that of the options, and each of them says what it is."""

import pytest

from tests.nix import options_page


def test_the_page_is_up_to_date() -> None:
    text = options_page.PAGE.read_text(encoding="utf-8")
    assert text == options_page.page(text, options_page.options())


def test_every_option_says_what_it_is() -> None:
    listed = options_page.options()
    names = [option["name"] for option in listed]
    assert {
        "services.corral.enable",
        "services.cowboy.agents.<name>.user",
        "services.cowboy.agents.<name>.sources.<name>.ack",
        "services.cowboy.namespace.egress.*.port",
    } <= set(names)
    assert len(names) == len(set(names))
    for option in listed:
        assert option["description"].strip(), option["name"]
        assert option["type"] != "unspecified value", option["name"]
        if not option["readOnly"] and not option["name"].endswith(".package"):
            assert option["example"], option["name"]


def test_a_page_without_its_part_is_refused() -> None:
    with pytest.raises(ValueError, match="no part between"):
        options_page.page("nothing\n", [])
