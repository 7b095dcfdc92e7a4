"""Waiting ends when the condition is true, and explains itself when it is not."""

import time

import pytest

from corral.local import wait


def test_returns_the_value() -> None:
    values = iter([None, 0, "", "ready"])
    assert wait.until(lambda: next(values), 5, "a value") == "ready"


def test_times_out_with_an_explanation() -> None:
    with pytest.raises(wait.WaitTimeoutError, match=r"waited 0\.02 s for the moon; last seen: 0"):
        wait.until(lambda: 0, 0.02, "the moon")


async def test_coroutine_conditions() -> None:
    calls = 0

    async def third() -> bool:
        nonlocal calls
        calls += 1
        return calls == 3

    assert await wait.until_async(third, 5, "the third call")
    assert await wait.until_true(lambda: calls, 5, "a count") == 3
    with pytest.raises(wait.WaitTimeoutError, match="the fourth"):
        await wait.until_true(lambda: calls > 3, 0.02, "the fourth")


async def test_at_keeps_the_pace() -> None:
    start = time.monotonic()
    await wait.at(start + 0.03)
    assert time.monotonic() >= start + 0.03
    await wait.at(start)
