"""Waiting for conditions: the only module of the local deployment that sleeps.

A test or a harness that waits names what it waits for, so a timeout explains itself.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from corral.core.errors import CorralError

T = TypeVar("T")

POLL_FIRST_S = 0.002
POLL_MAX_S = 0.05


class WaitTimeoutError(CorralError):
    """A condition did not become true in time; the message names it and the bound."""

    code = "wait_timeout"
    exit_code = 1


def until(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """The first truthy value of `condition`, asked again and again for `timeout_s` seconds.

    Raises WaitTimeoutError, which names `what`, the bound and the last value seen.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = POLL_FIRST_S
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise _too_late(what, timeout_s, value)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, POLL_MAX_S)


async def until_async(condition: Callable[[], Awaitable[T]], timeout_s: float, what: str) -> T:
    """As `until`, for a condition that is a coroutine function."""
    deadline = time.monotonic() + timeout_s
    pause_s = POLL_FIRST_S
    while True:
        value = await condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise _too_late(what, timeout_s, value)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, POLL_MAX_S)


async def until_true(condition: Callable[[], T], timeout_s: float, what: str) -> T:
    """As `until`, for a plain condition in a coroutine: the event loop goes on meanwhile."""

    async def ask() -> T:
        return condition()

    return await until_async(ask, timeout_s, what)


async def at(mono_s: float) -> None:
    """Returns when the monotonic clock has reached `mono_s`: the pace of a planned workload."""
    await asyncio.sleep(max(0.0, mono_s - time.monotonic()))


def _too_late(what: str, timeout_s: float, last: object) -> WaitTimeoutError:
    return WaitTimeoutError(f"waited {timeout_s:g} s for {what}; last seen: {last!r:.200}")
