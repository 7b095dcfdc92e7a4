"""The service template of the documentation, taken from its page and run."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.local.wait import until
from tests.unit.core import child

PAGE = child.REPOSITORY / "docs" / "reference" / "service-template.md"
FILE = re.compile(r"^### `(tally/[^`]+)`\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def service(tmp_path: Path) -> "Service":
    files = FILE.findall(PAGE.read_text())
    assert len(files) == 6
    for name, text in files:
        path = tmp_path / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "state").mkdir()
    return Service(tmp_path)


class Service:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = directory / "tally.sock"
        self.environ = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(
                [str(directory / "code"), str(child.REPOSITORY / "python")]
            ),
            "TALLY_STATE_DIR": str(directory / "state"),
            "TALLY_SOCKET": str(self.socket),
            "NOTIFY_SOCKET": str(directory / "notify"),
            "WATCHDOG_USEC": "20000",
        }

    def run(self, **environ: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "tally.main"],
            env={**self.environ, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def start(self) -> "subprocess.Popen[bytes]":
        with (self.directory / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "tally.main"], env=self.environ, stderr=log
            )

    def log(self) -> str:
        return (self.directory / "log").read_text()

    def ask(self, *lines: bytes) -> list[str]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(30)
            client.connect(str(self.socket))
            with client.makefile("rwb") as stream:
                answers = []
                for line in lines:
                    stream.write(line + b"\n")
                    stream.flush()
                    answers.append(stream.readline().decode().rstrip("\n"))
                return answers


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(60)
        yield receiver


def test_it_counts_survives_a_kill_and_stops(service: Service, manager: socket.socket) -> None:
    first = service.start()
    try:
        assert manager.recv(100) == b"READY=1\nSTATUS=listening\n"
        assert manager.recv(100) == b"WATCHDOG=1\n"
        assert service.socket.stat().st_mode & 0o777 == 0o700
        assert service.ask(b"add a", b"add a", b"add b") == ["ok 1", "ok 2", "ok 1"]
        other = service.run(NOTIFY_SOCKET="")
        assert other.returncode == 69
        assert json.loads(other.stderr)["code"] == "unavailable"
    finally:
        first.kill()
        first.wait(30)
    second = service.start()
    try:
        until(lambda: b"READY=1" in manager.recv(100), 60, "the second start")
        assert service.ask(b"add a", b"close b", b"close b", b"add b") == [
            "ok 3",
            "ok 1",
            "error guard_failed",
            "error guard_failed",
        ]
        bad = (b"sub a", b"add", b"add 1-", b"add \xff", b"add " + b"a" * 65)
        assert service.ask(*bad) == ["error usage"] * len(bad)
        assert service.ask(b"add " + b"c" * 64, b"add " + b"d" * 2000) == ["ok 1", ""]
        second.send_signal(signal.SIGTERM)
        until(lambda: manager.recv(100) == b"STOPPING=1\n", 60, "the notice of its end")
        assert second.wait(30) == 0, service.log()
    finally:
        second.kill()
        second.wait(30)
    assert "Traceback" not in service.log()


def test_a_wrong_setting_ends_it_with_the_published_status(service: Service) -> None:
    config = service.directory / "tally.json"
    config.write_text('{"sokcet": "x"}')
    done = service.run(TALLY_CONFIG=str(config))
    assert done.returncode == 78
    line = json.loads(done.stderr)
    assert (line["code"], line["service"]) == ("config_invalid", "tally")
    assert line["message"].startswith("sokcet: ")


def test_it_is_written_as_strictly_as_the_rest(service: Service) -> None:
    code = service.directory / "code"
    settings = child.REPOSITORY / "pyproject.toml"
    cache = child.REPOSITORY / ".mypy_cache"  # the one of the lint stage: a tenth of the time
    environ = {**service.environ, "MYPYPATH": str(child.REPOSITORY / "python")}
    for command in (
        # The order of imports depends on where the package will be.
        ["ruff", "check", "--config", str(settings), "--ignore", "I001", "."],
        ["ruff", "format", "--check", "--config", str(settings), "."],
        ["mypy", "--config-file", str(settings), "--cache-dir", str(cache), "-p", "tally"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=code,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
