"""Facts about one entry: what Redis shows of it, and what the daemon's ledger knows. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Fields = Mapping[bytes, bytes]


class Delivery(StrEnum):
    """How far the reader of an outbox has come with one entry."""

    NO_READER = "no_reader"
    UNREAD = "unread"
    READ = "read"  # by its reader, who has not acknowledged it
    ACKNOWLEDGED = "acknowledged"
    TRIMMED = "trimmed"  # gone: readers trim what they have acknowledged


@dataclass(frozen=True, slots=True)
class Queued:
    """An outbox entry about the turn."""

    outbox_id: str
    outcome: str
    slot: str
    delivery: Delivery


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending entry of the group: who read it, how long ago, how often it was delivered."""

    consumer: str
    idle_ms: int
    deliveries: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What Redis shows of an entry. None is "could not be read"; `refused` says why."""

    present: bool | None = None
    last_id: str | None = None  # the newest id that the stream ever gave
    last_delivered: str | None = None  # None: the group is missing
    pending: Pending | None = None
    answers: tuple[Queued, ...] = ()
    searched_all: bool = True
    dead: tuple[str, ...] = ()  # ids of dead letters about it
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Known:
    """What the daemon says. `why_not` is set when it could not be asked."""

    why_not: str = ""
    turn: Mapping[str, Any] | None = None
    notes: tuple[Mapping[str, Any], ...] = ()
    unhealthy: str = ""  # why its source does not work at present
    verified: bool = True  # Redis has confirmed that this is the right ledger, and no older copy


@dataclass(frozen=True)
class Evidence:
    """`seen` without content; `fields` of the inbox entry, and of its dead letter, with it."""

    seen: Seen
    fields: Fields | None = None
    dead: Fields | None = None
    resubmitted_as: str | None = None  # an unfinished search says nothing
