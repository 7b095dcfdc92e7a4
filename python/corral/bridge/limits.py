"""Who may ask, and how often. Pure: the time is an argument.

Rates bound the work that people start, beside the capacities that bound what is open. They live in
memory: a restart forgets them, which lets a burst more through and loses nothing.
"""

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from corral.bridge.domain import Reason
from corral.bridge.incoming import Classified, Mention, Refusal

KEYS_MAX: Final = 10_000  # buckets and remembered verdicts; the oldest go first
STRANGER: Final = "sender_not_on_list"  # why nothing is looked at
STRANGE_ROOM: Final = "room_not_on_list"


@dataclass(frozen=True)
class Rate:
    """`per_minute` on average, `burst` at once. Zero per minute: no limit."""

    per_minute: float
    burst: int

    def __post_init__(self) -> None:
        if self.per_minute < 0 or self.burst < 1:
            raise ValueError(f"per_minute >= 0 and burst >= 1, not {self}")


@dataclass
class Bucket:
    """Tokens of one sender or room: full at first, refilled evenly, never above the burst."""

    rate: Rate
    tokens: float
    at_s: float

    def refill(self, now_s: float) -> None:
        """A clock that goes back refills nothing and takes nothing."""
        gone_s = max(0.0, now_s - self.at_s)
        self.tokens = min(self.rate.burst, self.tokens + gone_s * self.rate.per_minute / 60)
        self.at_s = now_s

    @property
    def has_one(self) -> bool:
        # Sums of small fractions may fall short of the whole by an error of rounding.
        return self.tokens >= 1 - 1e-9

    def take(self) -> None:
        self.tokens = max(0.0, self.tokens - 1)


class Buckets:
    """A bucket for each key, the least recently used forgotten beyond `keys_max`."""

    def __init__(self, rate: Rate, keys_max: int = KEYS_MAX) -> None:
        self._rate = rate
        self._keys_max = keys_max
        self._by_key: OrderedDict[str, Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_key)

    def look(self, key: str, now_s: float) -> Bucket | None:
        """The key's bucket, refilled; None when there is no limit."""
        if not self._rate.per_minute:
            return None
        bucket = self._by_key.get(key)
        if bucket is None:
            bucket = self._by_key[key] = Bucket(self._rate, self._rate.burst, now_s)
            if len(self._by_key) > self._keys_max:
                self._by_key.popitem(last=False)
        self._by_key.move_to_end(key)
        bucket.refill(now_s)
        return bucket


@dataclass(frozen=True)
class AllowList:
    """Patterns in which `*` stands for anything: `@*:example.org`. Empty: everybody."""

    patterns: tuple[str, ...] = ()
    _compiled: "re.Pattern[str] | None" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = [".*".join(map(re.escape, one.split("*"))) for one in self.patterns]
        compiled = re.compile("|".join(parts), re.DOTALL) if parts else None
        object.__setattr__(self, "_compiled", compiled)

    def allows(self, name: str) -> bool:
        return self._compiled is None or self._compiled.fullmatch(name) is not None


EVERYBODY: Final = AllowList()


@dataclass
class Policy:
    """Turns mentions that may not start work into refusals; everything else passes unchanged.

    Who is not on the list of senders, or in no room of the list, is `unwelcome` and gets no answer:
    the bridge does not talk to strangers, and does not look at what they say. Who may not use this
    agent, or is too fast, is told (`Refusal`). A transaction that comes again spends nothing twice.
    """

    sender_rate: Rate
    room_rate: Rate
    senders: AllowList = EVERYBODY
    rooms: AllowList = EVERYBODY
    inviters: AllowList = EVERYBODY
    agent_senders: dict[str, AllowList] = field(default_factory=dict)
    keys_max: int = KEYS_MAX

    def __post_init__(self) -> None:
        self._by_sender = Buckets(self.sender_rate, self.keys_max)
        self._by_room = Buckets(self.room_rate, self.keys_max)
        self._verdicts: OrderedDict[tuple[str, str], str] = OrderedDict()

    def unwelcome(self, sender: str, room_id: str) -> str | None:
        """Why nothing that they say there is looked at; None: it is."""
        if not self.senders.allows(sender):
            return STRANGER
        return None if self.rooms.allows(room_id) else STRANGE_ROOM

    def judge(self, classified: Iterable[Classified], now_s: float) -> tuple[Classified, ...]:
        """In order; `now_s` is a monotonic clock's seconds."""
        return tuple(
            self._mention(one, now_s) if isinstance(one, Mention) else one for one in classified
        )

    def may_invite(self, sender: str, room_id: str) -> bool:
        return self.inviters.allows(sender) and self.rooms.allows(room_id)

    def _mention(self, mention: Mention, now_s: float) -> Classified:
        if not self.agent_senders.get(mention.ghost, EVERYBODY).allows(mention.sender):
            return Refusal(mention, Reason.SENDER_NOT_ALLOWED)
        key = (mention.event_id, mention.ghost)
        verdict = self._verdicts.get(key)
        if verdict is None:
            verdict = self._verdicts[key] = self._spend(mention, now_s)
            if len(self._verdicts) > self.keys_max:
                self._verdicts.popitem(last=False)
        return Refusal(mention, verdict) if verdict else mention

    def _spend(self, mention: Mention, now_s: float) -> str:
        """A token of both buckets or of neither; the reason when there is none, else empty."""
        found = (
            (self._by_sender.look(mention.sender, now_s), Reason.SENDER_RATE_LIMITED),
            (self._by_room.look(mention.room_id, now_s), Reason.ROOM_RATE_LIMITED),
        )
        for bucket, reason in found:
            if bucket is not None and not bucket.has_one:
                return reason
        for bucket, _ in found:
            if bucket is not None:
                bucket.take()
        return ""
