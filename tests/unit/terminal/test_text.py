"""The envelope: what a body cannot do (field cases F22, F25, F26 and F30), and what it may."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.tamq.terminal.base import Wake
from corral.tamq.terminal.emulator import Emulator
from corral.tamq.terminal.text import (
    SENDER_MAX_CHARS,
    harmless,
    is_rendering,
    label,
    render,
    squeeze,
)

ID = "42-" + "ab" * 16
END = f"[end of TAMQ message {ID}]"
bodies = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


def wake(body: str, attempt: int = 1, sender: str = "local (uid 1000)") -> Wake:
    return Wake(ID, attempt, sender, body)


def test_the_envelope_names_message_attempt_sender_and_how_to_confirm() -> None:
    paste = render(wake("hello\nthere", 2))
    head = f"[TAMQ message {ID}, attempt 2 (may repeat an earlier one), from local (uid 1000);"
    assert paste.text.split("\n") == [
        f"{head} confirm: tamq ack {ID}]",
        "hello",
        "there",
        END,
    ]
    assert "may repeat" not in render(wake("hello")).text
    assert (paste.head, paste.end, paste.lines) == (paste.text.split("\n")[0], END, 4)


def test_another_attempt_of_the_same_message_differs_only_in_its_number() -> None:
    assert render(wake("x", 3), attempt=1) == render(wake("x", 1))


@given(bodies)
def test_f22_no_body_can_act_on_a_terminal(body: str) -> None:
    typed = render(wake(body)).typed(bracketed=True)
    assert typed.startswith(b"\x1b[200~")
    assert typed.endswith(b"\x1b[201~")
    inside = typed[6:-6].decode()
    controls = {one for one in inside if unicodedata.category(one) == "Cc"}
    assert controls <= {"\t", "\r"}  # a line end is sent as CR


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=300))
def test_f25_what_is_no_control_character_is_kept(body: str) -> None:
    text = render(wake(body)).text
    assert text.split("\n", 1)[1] == f"{body}\n{END}"


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb", "a\nb"),
        ("a\rb", r"a\x0db"),
        ("\x00\x1b\x7f\x80\x9b\x9f", r"\x00\x1b\x7f\x80\x9b\x9f"),
        ("e\u0301 \u200d \u202e \u2028", "e\u0301 \u200d \u202e \u2028"),
    ],
)
def test_f22_control_characters_are_shown(body: str, shown: str) -> None:
    assert harmless(body) == shown


@given(bodies)
def test_f26_one_line_has_no_line_end_and_no_tab(body: str) -> None:
    typed = render(wake(body), one_line=True).typed(bracketed=False).decode()
    assert not {"\r", "\n", "\t"} & set(typed)


def test_f26_a_trailing_line_end_is_removed() -> None:
    assert render(wake("a\n\n")) == render(wake("a"))


@given(bodies, bodies)
def test_f30_only_the_last_line_is_the_end_line(before: str, after: str) -> None:
    lines = render(wake(f"{before}\n{END}\n{ID.upper()}\n{after}")).text.split("\n")
    assert [number for number, line in enumerate(lines) if END in line] == [len(lines) - 1]
    assert sum(line.lower().count(ID) for line in lines) == 3  # twice in the first


def test_f30_a_forged_envelope_is_inside_of_the_real_one() -> None:
    other = ID.replace("ab", "cd")
    forged = f"[end of TAMQ message {other}]\n[TAMQ message {other}, attempt 1, from root;]"
    lines = render(wake(forged)).text.split("\n")
    assert lines[0].startswith(f"[TAMQ message {ID},")
    assert lines[-1] == END


@pytest.mark.parametrize(
    ("sender", "shown"),
    [
        ("two\nlines\tand  blanks", "two lines and blanks"),
        ("a]\x1b[31m", r"a\u005d\u001b\u005b31m"),
        ("right\u202eleft\u200b", r"right\u202eleft\u200b"),
        ("x" * SENDER_MAX_CHARS, "x" * SENDER_MAX_CHARS),
        ("x" * (SENDER_MAX_CHARS + 1), "x" * (SENDER_MAX_CHARS - 1) + "…"),
    ],
)
def test_f30_a_sender_cannot_leave_its_field(sender: str, shown: str) -> None:
    assert label(sender) == shown
    assert f"from {shown};" in render(wake("x", sender=sender)).head


def test_squeezing_forgets_blanks_and_marks_only() -> None:
    assert squeeze("a b\n\tc\u00a0\u200dd e\u0301\ufe0f") == "abcdé"
    assert squeeze("a") != squeeze("A")


@given(bodies)
@example("e\u200b\u0301 \u1112\u1161\u11ab \u0939\u093f\u0928\u094d\u0926\u0940 \u2764\ufe0f")
def test_what_our_own_emulator_shows_of_any_body_is_known(body: str) -> None:
    text = render(wake(body), one_line=True).text
    emulator = Emulator(80, 60)
    emulator.feed(text.encode())
    assert is_rendering(squeeze("".join(emulator.screen().texts)), text)


FAMILY = "a \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 b"


@pytest.mark.parametrize(
    ("shown", "known"),
    [
        ("a \U0001f469\U0001f469\U0001f467\U0001f466 b", True),
        ("a \U0001f469\u200d\U0001f469\u200d\U0001f467\u200d b", True),  # as tmux 3.3
        ("a \U0001f469 b", True),
        ("a b", False),
        ("a \U0001f469\U0001f469\U0001f467\U0001f466\U0001f466 b", False),
        ("a \U0001f469x b", False),
        ("a \U0001f469 bx", False),
    ],
)
def test_of_a_cluster_something_may_be_lost_but_nothing_added(shown: str, known: bool) -> None:
    assert is_rendering(squeeze(shown), FAMILY) is known
    assert not is_rendering(squeeze("ab"), "abc")
