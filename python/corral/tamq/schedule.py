"""When what is due: the deliverer's memory of open messages. No I/O; the caller brings the time.

Deadlines in the store are wall time. Here they are kept on the clock that never jumps, from the
moment that each was learnt. Bodies are not kept: only what says when and where.
"""

import heapq
from dataclasses import dataclass, field

from corral.tamq import domain
from corral.tamq.domain import Due, Progress, Times
from corral.tamq.requests import MessageId
from corral.tamq.rows import Message


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of an open message; `generation` says which of two is newer."""

    id: MessageId
    endpoint: int
    generation: int
    serial: int
    due: Due


@dataclass
class Schedule:
    """All open messages by row, what is eligible by endpoint, and what is due when."""

    times: Times
    _known: dict[int, Known] = field(default_factory=dict)
    _eligible: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    _timers: list[tuple[float, int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._known)

    def note(self, message: Message, wall_ms: int, mono_s: float) -> int | None:
        """Take a committed change. Answers the endpoint that has something eligible now, if any.

        Changes may arrive in another order than they were committed: an older one is ignored.
        """
        row, progress = message.id.row, message.progress
        known = self._known.get(row)
        if known is not None and known.generation >= progress.generation:
            return None
        coming = domain.due(progress, self.times)
        if coming is None:
            self._known.pop(row, None)
            return None
        what, at_ms, longest_ms = coming
        self._known[row] = _known(message, progress, what)
        left_ms = domain.left_ms(at_ms, longest_ms, wall_ms)
        if what is Due.ATTEMPT and left_ms == 0:
            return self._make_eligible(self._known[row])
        self.postpone(self._known[row], mono_s + left_ms / 1000)
        return None

    def postpone(self, known: Known, mono_s: float) -> None:
        """Let it be due at `mono_s`."""
        heapq.heappush(self._timers, (mono_s, known.id.row, known.generation))

    def next_s(self) -> float | None:
        """When the next timer runs out, on the clock that never jumps."""
        while self._timers and self._current(self._timers[0][1], self._timers[0][2]) is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def take_due(self, mono_s: float) -> tuple[list[Known], set[int]]:
        """What expired by now (to be ended in the store), and endpoints with more to attempt."""
        expired, ready = [], set()
        while (at_s := self.next_s()) is not None and at_s <= mono_s:
            _, row, _ = heapq.heappop(self._timers)
            known = self._known[row]
            if known.due is Due.ATTEMPT:
                ready.add(self._make_eligible(known))
            else:
                expired.append(known)
        return expired, ready

    def head(self, endpoint: int) -> Known | None:
        """The oldest message that may be attempted at this endpoint now."""
        queue = self._eligible.get(endpoint, [])
        while queue:
            known = self._current(*queue[0])
            if known is not None and known.endpoint == endpoint and known.due is Due.ATTEMPT:
                return known
            heapq.heappop(queue)
        return None

    def begun(self, endpoint: int) -> list[Known]:
        """Those that may be attempted at this endpoint now, and were attempted before."""
        found = (self._current(*one) for one in self._eligible.get(endpoint, []))
        return [
            one
            for one in found
            if one is not None and one.serial and one.endpoint == endpoint
            if one.due is Due.ATTEMPT
        ]

    def count_of(self, endpoint: int) -> int:
        """How many open messages an endpoint has."""
        return sum(known.endpoint == endpoint for known in self._known.values())

    def forget_queue(self, endpoint: int) -> None:
        """The endpoint is gone. Its messages stay known: they may be bound to another."""
        self._eligible.pop(endpoint, None)

    def _make_eligible(self, known: Known) -> int:
        queue = self._eligible.setdefault(known.endpoint, [])
        heapq.heappush(queue, (known.id.row, known.generation))
        return known.endpoint

    def _current(self, row: int, generation: int) -> Known | None:
        known = self._known.get(row)
        return known if known is not None and known.generation == generation else None


def _known(message: Message, progress: Progress, due: Due) -> Known:
    return Known(message.id, message.endpoint, progress.generation, progress.serial, due)
