"""What a homeserver forgot to deliver: found in the ghosts' rooms, and admitted once.

A homeserver may note that it handed an event to its appservice sender before the transaction that
carries it is stored: Synapse keeps what waits behind a transaction in memory. Killed then, it never
delivers that event. So the bridge looks from time to time, as a client of each ghost does, at what
is new in the rooms. What no transaction brought by the next look is admitted like one: the ledger
knows an event again by its id, whichever way it comes first.

Ages are the homeserver's: this machine's clock has no part in it.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from corral.bridge.events import Invite
from corral.bridge.matrix.news import News
from corral.bridge.matrix.rooms import Problem
from corral.bridge.ports import Forbidden
from corral.core import logs
from corral.core.errors import CorralError

HEARD_MAX: Final = 20_000  # events that a transaction brought, of which the newest are remembered
AT_ONCE_MAX: Final = 100  # events that are admitted together
AGAIN_S: Final = 1.0  # while the homeserver, or the ledger, is down
Event = Mapping[str, Any]

_log = logs.get("bridge.catchup")


class Host(Protocol):
    """What is asked of the homeserver."""

    async def look(self, ghost: str, since: str | None) -> News | Problem: ...


@dataclass(frozen=True)
class Options:
    """`own`: users whose events are the bridge's echo. `active`: whether to look at all, which
    only the replica does that takes transactions."""

    interval_s: float
    age_max_s: float
    own: frozenset[str]
    active: Callable[[], bool] = lambda: True


class CatchUp:
    """`heard` is told what transactions brought; `run` looks for the rest."""

    def __init__(
        self,
        host: Host,
        ghosts: Sequence[str],
        options: Options,
        *,
        admit: Callable[[Sequence[Event]], Awaitable[int]],
        invited: Callable[[Sequence[Invite]], None],
    ) -> None:
        self._host = host
        self._options = options
        self._admit = admit
        self._invited = invited
        self._positions: dict[str, str | None] = dict.fromkeys(ghosts)
        self._known: OrderedDict[str, None] = OrderedDict()
        self._waiting: dict[str, Event] = {}  # seen once, and not brought yet

    def heard(self, events: Sequence[Any]) -> None:
        """Committed. Does not block."""
        for event in events:
            if isinstance(event, dict) and isinstance(event.get("event_id"), str):
                self._know(event["event_id"])

    def _know(self, event_id: str) -> None:
        self._waiting.pop(event_id, None)
        self._known[event_id] = None
        self._known.move_to_end(event_id)
        if len(self._known) > HEARD_MAX:
            self._known.popitem(last=False)

    async def run(self) -> None:
        """Until it is cancelled."""
        while self._options.interval_s:
            looked = self._options.active() and await self.look()
            await asyncio.sleep(self._options.interval_s if looked else AGAIN_S)

    async def look(self) -> bool:
        """One look at every ghost's rooms. False: the homeserver, or the ledger, is away."""
        missed = dict(self._waiting)
        for ghost, since in self._positions.items():
            news = await self._host.look(ghost, since)
            if not isinstance(news, News):
                if isinstance(news, Forbidden):  # it does not know that position any more
                    self._positions[ghost] = None
                return False
            self._take(ghost, news)
        left = [event for name, event in missed.items() if name in self._waiting]
        try:
            for start in range(0, len(left), AT_ONCE_MAX):
                await self._admitted(left[start : start + AT_ONCE_MAX])
        except CorralError as error:
            _log.warning("not caught up", code=error.code)
            return False
        return True

    def _take(self, ghost: str, news: News) -> None:
        self._positions[ghost] = news.position
        for event in news.events:
            event_id, sender = event.get("event_id"), event.get("sender")
            if not isinstance(event_id, str) or sender in self._options.own:
                continue
            if event_id not in self._known and self._young(event):
                self._waiting.setdefault(event_id, event)
        self._invited([Invite("", room_id, by, ghost) for room_id, by in news.invitations])

    def _young(self, event: Event) -> bool:
        unsigned = event.get("unsigned")
        age = unsigned.get("age") if isinstance(unsigned, dict) else None
        return isinstance(age, int) and age <= self._options.age_max_s * 1000

    async def _admitted(self, missed: Sequence[Event]) -> None:
        if admitted := await self._admit(missed):
            _log.info("caught up", events=admitted)
        for event in missed:
            self._know(event["event_id"])
