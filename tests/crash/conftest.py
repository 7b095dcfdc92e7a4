"""The crash stage's trials run side by side in worker processes; each test looks at its own."""

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from tests.harness.chain_live import World, live_world
from tests.harness.homeserver import ready_to_start
from tests.harness.pool import Pool, default_jobs
from tests.harness.trial import Result, Trial

KEEP_IN = Path(__file__).parents[2] / ".corral" / "crash"
RESULT_TIMEOUT_S = 900.0


class Trials:
    """The trials of all collected tests, begun with the first that is asked for."""

    def __init__(self, pool: Pool, trials: list[Trial]) -> None:
        self._pool = pool
        self._futures: dict[str, Future[Result]] = {}
        for trial in trials:
            self._begin(trial)

    def _begin(self, trial: Trial) -> "Future[Result]":
        if trial.name not in self._futures:
            kept = replace(trial, keep_in=trial.keep_in or KEEP_IN)
            self._futures[trial.name] = self._pool.submit(kept)
        return self._futures[trial.name]

    def result(self, trial: Trial) -> Result:
        return self._begin(trial).result(RESULT_TIMEOUT_S)

    def judge(self, trial: Trial) -> Result:
        """The result of a trial in which nothing may be broken."""
        result = self.result(trial)
        violations = "\n".join(str(violation) for violation in result.report.violations)
        assert result.ok, f"{trial.name} (kept in {result.folder}):\n{violations}"
        return result


@pytest.fixture(scope="session")
def trials(request: pytest.FixtureRequest) -> Iterator[Trials]:
    params = [
        item.callspec.params.get("trial")
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
    ]
    wanted = [trial for trial in params if isinstance(trial, Trial)]
    with Pool(default_jobs()) as pool:
        yield Trials(pool, wanted)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    ready_to_start()
    async with live_world(tmp_path_factory.mktemp("live")) as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test waits for its trial's turn: the bound is on the whole stage, not on one test."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(RESULT_TIMEOUT_S))
