"""Fixtures of TAMQ's contract tests: the whole service in this loop, or as a process of its own."""

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.contract.tamq.kit import Process, Service
from tests.contract.terminal.panes import Tmux


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """Real sockets and a real store; sessions are scripted."""
    async with Service(tmp_path) as made:
        yield made


@pytest.fixture
async def services(tmp_path: Path) -> AsyncIterator["Starter"]:
    """As `service`, with limits that the test chooses."""
    async with AsyncExitStack() as stack:
        yield Starter(tmp_path, stack)


class Starter:
    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder, self._stack, self._count = folder, stack, 0

    async def start(self, **options: float) -> Service:
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(mode=0o700)
        return await self._stack.enter_async_context(Service(folder, **options))


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """`tamq serve` as a user runs it; not started yet."""
    made = Process(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Tmux]:
    """A pane that shows what it is given."""
    made = Tmux(tmp_path, "exec cat", width=200)
    try:
        yield made
    finally:
        made.close()
