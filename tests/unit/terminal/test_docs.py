"""The reference says every reason that the code can give, and no other."""

import ast
import re
from pathlib import Path

import corral.tamq.terminal as package
from corral.tamq.terminal.profiles import BUILT_IN

FOLDER = Path(package.__file__).parent
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "tamq-terminals.md"
# What makes an answer, and where its reason stands among the arguments.
MAKERS = {"Readiness": 1, "Injection": 1, "_end": 1, "_hindered": 1, "NotWrittenError": 0}
STATES = {"READY", "BUSY", "DRAFT", "DIALOG"}
# Only seen from inside: it never leaves an attempt.
INTERNAL = {"hindered"}


def reasons() -> set[str]:
    found: set[str] = set()
    for file in set(FOLDER.glob("*.py")) - {FOLDER / "hostwire.py"}:  # which only passes them on
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
                    if name in MAKERS and len(args) > MAKERS[name]:
                        found |= texts(args[MAKERS[name]])
                case ast.Tuple(elts=[ast.Attribute(attr=state), ast.Constant(value=str(text)), *_]):
                    if state in STATES:
                        found.add(text)
                case ast.FunctionDef(name="_gone"):
                    found |= texts(node)
    return found - INTERNAL


def texts(node: ast.AST) -> set[str]:
    return {
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and " " not in one.value
    }


def documented() -> set[str]:
    tables = re.findall(r"^\| [^|]*\| ([^|]*) \|", PAGE.read_text(), re.MULTILINE)
    return {code for cell in tables for code in re.findall(r"`([a-z_]+)`", cell)}


def test_every_reason_is_documented_and_no_other() -> None:
    assert documented() == reasons()


def test_every_profile_is_documented() -> None:
    names = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(BUILT_IN) <= set(names)
