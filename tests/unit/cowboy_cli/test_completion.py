"""Completion in the shell: commands, agents, sources, and the turns that are open."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cowboy_cli.conftest import FakeDaemon, Host

REPOSITORY = Path(__file__).parents[3]
TURNS = {"turns": [{"turn_id": "scout.a2a.1.1-0"}, {"turn_id": "scout.a2a.1.2-0"}], "more": 0}


def completed(*words: str) -> list[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "python"),
        "_COWBOY_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("cowboy", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", "from corral.cowboy.main import cli; cli(prog_name='cowboy')"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("do",), ["doctor"]),
        (("turns", "c"), ["cancel"]),
        (("doctor", "sc"), ["scout"]),
        (("explain", "scout", "--source", ""), ["a2a"]),
        (("turns", "cancel", "scout", "scout.a2a.1.2"), ["scout.a2a.1.2-0"]),
        (("turns", "release", "scout", ""), ["scout.a2a.1.1-0", "scout.a2a.1.2-0"]),
        (("turns", "show", "other", ""), []),
    ],
)
def test_what_is_offered(words: tuple[str, ...], expected: list[str], host: Host) -> None:
    host.add("scout")
    with FakeDaemon(host.control("scout"), {"turns": TURNS}):
        assert completed(*words) == expected
