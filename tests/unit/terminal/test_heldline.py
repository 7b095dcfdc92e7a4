"""What is held of a line, against the kernel's own line editing on a real pseudo-terminal."""

import os
import pty
import select
import termios

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.tamq.terminal.heldline import HeldLine

IUTF8 = 0o40000
KEYS = st.lists(
    st.sampled_from(["a", "b c", "d-e_", "ü", "世", "\x7f", "\x17", "\x15", "\r"]), max_size=12
)


@pytest.mark.parametrize(
    ("typed", "held"),
    [
        (b"", ""), (b"half a", "half a"), (b"half\x7f\x7f a", "ha a"), (b"one\rtwo", "two"),
        (b"one two\x17", "one "), (b"one\x15", ""), (b"one\x03", ""), (b"one\x04two", "two"),
        ("ü世\x7f".encode(), "ü"), (b"\x7f\x7f", ""), (b"\x17", ""),
    ],
)  # fmt: skip
def test_the_usual_keys(typed: bytes, held: str) -> None:
    line = HeldLine()
    line.typed(typed, canonical=True)
    assert line.text == held


def test_a_program_that_reads_keys_leaves_nothing_to_hold() -> None:
    line = HeldLine()
    line.typed(b"half", canonical=True)
    line.typed(b"x", canonical=False)
    assert line.text == ""


@given(KEYS)
@settings(max_examples=200, deadline=None)
def test_it_is_what_the_kernel_holds(keys: list[str]) -> None:
    """Ended with Enter, the line that the program reads is the one that was held."""
    line = HeldLine()
    master, slave = pty.openpty()
    mode = termios.tcgetattr(slave)
    mode[0] |= IUTF8  # as every terminal of today
    termios.tcsetattr(slave, termios.TCSANOW, mode)
    try:
        expected = b""
        for key in keys:
            if key == "\r":
                expected += line.text.encode() + b"\n"
            line.typed(key.encode(), canonical=True)
            os.write(master, key.encode())
        expected += line.text.encode() + b"\n"
        os.write(master, b"\r")
        read = b""
        while len(read) < len(expected) and select.select([slave], [], [], 5)[0]:
            read += os.read(slave, 65_536)
        assert read == expected
    finally:
        os.close(slave)
        os.close(master)
