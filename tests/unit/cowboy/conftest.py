"""Ends the worlds that a test made."""

from collections.abc import Iterator

import pytest

from tests.unit.cowboy.world import World


@pytest.fixture(autouse=True)
def _worlds_end() -> Iterator[None]:
    yield
    while World.open_ones:
        World.open_ones[-1].close()
