"""What screens mean. Agents look as public recordings show them."""

import pytest

from corral.tamq.terminal.base import Ready, Wake
from corral.tamq.terminal.profiles import BUILT_IN
from corral.tamq.terminal.screen import Screen, from_rows
from corral.tamq.terminal.text import Paste, render
from corral.tamq.terminal.view import View, look, shows_collapsed

RULE = "\x1b[2;38;2;136;136;136m" + "─" * 80 + "\x1b[0m"
HINT = '❯\u00a0\x1b[7mT\x1b[0m\x1b[2mry "fix typecheck errors"\x1b[0m'
CLAUDE_TOP = ["", "▗ ▗   ▖ ▖  Claude Code v2.1.29", "  ▘▘ ▝▝    /tmp-like", ""]
CLAUDE_ASKS = [
    "⏺ Bash(touch x)",
    "─" * 80,
    " Bash command",
    "   touch x",
    " Do you want to proceed?",
    " ❯ 1. Yes",
    "   2. Yes, and always allow access to x/ from this project",
    "   3. No",
    " Esc to cancel · Tab to amend",
]
CODEX_FOOT = ["", "  ? for shortcuts                          100% context left"]
CODEX_FOOT_2 = [
    "",
    "  gpt-5 default · ~/work · [TAMQ message 7",
    "  ← for agents · ? for shortcuts",
]
CODEX_ASKS = [
    "  Would you like to run the following command?",
    "",
    "  $ echo hello world",
    "",
    "› 1. Yes, proceed (y)",
    "  2. Yes, and don't ask again for commands that start with `echo hello world` (p)",
    "  3. No, and tell Codex what to do differently (esc)",
    "",
    "  Press enter to confirm or esc to cancel",
]


def screen(*rows: str, row: int = 0, column: int = 0, height: int = 24) -> Screen:
    return from_rows([*rows, *[""] * (height - len(rows))], row, column)


def seen(profile: str, *rows: str, row: int = 0, column: int = 0) -> View:
    return look(screen(*rows, row=row, column=column), BUILT_IN[profile])


def paste(body: str = "hello", attempt: int = 1) -> Paste:
    return render(Wake("7-" + "0f" * 16, attempt, "local", body))


CASES = {
    "claude hint": ("claude-code", [*CLAUDE_TOP, RULE, HINT, RULE, "  ? for shortcuts"], "ready"),
    "claude empty": ("claude-code", [RULE, "❯", RULE, "  ? for shortcuts"], "ready"),
    "claude plan": (
        "claude-code",
        [RULE, "❯", RULE, "  ⏸ plan mode on"],
        "ready",
    ),
    "claude stash": ("claude-code", ["  › Stashed", RULE, HINT, RULE], "ready"),
    "claude draft": ("claude-code", [RULE, "❯ Say hello\x1b[7m \x1b[0m", RULE], "draft"),
    "claude one reversed letter": ("claude-code", [RULE, "❯ \x1b[7mx\x1b[0m", RULE], "draft"),
    "claude slash menu": ("claude-code", [RULE, "❯ /", RULE, "  /add-dir   Add"], "draft"),
    "claude asks": ("claude-code", [*CLAUDE_TOP, *CLAUDE_ASKS], "dialog"),
    "claude asks below a box": ("claude-code", [RULE, "❯", RULE, *CLAUDE_ASKS[4:]], "dialog"),
    "claude picks a model": (
        "claude-code",
        ["─" * 80, " Select model", " ❯ 3. Haiku ✔", " Enter to confirm · Esc to exit"],
        "dialog",
    ),
    "claude works": (
        "claude-code",
        ["✻ Pondering… (3s · ↓ 34 tokens · esc to interrupt)", "", RULE, "❯", RULE],
        "working",
    ),
    "claude works, no hint": ("claude-code", ["· Gesticulating…", RULE, "❯", RULE], "working"),
    "claude bash mode": ("claude-code", [RULE, "! ls", RULE], "no_composer"),
    "claude 2.1.328": (
        "claude-code",
        [
            "  ◐ medium · /effort",
            RULE,
            "❯\u00a0\x1b[7m \x1b[0m",
            RULE,
            "  ⏵⏵ auto mode on · ← for agents",
        ],
        "ready",
    ),
    "claude 2.1.328 works": (
        "claude-code",
        [RULE, "❯\u00a0", RULE, "  ⏵⏵ auto mode on (shift+tab to cycle) · esc to interrupt"],
        "working",
    ),
    "claude 2.1.328 asks for a key": (
        "claude-code",
        ["─" * 80, "  Do you want to use this API key?", "    Yes", "  ❯ No (recommended)"],
        "dialog",
    ),
    "claude starts": ("claude-code", CLAUDE_TOP, "no_composer"),
    "codex hint": ("codex", ["› \x1b[2mAsk Codex to do anything\x1b[0m", *CODEX_FOOT], "ready"),
    "codex 2025": (
        "codex",
        ["▌ \x1b[2mDescribe\x1b[0m", "", " ⏎ send   ⌃J newline"],
        "ready",
    ),
    "codex draft": ("codex", ["› Summarize", "  this", *CODEX_FOOT], "draft"),
    "codex works": (
        "codex",
        ["• Working (0s • esc to interrupt)", "", "› \x1b[2mAsk Codex\x1b[0m", *CODEX_FOOT],
        "working",
    ),
    "codex 0.171": (
        "codex",
        [
            "› \x1b[2mAsk Codex to do anything\x1b[0m",
            "",
            "  gpt-5 default · ~/work · one two three",
            "  ← for agents · ? for shortcuts             ⚠ 1 warning · f2 to view",
        ],
        "ready",
    ),
    "codex 0.171 draft": (
        "codex",
        [
            "◦ Working (3s • esc to interrupt)",
            "",
            "› more",
            "",
            "  gpt-5 · ~",
            "  tab to queue message",
        ],
        "draft",
    ),
    "codex 0.171 picks a model": (
        "codex",
        ["› 1. One  Fast.", "  2. Two  Slow.", "↓", "  enter select · esc back"],
        "dialog",
    ),
    "codex asks": ("codex", CODEX_ASKS, "dialog"),
    "codex starts": ("codex", ["loading"], "no_composer"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_an_agent_shows(name: str) -> None:
    profile, rows, reason = CASES[name]
    assert seen(profile, *rows).reason == reason


@pytest.mark.parametrize(
    ("rows", "row", "column", "reason"),
    [
        (["user@host:~/x$"], 0, 15, "ready"),
        (["out", "root@host:/# "], 1, 13, "ready"),
        (["% "], 0, 2, "ready"),
        (["~/x ❯ "], 0, 6, "ready"),
        (["user@host ~/x> "], 0, 15, "ready"),
        (["host% " + " " * 60 + "12:30"], 0, 6, "ready"),  # a prompt at the right edge
        (["$ ls"], 0, 4, "draft"),
        (["$ ls"], 0, 2, "draft"),  # the cursor was moved back
        (["$ echo 5 $"], 0, 10, "draft"),
        (["$ echo 'a", "b"], 0, 2, "draft"),
        (["$ echo 'a", "> "], 1, 2, "no_composer"),
        (["$ echo 'a", "dquote> "], 1, 8, "no_composer"),
        (["Password:"], 0, 10, "no_composer"),
        (["", ""], 0, 0, "no_composer"),
    ],
)
def test_what_a_shell_shows(rows: list[str], row: int, column: int, reason: str) -> None:
    assert seen("shell", *rows, row=row, column=column).reason == reason


@pytest.mark.parametrize(
    ("rows", "row", "column", "reason"),
    [
        (["", ""], 0, 0, "ready"),
        (["out", ""], 1, 0, "ready"),
        (["> "], 0, 2, "ready"),
        ([">>> "], 0, 4, "ready"),
        (["half a line"], 0, 11, "draft"),
        (["> half"], 0, 6, "draft"),
        (["Continue? [y/N] "], 0, 16, "dialog"),
        (["❯ 1. Yes"], 0, 0, "dialog"),
    ],
)
def test_what_a_plain_program_shows(rows: list[str], row: int, column: int, reason: str) -> None:
    assert seen("plain", *rows, row=row, column=column).reason == reason


# ---- what is ours ---------------------------------------------------------------------------


def wrapped(text: str, prompt: str, width: int = 40) -> list[str]:
    rows = [part[at : at + width] for part in text.split("\n") for at in range(0, len(part), width)]
    return [prompt + rows[0], *(f"  {row}" for row in rows[1:])]


@pytest.mark.parametrize("profile", ["claude-code", "codex"])
def test_our_text_is_known_however_it_is_wrapped(profile: str) -> None:
    ours = paste("two\nlines that are long enough to be wrapped at this width")
    rows = wrapped(ours.text, "❯ " if profile == "claude-code" else "› ")
    for foot in (CODEX_FOOT, CODEX_FOOT_2, []):
        screen_rows = [RULE, *rows, RULE] if profile == "claude-code" else [*rows, *foot]
        view = seen(profile, *screen_rows)
        assert view.state is Ready.DRAFT
        assert view.shows(ours)
        assert view.holds_part_of(ours)
        assert not view.shows(paste("another"))


def test_our_text_with_somebody_elses_is_not_exactly_ours() -> None:
    ours = paste()
    for rows in (wrapped(ours.text + "x", "❯ "), wrapped("x" + ours.text, "❯ ")):
        view = seen("claude-code", RULE, *rows, RULE)
        assert not view.shows(ours)
        assert view.holds_part_of(ours)


def test_the_end_of_our_text_is_enough_only_where_the_rest_cannot_be_seen() -> None:
    ours = paste("word " * 200)
    rows = wrapped(ours.text, "› ")
    tall = [f"› {rows[-18].strip()}", *rows[-17:]]
    assert seen("codex", "", *tall, *CODEX_FOOT).shows(ours)
    short = [f"› {rows[-4].strip()}", *rows[-3:]]
    assert not seen("codex", *[""] * 10, *short, *CODEX_FOOT).shows(ours)


@pytest.mark.parametrize(
    ("profile", "foot"), [("codex", CODEX_FOOT), ("claude-code", [RULE, "  ? for shortcuts"])]
)
def test_a_text_that_fills_the_screen_is_known_by_its_end(profile: str, foot: list[str]) -> None:
    ours = paste("word " * 400)
    rows = [one.strip() for one in wrapped(ours.text, "")][-(24 - len(foot)) :]
    assert seen(profile, *rows, *foot).overflows(ours)
    other = render(Wake("8-" + "0f" * 16, 1, "local", "word " * 400))
    assert not seen(profile, *rows, *foot).overflows(other)
    for others in (["x", *rows[1:]], [*rows[:-1], rows[-1] + "x"], [*rows[1:], "x"]):
        assert not seen(profile, *others, *foot).overflows(ours)
    # While it works nothing is entered.
    works = [*foot[:-1], "  esc to interrupt"]
    assert not seen(profile, *rows, *works).overflows(ours)


def test_behind_a_line_end_text_is_no_longer_in_the_line() -> None:
    ours = render(Wake("7-" + "0f" * 16, 1, "local", "hello"), one_line=True)
    rows = [ours.text[at : at + 80] for at in range(0, len(ours.text), 80)]
    typed = screen(*rows, row=len(rows) - 1, column=len(rows[-1]))
    assert look(typed, BUILT_IN["plain"]).shows(ours)
    entered = screen(*rows, row=len(rows), column=0)
    assert not look(entered, BUILT_IN["plain"]).shows(ours)
    assert look(entered, BUILT_IN["plain"]).state is Ready.READY


OURS = render(Wake("7-" + "0f" * 16, 1, "local", "hello"), one_line=True).text


def rows_of(text: str) -> list[str]:
    return [text[at : at + 80].rstrip() for at in range(0, len(text), 80)]


@pytest.mark.parametrize(
    ("below", "reason", "held"),
    [
        ([">"], "ready", False),  # it printed nothing but its prompt
        (["got 5", ">"], "ready", False),
        (["got 5", "> half"], "draft", False),
        (["x" * 80, ">"], "ready", False),  # a row that is full is not a line that goes on
        (["> " + OURS[:78], *rows_of(OURS[78:])], "draft", True),
    ],
)
def test_what_is_above_the_prompt_is_no_longer_typed(
    below: list[str], reason: str, held: bool
) -> None:
    ours = render(Wake("7-" + "0f" * 16, 1, "local", "hello"), one_line=True)
    rows = [*rows_of("> " + OURS), *below]
    column = len(rows[-1]) + (rows[-1] == ">")
    for echoed in (False, True):
        view = look(
            screen(*rows, row=len(rows) - 1, column=column), BUILT_IN["plain"], echoed=echoed
        )
        assert view.reason == reason
        assert view.holds_part_of(ours) is held
        assert view.shows(ours) is held


@pytest.mark.parametrize(
    ("behind", "echoed", "shows"),
    [("> ", True, True), (">>> ", True, True), ("> x", True, False), ("> ", False, False)],
)
def test_a_prompt_behind_our_text_is_the_programs_where_the_kernel_echoes(
    behind: str, echoed: bool, shows: bool
) -> None:
    ours = render(Wake("7-" + "0f" * 16, 1, "local", "hello"), one_line=True)
    rows = rows_of(OURS + behind)
    at = screen(*rows, row=len(rows) - 1, column=len(OURS + behind) % 80)
    view = look(at, BUILT_IN["plain"], echoed=echoed)
    assert view.shows(ours) is shows
    assert view.state is Ready.DRAFT
    assert view.holds_part_of(ours)


@pytest.mark.parametrize(
    ("profile", "shown", "ours"),
    [
        ("claude-code", "[Pasted text #1 +4 lines]", True),
        ("claude-code", "[Pasted text #12 +5 lines]", True),
        ("claude-code", "[Pasted text #1 +7 lines]", False),
        ("claude-code", "[Pasted text #1 +4 lines] and more", False),
        ("claude-code", "[Pasted text #1]", True),
        ("codex", "[Pasted Content {chars} chars]", True),
        ("codex", "[Pasted Content {chars} chars] #2", True),
        ("codex", "[Pasted Content 12 chars]", False),
        ("shell", "[Pasted text #1]", False),
    ],
)
def test_a_collapsed_paste_is_ours_when_its_counts_are(
    profile: str, shown: str, ours: bool
) -> None:
    text = paste("a\nb\nc")
    shown = shown.format(chars=len(text.text))
    rows = [RULE, f"❯ {shown}", RULE] if profile != "codex" else [f"› {shown}", *CODEX_FOOT]
    assert shows_collapsed(seen(profile, *rows), text, BUILT_IN[profile]) is ours
