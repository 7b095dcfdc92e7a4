"""Taking apart the lines of an ACL file, for the tests and for the published tables."""

import re
from dataclasses import dataclass

_PART = re.compile(r"\(([^)]*)\)|(\S+)")


@dataclass(frozen=True)
class Grant:
    """Keys and verbs that go together: the root permissions of a user, or one selector."""

    keys: tuple[str, ...]  # as written: "~a:*", "%R~b"
    verbs: tuple[str, ...]  # without '+', lower case; a subcommand as "xgroup|create"


@dataclass(frozen=True)
class Line:
    user: str
    flags: tuple[str, ...]
    grants: tuple[Grant, ...]  # the root permissions first

    @property
    def verbs(self) -> frozenset[str]:
        return frozenset(verb for grant in self.grants for verb in grant.verbs)


def parse(line: str) -> Line:
    """One `user …` line. Raises ValueError for anything that is not one."""
    if not line.startswith("user "):
        raise ValueError(f"not an ACL line: {line!r}")
    words: list[str] = []
    selectors: list[list[str]] = []
    for selector, word in _PART.findall(line):
        if selector:
            selectors.append(selector.split())
        else:
            words.append(word)
    root = words[2:]
    flags = tuple(word for word in root if not _is_key(word) and not word.startswith("+"))
    return Line(words[1], flags, (_grant(root), *map(_grant, selectors)))


def _is_key(word: str) -> bool:
    return word.startswith(("~", "%"))


def _grant(words: list[str]) -> Grant:
    return Grant(
        tuple(word for word in words if _is_key(word)),
        tuple(word[1:].lower() for word in words if word.startswith("+")),
    )
