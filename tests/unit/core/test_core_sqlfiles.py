import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from corral.core.ids import new_uuid
from corral.core.sqlfiles import statements
from corral.core.sqlite import load_sql, migrations

Package = Callable[[dict[str, str]], str]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Package:
    """Makes a package with the given files and answers its name."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(files: dict[str, str]) -> str:
        name = f"sample_{new_uuid().replace('-', '')}"
        for path, text in {"__init__.py": "", **files}.items():
            target = tmp_path / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return name

    return make


def test_statements_by_name(package: Package) -> None:
    text = """-- Comments before the first name are fine.

-- name: insert
-- Comments stay out of the text.
INSERT INTO t (a)
VALUES (:a);
--name:count
SELECT count(*) FROM t WHERE a <> '--';
"""
    assert load_sql(package({"sql/q.sql": text}), "sql/q.sql") == {
        "insert": "INSERT INTO t (a)\nVALUES (:a);",
        "count": "SELECT count(*) FROM t WHERE a <> '--';",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("SELECT 1;", "q.sql:1: SQL before"),
        ("-- name: a\n-- only a comment\n-- name: b\nSELECT 1;", "no SQL under a"),
        ("-- name: a\nSELECT 1;\n-- name: a\nSELECT 2;", "q.sql:3: 'a' is defined twice"),
    ],
)
def test_a_file_that_is_wrong_is_refused(package: Package, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        load_sql(package({"q.sql": text}), "q.sql")


def test_migrations_come_in_their_order(package: Package) -> None:
    files = {
        "m/0002_more.sql": "two",
        "m/0001_first.sql": "one",
        "m/README.md": "not a migration",
    }
    assert migrations(package(files), "m") == ["one", "two"]


@pytest.mark.parametrize(
    "names",
    [["0002_a.sql"], ["0001_a.sql", "0003_b.sql"], ["0001_a.sql", "0001_b.sql"], ["first.sql"]],
)
def test_a_gap_or_another_name_is_refused(package: Package, names: list[str]) -> None:
    name = package({f"sql/migrations/{name}": "" for name in names})
    with pytest.raises(ValueError, match="expected a file named"):
        migrations(name)


def test_a_script_is_split_at_the_ends_of_statements() -> None:
    script = """
    -- tables; and more
    CREATE TABLE t (a TEXT DEFAULT ';');
    CREATE TRIGGER g AFTER INSERT ON t BEGIN
        DELETE FROM t WHERE a = ';';
        SELECT 1;
    END;
    -- the end; really
    """
    found = list(statements(script))
    assert len(found) == 2
    with sqlite3.connect(":memory:") as connection:
        for statement in found:
            connection.execute(statement)
    connection.close()


def test_a_script_without_an_end_is_refused() -> None:
    assert list(statements("")) == []
    with pytest.raises(ValueError, match="';'"):
        list(statements("SELECT 1; SELECT 2"))
