import io
import json
import logging
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from corral.core import logs
from corral.core.errors import ConfigError
from tests.unit.core import child


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    configuration = structlog.get_config()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configuration)


class Stderr:
    """What was written to standard error since the start of the test."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self._text = ""

    def text(self) -> str:
        self._text += self._capture.readouterr().err
        return self._text

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text().splitlines()]


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Stderr:
    return Stderr(capsys)


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_a_log_that_cannot_be_written_does_not_end_its_service(redirection: str) -> None:
    code = (
        "import logging; from corral.core import logs; logs.configure('s');"
        "[logs.get('m').error('a line', n=n) for n in range(1000)];"
        "logging.getLogger('library').warning('a line'); print('goes on')"
    )
    line = shlex.join([sys.executable, "-c", code])
    done = subprocess.run(
        ["/bin/sh", "-c", f"{line} {redirection}"],
        env={**os.environ, "PYTHONPATH": str(child.REPOSITORY / "python")},
        capture_output=True,
        text=True,
        timeout=child.TIMEOUT_S,
    )
    assert (done.stdout, done.returncode) == ("goes on\n", 0)


def test_a_line_has_who_what_and_when(stderr: Stderr) -> None:
    logs.configure("cowboy", json=True)
    logs.get("cowboy.engine").info("turn dispatched", turn_id="scout.a2a.1.7-0", attempt=1)
    (line,) = stderr.lines()
    assert line.pop("time").endswith("Z")
    assert line == {
        "event": "turn dispatched",
        "level": "info",
        "logger": "cowboy.engine",
        "service": "cowboy",
        "turn_id": "scout.a2a.1.7-0",
        "attempt": 1,
    }


@pytest.mark.parametrize("key", ["content", "body", "reply", "prompt", "Content"])
def test_content_is_withheld_and_its_size_is_not(stderr: Stderr, key: str) -> None:
    logs.configure("cowboy", json=True)
    logs.get("x").info("got", **{key: "hush", f"{key}_bytes": 4})
    (line,) = stderr.lines()
    assert (line[key], line[f"{key}_bytes"]) == ("[withheld]", 4)


@pytest.mark.parametrize(
    "key", ["password", "secret", "token", "redis_password", "run-token", "CORRAL_RUN_TOKEN"]
)
def test_secrets_are_withheld_at_any_depth(stderr: Stderr, key: str) -> None:
    logs.configure("cowboy", json=True)
    logs.get("x").info("got", **{key: "hush"}, deep={"list": [{key: "hush"}]}, raw=b"hush")
    assert "hush" not in stderr.text()
    (line,) = stderr.lines()
    assert line[key] == line["deep"]["list"][0][key] == "[withheld]"
    assert line["raw"] == "[4 bytes]"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_local_variable(stderr: Stderr, as_json: bool) -> None:
    logs.configure("cowboy", json=as_json)
    held = "hush"
    try:
        raise ConfigError("sources: missing")
    except ConfigError:
        logs.get("x").exception("failed")
    assert "sources: missing" in stderr.text()
    assert held not in stderr.text()


@pytest.mark.parametrize("as_json", [True, False])
def test_the_text_of_a_foreign_exception_is_withheld_wherever_it_stands(
    stderr: Stderr, as_json: bool
) -> None:
    """A database's quotes the row that it refused, also as the cause of one of ours."""
    logs.configure("cowboy", json=as_json)
    held = "hush"
    try:
        try:
            raise ValueError(f"DETAIL: failing row contains ({held})")
        except ValueError as error:
            raise ConfigError("not stored") from error
    except ConfigError as error:
        logs.get("x").exception("failed")
        logs.get("x").error("failed", **logs.fault(error.__cause__ or error))
        group = ExceptionGroup(held, [error, KeyError(held)])
        logging.getLogger("asyncio").error("failed", exc_info=group)
    told = stderr.text()
    assert held not in told
    assert "not stored" in told
    assert "KeyError" in told
    assert told.count("test_core_logs.py") >= 3


def test_the_level_is_a_threshold(stderr: Stderr) -> None:
    logs.configure("cowboy", json=True, level="warning")
    log = logs.get("x")
    log.info("no")
    log.warning("yes")
    assert [line["event"] for line in stderr.lines()] == ["yes"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="debug, info, warning, error"):
        logs.configure("cowboy", level="loud")


def test_libraries_log_the_same_way_from_warning_on(stderr: Stderr) -> None:
    logs.configure("cowboy", json=True, level="debug")
    logging.getLogger("aiosqlite").debug("executing %s", "with its arguments")
    logging.getLogger("redis").warning("lost the %s", "connection")
    (line,) = stderr.lines()
    assert (line["event"], line["logger"]) == ("lost the connection", "redis")
    assert (line["service"], line["level"]) == ("cowboy", "warning")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "journal", "as_json"),
    [(False, False, True), (True, False, False), (True, True, True), (False, True, True)],
)
def test_the_format_follows_the_surroundings(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, journal: bool, as_json: bool
) -> None:
    stream = _Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    if journal:
        monkeypatch.setenv("JOURNAL_STREAM", "8:1")
    logs.configure("cowboy")
    logs.get("x").info("hello")
    assert stream.getvalue().startswith("{") == as_json


def test_a_line_goes_to_the_systems_log_as_well(
    stderr: Stderr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOURNAL_STREAM", raising=False)
    monkeypatch.setattr(logs, "SYSTEM_LOG", str(tmp_path / "log"))
    logs.configure("bridge", json=True, system_log="a2a-bridge")
    logs.get("audit").info("nobody listens", job_id="j")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as place:
        place.bind(logs.SYSTEM_LOG)
        logs.get("audit").info("resolved", job_id="j", body="words")
        place.setblocking(False)
        head, _, line = place.recv(4096).decode().partition(": ")
        # Under systemd the journal has it already.
        monkeypatch.setenv("JOURNAL_STREAM", "8:1")
        logs.configure("bridge", json=True, system_log="a2a-bridge")
        logs.get("audit").info("once")
        with pytest.raises(BlockingIOError):
            place.recv(4096)
    assert head == f"<38>a2a-bridge[{os.getpid()}]"
    assert json.loads(line) == stderr.lines()[1]
    assert json.loads(line)["body"] == logs.WITHHELD
    assert stderr.lines()[2]["event"] == "once"


def test_rich_is_not_imported_with_the_logs_and_works_afterwards() -> None:
    assert child.run("imports_child").only() == {"with logs": False, "afterwards": True}


def test_before_it_is_configured_a_process_says_only_what_went_wrong() -> None:
    """In a process of its own: another test may have configured this one."""
    code = (
        "from corral.core import logs; log = logs.get('x');"
        "log.info('nothing to see'); log.warning('watch out', password='hush')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(child.REPOSITORY / "python")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    assert "watch out" in done.stderr
    assert "hush" not in done.stderr
    assert "nothing to see" not in done.stderr
