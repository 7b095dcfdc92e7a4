"""Profiles: what a program looks like when it can be written to, as regular expressions.

The texts of `claude-code` are those of Claude Code from 2.1.29 (public screen recordings of
February 2026) to 2.1.328 (November 2026), those of `codex` of the Codex CLI from its published
rendering tests of 2025 to 0.171.0 (November 2026). The two last versions were tried as they are,
on 2026-11-30, against a local server: ready, draft, working, menus, long and short pastes. A
program that changes its looks makes messages wait with the reason `no_composer` or `draft`; it
never makes them go astray.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from corral.core.errors import ConfigError

PATTERN_MAX_CHARS: Final = 500
FILE_MAX_BYTES: Final = 65_536
SUBMIT_DELAY_MAX_MS: Final = 2_000


class Layout(StrEnum):
    """Where the place to write is."""

    LINE = "line"  # the line with the cursor, behind a prompt
    BOX = "box"  # between the last two rules; its first line begins with the prompt
    TAIL = "tail"  # from the last line that begins with the prompt to the footer


@dataclass(frozen=True)
class Profile:
    """`prompt`, `rule` and `footer` are matched from the start of a line, the rest searched for.

    `collapsed` recognises what a program shows instead of a long paste; its groups `lines` and
    `chars` are compared with ours. `submits`: Enter is sent. `bracketed`: the program asks for
    bracketed paste whenever its composer is there, where the terminal cannot be asked.
    """

    name: str
    layout: Layout
    prompt: re.Pattern[str]
    rule: re.Pattern[str] | None = None
    footer: re.Pattern[str] | None = None
    busy: re.Pattern[str] | None = None
    dialog: re.Pattern[str] | None = None
    collapsed: re.Pattern[str] | None = None
    submits: bool = True
    bracketed: bool = False
    submit_delay_ms: int = 300


_CHOICE: Final = r"^\s*[❯›>]\s*\d+[.)]\s"  # the selected line of a menu

SHELL: Final = Profile(
    name="shell",
    layout=Layout.LINE,
    # Up to the first sign that ends a prompt. A ">" alone, or behind only words ("> ", "dquote> "),
    # asks for the rest of a command, which is somebody's draft.
    prompt=re.compile(r"(?:[^$#%❯➜>]*[$#%❯➜]|(?=[^>]*[^\w\s>])[^$#%❯➜>]*\S>)(?:\s|$)"),
    submits=False,
)
PLAIN: Final = Profile(
    name="plain",
    layout=Layout.LINE,
    prompt=re.compile(r"(?:[>»›❯:?]+ ?)?"),
    dialog=re.compile(r"\([yY]/[nN]\)|\[[yY]/[nN]\]|" + _CHOICE, re.MULTILINE),
)
CLAUDE_CODE: Final = Profile(
    name="claude-code",
    layout=Layout.BOX,
    prompt=re.compile(r"[❯>](?:\s|$)"),
    rule=re.compile(r"[─━]{10,}$"),
    busy=re.compile(r"\besc to interrupt\b|^\s?[·✢✳✶✻✽∗*] \S+…", re.IGNORECASE | re.MULTILINE),
    dialog=re.compile(
        rf"{_CHOICE}|\bDo you want to\b|\bEsc to (?:cancel|exit|go back)\b|\bEnter to \w+",
        re.MULTILINE,
    ),
    collapsed=re.compile(r"\[Pasted text #\d+(?: \+(?P<lines>\d+) lines?)?\]"),
    bracketed=True,
)
CODEX: Final = Profile(
    name="codex",
    layout=Layout.TAIL,
    prompt=re.compile(r"[›▌](?:\s|$)"),
    # Hints and a status line, below the composer; never the line that ends a message.
    footer=re.compile(
        r"\s+(?!\[end of TAMQ)\S?.*(?:\? for shortcuts| · |context left|% left|⏎ send|newline"
        r"|\b(?:esc|tab|f\d+|enter|ctrl \+ \w) to |⌃|ctrl\+|\besc (?:close|back)\b)"
    ),
    busy=re.compile(r"\besc to interrupt\b", re.IGNORECASE),
    dialog=re.compile(
        rf"{_CHOICE}|\bPress enter to \w+|\benter to (?:submit|select|confirm)\b"
        r"|\besc to (?:cancel|go back|dismiss)\b",
        re.IGNORECASE | re.MULTILINE,
    ),
    collapsed=re.compile(r"\[Pasted Content (?P<chars>\d+) chars\](?: #\d+)?"),
    bracketed=True,
)
BUILT_IN: Final[Mapping[str, Profile]] = {
    one.name: one for one in (SHELL, PLAIN, CLAUDE_CODE, CODEX)
}


_SHELLS: Final = ("sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh")
_PROGRAMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(_SHELLS, SHELL.name),
    "claude": CLAUDE_CODE.name,
    "codex": CODEX.name,
}


def usual(program: str) -> str:
    """The profile for a program by its name, which may be a path or a login shell's `-bash`."""
    return _PROGRAMS.get(program.rpartition("/")[2].removeprefix("-"), PLAIN.name)


def load(path: Path) -> dict[str, Profile]:
    """The built-in profiles and those of a TOML file, one table a profile, under its name.

    `ConfigError`, which names the key, for a file that cannot be read or a profile that is wrong.
    A built-in profile cannot be replaced: its name stands for what the documentation says.
    """
    try:
        with path.open("rb") as file:
            content = file.read(FILE_MAX_BYTES + 1)
        if len(content) > FILE_MAX_BYTES:
            raise ConfigError(f"{path}: is longer than {FILE_MAX_BYTES} bytes")
        tables = tomllib.loads(content.decode())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
    return dict(BUILT_IN) | {name: parse(name, table) for name, table in tables.items()}


def parse(name: str, table: object) -> Profile:
    """A profile from its table. `ConfigError` names the key."""
    if name in BUILT_IN:
        raise ConfigError(f"{name}: is a built-in profile", hint="give yours another name")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{name}: must be a table")
    known = {field.name for field in fields(Profile)} - {"name"}
    for key in sorted(set(table) - known):
        raise ConfigError(f"{name}.{key}: unknown key", hint=f"there are: {', '.join(known)}")
    for key in ("layout", "prompt"):
        if key not in table:
            raise ConfigError(f"{name}.{key}: is missing")
    given: dict[str, Any] = {key: _value(name, key, table[key]) for key in table}
    profile = Profile(name=name, **given)
    if profile.layout is Layout.BOX and profile.rule is None:
        raise ConfigError(f"{name}.rule: is missing", hint="the layout box needs it")
    return profile


def _value(name: str, key: str, value: object) -> object:
    match key, value:
        case "layout", str():
            if value in set(Layout):
                return Layout(value)
            problem = f"must be one of {', '.join(Layout)}"
        case (("submits" | "bracketed"), bool()):
            return value
        case (("submits" | "bracketed"), _):
            problem = "must be true or false"
        case "submit_delay_ms", int() if not isinstance(value, bool):
            if 0 <= value <= SUBMIT_DELAY_MAX_MS:
                return value
            problem = f"must be 0 to {SUBMIT_DELAY_MAX_MS}"
        case _, str() if len(value) <= PATTERN_MAX_CHARS:
            try:
                return re.compile(value, re.MULTILINE)
            except re.error as error:
                problem = f"not a regular expression: {error}"
        case _:
            problem = f"must be a text of at most {PATTERN_MAX_CHARS} characters"
    raise ConfigError(f"{name}.{key}: {problem}")
