"""The house rules over the whole repository; `test_planted.py` proves that each rule can fail."""

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from pathlib import Path

import corral
from corral.core import crashpoints
from tests.lint import links, repository, rules

# Tests wait for a condition. Nobody is excepted today; a new exception says why.
MAY_SLEEP: frozenset[str] = frozenset()

# The modules that set up connections, and begin and end transactions.
OWN_TRANSACTIONS = {
    "python/corral/core/database.py",
    "python/corral/core/reader.py",
    "python/corral/core/sqlite.py",
    "python/corral/local/ledger.py",  # looks at a ledger from outside, read-only
}


def violations(paths: Iterable[Path], rule: Callable[[str], list[str]]) -> list[str]:
    return [f"{repository.name(path)}:{one}" for path in paths for one in rule(path.read_text())]


def assert_none(found: list[str]) -> None:
    assert not found, "\n" + "\n".join(found)


def test_files_fit_in_a_head() -> None:
    assert_none(violations([*repository.of_suffix(".py"), *repository.shell()], rules.too_long))


def test_python_functions_fit_in_a_head() -> None:
    assert_none(violations(repository.of_suffix(".py"), rules.long_python_functions))


def test_shell_functions_fit_in_a_head() -> None:
    assert_none(violations(repository.shell(), rules.long_shell_functions))


def test_no_registry_address_and_no_path_of_one_machine() -> None:
    assert_none(violations(repository.files(), rules.addresses))


def test_tests_wait_for_conditions_instead_of_sleeping() -> None:
    paths = [path for path in repository.under("tests") if repository.name(path) not in MAY_SLEEP]
    assert_none(violations(paths, rules.sleeps))


def test_sql_lives_in_sql_files() -> None:
    found: list[str] = []
    for path in repository.under("python/corral"):
        owns = repository.name(path) in OWN_TRANSACTIONS
        found += violations([path], lambda text: rules.sql_in_strings(text, control_allowed=owns))  # noqa: B023  called before the next turn of the loop
    assert_none(found)


def test_markdown_links_resolve() -> None:
    found = [
        f"{repository.name(page)}:{one}"
        for page in repository.of_suffix(".md")
        for one in links.broken(page, repository.ROOT)
    ]
    assert_none(found)


def test_changelog_has_an_unreleased_section() -> None:
    assert_none(rules.unreleased((repository.ROOT / "CHANGELOG.md").read_text()))


def test_crash_points_are_registered_constants_that_are_passed() -> None:
    texts = {repository.name(path): path.read_text() for path in repository.under("python/corral")}
    assert_none(rules.crash_points(texts))


def test_crash_point_registry_names_and_documents_every_point() -> None:
    for module in pkgutil.walk_packages(corral.__path__, prefix="corral."):
        importlib.import_module(module.name)
    points = crashpoints.registered()
    assert points
    for name, doc in points.items():
        assert name.islower()
        assert name.count(".") >= 2
        assert doc
