"""SQL lives in `.sql` files of the package that uses it; this reads them."""

import re
from collections.abc import Iterator
from typing import Final

_NAME: Final = re.compile(r"--\s*name:\s*(\S+)\s*")
_MIGRATION: Final = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


def load_sql(package: str, name: str) -> dict[str, str]:
    """The statements of one file by their names.

    `name` is relative to the package: `load_sql("corral.cowboy", "sql/turns.sql")`. A statement
    begins after its line `-- name: foo`; lines that are only a comment are left out.
    `ValueError` for a name without statement, a second statement of one name, or SQL before the
    first name.
    """
    from importlib import resources  # 10 ms that a process without SQL does not pay

    text = resources.files(package).joinpath(name).read_text(encoding="utf-8")
    blocks: dict[str, list[str]] = {}
    current: list[str] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        named = _NAME.fullmatch(line.strip())
        if named is not None:
            if named[1] in blocks:
                raise ValueError(f"{name}:{number}: {named[1]!r} is defined twice")
            current = blocks.setdefault(named[1], [])
        elif line.strip() and not line.lstrip().startswith("--"):
            if current is None:
                raise ValueError(f"{name}:{number}: SQL before the first '-- name:' line")
            current.append(line.rstrip())
    empty = [key for key, lines in blocks.items() if not lines]
    if empty:
        raise ValueError(f"{name}: no SQL under {', '.join(empty)}")
    return {key: "\n".join(lines) for key, lines in blocks.items()}


def migrations(package: str, folder: str = "sql/migrations") -> list[str]:
    """The texts of `NNNN_name.sql` in a folder of the package, in order, without a gap from 0001.

    `ValueError` for another file name among the `.sql` files, a gap or a repeated number.
    """
    from importlib import resources

    found = {
        item.name: item.read_text(encoding="utf-8")
        for item in resources.files(package).joinpath(folder).iterdir()
        if item.name.endswith(".sql")
    }
    for expected, name in enumerate(sorted(found), 1):
        numbered = _MIGRATION.fullmatch(name)
        if numbered is None or int(numbered[1]) != expected:
            raise ValueError(f"{folder}/{name}: expected a file named {expected:04d}_name.sql")
    return [found[name] for name in sorted(found)]


def statements(script: str) -> Iterator[str]:
    """The single statements of a script; a trigger is one statement, comments stay with the next.

    `ValueError` when the last statement has no end.
    """
    from sqlite3 import complete_statement

    begin = end = 0
    while (end := script.find(";", end) + 1) > 0:
        if complete_statement(script[begin:end]):
            yield script[begin:end].strip()
            begin = end
    rest = [line.strip() for line in script[begin:].splitlines()]
    if any(line and not line.startswith("--") for line in rest):
        raise ValueError("the last statement of the script has no ';'")
