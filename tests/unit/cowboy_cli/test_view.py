"""Text for people: aligned, short, and harmless to a terminal whatever the values are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cowboy import view


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        ("x", "-"),
        (0, "0.0 s"),
        (0.24, "0.2 s"),
        (119.9, "119.9 s"),
        (120, "2 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (172_800, "2 d"),
    ],
)
def test_durations(seconds: object, text: str) -> None:
    assert view.duration(seconds) == text


def test_columns_are_aligned_without_trailing_spaces() -> None:
    assert view.table(["A", "LONG"], [["xyz", None], [1, True]]) == ("A    LONG\nxyz  -\n1    True")


@given(st.text())
def test_no_value_can_move_the_cursor_or_break_a_line(text: str) -> None:
    shown = view.printable(text)
    assert shown.isprintable() or shown == ""
    assert len(view.table(["A"], [[text]]).split("\n")) == 2


def test_escapes_are_shown_and_not_sent() -> None:
    assert view.printable("\x1b[2J\u202e\n") == r"\x1b[2J\u202e\n"


def test_turns_have_their_age() -> None:
    rows: list[dict[str, object]] = [
        {"turn_id": "t", "state": "held", "received_at_ms": 1000},
        {"turn_id": "u"},
    ]
    lines = view.turns(rows, 61_000).splitlines()
    assert lines[1].split() == ["t", "held", "-", "-", "-", "-", "-", "60.0", "s"]
    assert lines[2].split() == ["u", "-", "-", "-", "-", "-", "-", "-"]
    assert view.turns(rows[:1], 0).splitlines()[1].endswith("0.0 s")


def test_fields() -> None:
    assert view.fields({"a": 1, "long": None}) == "a     1\nlong  -"
    assert view.fields({}) == ""
