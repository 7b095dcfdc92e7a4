"""What a zygote forks is a process like any other: exit status, log, environment, its own end."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from corral.local import wait
from corral.local.topology import base_environment
from tests.harness.armed import alive
from tests.harness.zygote import Child, Zygote


@pytest.fixture
async def zygote() -> AsyncIterator[Zygote]:
    made = Zygote()
    made.attach()
    yield made
    made.detach()
    made.close()


async def launch(zygote: Zygote, log: Path, *argv: str, **environment: str) -> Child:
    command = [sys.executable, "-m", "tests.harness.armed", *argv]
    child = await zygote.spawn(command, base_environment() | environment, log.parent, log)
    assert child is not None
    return child


async def test_status_log_and_session(zygote: Zygote, tmp_path: Path) -> None:
    first = await launch(zygote, tmp_path / "one", "--", "--help")
    second = await launch(zygote, tmp_path / "two", "--", "no-such-command")
    assert (await first.wait(), await second.wait()) == (0, 64)
    assert "run" in (tmp_path / "one").read_text()
    assert "no-such-command" in (tmp_path / "two").read_text()
    assert first.pid != second.pid


async def test_environment_is_the_given_one(
    zygote: Zygote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COWBOY_CONFIG_DIR", "/nowhere")
    child = await launch(
        zygote, tmp_path / "log", "--", "run", "scout", COWBOY_CONFIG_DIR=str(tmp_path / "here")
    )
    assert await child.wait() == 78
    assert str(tmp_path / "here") in (tmp_path / "log").read_text()


async def test_other_programs_are_not_its_business(zygote: Zygote, tmp_path: Path) -> None:
    assert await zygote.spawn(["redis-server", "x"], {}, tmp_path, tmp_path / "log") is None


def test_children_end_with_their_worker(tmp_path: Path) -> None:
    """A worker that is killed leaves neither its zygote nor what that forked."""
    code = (
        "import asyncio, pathlib\n"
        "from tests.unit.local.test_zygote import launch\n"
        "from tests.harness.zygote import Zygote\n"
        "async def main():\n"
        "    z = Zygote(); z.attach()\n"
        f"    log = pathlib.Path({str(tmp_path)!r}) / 'log'\n"
        "    child = await launch(z, log, '--', '--help')\n"
        "    print(z.pid, child.pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    os.mkfifo(tmp_path / "log")  # nobody reads it: the child waits there
    argv = [sys.executable, "-c", code]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=base_environment()) as worker:
        assert worker.stdout is not None
        pids = [int(part) for part in worker.stdout.readline().split()]
        wait.until(lambda: os.getsid(pids[1]) == pids[1], 10, "the child to be on its own")
        assert all(alive(pid) for pid in pids)
        os.kill(worker.pid, signal.SIGKILL)
    wait.until(lambda: not any(alive(pid) for pid in pids), 10, "the children to end")
