"""A machine of the sample host, booted once for the tests that only look at it."""

from collections.abc import Iterator

import pytest

from tests.vm.machine import Machine
from tests.vm.sample import sample_host
from tests.vm.scenario import SCENARIOS, Run, Scenario, prepared


@pytest.fixture(scope="package")
def sample_run(session_seed: int) -> Iterator[Run]:
    scenario = Scenario("sample", SCENARIOS / "none.py", sample_host())
    with prepared(scenario, session_seed) as run:
        yield run


@pytest.fixture(scope="package")
def sample(sample_run: Run) -> Machine:
    machine: Machine = sample_run.names()["machine"]
    machine.wait_for_unit("multi-user.target")
    return machine
