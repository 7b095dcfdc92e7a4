"""A program that imitates the composer of an agent, for a real terminal: `program.py LOOK LOG …`.

It draws what the published recordings show (see `corral.tamq.terminal.profiles`), takes keys in
raw mode, and writes what it understood to LOG, one JSON object a line: what was submitted, every
Escape, every answer to a question. Some keys stand for what happens to an agent by itself:
Control-P asks for permission, Control-W works (or stops to), Control-X exits.
"""

import argparse
import json
import os
import re
import select
import shutil
import sys
import termios
import time
import tty
from typing import NamedTuple

from wcwidth import wcswidth, wcwidth

BEGIN, END = b"\x1b[200~", b"\x1b[201~"
NBSP = "\u00a0"
COLLAPSE_CHARS, COLLAPSE_LINES, CODEX_COLLAPSE_CHARS = 800, 3, 1000


class Options(NamedTuple):
    look: str
    log: str
    swallow: int  # how many Enters do nothing
    burst_ms: int  # an Enter this soon after text is a line end
    works: bool  # a submitted text starts a turn
    asks: bool  # … that begins with a question
    scrolls: bool  # a composer that is too tall loses its prompt


class Composer:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.swallow = options.swallow
        self.text = ""
        self.pasted: dict[str, str] = {}
        self.transcript: list[str] = []
        self.dialog = self.working = False
        self.last_text = 0.0

    def log(self, **event: object) -> None:
        line = json.dumps(event).encode() + b"\n"
        fd = os.open(self.options.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(fd, line)
        os.close(fd)

    # ---- keys -------------------------------------------------------------------------------

    def paste(self, text: str) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.last_text = time.monotonic()
        if self.dialog:
            self.log(pasted_into_dialog=text)
            return
        if (shown := self.collapsed(text)) is not None:
            self.pasted[shown] = text
            text = shown
        self.text += text

    def collapsed(self, text: str) -> str | None:
        lines = text.count("\n")
        number = len(self.pasted) + 1
        if self.options.look == "codex":
            return (
                f"[Pasted Content {len(text)} chars]" if len(text) > CODEX_COLLAPSE_CHARS else None
            )
        if len(text) > COLLAPSE_CHARS or lines >= COLLAPSE_LINES:
            return f"[Pasted text #{number}" + (f" +{lines} lines]" if lines else "]")
        return None

    def key(self, key: str) -> None:
        match key:
            case "\x10":
                self.dialog = True
            case "\x17":
                self.working = not self.working
            case "\x18":
                raise SystemExit(0)
            case "\x1b":
                self.log(escape=True)
                self.text = ""
                self.dialog = self.working = False
            case "\r" if self.dialog:
                self.log(answered="1. Yes")
                self.dialog = False
            case "\r":
                self.enter()
            case _ if key >= " " and not self.dialog:
                self.text += key
                self.last_text = time.monotonic()

    def enter(self) -> None:
        if (
            self.options.burst_ms
            and time.monotonic() - self.last_text < self.options.burst_ms / 1000
        ):
            self.text += "\n"
        elif self.swallow:
            self.swallow -= 1
            self.log(swallowed=True)
        elif self.text:
            whole = self.text
            for shown, text in self.pasted.items():
                whole = whole.replace(shown, text)
            self.log(submitted=whole, while_working=self.working)
            self.transcript += self.text.split("\n")
            self.text, self.pasted = "", {}
            self.working = self.options.works
            self.dialog = self.options.asks

    # ---- looks ------------------------------------------------------------------------------

    def draw(self) -> None:
        columns, rows = shutil.get_terminal_size()
        below = self.codex(columns) if self.options.look == "codex" else self.claude(columns)
        above = [""]
        for line in self.transcript:
            above += self.wrap(line, columns, "  ")
        shown = (above + below)[-rows:]
        cleared = "\x1b[?25l\x1b[H" + "\x1b[K\r\n".join(shown) + "\x1b[K\x1b[J"
        # The cursor stands where the composer ends, as a person sees it.
        sys.stdout.write(cleared)
        sys.stdout.flush()

    def wrap(self, text: str, columns: int, indent: str) -> list[str]:
        lines, line = [], ""
        for letter in text:
            if wcswidth(line) + max(0, wcwidth(letter)) > columns - 4:
                lines.append(indent + line)
                line = ""
            line += letter
        return [*lines, indent + line]

    def body(self, prompt: str, hint: str, columns: int) -> list[str]:
        if not self.text:
            return [f"{prompt}\x1b[7m{hint[0]}\x1b[0m\x1b[2m{hint[1:]}\x1b[0m"]
        parts = self.text.expandtabs(4).split("\n")
        lines = [one for part in parts for one in self.wrap(part, columns, "  ")]
        # A composer that is too tall shows its end, with the prompt beside what it shows first.
        if not self.options.scrolls:
            lines = lines[-(shutil.get_terminal_size().lines - 6) :]
        return [prompt + lines[0][2:], *lines[1:]]

    def claude(self, columns: int) -> list[str]:
        rule = f"\x1b[2;38;2;136;136;136m{'─' * columns}\x1b[0m"
        spinner = ["✻ Pondering… (3s · ↓ 34 tokens · esc to interrupt)", ""]
        if self.dialog:
            asked = ["Bash command", "", "  touch x", "", "Do you want to proceed?", "❯ 1. Yes"]
            asked += ["  2. Yes, and always allow access to x/ from this project", "  3. No", ""]
            return [rule, *(f" {one}" for one in (*asked, "Esc to cancel · Tab to amend"))]
        box = [rule, *self.body(f"❯{NBSP}", 'Try "fix typecheck errors"', columns), rule]
        return [*(spinner if self.working else [""]), *box, "  ? for shortcuts"]

    def codex(self, columns: int) -> list[str]:
        if self.dialog:
            asked = ["  Would you like to run the following command?", "", "  $ touch x", ""]
            asked += ["› 1. Yes, proceed (y)", "  2. Yes, and don't ask again (p)"]
            asked += ["  3. No, and tell Codex what to do differently (esc)", ""]
            return [*asked, "  Press enter to confirm or esc to cancel"]
        status = ["• Working (3s • esc to interrupt)", ""] if self.working else [""]
        footer = "  ? for shortcuts" + " " * 30 + "100% context left"
        return [*status, *self.body("› ", "Ask Codex to do anything", columns), "", footer]


def read_keys(composer: Composer) -> None:
    """Takes input until the end, and draws whenever there is no more of it."""
    data = b""
    while True:
        composer.draw()
        select.select([0], [], [])
        more = os.read(0, 65536)
        if not more:
            return
        data = take(composer, data + more)


def take(composer: Composer, data: bytes) -> bytes:
    """What is left is the beginning of something."""
    while data:
        if data.startswith(BEGIN):
            inside, found, rest = data[len(BEGIN) :].partition(END)
            if not found:
                return data
            composer.paste(inside.decode())
            data = rest
        elif BEGIN.startswith(data) and len(data) > 1:
            return data
        elif data[:1] == b"\x1b" and (other := re.match(rb"\x1b[\[O][0-9;]*[A-Za-z~]", data)):
            data = data[other.end() :]
        else:
            width = {0xC0: 2, 0xE0: 3, 0xF0: 4}.get(data[0] & 0xF0, 1)
            if len(data) < width:
                return data
            composer.key(data[:width].decode())
            data = data[width:]
    return data


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("look", choices=["claude-code", "codex"])
    parser.add_argument("log")
    parser.add_argument("--swallow", type=int, default=0)
    parser.add_argument("--burst-ms", type=int, default=0)
    parser.add_argument("--works", action="store_true")
    parser.add_argument("--asks", action="store_true")
    parser.add_argument("--scrolls", action="store_true")
    composer = Composer(Options(**vars(parser.parse_args())))
    before = termios.tcgetattr(0)
    tty.setraw(0)
    sys.stdout.write("\x1b[?2004h")
    try:
        read_keys(composer)
    finally:
        sys.stdout.write("\x1b[?2004l\x1b[?25h\r\n")
        termios.tcsetattr(0, termios.TCSADRAIN, before)


if __name__ == "__main__":
    main()
