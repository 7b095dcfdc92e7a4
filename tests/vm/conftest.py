"""A machine of the sample host, booted once for the tests that only look at it.

Two scenarios run at once, so a test's own time says nothing: how long each took is said in the end.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.vm.machine import Machine
from tests.vm.sample import sample_host
from tests.vm.scenario import SCENARIOS, Run, Scenario, prepared

SECONDS: Final = "seconds"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    took = [
        f"{report.nodeid.rpartition('[')[2].rstrip(']')} {seconds} s"
        for report in terminalreporter.stats.get("passed", [])
        for name, seconds in report.user_properties
        if name == SECONDS
    ]
    if took:
        terminalreporter.write_line(f"scenarios: {', '.join(took)}")


@pytest.fixture(scope="package")
def sample_run(session_seed: int) -> Iterator[Run]:
    scenario = Scenario("sample", SCENARIOS / "none.py", {"machine": sample_host()})
    with prepared(scenario, session_seed) as run:
        yield run


@pytest.fixture(scope="package")
def sample(sample_run: Run) -> Machine:
    machine: Machine = sample_run.names()["machine"]
    machine.wait_for_unit("multi-user.target")
    return machine
