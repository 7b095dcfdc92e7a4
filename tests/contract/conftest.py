"""Fixtures of the contract tests: which servers and protocols a test runs with."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import BlockBuster

from corral.core import crashpoints
from corral.local.servers import find_servers
from tests.contract import once
from tests.contract.kit import EVERY, PAIRS, Backend


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    for item in items:
        if once.is_once(item.path, folder):
            item.add_marker(pytest.mark.once)


def _found(backend: Backend) -> Backend:
    if backend.server not in find_servers():
        pytest.skip(f"no {backend.server} server on this machine")
    return backend


@pytest.fixture(params=PAIRS, ids=str)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Redis with RESP2, then Valkey with RESP3."""
    return _found(request.param)


@pytest.fixture(params=EVERY, ids=str)
def every_backend(request: pytest.FixtureRequest) -> Backend:
    """Each server with each protocol."""
    return _found(request.param)


@pytest.fixture(params=PAIRS[:1], ids=str)
def one_backend(request: pytest.FixtureRequest) -> Backend:
    """One pair, for what no server and no protocol has a part in."""
    return _found(request.param)


AtPoint = Callable[[str, Callable[[], object]], None]


@pytest.fixture
def at_point(blockbuster: BlockBuster) -> Iterator[AtPoint]:
    """`at_point(name, action)`: the action happens, whole, when this process next passes a point.

    It may block: what happens elsewhere at that instant, not what the daemon does.
    """

    def set_up(point: str, action: Callable[[], object]) -> None:
        waiting = [action]

        def passed(name: str) -> None:
            if name == point and waiting:
                blockbuster.deactivate()
                try:
                    waiting.pop()()
                finally:
                    blockbuster.activate()

        crashpoints.set_observer(passed)

    yield set_up
    crashpoints.disarm()
