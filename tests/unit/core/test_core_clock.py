import asyncio
import time

import pytest

from corral.core.clock import Clock, ManualClock, SystemClock, mono_s, wall_ms
from corral.local.wait import until_true


def test_the_system_clock_is_the_time() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.wall_ms() - time.time() * 1000) < 5_000
    assert abs(wall_ms() - clock.wall_ms()) < 5_000
    before = clock.mono_s()
    assert 0 <= mono_s() - before < 5


async def test_the_system_clock_sleeps() -> None:
    before = mono_s()
    await SystemClock().sleep(0.002)
    assert mono_s() - before >= 0.002


async def test_a_manual_clock_wakes_those_whose_time_has_come() -> None:
    clock = ManualClock()
    woken: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(name)

    start_ms, start_s = clock.wall_ms(), clock.mono_s()
    async with asyncio.TaskGroup() as tasks:
        for name, seconds in (("late", 3.0), ("early", 1.0), ("second", 2.0)):
            tasks.create_task(sleeper(name, seconds))
        await until_true(lambda: clock.sleepers == 3, 5, "three sleepers")
        clock.advance(2.0)
        await until_true(lambda: len(woken) == 2, 5, "two awake")
        assert woken == ["early", "second"]
        assert clock.sleepers == 1
        clock.advance(1.0)
    assert woken == ["early", "second", "late"]
    assert (clock.wall_ms() - start_ms, clock.mono_s() - start_s) == (3000, 3.0)


async def test_a_cancelled_sleeper_is_forgotten() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(1))
    await until_true(lambda: clock.sleepers == 1, 5, "a sleeper")
    task.cancel()
    await asyncio.wait([task])
    assert clock.sleepers == 0
    clock.advance(2)


async def test_sleeping_for_nothing_returns() -> None:
    await ManualClock().sleep(0)


def test_time_goes_forward_but_the_wall_clock_may_jump() -> None:
    clock = ManualClock()
    with pytest.raises(ValueError, match="forward"):
        clock.advance(-1)
    before = clock.mono_s()
    clock.set_wall_ms(5)
    assert (clock.wall_ms(), clock.mono_s()) == (5, before)
