"""`./corral up`: its state is kept, answers are shown, and it ends only what it started."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corral.local.topology import base_environment
from corral.local.wait import until

WAIT_S = 60.0


@pytest.fixture
def directory() -> Iterator[Path]:
    base = Path(tempfile.mkdtemp(prefix="up-"))  # short, for the sockets inside
    yield base / "state"
    shutil.rmtree(base)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", *words]


@contextmanager
def up(directory: Path, *processes: str) -> Iterator[Path]:
    """Runs it until the end of the block, then Ctrl-C; gives the file with what it printed."""
    printed = directory.with_name("printed")
    with (
        printed.open("w") as file,
        subprocess.Popen(
            command("corral.local.up", *processes, "--dir", str(directory)),
            env=base_environment(),
            stdout=file,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            until(lambda: "Ctrl-C ends it" in printed.read_text(), WAIT_S, "it to be up")
            yield printed
            process.send_signal(signal.SIGINT)
            assert process.wait(WAIT_S) == 0
        finally:
            process.kill()
    assert f"everything is kept in {directory}" in printed.read_text()


def operate(directory: Path, *words: str) -> str:
    """One cowboy command, as the shell that sourced `env` runs it."""
    line = shlex.join(command("corral.cowboy.main", *words))
    done = subprocess.run(
        ["/bin/sh", "-c", f". {shlex.quote(str(directory / 'env'))}; {line}"],
        env=base_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_was_sent_while_nothing_runs_is_answered_after_up(directory: Path) -> None:
    with up(directory, "redis"):
        operate(directory, "send", "scout", "echo", "--content", "sent while nothing runs")
        operate(directory, "send", "scout", "a2a", "--content", "for the agent")
        secrets = read_all(directory / "credentials")
    with up(directory) as printed:

        def answered() -> bool:
            text = printed.read_text()
            return "'sent while nothing runs'" in text and "a2a: completed" in text

        until(answered, WAIT_S, "both answers")
        # Of all agents of this host: those of the example that do not run are not among them.
        shown = operate(directory, "status")
        assert shown.startswith("agent scout: healthy")
        assert "smith" not in shown
        operate(directory, "doctor")
    assert read_all(directory / "credentials") == secrets


def look(*words: str) -> subprocess.CompletedProcess[str]:
    """One command of `corral`."""
    return subprocess.run(
        command("corral.overview.main", *words),
        env=base_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        cwd="/",
    )


def test_the_whole_is_seen_on_one_screen_and_what_is_down_is_said(directory: Path) -> None:
    with up(directory):
        well = look("status", "--dir", str(directory))
        assert well.returncode == 0, well.stdout + well.stderr
        assert "scout/echo" in well.stdout
        assert well.stdout.endswith("3 well, 0 to be looked at, 0 wrong\n")
        found = json.loads(look("doctor", "--dir", str(directory), "--json").stdout)
        assert found["healthy"]
        assert {line["what"] for line in found["lines"]} > {"scout: disk", "scout: clock"}
    down = look("status", "--dir", str(directory))
    assert down.returncode == 1
    assert "bad   cowboy  scout" in down.stdout
    found = json.loads(look("doctor", "--dir", str(directory), "--json").stdout)
    assert not found["healthy"]
    assert any(line["level"] == "bad" and line["hint"] for line in found["lines"])


def test_where_no_service_is_nothing_is_green() -> None:
    none = look("status")
    assert none.returncode == 69
    assert "no service is here" in none.stderr


def read_all(folder: Path) -> dict[str, str]:
    found = {path.name: path.read_text() for path in folder.iterdir()}
    assert len(set(found.values())) > 3
    return found


def test_the_shell_that_uses_it_survives_its_end(directory: Path) -> None:
    with up(directory, "redis"):
        shell = subprocess.Popen(
            ["/bin/sleep", "1000"],
            env={**os.environ, "COWBOY_CONFIG_DIR": str(directory / "config")},
        )
    try:
        assert shell.poll() is None
    finally:
        shell.kill()
        shell.wait()


def test_a_second_one_in_the_same_directory_is_refused(directory: Path) -> None:
    with up(directory, "redis"):
        second = subprocess.run(
            command("corral.local.up", "--dir", str(directory)),
            env=base_environment(),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
    assert second.returncode == 69
    assert f"another ./corral up uses {directory}" in second.stderr


def test_an_unknown_process_is_refused() -> None:
    done = subprocess.run(
        command("corral.local.up", "postgres"),
        env=base_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 64
    assert "no process postgres; there are: redis runner daemon" in done.stderr


def test_a_directory_too_deep_for_sockets_is_refused_with_the_way_out(directory: Path) -> None:
    done = subprocess.run(
        command("corral.local.up", "--dir", str(directory / ("d" * 100))),
        env=base_environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 69
    assert "bytes, more than 107" in done.stderr
    assert "--dir" in done.stderr
