"""`./corral up`: its state is kept, answers are shown, and it ends only what it started."""

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
    with up(directory) as printed:

        def answered() -> bool:
            text = printed.read_text()
            return "'sent while nothing runs'" in text and "a2a: completed" in text

        until(answered, WAIT_S, "both answers")
        assert "agent scout: healthy" in operate(directory, "status", "scout")


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
