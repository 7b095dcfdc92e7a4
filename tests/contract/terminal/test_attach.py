"""`discover`: whom a pane's messages are for, from inside and from outside of it."""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from corral.core.errors import UnavailableError, UsageError
from corral.tamq.terminal import open_terminal, process
from corral.tamq.terminal.attach import discover, pane_of
from corral.tamq.terminal.base import Outcome, Ready
from corral.tamq.terminal.profiles import BUILT_IN
from tests.contract.terminal.conftest import StartTmux
from tests.contract.terminal.hosted import ROOT
from tests.contract.terminal.panes import Agent, Tmux, soon, wake

# What `tamq attach` does before it registers.
ATTACH = """
import asyncio, json, os, pathlib, sys
from corral.tamq.terminal import address
from corral.tamq.terminal.attach import discover, pane_of
found = asyncio.run(discover(*pane_of(os.environ)))
pathlib.Path(sys.argv[1]).write_text(json.dumps(address.as_dict(found)))
"""


def attach(tmux: Tmux, folder: Path, *, before: str = "") -> dict[str, dict[str, int]]:
    """Typed at the pane's prompt."""
    script, found = folder / "attach.py", folder / "found"
    script.write_text(ATTACH)
    command = shlex.join([sys.executable, "-P", str(script), str(found)])
    tmux.type("-l", f"{before} PYTHONPATH={ROOT / 'python'} {command}")
    tmux.type("Enter")
    soon(lambda: found.exists() and found.read_text().endswith("}"), "the address")
    fields: dict[str, dict[str, int]] = json.loads(found.read_text())
    return fields


def test_typed_at_a_prompt_it_is_the_shell(start_tmux: StartTmux, tmp_path: Path) -> None:
    tmux = start_tmux("exec bash --norc")
    tmux.see("bash")
    fields = attach(tmux, tmp_path)
    assert fields["process"]["pid"] == int(tmux.tell("#{pane_pid}"))
    assert fields["server"]["pid"] == tmux.pid


def test_from_a_tool_of_an_agent_it_is_the_agent(start_tmux: StartTmux, tmp_path: Path) -> None:
    """Agents run their tools in sessions of their own, without the terminal."""
    tmux = start_tmux("exec bash --norc")
    tmux.see("bash")
    fields = attach(tmux, tmp_path, before="setsid --wait env")
    leader = fields["process"]["pid"]
    assert leader != int(tmux.tell("#{pane_pid}"))  # the foreground was `setsid`, like an agent


async def test_from_outside_it_is_who_has_the_keyboard(
    start_tmux: StartTmux, tmp_path: Path
) -> None:
    agent = Agent(tmp_path, "codex")
    tmux = start_tmux("exec bash --norc")
    tmux.see("bash")
    shell = await discover(tmux.socket, tmux.pane)
    assert shell.process.pid == int(tmux.tell("#{pane_pid}"))
    tmux.type("-l", agent.command.removeprefix("exec "))
    tmux.type("Enter")
    tmux.see("? for shortcuts")
    found = await discover(tmux.socket, tmux.pane)
    assert found.process.pid != shell.process.pid
    assert (await open_terminal(found, BUILT_IN["codex"]).inject(wake("a"))).enters == 1
    # The shell behind it is alive, and has to wait.
    behind = await open_terminal(shell, BUILT_IN["shell"]).readiness()
    assert behind.state is Ready.OTHER_PROGRAM


async def test_what_cannot_be_attached_says_why(start_tmux: StartTmux, tmp_path: Path) -> None:
    tmux = start_tmux("exec cat")
    with pytest.raises(UnavailableError, match="%99"):
        await discover(tmux.socket, "%99")
    with pytest.raises(UnavailableError, match="nothing"):
        await discover(str(tmp_path / "nothing"), "%0")
    tmux.run("set-option", "-g", "remain-on-exit", "on")
    tmux.type("C-d")
    soon(lambda: tmux.tell("#{pane_dead}") == "1", "the dead pane")
    with pytest.raises(UnavailableError, match="nobody"):
        await discover(tmux.socket, tmux.pane)
    assert pane_of({"TMUX": "/a,b/default,7,0", "TMUX_PANE": "%3"}) == ("/a,b/default", "%3")
    with pytest.raises(UsageError, match="not inside"):
        pane_of({})


@pytest.mark.parametrize("shell", ["dash", "bash --norc"])
async def test_no_shell_runs_a_line_of_a_message(
    start_tmux: StartTmux, tmp_path: Path, shell: str
) -> None:
    """dash knows no bracketed paste: every line end would be Enter."""
    tmux = start_tmux(f"cd {tmp_path} && PS1='$ ' exec {shell}")
    tmux.see("$")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["shell"])
    injection = await terminal.inject(wake("touch one\ntouch two\r\ntouch three\x1b[201~\rx"))
    assert (injection.outcome, injection.reason) == (Outcome.INJECTED, "shown")
    tmux.interrupt()
    tmux.type("-l", "touch control")
    tmux.type("Enter")
    soon((tmp_path / "control").exists, "the positive control")
    assert not {"one", "two", "three"} & {file.name for file in tmp_path.iterdir()}


async def test_a_draft_of_several_lines_is_a_draft(start_tmux: StartTmux) -> None:
    tmux = start_tmux("PS1='$ ' exec bash --norc")
    tmux.see("$")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["shell"])
    tmux.type("-l", "echo 'half a")
    tmux.type("Enter")
    tmux.see("\n>")
    assert (await terminal.readiness()).state is Ready.DRAFT
    tmux.interrupt()
    assert (await terminal.readiness()).state is Ready.READY


async def test_a_stopped_agent_leaves_the_keyboard_to_the_shell(
    start_tmux: StartTmux, tmp_path: Path
) -> None:
    agent = Agent(tmp_path, "claude-code")
    tmux = start_tmux("exec bash --norc")
    tmux.see("bash")
    tmux.type("-l", agent.command.removeprefix("exec "))
    tmux.type("Enter")
    tmux.see("? for shortcuts")
    terminal = open_terminal(await discover(tmux.socket, tmux.pane), BUILT_IN["claude-code"])
    stopped = terminal.address.process
    os.kill(stopped.pid, signal.SIGSTOP)
    soon(lambda: tmux.tell("#{pane_current_command}") == "bash", "the shell")
    assert (await terminal.inject(wake("a"))).reason == "other_program"
    assert process.find(stopped) is not None
    os.kill(stopped.pid, signal.SIGKILL)  # ends what is stopped, too
