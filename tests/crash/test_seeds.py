"""Chaos in small: a fixed set of seeds, among them those that once failed, and one new seed."""

import pytest

from corral.local.servers import find_servers
from tests.crash.conftest import Trials
from tests.harness.armed import known_points
from tests.harness.draw import draw
from tests.harness.trial import Trial

# 1012: a session that ended between a tick and its fetch left parked turns for ever.
KEPT = (1012,)
FIXED = (*KEPT, *range(1, 12))
NEW_SEEDS = 1
IN_FLIGHT_SHARE_MIN = 0.5


def drawn(seed: int) -> Trial:
    return draw(seed, sorted(known_points()), servers=sorted(find_servers()))


@pytest.mark.parametrize("trial", [drawn(seed) for seed in FIXED], ids=lambda trial: trial.name)
def test_fixed_seed(trial: Trial, trials: Trials) -> None:
    trials.judge(trial)


def test_new_seed(seed: int, trials: Trials) -> None:
    """The seed is printed with a failure; `CORRAL_SEED` repeats it."""
    trials.judge(drawn(seed))


def test_kills_fall_into_work_in_flight(trials: Trials) -> None:
    """A proof by kills that hit an idle service would prove nothing."""
    summaries = [trials.result(drawn(seed)).report.summary for seed in FIXED]
    kills = sum(summary.kills for summary in summaries)
    assert kills >= len(FIXED)
    assert sum(s.kills_in_flight for s in summaries) >= IN_FLIGHT_SHARE_MIN * kills
    assert sum(summary.starts for summary in summaries) > 10 * len(FIXED)
