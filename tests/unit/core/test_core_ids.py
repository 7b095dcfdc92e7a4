import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.ids import digest, hex_id, new_uuid

fields = st.lists(st.binary(max_size=8), max_size=4)


def test_golden_values_never_change() -> None:
    assert hex_id("corral.test", "a", b"b", "ü") == "14d61810b9804e384e1ef6e7e369f426"
    assert digest("corral.test").hex() == (
        "b4bf708ad1b284828c6e7c1a3b3a7b106e9d0e27516454adc8c9899b3185c1e8"
    )


@given(fields, fields)
def test_equal_only_when_every_field_is_equal(one: list[bytes], other: list[bytes]) -> None:
    assert (digest("t", *one) == digest("t", *other)) == (one == other)


def test_fields_do_not_run_into_each_other() -> None:
    assert digest("t", "ab", "c") != digest("t", "a", "bc")
    assert digest("ta", "b") != digest("t", "ab")
    assert digest("t") != digest("t", "")


def test_the_domain_tag_separates() -> None:
    assert digest("one", "a") != digest("two", "a")


def test_text_counts_as_its_utf8_bytes() -> None:
    assert digest("t", "ü") == digest("t", "ü".encode())


def test_an_empty_tag_and_text_without_utf8_form_are_refused() -> None:
    with pytest.raises(ValueError, match="tag"):
        digest("", "a")
    with pytest.raises(UnicodeEncodeError):
        digest("t", "\ud800")


@pytest.mark.parametrize("length", [16, 64])
def test_hex_length_at_its_limits(length: int) -> None:
    assert hex_id("t", length=length) == digest("t").hex()[:length]


@pytest.mark.parametrize("length", [15, 65])
def test_hex_length_past_its_limits(length: int) -> None:
    with pytest.raises(ValueError, match="16 to 64"):
        hex_id("t", length=length)


def test_uuids_are_random_version_four() -> None:
    assert uuid.UUID(new_uuid()).version == 4
    assert len({new_uuid() for _ in range(100)}) == 100
