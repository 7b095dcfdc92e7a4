"""Derivations as Nix wrote them down: which output is made how."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

STORE = "/nix/store"
_REFERENCE = re.compile(r"/nix/store/[0-9a-z]{32}-[0-9A-Za-z+._?=-]+")
_HASHED = re.compile(r"/nix/store/[0-9a-z]{32}-([0-9A-Za-z+._?=-]+)")
_VERSION = re.compile(r"-[0-9][0-9A-Za-z.]*$")
_SAME = {"glibc-locales": "glibcLocales"}


@dataclass(frozen=True)
class Derivation:
    """`environment` is what its builder would be given, every value a string."""

    name: str
    output: str
    environment: dict[str, str]


def references(text: str) -> list[str]:
    """The store paths that a text names, without what follows below them."""
    return list(dict.fromkeys(_REFERENCE.findall(text)))


def plain(text: str) -> str:
    """A text in which store paths have neither hash nor version."""

    def named(found: re.Match[str]) -> str:
        # A derivation of another tree may keep its first name.
        bare = _VERSION.sub("", found[1]).removeprefix("unit-script-")
        return f"{STORE}/{_SAME.get(bare, bare)}"

    return _HASHED.sub(named, text)


def parse(text: str) -> Derivation:
    """A `.drv` file. Raises ValueError when it is not one.

    Its syntax, `Derive([("out", …)], …, [("key", "value"), …])`, is that of a Python expression.
    """
    if not text.startswith("Derive("):
        raise ValueError(f"not a derivation: {text[:40]!r}")
    outputs, _, _, _, _, _, environment = ast.literal_eval(text.removeprefix("Derive"))
    variables = dict(environment)
    return Derivation(name=variables["name"], output=outputs[0][1], environment=variables)


def load(root: Path) -> dict[str, Derivation]:
    """Every derivation in the store below `root`, by the path of its output."""
    found = {}
    for file in (root / STORE.lstrip("/")).glob("*.drv"):
        derivation = parse(file.read_text(encoding="utf-8"))
        found[derivation.output] = derivation
    return found
