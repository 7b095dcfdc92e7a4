"""`./corral bench tamq`, in small: all of it that needs no other environment runs and measures."""

from tests.bench import queue_growth, tamq
from tests.bench.queue_stand import BareStand, TamqStand


def test_sends_of_few_and_of_many_clients_are_measured() -> None:
    for stand in (BareStand(), TamqStand()):
        runs = tamq.sends(stand, 200, (1, 8, 64))
        for run in runs.values():
            assert run["per_s"] > 0
            assert 0 < run["p50_ms"] <= run["p99_ms"] <= run["max_ms"]
            assert run["resident_bytes"] > 0


def test_a_killed_service_goes_on() -> None:
    assert 0 < tamq.after_a_kill(1)["max"] < 60


def test_growth_compares_queues_that_tamq_accepts() -> None:
    said: list[str] = []
    found = queue_growth.compare(400, 200, 1, said.append, small=200)
    assert found["send_ratio"] > 0
    assert found["claim_ratio"] > 0
    assert said
