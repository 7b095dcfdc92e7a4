"""Rows of a terminal: letters, looks, columns."""

import pytest

from corral.tamq.terminal.screen import Line, from_rows


def test_faint_and_reversed_cells_are_known() -> None:
    [line] = from_rows(["❯ \x1b[7mT\x1b[0m\x1b[2mry it\x1b[0m   "], 0, 2).lines
    assert line == Line("❯ Try it", frozenset({3, 4, 5, 6, 7}), frozenset({2}))


@pytest.mark.parametrize(
    ("row", "faint"),
    [
        ("\x1b[1;2ma\x1b[22mb", {0}),
        ("\x1b[2;38;2;136;136;136ma\x1b[mb", {0}),
        ("\x1b[38;2;2;2;2ma", set()),  # a colour with a 2 in it
        ("\x1b[38;5;2ma", set()),
        ("\x1b[4:2ma", set()),
        ("\x1b[38:2::2:2:2;2ma", {0}),
        ("\x1b[02ma", {0}),
    ],
)
def test_only_the_attribute_itself_is_faint(row: str, faint: set[int]) -> None:
    [line] = from_rows([row], 0, 0).lines
    assert line.faint == faint


def test_attributes_go_on_in_the_next_row() -> None:
    first, second = from_rows(["\x1b[2mab", "cd\x1b[0me"], 0, 0).lines
    assert first.faint == second.faint == {0, 1}
    assert second.text == "cde"


def test_links_other_sequences_and_line_drawing_are_no_text() -> None:
    [line] = from_rows(["\x1b]8;;http://x\x1b\\a\x1b]8;;\x07b\x1b[3Kc\x0eqx\x0fq"], 0, 0).lines
    assert line.text == "abc─│q"


@pytest.mark.parametrize(
    ("text", "column", "index"),
    [("ab", 0, 0), ("ab", 1, 1), ("ab", 2, 2), ("ab", 5, 5), ("世b", 2, 1), ("e\u0301b", 1, 1)],
)
def test_a_column_is_found_in_the_text(text: str, column: int, index: int) -> None:
    at = Line(text).index(column)
    assert text[at:].lstrip("\u0301") == text[index:].lstrip("\u0301")


def test_the_last_row_is_the_last_with_text_or_the_cursor() -> None:
    assert from_rows(["a", "", "b", ""], 0, 0).last == 2
    assert from_rows(["a", "", ""], 2, 0).last == 2
