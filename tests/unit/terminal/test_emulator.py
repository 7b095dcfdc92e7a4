"""The emulator against what programs write, and against garbage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.tamq.terminal.emulator import CARRY_MAX_CHARS, Emulator
from corral.tamq.terminal.screen import from_rows


def shown(*data: bytes, columns: int = 20, rows: int = 4) -> list[str]:
    emulator = Emulator(columns, rows)
    for one in data:
        emulator.feed(one)
    return [text for text in emulator.screen().texts if text]


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"a\r\nb", ["a", "b"]),
        (b"abc\x1b[2Dx", ["axc"]),
        (b"x" * 25, ["x" * 20, "x" * 5]),
        ("世界".encode(), ["世界"]),
        ("e\u0301".encode(), ["é"]),
        # What takes no room hides nothing that follows it.
        ("I \u2764\ufe0f it".encode(), ["I \u2764\ufe0f it"]),
        (
            "\u0939\u093f\u0928\u094d\u0926\u0940.".encode(),
            ["\u0939\u093f\u0928\u094d\u0926\u0940."],
        ),
        ("\u1112\u1161\u11ab.".encode(), ["\ud55c."]),
        ("a\u200b\u202e\ufeff\u2028b".encode(), ["ab"]),
        ("\u200b\ufe0fa".encode(), ["a"]),
        (("x" * 20 + "\u0301y").encode(), ["x" * 19 + "x\u0301", "y"]),
        (b"a\x1b[5b", ["aaaaaa"]),  # repeat
        (b"a\r\nb\x1b[S", ["b"]),  # scroll
        (b"a\x1b[s\x1b[3;3Hb\x1b[uc", ["ac", "  b"]),
        (b"\x1b[1;2;3;4;5;6Ha\x1b[2;1Hb", ["a", "b"]),  # too many parameters
    ],
)
def test_what_is_drawn(data: bytes, rows: list[str]) -> None:
    assert shown(data) == rows


@pytest.mark.parametrize(
    "sequence",
    [
        b"\x1b[>1u",
        b"\x1b[<u",
        b"\x1b[=5;1u",
        b"\x1b[?2026$p",
        b"\x1b[!p",
        b"\x1b[ q",
        b"\x1b[>c",
        b"\x1b]0;title\x07",
        b"\x1b]8;;http://x\x1b\\",
        b"\x1bP+q544e\x1b\\",
        b"\x1b_Gi=1;AAAA\x1b\\",
        b"\x1b[4:3m",
        b"\x1b[?3h",
        b"\x1b(B",
    ],
)
def test_what_has_no_looks_leaves_no_trace_however_it_is_cut(sequence: bytes) -> None:
    for cut in range(len(sequence) + 1):
        assert shown(b"a" + sequence[:cut], sequence[cut:] + b"b") == ["ab"]


def test_a_string_without_an_end_does_not_swallow_everything() -> None:
    emulator = Emulator(20, 4)
    emulator.feed(b"\x1b]0;" + b"t" * CARRY_MAX_CHARS)
    emulator.feed(b"\x1b\\\x1b[2J\x1b[Hlater")
    assert emulator.screen().texts[0] == "later"


def test_faint_and_reversed_text_is_known_as_in_tmux() -> None:
    data = "❯ \x1b[7mT\x1b[0m\x1b[2mry\x1b[22m \x1b[2;38;2;1;2;3mit\x1b[0m"
    emulator = Emulator(40, 2)
    emulator.feed(data.encode())
    assert emulator.screen().lines[0] == from_rows([data], 0, 0).lines[0]


@pytest.mark.parametrize("sequence", [b"\x1b[58;5;2m", b"\x1b[38;5;2m", b"\x1b[48;2;2;2;2m"])
def test_a_colour_is_not_faint(sequence: bytes) -> None:
    emulator = Emulator(20, 2)
    emulator.feed(sequence + b"a")
    assert not emulator.screen().lines[0].faint


def test_the_alternate_screen_comes_and_goes() -> None:
    emulator = Emulator(20, 4)
    emulator.feed(b"$ vi\r\n\x1b[?1049h\x1b[H~ file ~")
    assert emulator.screen().texts[0] == "~ file ~"
    emulator.feed(b"\x1b[?1049l$ ")
    assert emulator.screen().texts[:2] == ("$ vi", "$")
    assert (emulator.screen().row, emulator.screen().column) == (1, 2)


def test_bracketed_paste_is_what_the_program_asked_for_last() -> None:
    emulator = Emulator(20, 4)
    told = [emulator.bracketed]
    for data in (b"\x1b[?20", b"04h", b"\x1b[?2004l", b"\x1b[?2004h\x1bc"):
        emulator.feed(data)
        told.append(emulator.bracketed)
    assert told == [False, False, True, False, False]


def test_queries_are_answered_where_nobody_else_does() -> None:
    said: list[bytes] = []
    emulator = Emulator(20, 4, said.append)
    emulator.feed(b"ab\x1b[6n")
    assert said == [b"\x1b[1;3R"]


@given(
    st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b"\x1b[", b"\x1b]", b";9", b"H"])))
)
def test_no_output_breaks_it(pieces: list[bytes]) -> None:
    emulator = Emulator(20, 4)
    for piece in pieces:
        emulator.feed(piece)
    screen = emulator.screen()
    assert len(screen.lines) == 4
    assert 0 <= screen.row < 4
    assert 0 <= screen.column < 20
    emulator.feed(b"\x1b\\\x18\x1bc\x1b[H\x1b[2Jalive")
    assert emulator.screen().texts[0].startswith("alive")


@given(
    st.lists(
        st.sampled_from(
            [
                "plain",
                "世",
                "\r\n",
                "\x1b[31m",
                "\x1b[2m",
                "\x1b[m",
                "\x1b[4h",
                "\x1b[4l",
                "\x1b[A",
                "\t",
            ]
        ),
        max_size=30,
    ),
    st.integers(1, 30),
)
def test_cutting_the_output_changes_nothing(pieces: list[str], size: int) -> None:
    data = "".join(pieces).encode()
    whole, cut = Emulator(20, 4), Emulator(20, 4)
    whole.feed(data)
    for at in range(0, len(data), size):
        cut.feed(data[at : at + size])
    assert whole.screen() == cut.screen()


def test_a_smaller_window_keeps_the_cursor_inside() -> None:
    emulator = Emulator(80, 24)
    emulator.feed(b"x\r\n" * 23 + b"y" * 79)
    emulator.resize(40, 10)
    screen = emulator.screen()
    assert len(screen.lines) == 10
    assert screen.row < 10
    assert screen.column < 40
