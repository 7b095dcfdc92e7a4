"""The demo agent, run as the runner runs it: a program with a prompt on its standard input."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from corral.local import agent
from corral.local.ledger import read_effects

PROGRAM = [sys.executable, "-S", "-E", "-I", agent.__file__]


def run(prompt: bytes, effects: Path, turn: str = "t.1") -> "subprocess.CompletedProcess[bytes]":
    environment = {agent.EFFECTS: str(effects), "CORRAL_TURN_ID": turn, "CORRAL_ENTRY_ID": "1-1"}
    return subprocess.run(PROGRAM, input=prompt, capture_output=True, env=environment, timeout=20)


def test_answers_and_logs_its_effects(tmp_path: Path) -> None:
    prompt = agent.prompt_for(b"hello", work_s=0.1)
    done = run(prompt, tmp_path / "log")
    assert (done.returncode, done.stdout) == (0, agent.answer(prompt, "t.1"))
    effects = read_effects(tmp_path / "log")
    events = [effect.ev for effect in effects]
    assert (events[0], events[-1]) == ("start", "end")
    assert events.count("beat") >= 2
    assert {(effect.turn, effect.run) for effect in effects} == {("t.1", effects[0].run)}
    assert effects[0].entry_id == "1-1"
    times = [effect.at_ms for effect in effects]
    assert times == sorted(times)
    assert times[-1] - times[0] >= 95


@pytest.mark.parametrize("prompt", [b"", b"\xff\x00 binary"])
def test_any_prompt_is_answered(prompt: bytes, tmp_path: Path) -> None:
    done = run(prompt, tmp_path / "log")
    assert (done.returncode, done.stdout) == (0, agent.answer(prompt, "t.1"))


@pytest.mark.parametrize(
    ("action", "code", "stdout"),
    [("exit", 3, b""), ("garbage", 0, b"\xff\xfe\x80"), ("big", 0, None)],
)
def test_misbehaves_as_told(action: str, code: int, stdout: bytes | None, tmp_path: Path) -> None:
    done = run(agent.prompt_for(b"x", action=action, work_s=0.01), tmp_path / "log")
    assert done.returncode == code
    if stdout is None:
        assert len(done.stdout) == agent.BIG_REPLY_BYTES
    else:
        assert done.stdout == stdout


def test_instructions_are_read_back() -> None:
    for action in agent.ACTIONS:
        assert agent.parse(agent.prompt_for(b"x", action=action, work_s=1.25)) == (action, 1.25)
    assert agent.parse(b"no instructions\n#work s=9") == ("answer", agent.DEFAULT_WORK_S)
    with pytest.raises(ValueError, match="unknown action"):
        agent.parse(b"#work do=dance")


def test_lines_are_whole_json(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for number in range(3):
        run(b"x", log, turn=f"t.{number}")
    lines = log.read_bytes().splitlines()
    assert {json.loads(line)["turn"] for line in lines} == {"t.0", "t.1", "t.2"}
