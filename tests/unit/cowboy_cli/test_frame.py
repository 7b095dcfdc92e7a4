"""Exit codes and how errors are shown, for every way in which a command can end."""

import sys
from types import ModuleType
from typing import Any

import pytest

from corral.core.errors import (
    ConfigError,
    CorralError,
    GuardError,
    StorageError,
    UnavailableError,
    UsageError,
)
from tests.unit.cowboy_cli.conftest import Host, Run


@pytest.fixture
def daemon_raises(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes `cowboy run scout` end with an exception."""

    def arrange(error: BaseException) -> None:
        async def run_daemon(settings: object, agent: str) -> None:
            raise error

        module = ModuleType("corral.cowboy.daemon")
        module.run_daemon = run_daemon  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "corral.cowboy.daemon", module)

    return arrange


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("m", hint="h"), 64),
        (UnavailableError("m", hint="h"), 69),
        (CorralError("m", hint="h"), 70),
        (GuardError("m", hint="h"), 70),
        (StorageError("m", hint="h"), 74),
        (ConfigError("m", hint="h"), 78),
        (ExceptionGroup("tasks", [ExceptionGroup("inner", [StorageError("m", hint="h")])]), 74),
    ],
)
def test_an_error_is_one_line_and_a_hint(
    error: Exception, code: int, run: Run, host: Host, daemon_raises: Any
) -> None:
    daemon_raises(error)
    result = run("run", "scout")
    assert (result.exit_code, result.out) == (code, "")
    assert result.err == "cowboy: m\nhint: h\n"


def test_a_fault_of_the_program_quotes_nothing(run: Run, host: Host, daemon_raises: Any) -> None:
    daemon_raises(KeyError("a secret"))
    result = run("run", "scout")
    assert result.exit_code == 70
    assert "cowboy: a fault of the program: KeyError" in result.err
    assert "in run_daemon" in result.err
    assert "a secret" not in result.err.replace('KeyError("a secret")', "")


def test_a_fault_in_a_task_shows_where_the_task_failed(
    run: Run, host: Host, daemon_raises: Any
) -> None:
    daemon_raises(ExceptionGroup("tasks", [_raised_by_the_task()]))
    result = run("run", "scout")
    assert result.exit_code == 70
    assert "cowboy: a fault of the program: LookupError" in result.err
    assert "in _raised_by_the_task" in result.err
    assert "a secret" not in result.err.replace('LookupError("a secret")', "")


def _raised_by_the_task() -> Exception:
    try:
        raise LookupError("a secret")
    except LookupError as error:
        return error


@pytest.mark.parametrize("error", [KeyboardInterrupt()])
def test_an_interrupt_has_its_code(
    error: BaseException, run: Run, host: Host, daemon_raises: Any
) -> None:
    daemon_raises(error)
    result = run("run", "scout")
    assert result.exit_code == 130
    assert "cowboy: interrupted" in result.err


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("turns",),
        ("no-such-command",),
        ("status", "--no-such-option"),
        ("status", "Scout"),
        ("status", "../scout"),
        ("status", ""),
        ("adopt",),
        ("run", "a", "b"),
        ("run", "scout", "--log-level", "loud"),
        ("turns", "list", "scout", "--limit", "0"),
        ("turns", "list", "scout", "--limit", "1001"),
        ("turns", "show", "scout", "no-turn-id"),
        ("turns", "show", "scout", "other.a2a.1.1-0"),
        ("turns", "release", "scout", "scout.a2a.x.1-0"),
        ("turns", "abandon", "scout", "scout.a2a.1.1-0-0"),
    ],
)
def test_wrong_arguments_are_a_usage_error(args: tuple[str, ...], run: Run, host: Host) -> None:
    result = run(*args)
    assert (result.exit_code, result.out) == (64, "")
    assert result.err


def test_errors_are_json_where_json_was_asked_for(run: Run, host: Host) -> None:
    host.add("scout")
    down = run("backup", "scout", "--json")
    assert (down.exit_code, down.err) == (69, "")
    assert down.json["ok"] is False
    assert down.json["error"]["code"] == "unavailable"
    assert down.json["error"]["hint"]
    for args in (
        ("backup", "--json"),
        ("backup", "--json", "X"),
        ("backup", "--json", "a", "b"),
        ("backup", "scout", "--no-such-option", "--json"),
        ("no-such-command", "--json"),
        ("--json", "status"),
        ("turns", "--json"),
        ("turns", "list", "scout", "--limit", "--json"),
        ("send", "scout", "a2a", "--json"),
        ("turns", "show", "scout", "no-turn-id", "--json"),
    ):
        wrong = run(*args)
        assert (wrong.exit_code, wrong.err) == (64, "")
        assert wrong.json["error"]["code"] == "usage"


@pytest.mark.parametrize("args", [("--help",), ("-h",), ("turns", "-h"), ("--version",)])
def test_help_is_no_error(args: tuple[str, ...], run: Run) -> None:
    result = run(*args)
    assert (result.exit_code, result.err) == (0, "")
    assert result.out
