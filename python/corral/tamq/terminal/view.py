"""What a screen means under a profile. Pure: a screen in, a verdict out.

| the screen shows                                  | state  | reason        |
| ------------------------------------------------- | ------ | ------------- |
| an empty composer, or only its hint               | ready  | `ready`       |
| text in the composer                              | draft  | `draft`       |
| a menu, a question, a request for permission      | dialog | `dialog`      |
| an empty composer, and the program is at work     | busy   | `working`     |
| no composer (of `shell`: no prompt at the cursor) | busy   | `no_composer` |
"""

import itertools
import re
from dataclasses import dataclass, replace

from corral.tamq.terminal.base import Ready
from corral.tamq.terminal.profiles import Layout, Profile
from corral.tamq.terminal.screen import Line, Screen
from corral.tamq.terminal.text import Paste, is_rendering, squeeze

# Blanks between the cursor and what a shell shows at the right edge (zsh's RPROMPT).
RIGHT_PROMPT_GAP = 4
BOX_FOOTER_MAX_LINES = 16  # below the box of a composer: hints, menus, a status line
WORKING_LINES = 24  # above the composer: what it is doing, a plan, messages that wait


@dataclass(frozen=True)
class View:
    """`texts`: what may be the composer's text, squeezed, the likeliest first.

    `tall`: the composer may be taller than what is seen of it. `working`: the program is at work.
    `all`: the whole screen, squeezed. `typed`: the text, where it is known in which row it begins.
    `unread`: the kernel echoed a line that the program has not read. `covers`: the kernel may hold
    a line above, behind which the program printed something. `filled`: without a composer, all that
    is above the footer: of one that is taller than the screen nothing else is left.
    """

    state: Ready
    reason: str
    texts: tuple[str, ...] = ()
    tall: bool = False
    working: bool = False
    typed: str | None = None
    all: str = ""
    unread: bool = False
    covers: bool = False
    filled: str = ""

    def shows(self, paste: Paste) -> bool:
        """Whether the composer holds exactly this text, or as much of its end as can be seen."""
        whole, end = squeeze(paste.text), squeeze(paste.end)
        if any(is_rendering(text, paste.text) for text in self.texts):
            return True
        return self.tall and any(
            len(text) > len(end) and text.endswith(end) and whole.endswith(text)
            for text in self.texts
        )

    def overflows(self, paste: Paste) -> bool:
        """Whether nothing is seen but the end of this text: its beginning was scrolled away."""
        whole, end = squeeze(paste.text), squeeze(paste.end)
        return len(self.filled) > len(end) and whole.endswith(self.filled)

    def covered(self, paste: Paste) -> bool:
        """Whether this text, just typed and not entered, is above the empty line at the cursor."""
        return self.covers and self.state is Ready.READY and squeeze(paste.text) in self.all

    def holds_part_of(self, paste: Paste) -> bool:
        """Whether the composer holds the line that ends this text, whatever else is in it."""
        texts = self.texts if self.typed is None else (self.typed,)
        return any(squeeze(paste.end) in text for text in texts)


def look(screen: Screen, profile: Profile, *, echoed: bool = False) -> View:
    """The verdict. `shows` decides what is ours: text of ours is a draft here like any other.

    `echoed`: the kernel shows what is typed, in one line, until the program reads it.
    """
    if profile.layout is Layout.LINE:
        return _line(screen, profile, echoed=echoed)
    readers = {Layout.BOX: _box, Layout.TAIL: _tail}
    view = View(*readers[profile.layout](screen, profile), all=squeeze("".join(screen.texts)))
    return replace(view, filled=_filled(screen, profile)) if view.reason == "no_composer" else view


def shows_collapsed(view: View, paste: Paste, profile: Profile) -> bool:
    """Whether the composer holds only what a program shows instead of a paste just like ours."""
    if profile.collapsed is None:
        return False
    pattern = squeeze_pattern(profile)
    for text in view.texts:
        found = pattern.fullmatch(text)
        if found is None:
            continue
        counts = {key: int(value) for key, value in found.groupdict().items() if value}
        lines_agree = counts.get("lines", paste.lines - 1) in {paste.lines - 1, paste.lines}
        if lines_agree and counts.get("chars", len(paste.text)) == len(paste.text):
            return True
    return False


def squeeze_pattern(profile: Profile) -> "re.Pattern[str]":
    """The pattern of a collapsed paste, for text without blanks."""
    assert profile.collapsed is not None  # noqa: S101  the caller asked
    return re.compile(profile.collapsed.pattern.replace(" ", ""))


_Found = tuple[Ready, str, tuple[str, ...], bool, bool]


# ---- the line with the cursor ---------------------------------------------------------------


def _line(screen: Screen, profile: Profile, *, echoed: bool) -> View:
    state, reason = _at_cursor(screen, profile)
    rows = screen.texts[: screen.last + 1]
    whole = squeeze("".join(screen.texts))
    if not _reaches_cursor(screen):
        return View(state, reason, ("",), typed="", all=whole)
    ends = [rows, *_before_prompt(screen, profile)] if echoed else [rows]
    texts: list[str] = []
    for row in range(min(screen.row, len(rows) - 1), -1, -1):
        found = profile.prompt.match(rows[row])
        if found is not None:
            texts += (squeeze("".join(one[row:])[found.end() :]) for one in ends)
    tall = bool(rows and rows[0])
    if tall:
        texts.append(whole)
    typed = _typed(screen, profile, state, echoed=echoed)
    return View(state, reason, tuple(texts), tall, typed=typed, all=whole)


def _typed(screen: Screen, profile: Profile, state: Ready, *, echoed: bool) -> str | None:
    """The text, when it begins in the line with the cursor. What is above was printed then.

    A line goes on in the next row when it fills its row. Without a prompt it may be the last of
    several in a composer, but not if the kernel echoes it.
    """
    row = min(screen.row, len(screen.lines) - 1)
    if state is Ready.READY and screen.lines[row].text:
        return ""  # nothing but a prompt
    while row and screen.lines[row - 1].width >= screen.columns - 1:
        row -= 1
    found = profile.prompt.match(screen.lines[row].text)
    if not echoed and (found is None or not found[0]):
        return None
    text = "".join(screen.texts[row:])
    return squeeze(text if found is None else text[found.end() :])


def _before_prompt(screen: Screen, profile: Profile) -> list[tuple[str, ...]]:
    """The rows to where the program may have printed its prompt behind what was typed."""
    if screen.row >= len(screen.lines) or any(screen.texts[screen.row + 1 :]):
        return []
    line = screen.lines[screen.row]
    end = max(len(line.text), line.index(screen.column))
    text = line.text.ljust(end)
    cuts = [at for at in range(1, len(line.text)) if profile.prompt.fullmatch(text, at)]
    return [(*screen.texts[: screen.row], text[:at]) for at in cuts]


def _reaches_cursor(screen: Screen) -> bool:
    """Whether the text above goes on at the cursor. Behind a line end it is no longer typed."""
    line = screen.lines[screen.row] if screen.row < len(screen.lines) else Line("")
    if line.text or not screen.row:
        return True
    return screen.column == 0 and screen.lines[screen.row - 1].width >= screen.columns - 1


def _at_cursor(screen: Screen, profile: Profile) -> tuple[Ready, str]:
    line = screen.lines[screen.row] if screen.row < len(screen.lines) else Line("")
    if profile.dialog is not None and profile.dialog.search(line.text):
        return Ready.DIALOG, "dialog"
    found = profile.prompt.match(line.text)
    if found is None:
        return Ready.BUSY, "no_composer"
    at = line.index(screen.column)
    typed, behind = line.text[found.end() : max(at, found.end())], line.text[at:]
    gap = len(behind) - len(behind.lstrip())
    below = any(screen.texts[screen.row + 1 :])
    if typed.strip() or below or (behind.strip() and gap < RIGHT_PROMPT_GAP):
        return Ready.DRAFT, "draft"
    if at < len(line.text[: found.end()].rstrip()):
        return Ready.BUSY, "no_composer"  # the cursor is inside of the prompt: not its place
    return Ready.READY, "ready"


# ---- a box between two rules ----------------------------------------------------------------


def _box(screen: Screen, profile: Profile) -> _Found:
    assert profile.rule is not None  # noqa: S101  `parse` saw to it
    rules = [row for row, text in enumerate(screen.texts) if profile.rule.match(text)]
    for top, bottom in reversed(list(itertools.pairwise(rules))):
        inside = screen.lines[top + 1 : bottom]
        if inside and profile.prompt.match(inside[0].text):
            return _in_box(screen, profile, top, bottom)
    return _without_composer(screen, profile)


def _in_box(screen: Screen, profile: Profile, top: int, bottom: int) -> _Found:
    below = screen.texts[bottom + 1 :]
    if _matches(profile.dialog, below):
        return Ready.DIALOG, "dialog", (), False, False
    if len([text for text in below if text]) > BOX_FOOTER_MAX_LINES:
        return Ready.BUSY, "no_composer", (), False, False
    text, hint = _inside(screen.lines[top + 1 : bottom], profile)
    working = _matches(profile.busy, (*screen.texts[max(0, top - WORKING_LINES) : top], *below))
    if text and not hint:
        return Ready.DRAFT, "draft", (text,), False, working
    if working:
        return Ready.BUSY, "working", ("",), False, True
    return Ready.READY, "ready", ("",), False, False


# ---- from the last prompt to the footer -----------------------------------------------------


def _tail(screen: Screen, profile: Profile) -> _Found:
    rows = screen.texts
    starts = [row for row, text in enumerate(rows) if profile.prompt.match(text)]
    if not starts:
        return _without_composer(screen, profile)
    top = starts[-1]
    bottom = len(rows) - 1
    while bottom > top and (not rows[bottom] or _is_footer(profile, rows[bottom])):
        bottom -= 1
    text, hint = _inside(screen.lines[top : bottom + 1], profile)
    tall = top == 0 or 3 * (bottom + 1 - top) >= len(rows)
    texts = (text,) if text and not hint else ("",)
    working = _matches(profile.busy, rows[max(0, top - WORKING_LINES) : top])
    if _matches(profile.dialog, rows[top:]):
        return Ready.DIALOG, "dialog", texts, tall, working
    if text and not hint:
        return Ready.DRAFT, "draft", texts, tall, working
    if working:
        return Ready.BUSY, "working", texts, False, True
    return Ready.READY, "ready", texts, False, False


def _is_footer(profile: Profile, row: str) -> bool:
    return profile.footer is not None and profile.footer.match(row) is not None


# ---- both -----------------------------------------------------------------------------------


def _inside(lines: tuple[Line, ...], profile: Profile) -> tuple[str, bool]:
    """The text behind the prompt, squeezed; and whether it is only the program's own hint.

    A hint is faint; the cursor may stand, reversed, on its first letter.
    """
    found = profile.prompt.match(lines[0].text)
    start = found.end() if found is not None else 0
    text = squeeze(lines[0].text[start:] + "".join(one.text for one in lines[1:]))
    loud = faint = 0
    for number, one in enumerate(lines):
        for at, letter in enumerate(one.text):
            if letter.isspace() or (number == 0 and at < start):
                continue
            if at in one.faint:
                faint += 1
            elif not (number == 0 and at == start and at in one.reverse):
                loud += 1
    return text, not loud and faint > 0


def _filled(screen: Screen, profile: Profile) -> str:
    """What is above the last rule or the footer; nothing while the program works."""
    rows, bottom = screen.texts, len(screen.texts)
    if profile.rule is not None:
        bottom = max((at for at, row in enumerate(rows) if profile.rule.match(row)), default=bottom)
    while bottom and (not rows[bottom - 1] or _is_footer(profile, rows[bottom - 1])):
        bottom -= 1
    below = rows[bottom:]
    return "" if _matches(profile.busy, below) else squeeze("".join(rows[:bottom]))


def _without_composer(screen: Screen, profile: Profile) -> _Found:
    if _matches(profile.dialog, screen.texts):
        return Ready.DIALOG, "dialog", (), False, False
    return Ready.BUSY, "no_composer", (), False, False


def _matches(pattern: "re.Pattern[str] | None", rows: tuple[str, ...]) -> bool:
    return pattern is not None and pattern.search("\n".join(rows)) is not None
