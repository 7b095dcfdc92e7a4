"""A kill at every boundary: of the process itself, of the other one, of Redis, of all at once."""

import pytest

from tests.crash.conftest import Trials
from tests.harness import boundaries
from tests.harness.armed import known_points
from tests.harness.trial import Trial


@pytest.mark.parametrize("trial", boundaries.trials(), ids=lambda trial: trial.name)
def test_kill(trial: Trial, trials: Trials) -> None:
    result = trials.judge(trial)
    assert result.report.summary.kills > 0
    armed = {text.split(":")[0] for starts in trial.arms.values() for (text,) in starts.values()}
    assert armed <= {point for point, _ in result.kills}


def test_every_crash_point_is_exercised() -> None:
    exercised = {point for boundary in boundaries.BOUNDARIES for point in boundary.points}
    assert exercised | set(boundaries.LIVE_SESSION) == set(known_points())


def test_every_boundary_has_a_point() -> None:
    names = [boundary.name for boundary in boundaries.BOUNDARIES]
    assert len(set(names)) == len(names)
    assert all(boundary.points for boundary in boundaries.BOUNDARIES)


def test_servers_protocols_and_victims_are_spread() -> None:
    found = boundaries.trials()
    assert {(trial.server, trial.protocol) for trial in found} == set(boundaries.SERVERS)
    for who in ("daemon", "runner", "redis"):
        met = {(t.server, t.protocol) for t in found if t.name.endswith(f"-{who}")}
        assert met == set(boundaries.SERVERS), who
