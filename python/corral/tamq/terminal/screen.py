"""A terminal's screen as text, with what matters of its looks, and where the cursor is."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wcwidth import wcwidth

# What a row may contain besides text: SGR, other CSI, OSC (links), and shifts to line drawing.
_ESCAPES = re.compile(
    r"\x1b\[(?P<sgr>[0-9;:]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|(?P<shift>[\x0e\x0f])|\x1b."
)
_LINE_DRAWING: Final = str.maketrans("qx", "─│")


@dataclass(frozen=True)
class Line:
    """One row without the blanks at its end. The sets hold indexes into `text`."""

    text: str
    faint: frozenset[int] = frozenset()
    reverse: frozenset[int] = frozenset()

    @property
    def width(self) -> int:
        """In columns."""
        return sum(max(0, wcwidth(one)) for one in self.text)

    def index(self, column: int) -> int:
        """Where in `text` the cell of a column is; beyond the end when the row is shorter."""
        at = 0
        for position, one in enumerate(self.text):
            if at >= column:
                return position
            at += max(0, wcwidth(one))
        return len(self.text) + column - at


@dataclass(frozen=True)
class Screen:
    """The visible rows, and the cursor by row and column, both from 0."""

    lines: tuple[Line, ...]
    row: int
    column: int
    columns: int = 80

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(line.text for line in self.lines)

    @property
    def last(self) -> int:
        """The last row with anything on it, or the cursor's."""
        written = (number for number, line in enumerate(self.lines) if line.text)
        return max([*written, self.row])


def from_rows(rows: Iterable[str], row: int, column: int, columns: int = 80) -> Screen:
    """From rows with SGR escapes, as `tmux capture-pane -e` prints them."""
    looks = _Looks()
    return Screen(tuple(looks.line(one) for one in rows), row, column, columns)


class _Looks:
    """The attributes in force; tmux carries them from one row to the next."""

    def __init__(self) -> None:
        self._faint = False
        self._reverse = False
        self._drawing = False

    def line(self, row: str) -> Line:
        text = ""
        faint: list[int] = []
        reverse: list[int] = []
        at = 0
        for found in (*_ESCAPES.finditer(row), None):
            piece = row[at : found.start() if found else len(row)]
            if self._drawing:
                piece = piece.translate(_LINE_DRAWING)
            cells = range(len(text), len(text) + len(piece))
            faint += cells if self._faint else ()
            reverse += cells if self._reverse else ()
            text += piece
            if found is not None:
                at = found.end()
                self._apply(found)
        return line(text, faint, reverse)

    def _apply(self, found: re.Match[str]) -> None:
        if found["shift"]:
            self._drawing = found["shift"] == "\x0e"
        elif found["sgr"] is not None:
            self._sgr(found["sgr"])

    def _sgr(self, parameters: str) -> None:
        numbers = iter([part for part in parameters.split(";") if ":" not in part] or ["0"])
        for number in numbers:
            match number.lstrip("0"):
                case "":
                    self._faint = self._reverse = False
                case "2":
                    self._faint = True
                case "22":
                    self._faint = False
                case "7":
                    self._reverse = True
                case "27":
                    self._reverse = False
                case "38" | "48" | "58":  # a colour: 5;N or 2;R;G;B
                    for _ in range({"5": 1, "2": 3}.get(next(numbers, ""), 0)):
                        next(numbers, None)


def line(text: str, faint: Iterable[int], reverse: Iterable[int]) -> Line:
    """A row, less the blanks at its end."""
    kept = text.rstrip(" ")
    inside = range(len(kept))
    return Line(
        kept,
        frozenset(one for one in faint if one in inside),
        frozenset(one for one in reverse if one in inside),
    )
