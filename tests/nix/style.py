"""The house style of Nix files, as far as a program can check it without a formatter.

Each rule takes a file's text and answers with what is wrong, as `LINE: what`.
"""

import re
from collections.abc import Callable, Iterator

LINE_MAX_CHARS = 100

_INDENT = re.compile(r"^ *")
_WITH = re.compile(r"(?<![\w.'-])with\s+[^;]+;")
_SEARCH_PATH = re.compile(r"<[A-Za-z0-9_./-]+>")
_IMPURE = re.compile(
    r"\b(?:getEnv|getFlake|currentTime|currentSystem|fetch[A-Z]\w*|readDir|readFile|storePath"
    r"|filterSource|toFile|derivation|nixpkgs|pkgs|lib|nixPath|findFile|storeDir|nixVersion)\b"
    r"|\bbuiltins\.exec\b"
)
_IMPORT = re.compile(r"\bimport\s+(\S+)")
_SIBLING = re.compile(r"^\./[a-z]+\.nix;?\)?$")


def code(line: str) -> str:
    """A line without its comment and without what its strings say."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).partition("#")[0]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    yield from enumerate(text.split("\n"), start=1)


def whitespace(text: str) -> list[str]:
    found = [f"{at}: a tab" for at, line in _lines(text) if "\t" in line]
    found += [f"{at}: a carriage return" for at, line in _lines(text) if "\r" in line]
    found += [f"{at}: space at the end" for at, line in _lines(text) if line != line.rstrip(" ")]
    if not text.endswith("\n") or text.endswith("\n\n"):
        found.append(f"{text.count(chr(10))}: not exactly one newline at the end")
    return found


def indentation(text: str) -> list[str]:
    """Two spaces a level. A step to the right is one level, whatever a step to the left is."""
    found, before = [], 0
    for at, line in _lines(text):
        if not line:
            continue
        indent = len(_INDENT.findall(line)[0])
        if indent % 2:
            found.append(f"{at}: {indent} spaces")
        elif indent > before + 2:
            found.append(f"{at}: {indent - before} spaces deeper than the line above")
        before = indent
    return found


def long_lines(text: str) -> list[str]:
    return [
        f"{at}: {len(line)} characters" for at, line in _lines(text) if len(line) > LINE_MAX_CHARS
    ]


def with_scopes(text: str) -> list[str]:
    """`with x;` hides where a name comes from; `inherit (x) a b;` says it."""
    return [f"{at}: {found[0]}" for at, line in _lines(text) if (found := _WITH.search(code(line)))]


def purity(text: str) -> list[str]:
    """Nothing but builtins that depend on their arguments alone."""
    found = []
    for at, line in _lines(text):
        for pattern in (_SEARCH_PATH, _IMPURE):
            found += [f"{at}: {match[0]}" for match in pattern.finditer(code(line))]
    return found


def imports(text: str) -> list[str]:
    """A file of the library imports its siblings, by name."""
    return [
        f"{at}: import {target}"
        for at, line in _lines(text)
        for target in _IMPORT.findall(code(line))
        if not _SIBLING.match(target)
    ]


STYLE: tuple[Callable[[str], list[str]], ...] = (whitespace, indentation, long_lines, with_scopes)
PURE: tuple[Callable[[str], list[str]], ...] = (purity, imports)
