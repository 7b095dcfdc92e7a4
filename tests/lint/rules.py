"""The house rules that a program can check: each takes a text, and returns what is wrong in it.

A violation is `LINE: what`, or only `what` where no line is to blame.
"""

import ast
import re
from collections.abc import Iterator

FILE_LINES_MAX = 420
FUNCTION_LINES_MAX = 60

# Written in pieces so that this file obeys the rule that it states.
_REGISTRY = re.compile(
    r"\b(?:pypi|pythonhosted|npmjs|crates|debian|ubuntu|nixos|maven|golang|docker)"
    r"(?:\.[a-z]+)*\.(?:org|io|com|net|dev)\b"
)
_MACHINE_PATH = re.compile(r"(?<![\w./}~>-])/(?:home|root|tmp|work)/\w")
_NEIGHBOUR = re.compile(r"\.\./shared\b")

_SQL = re.compile(
    r"\b(?:SELECT\s|INSERT\s+(?:OR\s+\w+\s+)?INTO\b|UPDATE\s+\w+\s+SET\b|DELETE\s+FROM\b"
    r"|(?:CREATE|ALTER|DROP)\s+(?:TABLE|INDEX|TRIGGER|VIEW)\b|REPLACE\s+INTO\b)"
)
_SQL_CONTROL = re.compile(r"^\s*(?:PRAGMA|BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|VACUUM|ATTACH)\b")

_SHELL_FUNCTION = re.compile(r"^(?:function\s+)?([A-Za-z_]\w*)\s*(?:\(\))?\s*[{(]")


def too_long(text: str) -> list[str]:
    lines = text.count("\n")
    return [f"{lines} lines, at most {FILE_LINES_MAX}"] if lines > FILE_LINES_MAX else []


def long_python_functions(text: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                found.append(f"{node.lineno}: {node.name} has {lines} lines")
    return found


def long_shell_functions(text: str) -> list[str]:
    found, name, began = [], "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if (opened := _SHELL_FUNCTION.match(line)) and not line.rstrip().endswith(("}", ")")):
            name, began = opened[1], number
        elif name and line.startswith(("}", ")")):
            if number - began + 1 > FUNCTION_LINES_MAX:
                found.append(f"{began}: {name} has {number - began + 1} lines")
            name = ""
    return found


def addresses(text: str) -> list[str]:
    """Registries are configured by the machine; paths of one machine help nobody elsewhere."""
    patterns = (_REGISTRY, _MACHINE_PATH, _NEIGHBOUR)
    return [
        f"{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), start=1)
        for pattern in patterns
        for found in pattern.finditer(line)
    ]


def sleeps(text: str) -> list[str]:
    """`sleep(0)`, which only lets others run, is no waiting."""
    tree = ast.parse(text)
    bare = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in {"time", "asyncio"}
        for alias in node.names
        if alias.name == "sleep"
    }
    return [
        f"{call.lineno}: {ast.unparse(call)}"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and _is_sleep(call, bare) and not _is_zero(call)
    ]


def _is_sleep(call: ast.Call, bare: set[str]) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id="time" | "asyncio"), attr="sleep"):
            return True
        case ast.Name(id=name):
            return name in bare
    return False


def _is_zero(call: ast.Call) -> bool:
    match call.args:
        case [ast.Constant(value=0)]:
            return True
    return False


def sql_in_strings(text: str, *, control_allowed: bool) -> list[str]:
    """Statements belong in `.sql` files; transaction control only in the module that owns it."""
    tree = ast.parse(text)
    documentation = {id(node) for node in _docstrings(tree)}
    patterns = (_SQL,) if control_allowed else (_SQL, _SQL_CONTROL)
    return [
        f"{node.lineno}: {node.value.strip().splitlines()[0]}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documentation
        and any(pattern.search(node.value) for pattern in patterns)
    ]


def _docstrings(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def crash_points(texts: dict[str, str]) -> list[str]:
    """Every point is a registered constant, registered once, and passed somewhere."""
    registered: dict[str, str] = {}
    used: set[str] = set()
    found = []
    for file, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Assign(targets=[ast.Name(id=constant)], value=ast.Call() as call) | (
                    ast.AnnAssign(target=ast.Name(id=constant), value=ast.Call() as call)
                ) if (point := _registered_point(call)) is not None:
                    if point in registered.values():
                        found.append(f"{file}:{node.lineno}: {point} is registered twice")
                    registered[constant] = point
                case ast.Call(func=ast.Name(id="crashpoint"), args=[ast.Constant(value=str(name))]):
                    found.append(f"{file}:{node.lineno}: {name} is passed but not by its constant")
                case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name):
                    used.add(name)
    found += [f"{point} is never passed" for name, point in registered.items() if name not in used]
    return found if registered else ["no crash point is registered at all"]


def _registered_point(call: ast.Call) -> str | None:
    match call:
        case ast.Call(
            func=ast.Name(id="register") | ast.Attribute(attr="register"),
            args=[ast.Constant(value=str(point)), *_],
        ):
            return point
    return None


def unreleased(changelog: str) -> list[str]:
    found = re.search(r"^## Unreleased$", changelog, re.MULTILINE)
    return [] if found else ["no section Unreleased"]
