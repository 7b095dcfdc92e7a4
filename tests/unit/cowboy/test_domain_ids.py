"""Ids: packed entry ids, turn ids, session ids, identities of messages."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.cowboy.domain import (
    ZERO_ID,
    after,
    before,
    message_key,
    pack_id,
    parse,
    parse_turn_id,
    session_id,
    turn_id,
    unpack_id,
)
from tests.unit.cowboy.samples import LIMITS

MAX = 2**64 - 1
LAST_ID = b"\xff" * 16

parts = st.integers(0, MAX) | st.sampled_from([0, 1, 2**63 - 1, 2**63, MAX - 1, MAX])
names = st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True)


@given(ms=parts, seq=parts)
@example(ms=0, seq=0)
@example(ms=MAX, seq=MAX)
def test_packing_an_entry_id_loses_nothing(ms: int, seq: int) -> None:
    text = b"%d-%d" % (ms, seq)
    packed = pack_id(text)
    assert len(packed) == 16
    assert unpack_id(packed) == text


@given(one=st.tuples(parts, parts), other=st.tuples(parts, parts))
def test_packed_ids_sort_as_redis_sorts_them(one: tuple[int, int], other: tuple[int, int]) -> None:
    packed, second = (pack_id(b"%d-%d" % of) for of in (one, other))
    assert (packed < second) == (one < other)


def test_an_id_without_sequence_is_its_first() -> None:
    assert pack_id(b"7") == pack_id(b"7-0")


@pytest.mark.parametrize("text", [b"%d-0" % (MAX + 1), b"0-%d" % (MAX + 1)])
def test_one_past_64_bits_is_refused(text: bytes) -> None:
    with pytest.raises(OverflowError):
        pack_id(text)


@given(ms=parts, seq=parts)
def test_before_and_after_are_neighbours(ms: int, seq: int) -> None:
    packed = pack_id(b"%d-%d" % (ms, seq))
    if packed != ZERO_ID:
        assert before(packed) < packed
        assert after(before(packed)) == packed
    if packed != LAST_ID:
        assert after(packed) > packed
        assert before(after(packed)) == packed


def test_neighbours_at_the_ends_and_across_a_millisecond() -> None:
    assert before(ZERO_ID) == ZERO_ID
    assert after(LAST_ID) == LAST_ID
    assert unpack_id(before(pack_id(b"5-0"))) == b"4-%d" % MAX
    assert unpack_id(after(pack_id(b"5-%d" % MAX))) == b"6-0"


@given(agent=names, source=names, incarnation=st.integers(1, 2**63 - 1), ms=parts, seq=parts)
@example(agent="scout", source="a2a", incarnation=1, ms=MAX, seq=MAX)
@example(agent="a", source="b", incarnation=2**63 - 1, ms=0, seq=0)
def test_a_turn_id_says_which_entry_it_is_for(
    agent: str, source: str, incarnation: int, ms: int, seq: int
) -> None:
    entry = pack_id(b"%d-%d" % (ms, seq))
    text = turn_id(agent, source, incarnation, entry)
    assert text == f"{agent}.{source}.{incarnation}.{ms}-{seq}"
    assert parse_turn_id(text) == (agent, source, incarnation, entry)


@pytest.mark.parametrize(
    "text",
    ["", "a.b.1", "a.b.1.2-3.4", "a.b.x.1-0", "a.b.1.x-0", "a.b.1.1-x", "a.b.1.-1-0", "a.b..1-0"],
)
def test_what_is_no_turn_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_turn_id(text)


@given(one=st.binary(max_size=20), other=st.binary(max_size=20))
def test_a_session_belongs_to_agent_source_and_channel(one: bytes, other: bytes) -> None:
    session = session_id("scout", "a2a", one)
    assert session == session_id("scout", "a2a", one)
    assert (session == session_id("scout", "a2a", other)) == (one == other)
    assert session != session_id("scout", "b2b", one)
    assert session != session_id("other", "a2a", one)


SAID = {
    b"content": b"text",
    b"sender": b"ann",
    b"channel": b"red",
    b"thread": b"t1",
    b"message_id": b"m1",
    b"traceparent": b"00-1",
}


def identity(**changes: bytes | None) -> bytes | None:
    fields = {**SAID, **{name.encode(): value for name, value in changes.items()}}
    return parse({k: v for k, v in fields.items() if v is not None}, LIMITS).identity


def test_the_same_words_under_one_id_are_the_same_message() -> None:
    assert identity() == identity()
    assert identity(traceparent=b"00-2") == identity(), "a retry may carry another trace"
    assert identity(resubmit_of=b"1-0") == identity()
    assert identity(kind=b"message") == identity(), "the kind that is assumed"


@pytest.mark.parametrize(
    "changes",
    [
        {"content": b"other"},
        {"sender": b"bob"},
        {"channel": b"blue"},
        {"thread": b"t2"},
        {"kind": b"cancel"},
        {"cancels": b"1-0"},
        {"sender": b"annr", "channel": b"ed"},
        {"sender": b"", "channel": b"annred"},
    ],
    ids=str,
)
def test_other_words_under_one_id_share_only_the_key(changes: dict[str, bytes]) -> None:
    one, other = identity(), identity(**changes)
    assert one is not None
    assert other is not None
    assert one != other
    assert one[:16] == other[:16] == message_key(b"m1")


def test_without_an_id_nothing_can_be_the_same_message() -> None:
    assert identity(message_id=None) is None


def test_an_empty_id_is_none() -> None:
    # Else a producer whose id is not set would lose every message that says the same again.
    assert identity(message_id=b"") is None


@given(one=st.binary(max_size=64), other=st.binary(max_size=64))
def test_ids_have_their_own_keys(one: bytes, other: bytes) -> None:
    assert len(message_key(one)) == 16
    assert (message_key(one) == message_key(other)) == (one == other)


def test_a_missing_field_is_as_an_empty_one() -> None:
    assert identity(sender=None) == identity(sender=b"")
