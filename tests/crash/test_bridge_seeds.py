"""Two workers of the bridge under random kills: fixed seeds, and one new one."""

from tests.harness.bridge_trial import Trial
from tests.harness.chaos_bridge import arms, run_trials
from tests.harness.pool import default_jobs

FIXED_SEEDS = (7, 8)


def test_random_kills_break_no_rule(seed: int) -> None:
    trials = [Trial(one, arms=arms()) for one in (*FIXED_SEEDS, seed)]
    results = run_trials(trials, default_jobs())
    assert [str(one) + "\n" + "\n".join(one.violations) for one in results if not one.ok] == []
    assert all(sum(one.faults.values()) == one.trial.faults for one in results)
    # A kill of an idle bridge would prove nothing.
    assert sum(one.kills_in_flight for one in results) > 0


def test_a_thousand_jobs_in_a_hundred_rooms_with_a_kill_every_few_seconds() -> None:
    [result] = run_trials([Trial(9, jobs=1_000, rooms=100, every_s=3.0, faults=8, concurrency=32)])
    assert result.ok, "\n".join([str(result), *result.violations])
    assert sum(result.ends.values()) == 1_000
    assert result.kills_in_flight
