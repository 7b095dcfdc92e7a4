"""What every test gets: one printed seed, and a check that nothing blocks the event loop."""

import os
import random
from collections.abc import Iterator

import hypothesis
import pytest
from blockbuster import BlockBuster

from tests import seeds

_seed = pytest.StashKey[int]()

hypothesis.settings.register_profile("local", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "corral-ci", deadline=None, print_blob=True, database=None, max_examples=200
)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    in_ci = os.environ.get("CI") == "true"
    hypothesis.settings.load_profile("corral-ci" if in_ci else "local")
    config.stash[_seed] = seeds.choose()
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.stash[_seed])


def pytest_report_header(config: pytest.Config) -> str:
    return f"{seeds.VARIABLE}={config.stash[_seed]}"


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    if exitstatus != pytest.ExitCode.OK:
        terminalreporter.write_line(f"repeat with {seeds.VARIABLE}={config.stash[_seed]}")


@pytest.fixture(scope="session")
def session_seed(pytestconfig: pytest.Config) -> int:
    """The seed of this session: printed, and given again by the environment's CORRAL_SEED."""
    return pytestconfig.stash[_seed]


@pytest.fixture
def seed(request: pytest.FixtureRequest, session_seed: int) -> int:
    """A seed of the test's own, the same whichever other tests run beside it (31 bits)."""
    return random.Random(f"{session_seed}:{request.node.nodeid}").getrandbits(31)


@pytest.fixture
def rng(seed: int) -> random.Random:
    return random.Random(seed)


@pytest.fixture(autouse=True)
def _seeded_random(seed: int) -> None:
    random.seed(seed)


@pytest.fixture(autouse=True)
def blockbuster() -> Iterator[BlockBuster]:
    """Fail a test whose code under test makes a blocking call while an event loop runs.

    Only calls that come from the package count: a test may read a file itself. `corral.local`
    drives processes from outside and is no service, so its own frames do not count either.
    """
    detector = BlockBuster("corral", excluded_modules=["corral.local"])
    for function in ("os.stat", "io.TextIOWrapper.read", "io.BufferedReader.read"):
        # The driver looks for the user's password file whenever it connects.
        detector.functions[function].can_block_in(
            "asyncpg/connect_utils.py", "_parse_connect_dsn_and_args"
        )
    detector.activate()
    try:
        yield detector
    finally:
        detector.deactivate()
