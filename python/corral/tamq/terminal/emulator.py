"""The screen of a program on our own pseudo-terminal, kept from what it writes (with pyte).

pyte draws what it does not know as text and raises on too many parameters; so sequences that it
lacks are taken out or translated before, and no output of a program can break the emulator.
"""

import codecs
import copy
import itertools
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import pyte
from pyte.charsets import LAT1_MAP
from pyte.modes import DECAWM, IRM
from pyte.screens import Char, Cursor, StaticDefaultDict
from wcwidth import wcwidth

from corral.tamq.terminal.screen import Line, Screen, line

CARRY_MAX_CHARS: Final = 4_096  # of a sequence whose end has not come yet
ATTRIBUTES_MAX: Final = 256  # combinations of colours and looks whose cells are kept at hand
CLUSTER_MAX_CHARS: Final = 32  # of a letter with its marks
_BRACKETED_PASTE: Final = 2004 << 5  # as pyte keeps private modes
_ALTERNATE: Final = frozenset({47, 1047, 1049})
_COLUMNS_132: Final = 3  # no terminal of today obeys it

# A string (title, link, image, request) with its end; a control sequence.
_SEQUENCE: Final = re.compile(
    r"\x1b[P\]X^_][^\x07\x1b\x9c]*(?:\x07|\x9c|\x1b\\|(?=\x1b)|\Z)"
    r"|\x1b\[(?P<private>[<=>])?[0-?]*(?P<between>[ -/]*)[@-~]"
)
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[P\]X^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)$")
_CONTROL: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x1f\x7f-\x9f]")
_PIECES: Final = re.compile(r"(?=\x1b)")


class Emulator:
    """Fed with output, it shows the screen. `answer` gets what a terminal replies to queries."""

    def __init__(
        self, columns: int, rows: int, answer: Callable[[bytes], None] | None = None
    ) -> None:
        self._screen = _Screen(columns, rows, answer)
        self._stream = _Stream(self._screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._carry = ""

    @property
    def bracketed(self) -> bool:
        """Whether the program asked for bracketed paste."""
        return _BRACKETED_PASTE in self._screen.mode

    def feed(self, data: bytes) -> None:
        text = self._carry + self._decoder.decode(data)
        unfinished = _UNFINISHED.search(text, max(0, len(text) - CARRY_MAX_CHARS))
        end = len(text) if unfinished is None else unfinished.start()
        self._carry = text[end:]
        for piece in _PIECES.split(_SEQUENCE.sub(_known, text[:end])):
            try:
                self._stream.feed(piece)
            except Exception:  # whatever a program sends, its screen goes on
                self._stream.feed(_CONTROL.sub("", piece))

    def resize(self, columns: int, rows: int) -> None:
        self._screen.resize(rows, columns)

    def screen(self) -> Screen:
        """What is visible now."""
        screen = self._screen
        rows = tuple(_row(screen.buffer[row], screen.columns) for row in range(screen.lines))
        column = min(screen.cursor.x, screen.columns - 1)
        return Screen(rows, screen.cursor.y, column, screen.columns)


def _known(found: re.Match[str]) -> str:
    """The sequence as pyte knows it; nothing, when it does not."""
    text = found[0]
    if not text.startswith("\x1b[") or found["private"] or found["between"]:
        return ""
    if text.endswith("m") and ":" in text:
        kept = [part for part in text[2:-1].split(";") if ":" not in part]
        return f"\x1b[{';'.join(kept)}m" if kept else ""
    return text


def _row(cells: "StaticDefaultDict[int, Char]", columns: int) -> Line:
    text = ""
    faint: list[int] = []
    reverse: list[int] = []
    for column in range(columns):
        cell = cells[column]
        at = range(len(text), len(text) + len(cell.data))
        text += cell.data  # nothing in the second cell of a wide character
        if cell.blink:  # stands for faint, see below
            faint += at
        if cell.reverse:
            reverse += at
    return line(text, faint, reverse)


class _Screen(pyte.Screen):
    def __init__(self, columns: int, rows: int, answer: Callable[[bytes], None] | None) -> None:
        self._answer = answer
        self._main: tuple[Any, Cursor] | None = None
        self._drawn = " "
        self._cells: defaultdict[Char, dict[str, Char]] = defaultdict(dict)
        super().__init__(columns, rows)

    def draw(self, data: str) -> None:
        if not data:
            return
        self._drawn = data[-1]
        plain = data.isascii() and data.isprintable() and self.g0_charset is LAT1_MAP
        if plain and self.charset == 0 and DECAWM in self.mode and IRM not in self.mode:
            self._draw_plain(data)
        else:
            for drawn, group in itertools.groupby(data, _advances):
                part = "".join(group)
                super().draw(part) if drawn else self._combine(part)

    def _combine(self, marks: str) -> None:
        """What takes no room goes into the cell before it; pyte stops drawing at most of it."""
        marks = "".join(one for one in marks if unicodedata.category(one)[0] in "LM")
        column = self.cursor.x - 1
        row = self.buffer[self.cursor.y]
        while column > 0 and not row[column].data:  # the second cell of a wide character
            column -= 1
        if column < 0 or not marks or len(row[column].data) >= CLUSTER_MAX_CHARS:
            return
        text = unicodedata.normalize("NFC", row[column].data + marks)
        row[column] = row[column]._replace(data=text[:CLUSTER_MAX_CHARS])

    def _draw_plain(self, data: str) -> None:
        """As pyte's `draw`, ten times as fast, for most of what programs write."""
        cursor = self.cursor
        if len(self._cells) > ATTRIBUTES_MAX:
            self._cells.clear()
        cells = self._cells[cursor.attrs]
        cells.update({one: cursor.attrs._replace(data=one) for one in {*data} - cells.keys()})
        while data:
            if cursor.x >= self.columns:
                self.carriage_return()
                self.linefeed()
            part = data[: self.columns - cursor.x]
            row = self.buffer[cursor.y]
            row.update(
                zip(
                    range(cursor.x, cursor.x + len(part)), map(cells.__getitem__, part), strict=True
                )
            )
            cursor.x += len(part)
            data = data[len(part) :]

    def select_graphic_rendition(self, *attrs: int, **kwargs: Any) -> None:
        """pyte knows no faint: blinking, which is of no interest, stands for it."""
        if kwargs:
            return
        rest = iter(attrs)
        kept: list[int] = []
        for attr in rest:
            match attr:
                case 38 | 48 | 58:
                    kind = next(rest, 0)
                    colour = [next(rest, 0) for _ in range({5: 1, 2: 3}.get(kind, 0))]
                    kept += [attr, kind, *colour] if attr != 58 and colour else []
                case 2:
                    kept.append(5)
                case 22:
                    kept += [22, 25]
                case 5 | 6 | 25:
                    pass
                case _:
                    kept.append(attr)
        if kept or not attrs:
            super().select_graphic_rendition(*kept)

    def set_mode(self, *modes: int, **kwargs: Any) -> None:
        private = bool(kwargs.get("private"))
        if private and _ALTERNATE & set(modes) and self._main is None:
            self._main = (self.buffer, copy.copy(self.cursor))
            self._clear()
        super().set_mode(*(one for one in modes if not _resizes(one, private)), **kwargs)

    def reset_mode(self, *modes: int, **kwargs: Any) -> None:
        private = bool(kwargs.get("private"))
        if private and _ALTERNATE & set(modes) and self._main is not None:
            self.buffer, self.cursor = self._main
            self.cursor.x = min(self.cursor.x, self.columns - 1)
            self.cursor.y = min(self.cursor.y, self.lines - 1)
            self._main = None
        super().reset_mode(*(one for one in modes if not _resizes(one, private)), **kwargs)

    def reset(self) -> None:
        self._main = None
        super().reset()

    def _clear(self) -> None:
        self.buffer = defaultdict(lambda: StaticDefaultDict[int, Char](self.default_char))

    def write_process_input(self, data: str) -> None:
        if self._answer is not None:
            self._answer(data.encode())

    # ---- what pyte lacks --------------------------------------------------------------------

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """A smaller window loses the blank rows at its end first, as terminals do it."""
        lines = lines or self.lines
        if lines < self.lines:
            away = max(0, self.cursor.y - lines + 1)
            kept = {row - away: cells for row, cells in self.buffer.items() if row >= away}
            self.buffer.clear()
            self.buffer.update({row: cells for row, cells in kept.items() if row < lines})
            self.cursor.y -= away
            self.lines = lines
        super().resize(lines, columns)
        self.set_margins()
        self.cursor.x = min(self.cursor.x, self.columns - 1)

    def save_position(self, *_: int) -> None:
        self.save_cursor()

    def restore_position(self, *_: int) -> None:
        self.restore_cursor()

    def repeat(self, count: int | None = None) -> None:
        self.draw(self._drawn * min(max(count or 1, 1), self.columns * self.lines))

    def scroll_up(self, count: int | None = None) -> None:
        self._scroll(self.margins.bottom if self.margins else self.lines - 1, self.index, count)

    def scroll_down(self, count: int | None = None) -> None:
        self._scroll(self.margins.top if self.margins else 0, self.reverse_index, count)

    def _scroll(self, at: int, step: Callable[[], None], count: int | None) -> None:
        row, self.cursor.y = self.cursor.y, at
        for _ in range(min(max(count or 1, 1), self.lines)):
            step()
        self.cursor.y = row


def _advances(one: str) -> bool:
    return wcwidth(one) > 0


def _resizes(mode: int, private: bool) -> bool:
    return private and mode == _COLUMNS_132


class _Stream(pyte.Stream):
    csi = {  # noqa: RUF012  as in the base class
        **pyte.Stream.csi,
        "b": "repeat",
        "S": "scroll_up",
        "T": "scroll_down",
        "s": "save_position",
        "u": "restore_position",
        "`": "cursor_to_column",
    }
    events = pyte.Stream.events | set(csi.values())
