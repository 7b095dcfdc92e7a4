"""A check that cannot fail checks nothing: each rule is shown one violation, and one good text."""

from pathlib import Path

import pytest

from tests.lint import links, repository, rules


def lines(count: int) -> str:
    return "pass\n" * count


def function(count: int) -> str:
    return "def f():\n" + "    pass\n" * (count - 1)


def shell_function(count: int) -> str:
    return "f() {\n" + "    :\n" * (count - 2) + "}\n"


def test_file_length_at_the_limit_and_one_past_it() -> None:
    assert not rules.too_long(lines(rules.FILE_LINES_MAX))
    assert rules.too_long(lines(rules.FILE_LINES_MAX + 1))


def test_python_function_length_at_the_limit_and_one_past_it() -> None:
    assert not rules.long_python_functions(function(rules.FUNCTION_LINES_MAX))
    assert rules.long_python_functions(function(rules.FUNCTION_LINES_MAX + 1)) == [
        f"1: f has {rules.FUNCTION_LINES_MAX + 1} lines"
    ]
    assert rules.long_python_functions("async " + function(rules.FUNCTION_LINES_MAX + 1))


def test_shell_function_length_at_the_limit_and_one_past_it() -> None:
    assert not rules.long_shell_functions(shell_function(rules.FUNCTION_LINES_MAX))
    assert rules.long_shell_functions(shell_function(rules.FUNCTION_LINES_MAX + 1))
    assert not rules.long_shell_functions("f() { :; }\n" + lines(rules.FUNCTION_LINES_MAX) + "}\n")


@pytest.mark.parametrize(
    "text",
    [
        "index-url = https://" + "pypi" + ".org/simple",
        "URIs: http://deb." + "debian" + ".org/debian",
        "see files." + "pythonhosted" + ".org",
        "venv = '" + "/tmp" + "/venv'",
        "cd " + "/work" + "/main",
        "home = " + "/home" + "/someone",
        "PATH=/usr/bin:" + "/root" + "/bin",
        "see ../" + "shared/design",
    ],
)
def test_addresses_and_machine_paths(text: str) -> None:
    assert rules.addresses(f"first\n{text}\n")[0].startswith("2: ")


@pytest.mark.parametrize(
    "text",
    ["/etc/cowboy/scout/sources.json", "python/work/x", "a.org", "$dir/tmp/x", "/run/corral"],
)
def test_paths_of_every_machine_are_no_violation(text: str) -> None:
    assert not rules.addresses(text)


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1)\n",
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.1)\n",
        "from asyncio import sleep\nasync def f():\n    await sleep(1)\n",
        "from time import sleep as nap\nnap(2)\n",
    ],
)
def test_sleeps(text: str) -> None:
    assert rules.sleeps(text)


def test_letting_others_run_is_no_sleep() -> None:
    assert not rules.sleeps("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n")
    assert not rules.sleeps("agent = 'import time; time.sleep(5)'\n")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "INSERT INTO turns VALUES (1)",
        "insert = '''\n  UPDATE turns SET state = ?'''".removeprefix("insert = ").strip("'"),
        "DELETE FROM turns",
        "CREATE TABLE t (x)",
    ],
)
def test_sql_in_strings(sql: str) -> None:
    assert rules.sql_in_strings(f"query = {sql!r}\n", control_allowed=True)
    assert rules.sql_in_strings(f"query = f'{{x}} ' f{sql!r}\n", control_allowed=True)


def test_transaction_control_only_where_it_is_owned() -> None:
    text = "statement = 'BEGIN IMMEDIATE'\n"
    assert rules.sql_in_strings(text, control_allowed=False)
    assert not rules.sql_in_strings(text, control_allowed=True)


def test_documentation_may_speak_of_sql() -> None:
    text = '"""Guarded: UPDATE turns SET state = ? WHERE state = ?."""\nx = "SELECTED"\n'
    assert not rules.sql_in_strings(text, control_allowed=False)


REGISTERED = 'READ = register("cowboy.read.done", "read")\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "no crash point"),
        (REGISTERED, "never passed"),
        (REGISTERED + 'crashpoint(READ)\nOTHER = register("cowboy.read.done", "read")\n', "twice"),
        (REGISTERED + 'crashpoint(READ)\ncrashpoint("cowboy.read.done")\n', "not by its constant"),
    ],
)
def test_crash_points(text: str, expected: str) -> None:
    assert any(expected in one for one in rules.crash_points({"a.py": text}))
    assert not rules.crash_points({"a.py": REGISTERED, "b.py": "crashpoint(points.READ)\n"})


def test_changelog_without_unreleased() -> None:
    assert rules.unreleased("# Changelog\n\n## 1.0.0\n")
    assert not rules.unreleased("# Changelog\n\n## Unreleased\n")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "other.md").write_text(
        "# The *other* page!\n\n## Twice\n## Twice\n\n```\n# no\n```\n"
    )
    return tmp_path / "page.md"


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("missing.md", "no such file"),
        ("other.md#nowhere", "no such heading"),
        ("other.md#no", "no such heading"),
        ("#nowhere", "no such heading"),
        ("../outside.md", "leaves the repository"),
        ("/other.md", "not a relative link"),
    ],
)
def test_broken_links(page: Path, target: str, why: str) -> None:
    page.write_text(f"# Here\n\nsee [it]({target})\n\n[ref]: {target}\n")
    assert links.broken(page, page.parent) == [f"3: {target}: {why}", f"5: {target}: {why}"]


def test_links_that_resolve(page: Path) -> None:
    page.write_text(
        "# Here\n[a](other.md#the-other-page) [b](other.md#twice-1) [c](#here) [d](mailto:x@y)\n"
        "`[e](missing.md)`\n```\n[f](missing.md)\n```\n![g](other.md) [h](.)\n"
    )
    assert links.broken(page, page.parent) == []


def test_shell_scripts_are_found_by_their_first_line() -> None:
    names = {repository.name(path) for path in repository.shell()}
    assert {"corral", ".ci/run"} <= names
