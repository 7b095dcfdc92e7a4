"""SIGKILL at each boundary of an injection: of the writer, of the tmux server, of the program."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from corral.core import crashpoints
from corral.tamq.terminal import open_terminal, points, process
from corral.tamq.terminal.address import as_dict
from corral.tamq.terminal.base import Outcome, Ready
from corral.tamq.terminal.profiles import BUILT_IN
from tests.contract.conftest import AtPoint
from tests.contract.terminal.conftest import Woken
from tests.contract.terminal.hosted import Hosted, environment
from tests.contract.terminal.panes import Agent, envelope, soon, wake

StartAgent = Callable[..., Awaitable[Woken]]
POINTS = [points.TYPING, points.PASTED, points.SUBMITTED]
LOOKS = ["claude-code", "codex"]
BODY = "hello\nthere"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    crashpoints.disarm()


def killed_at(point: str, woken: Woken, look: str) -> None:
    """Attempt 1, by a process that is killed."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.contract.terminal.injecting", point, look, BODY],
        input=json.dumps(as_dict(woken.terminal.address)).encode(),
        env=environment(),
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("look", LOOKS)
async def test_killed_before_the_write_nothing_is_there(start_agent: StartAgent, look: str) -> None:
    woken = await start_agent(look)
    killed_at(points.TYPING, woken, look)
    assert not (await woken.terminal.readiness(wake(BODY, 2, 1))).pasted
    assert (await woken.terminal.inject(wake(BODY, 2, 1))).outcome is Outcome.INJECTED
    assert woken.agent.submitted == [envelope(BODY, 2)]


@pytest.mark.parametrize("look", LOOKS)
async def test_killed_between_the_paste_and_enter_only_enter_is_missing(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look)
    killed_at(points.PASTED, woken, look)
    soon(lambda: "TAMQ" in woken.tmux.shown or "Pasted" in woken.tmux.shown, "the paste")
    # Without a word of the earlier attempt it would be somebody's draft.
    assert (await woken.terminal.readiness(wake(BODY, 2))).state is Ready.DRAFT
    assert (await woken.terminal.readiness(wake(BODY, 2, 1))).pasted
    injection = await woken.terminal.inject(wake(BODY, 2, 1))
    assert (injection.outcome, injection.enters) == (Outcome.INJECTED, 1)
    assert woken.agent.submitted == [envelope(BODY, 1)]


@pytest.mark.parametrize("look", LOOKS)
async def test_killed_after_enter_it_is_shown_again_and_says_so(
    start_agent: StartAgent, look: str
) -> None:
    woken = await start_agent(look)
    killed_at(points.SUBMITTED, woken, look)
    soon(lambda: len(woken.agent.submitted) == 1, "the first attempt")
    soon(lambda: "Try" in woken.tmux.shown or "Ask" in woken.tmux.shown, "an empty composer")
    assert (await woken.terminal.inject(wake(BODY, 2, 1))).outcome is Outcome.INJECTED
    assert woken.agent.submitted == [envelope(BODY, 1), envelope(BODY, 2)]
    assert "may repeat" in str(woken.agent.submitted[1])


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("victim", ["tmux", "program"])
async def test_the_other_side_is_killed(
    start_agent: StartAgent, at_point: AtPoint, point: str, victim: str
) -> None:
    woken = await start_agent("claude-code")
    pid = woken.tmux.pid if victim == "tmux" else woken.terminal.address.process.pid

    def kill() -> None:
        os.kill(pid, signal.SIGKILL)
        soon(lambda: process.read(pid) is None, "the end of the victim")

    at_point(point, kill)
    injection = await woken.terminal.inject(wake(BODY))
    # Before the write it is certain that nothing was typed, and not after.
    assert injection.typed is (point != points.TYPING)
    assert injection.outcome in {Outcome.NOT_READY, Outcome.UNKNOWN, Outcome.NOT_SUBMITTED}
    assert (injection.outcome is Outcome.NOT_READY) is (point == points.TYPING)
    assert (await woken.terminal.readiness(wake(BODY, 2, 1))).state is Ready.GONE
    assert (await woken.terminal.inject(wake(BODY, 2, 1))).outcome is Outcome.GONE


@pytest.mark.parametrize("point", POINTS)
async def test_the_host_of_a_pty_is_killed(tmp_path: Path, point: str) -> None:
    (tmp_path / "kill").write_text(point)
    agent = Agent(tmp_path, "codex")
    hosted = Hosted(tmp_path, "codex", agent.argv)
    try:
        hosted.see("? for shortcuts")
        terminal = hosted.open()
        target = hosted.address.process
        injection = await terminal.inject(wake(BODY))
        assert (injection.outcome, injection.typed) == (Outcome.UNKNOWN, True)
        assert hosted.wait() == -signal.SIGKILL
        soon(lambda: process.find(target) is None, "the end of the program")
        assert (await terminal.readiness()).state is Ready.GONE
        # The program may be hung up before it reads Enter.
        assert len(agent.submitted) <= (1 if point == points.SUBMITTED else 0)
    finally:
        hosted.close()


async def test_a_restarted_writer_finds_the_session_by_its_address(start_agent: StartAgent) -> None:
    """Restarting TAMQ ends no session: a terminal is opened from what was stored."""
    woken = await start_agent("codex")
    await woken.terminal.close()
    again = open_terminal(woken.terminal.address, BUILT_IN["codex"])
    assert (await again.inject(wake(BODY))).outcome is Outcome.INJECTED
