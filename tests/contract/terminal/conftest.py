"""Fixtures of the terminal tests: servers and programs of the test's own, ended by their pids."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.tamq.terminal import open_terminal
from corral.tamq.terminal.attach import discover
from corral.tamq.terminal.base import Terminal
from corral.tamq.terminal.profiles import BUILT_IN
from tests.contract.terminal.panes import Agent, Tmux

StartTmux = Callable[..., Tmux]


@pytest.fixture
def start_tmux(tmp_path: Path) -> Iterator[StartTmux]:
    started: list[Tmux] = []

    def start(command: str, **size: int) -> Tmux:
        started.append(Tmux(tmp_path, command, **size))
        return started[-1]

    yield start
    for one in started:
        one.close()


class Woken:
    """An imitated agent in a pane, seen to be ready, and the terminal that the queue has of it."""

    def __init__(self, tmux: Tmux, agent: Agent, terminal: Terminal) -> None:
        self.tmux, self.agent, self.terminal = tmux, agent, terminal


@pytest.fixture
def start_agent(start_tmux: StartTmux, tmp_path: Path) -> Callable[..., object]:
    async def start(look: str, *options: str, **size: int) -> Woken:
        agent = Agent(tmp_path, look, *options)
        tmux = start_tmux(agent.command, **size)
        tmux.see("? for shortcuts")
        address = await discover(tmux.socket, tmux.pane)
        return Woken(tmux, agent, open_terminal(address, BUILT_IN[look]))

    return start
