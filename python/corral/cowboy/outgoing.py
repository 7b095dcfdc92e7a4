"""What a committed tick has to tell Redis, made into settlements; and their answers into events."""

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from corral.core import logs
from corral.cowboy.domain import NOTICES, Ack, Slot, State, unpack_id
from corral.cowboy.machine import Machine
from corral.cowboy.redisconn import NotNow, RedisFault
from corral.cowboy.transport import SETTLE_MAX, Effect, Settled, Settlement
from corral.cowboy.turn import Turn

if TYPE_CHECKING:
    from corral.cowboy.engine import Engine

NOT_NOW_RETRY_MS = 500
NOTE_LEVELS = {"empty": "info", "duplicate": "info"}

_log = logs.get("cowboy.outgoing")


@dataclass(slots=True)
class Packet:
    """A settlement with the turns that it speaks of. Belongs to one loading of the ledger."""

    machine: Machine
    work: Settlement
    acks: list[Turn] = field(default_factory=list)
    effects: list[tuple[Turn, str, bool]] = field(default_factory=list)  # turn, field, dead copy
    room: int = SETTLE_MAX

    @property
    def empty(self) -> bool:
        work = self.work
        return not (work.acks or work.effects or work.markers)


def binding(turn: Turn) -> list[bytes | str]:
    """The producer's own fields, given back as they came."""
    strings: list[bytes | str] = []
    if turn.sender is not None:
        strings += ("sender", turn.sender)
    if turn.channel is not None:
        strings += ("channel", turn.channel)
    if turn.thread is not None:
        strings += ("thread", turn.thread)
    if turn.message_id is not None:
        strings += ("message_id", turn.message_id)
    if turn.traceparent is not None:
        strings += ("traceparent", turn.traceparent)
    return strings


def outbox_strings(turn: Turn) -> list[bytes | str]:
    """Fields and values of a turn's outbox entry."""
    content: bytes | str
    if turn.slot is Slot.REPLY:
        content = turn.body or b""
    else:
        content = NOTICES[turn.outcome] if turn.outcome else ""
        if turn.detail:
            content = f"{content} ({turn.detail})"
    return [
        "content", content,
        "in_reply_to", turn.entry_text,
        "turn_id", turn.id,
        "outcome", str(turn.outcome),
        "slot", str(turn.slot),
        *binding(turn),
    ]  # fmt: skip


def dead_strings(turn: Turn) -> list[bytes | str]:
    """Fields and values of a dead letter: what was asked, and the answer if there is one."""
    strings: list[bytes | str] = [
        "content", turn.content or b"",
        "entry", turn.entry_text,
        "turn_id", turn.id,
        "outcome", str(turn.outcome),
    ]  # fmt: skip
    if turn.body is not None:
        strings += ("reply", turn.body)
    return strings + binding(turn)


class Outgoing:
    """Between the ticks of an engine and its Redis session. All of it in the event loop.

    While no session is attached, what is due stays in the book; a new session starts by sending
    everything unconfirmed again, which the scripts make harmless.
    """

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self.attached = False
        self.packets: deque[Packet] = deque()
        self.fetches: deque[tuple[bytes, list[bytes]]] = deque()
        self.fetching: set[bytes] = set()  # lanes whose parked contents this session will bring
        self.wake = asyncio.Event()
        self.restart = asyncio.Event()  # the session must end: the book was read anew

    # ------------------------------------------------------------ session

    def open(self, markers: Iterable[str]) -> None:
        """A session has attached: everything unconfirmed goes out, stale markers are swept."""
        self.packets.clear()
        self.fetches.clear()
        self.attached = True
        machine = self._engine.machine

        def resend() -> None:
            book = machine.book
            book.resend_all()
            live = {
                turn.effect_field for turn in book.open.values() if turn.state is State.REPLYING
            }
            book.forget = [f for f in markers if f.removesuffix(":dead") not in live]

        self._engine.post(resend)

    def close(self) -> None:
        """The session is over; what was on the wire may or may not have been done."""
        self.attached = False
        self.packets.clear()
        self.fetches.clear()
        self.fetching.clear()

    def reset(self) -> None:
        self.close()
        self.restart.set()
        self.wake.set()

    # ------------------------------------------------------------ from ticks

    def take(self, fetch: Mapping[bytes, list[bytes]]) -> None:
        """Make packets of what the tick that was just committed left due."""
        if not self.attached:
            return
        self.fetches.extend(fetch.items())
        self.fetching.update(fetch)
        book = self._engine.machine.book
        if not (book.acks or book.effects or book.loose or book.forget):
            if fetch:
                self.wake.set()
            return
        packet = self._packet()
        for entry in book.loose:
            if not packet.room:
                packet = self._packet()
            packet.work.acks.append(unpack_id(entry))
            packet.room -= 1
        for turn in book.acks.values():
            if not packet.room:
                packet = self._packet()
            packet.work.acks.append(turn.entry_text.encode())
            packet.acks.append(turn)
            packet.room -= 1
        for turn in book.effects.values():
            if packet.room < 2:
                packet = self._packet()
            self._add_effect(packet, turn)
            packet.room -= 1
        book.flying.update(book.acks)
        book.flying.update(book.effects)
        while book.forget:
            packet.work.markers += book.forget[:SETTLE_MAX]
            del book.forget[:SETTLE_MAX]
            if book.forget:
                packet = self._packet()
        book.loose.clear()
        book.acks.clear()
        book.effects.clear()
        self.wake.set()

    def _packet(self) -> Packet:
        packet = Packet(self._engine.machine, Settlement(self._engine.sequence))
        self.packets.append(packet)
        return packet

    def _add_effect(self, packet: Packet, turn: Turn) -> None:
        name = turn.effect_field
        dead = turn.dead_copy and turn.dead_id is None
        effects = packet.work.effects
        if dead:
            effects.append(Effect(f"{name}:dead", True, b"", dead_strings(turn)))
        own_ack = b""
        at_reply = not packet.machine.acks_at_dispatch and turn.intent is not State.HELD
        if at_reply and turn.ack is Ack.UNACKED:
            own_ack = unpack_id(turn.entry)
        effects.append(Effect(name, False, own_ack, outbox_strings(turn)))
        packet.effects.append((turn, name, dead))

    # ------------------------------------------------------------ answers

    def sent(self, packet: Packet) -> None:
        """The first packet is done; unless a reload has dropped it meanwhile."""
        if self.packets and self.packets[0] is packet:
            self.packets.popleft()

    def answered(self, packet: Packet, answer: Settled) -> None:
        """Redis has done the packet: the next tick records it."""
        if packet.machine is self._engine.machine:
            self._engine.post(lambda: _record(packet, answer))

    def refused(self, packet: Packet, fault: RedisFault) -> None:
        """Redis refused the whole script: each of its parts is refused."""
        count = len(packet.work.effects)
        effects: list[tuple[bytes | RedisFault, int | RedisFault | None]] = [(fault, None)] * count
        self.answered(packet, Settled(fault, effects))

    def log_note(self, kind: str, entry: bytes | None, detail: str) -> None:
        log = getattr(_log, NOTE_LEVELS.get(kind, "warning"))
        log(
            f"entry_{kind}" if entry else kind,
            source=self._engine.name,
            entry=unpack_id(entry).decode() if entry else None,
            detail=detail or None,
        )


def _record(packet: Packet, answer: Settled) -> None:
    """A tick's event: what Redis answered to a packet."""
    machine = packet.machine
    book = machine.book
    book.flying.difference_update(turn.row for turn in packet.acks)
    book.flying.difference_update(turn.row for turn, _, _ in packet.effects)
    if packet.acks:
        if isinstance(answer.acked, NotNow):
            _later(machine, packet.acks)
        elif isinstance(answer.acked, RedisFault):
            machine.ack_refused(packet.acks)
        else:
            machine.acked(packet.acks, answer.acked)
    results = iter(answer.effects)
    for turn, name, dead in packet.effects:
        dead_result = next(results)[0] if dead else None
        outbox_result, own = next(results)
        if own is None and not dead and isinstance(outbox_result, bytes):
            machine.settled(turn, name, outbox_result, None, acked=False)
            continue
        dead_id = dead_result if isinstance(dead_result, bytes) else None
        fault = next((r for r in (dead_result, outbox_result) if isinstance(r, RedisFault)), None)
        if fault is None and isinstance(outbox_result, bytes):
            if own == 0 and turn.entry not in book.lost_entries:
                machine.batch.note("ack_short", turn.entry, "0 of 1")
            machine.settled(turn, name, outbox_result, dead_id, acked=isinstance(own, int))
        elif isinstance(fault, NotNow):
            _later(machine, [turn])
        elif fault is not None:
            machine.effect_refused(turn, name, dead_id, fault.code)


def _later(machine: Machine, turns: list[Turn]) -> None:
    """Redis cannot serve now: the same again soon, and no attempt is spent."""
    at_ms = machine.batch.now_ms + NOT_NOW_RETRY_MS
    machine.book.retries.extend((at_ms, turn) for turn in turns)
