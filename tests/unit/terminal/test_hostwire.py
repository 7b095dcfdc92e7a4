"""What the daemon and `tamq run` say to each other: read back as it was written, or refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.tamq import wire
from corral.tamq.errors import InvalidRequestError
from corral.tamq.terminal import hostwire
from corral.tamq.terminal.base import Injection, Outcome, Readiness, Ready, Wake

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
GOOD: dict[str, Any] = {
    "message_id": "7-ab",
    "attempt": 2,
    "sender": "local",
    "body": "x",
    "earlier_attempts": [1],
}


@given(texts, st.integers(1, 99), texts, texts, st.lists(st.integers(1, 98), max_size=9))
def test_a_wake_survives(
    message_id: str, attempt: int, sender: str, body: str, earlier: list[int]
) -> None:
    wake = Wake(message_id, attempt, sender, body, tuple(earlier))
    line = wire.encode(hostwire.wake_as_dict(wake))
    assert hostwire.parse_wake(wire.decode(line)) == wake


@pytest.mark.parametrize("state", Ready)
def test_a_readiness_survives(state: Ready) -> None:
    readiness = Readiness(state, "reason", pasted=state is Ready.READY)
    line = wire.encode(hostwire.readiness_as_dict(readiness))
    assert hostwire.parse_readiness(wire.decode(line)) == readiness


@pytest.mark.parametrize("outcome", Outcome)
def test_an_injection_survives(outcome: Outcome) -> None:
    injection = Injection(outcome, "reason", typed=True, enters=3)
    line = wire.encode(hostwire.injection_as_dict(injection))
    assert hostwire.parse_injection(wire.decode(line)) == injection


@pytest.mark.parametrize(
    "fields",
    [
        None,
        [],
        {},
        {**GOOD, "more": 1},
        {**GOOD, "body": None},
        {**GOOD, "attempt": "2"},
        {**GOOD, "earlier_attempts": ["1"]},
        {**GOOD, "earlier_attempts": 1},
    ],
)
def test_what_is_no_wake_is_refused(fields: object) -> None:
    assert hostwire.parse_wake(GOOD).attempt == 2
    with pytest.raises(InvalidRequestError, match="wake"):
        hostwire.parse_wake(fields)


def test_the_longest_body_fits_a_frame() -> None:
    for letter in ("\x00", '"', "é"):
        body = letter * (wire.BODY_MAX_BYTES // len(letter.encode()))
        assert wire.encode(hostwire.wake_as_dict(Wake("7-ab", 1, "local", body)))
