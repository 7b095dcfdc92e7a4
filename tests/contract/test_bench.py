"""The benchmark, in small: every part of it that needs no other environment runs and measures."""

from tests.bench import growth, pace
from tests.bench.contenders import BARE, COWBOY, NAIVE
from tests.bench.figures import fresh_backlog

FEW = 300
# Enough for CPU time, which the kernel counts in hundredths of a second.
SOME = 5_000


def test_own_contenders_answer_a_backlog() -> None:
    for contender in (BARE, NAIVE, COWBOY):
        run = fresh_backlog(contender, FEW)
        assert run.per_s > 0
        assert run.resident_bytes > 0


def test_latency_and_a_kill() -> None:
    alone = pace.one_at_a_time(5)
    assert 0 < alone["p50"] <= alone["max"]
    paced = pace.at_a_pace(50, 0.5)
    assert 0 <= paced["p50"] <= paced["max"]
    assert 0 < pace.after_a_kill(1)["max"] < pace.ANSWER_TIMEOUT_S


def test_growth_compares_ledgers_that_cowboy_accepts() -> None:
    """A ledger that it took for another's would never give an answer."""
    said: list[str] = []
    found = growth.compare(2_000, SOME, 1, said.append)
    for kind in ("plain", "named"):
        assert found[kind]["ratio"] > 0
    assert said
