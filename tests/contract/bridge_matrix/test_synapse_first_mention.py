"""The tutorial of the bridge: its commands as they stand in the page, and what they show."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import asyncpg
import pytest

from corral.local import wait
from corral.local.synapse import PYTHON_VARIABLE

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/tutorial/first-mention.md"
TIMEOUT_S = 180.0
SHOWN = re.compile(
    r"```bash\n\./corral say (?P<arguments>[^\n]+)\n```\n```text\n(?P<shown>.*?)```", re.DOTALL
)


def examples() -> list[tuple[str, list[str]]]:
    found = [
        (one["arguments"], one["shown"].splitlines()) for one in SHOWN.finditer(PAGE.read_text())
    ]
    assert len(found) >= 4, "the page has lost its commands"
    return found


def command(name: str, *arguments: str) -> list[str]:
    """What the entry script runs, with the interpreter of this test."""
    return [sys.executable, "-P", "-m", f"corral.local.{name}", *arguments]


@pytest.fixture(scope="module")
def work(synapse_python: Path) -> Iterator[Path]:
    """A folder in which `./corral up --bridge` runs. PostgreSQL's user must reach it."""
    folder = Path(tempfile.mkdtemp(prefix="corral-up-"))
    folder.chmod(0o755)
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "python"),
        PYTHON_VARIABLE: str(synapse_python),
    }
    out = folder / "out"
    with out.open("wb") as log:
        up = subprocess.Popen(
            command("up", "--bridge"), cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:

        def started() -> bool:
            assert up.poll() is None, out.read_text()
            return "./corral say" in out.read_text()

        wait.until(started, TIMEOUT_S, "./corral up --bridge")
        yield folder
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(TIMEOUT_S)
        told = out.read_text()
        shutil.rmtree(folder, ignore_errors=True)
    assert "everything is kept" in told


def said(work: Path, arguments: str) -> list[str]:
    done = subprocess.run(
        command("say", *shlex.split(arguments)),
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.splitlines()


def lasting(lines: list[str]) -> list[str]:
    """Without how far it is, which depends on how fast the machine is."""
    return [line for line in lines if not re.fullmatch(r"thread: \d+ % done", line)]


@pytest.mark.parametrize(("arguments", "shown"), examples())
def test_the_tutorial_shows_what_happens(work: Path, arguments: str, shown: list[str]) -> None:
    lines = said(work, arguments)
    told = [line for line in lines if line and not line.startswith("(")]
    assert lasting(told) == lasting(shown)
    if arguments.startswith('"slow 5'):
        assert 1 <= len(told) - len(lasting(told)) <= 3


@pytest.mark.parametrize("victim", ["bridge", "postgres", "synapse"])
def test_whatever_is_killed_in_the_middle_it_is_answered_once(work: Path, victim: str) -> None:
    base = work / ".corral" / "bridge"
    asking = subprocess.Popen(
        command("say", f"slow 4 {victim} survived"),
        cwd=work,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert asking.stdout is not None
    assert asking.stdout.readline() == "reply: Working on it …\n"
    starts = (base / "agent-starts.log").read_text().splitlines()
    os.kill(int((base / "pids" / victim).read_text()), signal.SIGKILL)
    rest, _ = asking.communicate(timeout=TIMEOUT_S)
    assert lasting(rest.splitlines()) == [f"edit: {victim} survived"]
    assert (base / "agent-starts.log").read_text().splitlines() == starts
    assert len(set(starts)) == len(starts)


async def test_what_was_said_is_nowhere_but_in_the_room(work: Path) -> None:
    """In no terminal row, no log and no metric; what a database keeps on its disk is another
    matter, and documented."""
    base = work / ".corral" / "bridge"
    word = f"quagmire{os.getpid()}"
    for arguments in (f'"{word} please"', f'"fail {word}"', f'"ask {word}?" --answer {word}'):
        assert word in " ".join(said(work, arguments))
    made = await asyncpg.connect((base / "database").read_text())
    try:

        async def all_ended() -> bool:
            return not await made.fetchval(
                "SELECT count(*) FROM bridge_delegations WHERE terminal_at IS NULL"
            )

        await wait.until_async(all_ended, TIMEOUT_S, "all jobs to end")
        tables = await made.fetch("SELECT tablename FROM pg_tables WHERE tablename ~ '^bridge_'")
        rows = [str(row) for (table,) in tables for row in await made.fetch(f"TABLE {table}")]
    finally:
        await made.close()
    assert len(rows) > len(tables)
    port = json.loads((base / "facts.json").read_text())["bridge_port"]
    async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as got:
        metrics = await got.text()
    log = (base / "logs" / "bridge.log").read_text()
    assert "bridge_transactions_total" in metrics
    assert "job ended" in log
    assert [text for text in (*rows, metrics, log) if word in text] == []


def test_doctor_finds_nothing_wrong_and_then_what_is(work: Path) -> None:
    base = work / ".corral" / "bridge"
    lines = re.findall(r"^export (\w+)=(.*)$", (base / "env").read_text(), re.MULTILINE)
    environment = os.environ | {name: shlex.split(value)[0] for name, value in lines}

    def examined(**more: str) -> tuple[int, dict[str, str]]:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "corral.bridge.main", "doctor", "--json"],
            env=environment | {"PYTHONPATH": str(ROOT / "python")} | more,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        checks = json.loads(done.stdout)["checks"]
        return done.returncode, {
            one["code"]: one["check"] for one in checks if one["level"] != "ok"
        }

    assert examined() == (0, {})
    status, found = examined(BRIDGE_HOMESERVER_URL="http://127.0.0.1:9")
    assert (status, found) == (1, {"homeserver_unreachable": "homeserver"})
