"""The scriptable agent, one for each module, and the same behind a proxy."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.harness.a2a_peers import Peer, scripted_agent
from tests.harness.fault_proxy import FaultProxy, Place


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    """Speaks both versions; its card says 1.0."""
    with scripted_agent() as found:
        yield found


@pytest.fixture
async def proxy(peer: Peer, tmp_path: Path) -> AsyncIterator[tuple[FaultProxy, str]]:
    """A proxy before `peer`, and its URL."""
    place = tmp_path / "proxy"
    async with FaultProxy(Place(path=peer.place), Place(path=place)) as found:
        yield found, f"unix:{place}:/"
