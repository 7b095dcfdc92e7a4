"""`./corral bench bridge`, in small: all of it that needs no homeserver runs and measures."""

from tests.bench import bridge_growth, bridge_rates, bridge_work
from tests.bench.bridge_stand import BridgeStand

FEW = 20


async def test_every_contender_is_measured_and_every_mention_is_in_the_ledger() -> None:
    said: list[str] = []
    async with BridgeStand() as stand:
        stand.start()
        found = await bridge_rates.throughput(stand, FEW, 1, said.append)
    for runs in found["contenders"].values():
        assert set(runs) == {"1", "100"}
        for run in runs.values():
            assert run["transactions_per_s"] > 0
            assert 0 < run["p50_ms"] <= run["p99_ms"] <= run["max_ms"]
    assert len(found["ratios"]) == 6
    assert said


async def test_a_drain_and_a_kill() -> None:
    assert (await bridge_work.drain(1, jobs=FEW))["jobs_per_s"] > 0
    killed = await bridge_work.after_a_kill(1, jobs=2 * FEW)
    assert killed["max"] > 0
    assert killed["all_taken_max"] > 0


async def test_growth_compares_ledgers_of_the_bridge() -> None:
    said: list[str] = []
    found = await bridge_growth.compare(400, 10, said.append)
    assert found["claim_ratio"] > 0
    assert found["admission_ratio"] > 0
    assert said
