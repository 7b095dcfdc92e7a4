"""What an inbox entry says: `parse` at its limits, and with anything that a producer may add."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cowboy.domain import METADATA_FIELDS, Kind, Outcome, Parsed, parse
from tests.unit.cowboy.samples import CONTENT_MAX_BYTES, LIMITS, METADATA_MAX_BYTES

BOUNDED = [*METADATA_FIELDS, "cancels"]  # what has metadata_max_bytes


def said(**fields: bytes) -> Parsed:
    return parse({name.encode(): value for name, value in fields.items()}, LIMITS)


def test_a_whole_entry() -> None:
    parsed = said(
        content=b"do it", sender=b"ann", channel=b"red", thread=b"t", message_id=b"m",
        traceparent=b"00-1", resubmit_of=b"1-0",
    )  # fmt: skip
    assert parsed.kind is Kind.MESSAGE
    assert parsed.content == b"do it"
    assert parsed.refusal is None
    assert (parsed.sender, parsed.channel, parsed.thread) == (b"ann", b"red", b"t")
    assert (parsed.message_id, parsed.traceparent, parsed.cancels) == (b"m", b"00-1", None)


def test_only_content_is_required() -> None:
    parsed = said(content=b"x")
    assert (parsed.content, parsed.refusal, parsed.identity) == (b"x", None, None)
    assert (parsed.sender, parsed.channel, parsed.thread) == (None, None, None)
    assert (parsed.message_id, parsed.traceparent) == (None, None)


@pytest.mark.parametrize(
    "fields", [{}, {"content": b""}, {"content": b" \t\r\n\x0b\x0c"}, {"sender": b"ann"}], ids=str
)
def test_without_usable_content_an_entry_is_empty_and_no_refusal(fields: dict[str, bytes]) -> None:
    parsed = said(**fields)
    assert (parsed.content, parsed.refusal) == (None, None)


@pytest.mark.parametrize(
    "content",
    [
        b"\0",
        b"\xff\xfe\x00binary",
        b"\x80" * CONTENT_MAX_BYTES,
        "\u00e4\u4e16".encode(),
        b"\x1b[0m",
    ],
    ids=repr,
)
def test_content_is_bytes_of_any_kind(content: bytes) -> None:
    assert said(content=content).content == content
    assert said(content=content).refusal is None


def test_content_at_its_limit_and_one_past_it() -> None:
    assert said(content=b"x" * CONTENT_MAX_BYTES).content == b"x" * CONTENT_MAX_BYTES
    parsed = said(content=b"x" * (CONTENT_MAX_BYTES + 1))
    assert (parsed.content, parsed.refusal) == (None, Outcome.CONTENT_TOO_LARGE)
    blank = said(content=b" " * (CONTENT_MAX_BYTES + 1))
    assert blank.refusal is Outcome.CONTENT_TOO_LARGE


@pytest.mark.parametrize("name", BOUNDED)
def test_metadata_at_its_limit_and_one_past_it(name: str) -> None:
    at_limit = b"m" * METADATA_MAX_BYTES
    parsed = said(content=b"x", **{name: at_limit})
    assert (parsed.refusal, getattr(parsed, name)) == (None, at_limit)
    parsed = said(content=b"x", **{name: at_limit + b"m"})
    assert (parsed.refusal, getattr(parsed, name)) == (Outcome.METADATA_INVALID, None)
    assert parsed.content is None


@pytest.mark.parametrize("name", BOUNDED)
def test_the_limit_of_metadata_is_bytes_and_not_characters(name: str) -> None:
    wide = "\u4e16".encode()
    assert METADATA_MAX_BYTES % len(wide) == 1
    many = METADATA_MAX_BYTES // len(wide)
    assert said(content=b"x", **{name: wide * many}).refusal is None
    assert said(content=b"x", **{name: wide * (many + 1)}).refusal is Outcome.METADATA_INVALID


@pytest.mark.parametrize("value", [b"a\0b", b"\xff", b"\xed\xa0\x80", b"ok\xc3"], ids=repr)
@pytest.mark.parametrize("name", BOUNDED)
def test_metadata_that_is_no_text_is_refused_and_still_given_back(name: str, value: bytes) -> None:
    parsed = said(content=b"x", **{name: value})
    assert (parsed.refusal, parsed.content) == (Outcome.METADATA_INVALID, None)
    assert getattr(parsed, name) == value, "the sender can recognise the notice"


@pytest.mark.parametrize("name", BOUNDED)
def test_an_empty_metadata_field_is_no_missing_one(name: str) -> None:
    parsed = said(content=b"x", **{name: b""})
    assert (parsed.refusal, getattr(parsed, name)) == (None, b"")


@pytest.mark.parametrize("kind", [b"", b"Message", b"cancel ", b"\xff", b"x" * 5000], ids=len)
def test_an_unknown_kind_is_refused(kind: bytes) -> None:
    parsed = said(content=b"x", kind=kind)
    assert (parsed.kind, parsed.refusal) == (Kind.MESSAGE, Outcome.KIND_UNKNOWN)
    assert parsed.content is None


def test_a_cancel_needs_no_content_and_keeps_none() -> None:
    parsed = said(kind=b"cancel", cancels=b"1-0")
    assert (parsed.kind, parsed.cancels, parsed.refusal) == (Kind.CANCEL, b"1-0", None)
    parsed = said(kind=b"cancel", cancels=b"1-0", content=b"x" * (CONTENT_MAX_BYTES + 1))
    assert (parsed.content, parsed.refusal) == (None, None), "its content plays no part"
    assert said(kind=b"cancel").cancels is None


def test_which_refusal_an_entry_gets_that_deserves_several() -> None:
    large = b"x" * (CONTENT_MAX_BYTES + 1)
    assert said(content=large, kind=b"odd").refusal is Outcome.CONTENT_TOO_LARGE
    assert said(content=large, kind=b"odd", sender=b"\0").refusal is Outcome.METADATA_INVALID


def test_fields_of_no_meaning_are_ignored_whatever_their_size() -> None:
    large = b"\xff\0" * 1_000_000
    parsed = parse({b"content": b"x", b"note": large, large: large, b"Sender": large}, LIMITS)
    assert (parsed.content, parsed.refusal, parsed.sender) == (b"x", None, None)


field_names = st.sampled_from(
    [b"content", b"kind", b"resubmit_of", *(name.encode() for name in BOUNDED)]
)
values = st.binary(max_size=METADATA_MAX_BYTES + 2) | st.sampled_from([b"message", b"cancel"])


@given(st.dictionaries(field_names | st.binary(max_size=8), values, max_size=12))
def test_parse_takes_any_fields(fields: dict[bytes, bytes]) -> None:
    parsed = parse(fields, LIMITS)
    if parsed.refusal is not None:
        assert parsed.content is None
    if parsed.content is not None:
        assert parsed.content == fields[b"content"]
        assert parsed.kind is Kind.MESSAGE
        assert len(parsed.content) <= CONTENT_MAX_BYTES
    for name in BOUNDED:
        value = getattr(parsed, name)
        assert value is None or (
            value == fields[name.encode()] and len(value) <= METADATA_MAX_BYTES
        )
    assert (parsed.identity is None) == (not parsed.message_id)
    assert parsed.identity is None or len(parsed.identity) == 32
    assert parse(dict(reversed(fields.items())), LIMITS) == parsed, "the order says nothing"
