"""Tests of the tests: each planted bug must be caught, and the same trial without it must pass."""

from dataclasses import replace

import pytest

from tests.crash.conftest import Trials
from tests.harness import plants
from tests.harness.trial import Trial

PLANTED = [plants.trial_for(name) for name in plants.PLANTS]
HONEST = [replace(trial, name=f"no-{trial.name}", plant=None) for trial in PLANTED]


# Some show only when processes meet at a certain moment, which a busy machine may pass by.
OPPORTUNITIES = 3


@pytest.mark.parametrize("trial", PLANTED, ids=lambda trial: trial.name)
def test_planted_bug_is_caught(trial: Trial, trials: Trials) -> None:
    assert trial.plant is not None
    found: set[str] = set()
    for again in range(OPPORTUNITIES):
        name = f"{trial.name}-{again}" if again else trial.name
        result = trials.result(replace(trial, name=name, seed=trial.seed + again))
        found = {violation.rule for violation in result.report.violations}
        assert "process_failed" not in found, "caught, but only because the patch does not work"
        if found & plants.PLANTS[trial.plant].caught_by:
            return
    pytest.fail(f"not caught; found: {found}")


@pytest.mark.parametrize("trial", HONEST, ids=lambda trial: trial.name)
def test_same_trial_without_the_bug(trial: Trial, trials: Trials) -> None:
    trials.judge(trial)


def test_unknown_bugs_are_refused() -> None:
    with pytest.raises(LookupError, match="skip-drain"):
        plants.plant("no-such-bug")
