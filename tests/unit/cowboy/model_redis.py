"""What one source's keys in Redis do, as far as cowboy sees it; `settle` is settle.lua by hand."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from corral.cowboy.domain import ZERO_ID, Entry, pack_id, unpack_id
from corral.cowboy.redisconn import RedisFault
from corral.cowboy.transport import Effect, Settled, Settlement

Fields = Mapping[bytes, bytes]


@dataclass(frozen=True)
class Faults:
    """What Redis answers instead of doing its work, per part of a settlement; None: it does it."""

    outbox: RedisFault | None = None
    dead: RedisFault | None = None
    own_ack: RedisFault | None = None
    ack: RedisFault | None = None


NO_FAULTS = Faults()


@dataclass(frozen=True)
class Added:
    """An entry of the outbox or of the dead-letter stream, with the marker it was added under."""

    life: int
    id: bytes
    marker: str
    fields: Mapping[str, bytes]

    def __getitem__(self, name: str) -> str:
        return self.fields[name].decode()

    @property
    def turn_id(self) -> str:
        return self["turn_id"]


@dataclass
class ModelRedis:
    """The inbox with its group, the markers, the outbox, the dead letters.

    `life` counts how often it was emptied. `outbox` and `dead` keep what was added in earlier
    lives: they are for the judge, not for cowboy.
    """

    life: int = 1
    incarnation: int | None = None  # what the ledger key says; None: it is not there
    entries: dict[bytes, Fields] = field(default_factory=dict)
    pending: set[bytes] = field(default_factory=set)
    read_up_to: bytes = ZERO_ID
    markers: dict[str, bytes] = field(default_factory=dict)
    outbox: list[Added] = field(default_factory=list)
    dead: list[Added] = field(default_factory=list)
    log: dict[bytes, Fields] = field(default_factory=dict)  # all that was added in this life
    deleted: set[bytes] = field(default_factory=set)  # of these, what somebody removed
    _last_ms: int = 0

    # ------------------------------------------------------------ the inbox

    def add(self, fields: Fields) -> bytes:
        """XADD; the packed id."""
        self._last_ms += 1
        entry = pack_id(b"%d-0" % self._last_ms)
        self.entries[entry] = self.log[entry] = dict(fields)
        return entry

    @property
    def unread(self) -> list[bytes]:
        return sorted(entry for entry in self.entries if entry > self.read_up_to)

    def read(self, count: int) -> list[Entry]:
        """XREADGROUP with `>`."""
        taken = self.unread[:count]
        self.pending.update(taken)
        self.read_up_to = max([self.read_up_to, *taken])
        return [Entry(entry, self.entries[entry]) for entry in taken]

    def history(self) -> list[Entry]:
        """XREADGROUP from 0: the own pending list; no fields for what was deleted."""
        return [Entry(entry, self.entries.get(entry)) for entry in sorted(self.pending)]

    def claim(self, wanted: Iterable[bytes]) -> tuple[list[Entry], list[bytes]]:
        """XAUTOCLAIM of these: pending ones, and the deleted ones that it takes off the list."""
        asked = sorted(self.pending & set(wanted))
        gone = [entry for entry in asked if entry not in self.entries]
        self.pending.difference_update(gone)
        return [Entry(e, self.entries[e]) for e in asked if e in self.entries], gone

    def delete(self, entry: bytes) -> None:
        """XDEL: a pending entry stays on the pending list, without its fields."""
        if self.entries.pop(entry, None) is not None:
            self.deleted.add(entry)

    def trim(self, keep_from: bytes) -> None:
        """XTRIM MINID."""
        for entry in [entry for entry in self.entries if entry < keep_from]:
            del self.entries[entry]

    def fetch(self, wanted: Sequence[bytes]) -> dict[bytes, bytes | None]:
        return {entry: self.entries.get(entry, {}).get(b"content") for entry in wanted}

    def acknowledge(self, ids: Iterable[bytes]) -> int:
        """XACK by text ids; how many were pending."""
        gone = {pack_id(text) for text in ids} & self.pending
        self.pending -= gone
        return len(gone)

    def empty(self) -> None:
        """FLUSHALL. New ids may well be those of the former life again."""
        self.life += 1
        self.incarnation = None
        self.entries.clear()
        self.pending.clear()
        self.markers.clear()
        self.log.clear()
        self.deleted.clear()
        self.read_up_to = ZERO_ID
        self._last_ms = 0

    # ------------------------------------------------------------ settle.lua

    def settle(self, work: Settlement, faults: Faults = NO_FAULTS) -> Settled:
        effects: list[tuple[bytes | RedisFault, int | RedisFault | None]] = []
        for effect in work.effects:
            outcome = self._effect(effect, faults.dead if effect.dead else faults.outbox)
            own: int | RedisFault | None = None
            if effect.own_ack and isinstance(outcome, bytes):
                own = faults.own_ack or self.acknowledge([effect.own_ack])
            effects.append((outcome, own))
        acked: int | RedisFault = 0
        if work.acks:
            acked = faults.ack or self.acknowledge(work.acks)
        for name in work.markers:
            self.markers.pop(name, None)
        return Settled(acked, effects)

    def _effect(self, effect: Effect, fault: RedisFault | None) -> bytes | RedisFault:
        known = self.markers.get(effect.field)
        if known is not None:
            return known
        if fault is not None:
            return fault
        stream = self.dead if effect.dead else self.outbox
        again = [one for one in stream if (one.life, one.marker) == (self.life, effect.field)]
        assert not again, f"{effect.field} was added twice"
        added = unpack_id(len(stream).to_bytes(16, "big"))
        stream.append(Added(self.life, added, effect.field, _fields(effect.strings)))
        self.markers[effect.field] = added
        return added


def _fields(strings: Sequence[bytes | str]) -> dict[str, bytes]:
    """Field names and values from their flat list; no name twice."""
    raw = [text.encode() if isinstance(text, str) else text for text in strings]
    names = [name.decode() for name in raw[::2]]
    assert len(set(names)) == len(names)
    return dict(zip(names, raw[1::2], strict=True))
