"""Time as something that a test can hold in its hand."""

import heapq
import itertools
import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio


def wall_ms() -> int:
    """Milliseconds since 1970 (UTC). May jump: for records that people read, not for durations."""
    return time.time_ns() // 1_000_000


def mono_s() -> float:
    """Seconds on a clock that never goes back, from an arbitrary start: for durations."""
    return time.monotonic()


class Clock(Protocol):
    """What the services ask for the time."""

    def wall_ms(self) -> int: ...
    def mono_s(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The real time."""

    def wall_ms(self) -> int:
        return wall_ms()

    def mono_s(self) -> float:
        return mono_s()

    async def sleep(self, seconds: float) -> None:
        import asyncio  # commands that never sleep do not pay for it

        await asyncio.sleep(seconds)


class ManualClock:
    """Stands still until `advance`, which also wakes those whose time has come."""

    def __init__(self, *, wall_ms: int = 1_700_000_000_000, mono_s: float = 1_000.0) -> None:
        self._wall_ms = wall_ms
        self._mono_s = mono_s
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def sleepers(self) -> int:
        """How many calls of `sleep` wait: a test waits for this before it advances."""
        return sum(not future.done() for _, _, future in self._sleepers)

    def wall_ms(self) -> int:
        return self._wall_ms

    def mono_s(self) -> float:
        return self._mono_s

    async def sleep(self, seconds: float) -> None:
        import asyncio

        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._mono_s + seconds, next(self._order), future))
        await future

    def advance(self, seconds: float) -> None:
        """Move both clocks forward. `ValueError` for a negative step."""
        if seconds < 0:
            raise ValueError(f"time only goes forward, not by {seconds} s")
        self._mono_s += seconds
        self._wall_ms += round(seconds * 1000)
        while self._sleepers and self._sleepers[0][0] <= self._mono_s:
            future = heapq.heappop(self._sleepers)[2]
            if not future.done():
                future.set_result(None)

    def set_wall_ms(self, wall_ms: int) -> None:
        """Let the wall clock jump, as a correction of the system time does."""
        self._wall_ms = wall_ms
