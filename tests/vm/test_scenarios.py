"""Every scenario, with the seed of this run."""

import pytest

from tests.vm import scenario


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", scenario.names())
def test_scenario(name: str, session_seed: int) -> None:
    kept = scenario.run(scenario.named(name), session_seed)
    assert kept is None, f"see {kept}"
