"""Taking entries in: what an entry that Redis offered becomes. Pure but for the ledger it asks."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from corral.core.errors import UsageError
from corral.cowboy.domain import (
    ZERO_ID,
    Ack,
    Entry,
    Kind,
    Limits,
    Outcome,
    Parsed,
    State,
    parse,
    parse_turn_id,
    turn_id,
    unpack_id,
)
from corral.cowboy.machine import Machine
from corral.cowboy.points import RECEIVED
from corral.cowboy.turn import Turn

FETCH_MAX = 16  # parked entries fetched at a time: each may be as large as content_max_bytes


class Lookup(Protocol):
    """What the ledger knows beyond the turns in memory. Called inside the tick's transaction."""

    def next_row(self) -> int: ...
    def by_entries(self, incarnation: int, entries: Sequence[bytes]) -> Mapping[bytes, Turn]: ...
    def by_message(self, message_id: bytes, before_row: int) -> Turn | None: ...
    def parked_elsewhere(self, incarnation: int) -> Sequence[Turn]: ...
    def same_message(self, identity: bytes) -> tuple[bool, bool]:
        """Whether this very message is known, and whether its id is known with other words."""
        ...


class Intake:
    """The position of one source in its stream, and the rules for what is offered from it."""

    def __init__(self, machine: Machine) -> None:
        config = machine.config
        self.machine = machine
        self.limits = Limits(config.content_limit_bytes, config.metadata_max_bytes)
        self.incarnation = 1
        self.watermark = ZERO_ID
        self.last_taken = ZERO_ID

    def offer(self, entries: Sequence[Entry], lookup: Lookup) -> None:
        """Take entries in the order given; known ones are never started again."""
        book = self.machine.book
        known: Mapping[bytes, Turn] = {}
        old = [
            item.entry
            for item in entries
            if item.entry <= self.last_taken and (self.incarnation, item.entry) not in book.by_entry
        ]
        if old:
            known = lookup.by_entries(self.incarnation, old)
        for item in entries:
            entry = item.entry
            turn = (
                book.by_entry.get((self.incarnation, entry))
                or known.get(entry)
                or book.batch.fresh.get(entry)
            )
            if turn is not None:
                self._again(turn, item)
            elif entry <= self.watermark and (item.fields is None or not self._never_taken(entry)):
                book.loose[entry] = None
                book.batch.count("below_watermark")
            elif item.fields is None:
                self._lost(entry)
            else:
                self._first(entry, item.fields, lookup)
            self.last_taken = max(self.last_taken, entry)

    def _never_taken(self, entry: bytes) -> bool:
        """Whether an entry at or below the watermark that has no row was certainly never taken.

        Rows outlive their entries by the retention, so a younger entry without one was read by
        another consumer of the group, who left it pending until it was reclaimed.
        """
        age_ms = self.machine.batch.now_ms - int.from_bytes(entry[:8], "big")
        return age_ms < self.machine.config.retention_h * 3_600_000

    def passed_over(self, entry: bytes, lookup: Lookup) -> None:
        """An entry that the group does not offer: it was set past it, or somebody else took it."""
        open_turn = self.machine.book.by_entry.get((self.incarnation, entry))
        if open_turn is None and not lookup.by_entries(self.incarnation, [entry]):
            self.machine.batch.note("passed_over", entry)

    def deleted(self, entries: Sequence[bytes], lookup: Lookup) -> None:
        """Entries that Redis took off the pending list itself, because they were deleted."""
        book = self.machine.book
        known = lookup.by_entries(
            self.incarnation,
            [e for e in entries if (self.incarnation, e) not in book.by_entry],
        )
        for entry in entries:
            turn = book.by_entry.get((self.incarnation, entry)) or known.get(entry)
            if turn is None:
                if entry > self.watermark:
                    book.batch.note("deleted", entry)
                continue
            if turn.ack is not Ack.ACKED:
                book.lost_entries.add(entry)
            if turn.ack is Ack.FORGOTTEN:  # nobody would offer it again
                book.touch(turn)
                turn.ack = Ack.ACKED
                self.machine.close(turn)
            if turn.parked:
                self._payload_lost(turn)

    def _first(self, entry: bytes, fields: Mapping[bytes, bytes], lookup: Lookup) -> None:
        machine, book = self.machine, self.machine.book
        said = parse(fields, self.limits)
        if said.identity is not None:
            same, other = lookup.same_message(said.identity)
            now = book.batch.said.get(said.identity[:16], set())
            other = other or bool(now - {said.identity})
            if same or said.identity in now:
                book.batch.note("duplicate", entry)
                book.loose[entry] = None
                return
            if other:
                book.batch.note("conflict", entry, "message_id known with other content")
        turn = self._new(entry, said, lookup.next_row())
        book.create(turn)
        book.batch.count("entries")
        book.batch.points.add(RECEIVED)
        if said.refusal is not None:
            machine.reply(turn, State.DONE, said.refusal)
        elif said.kind is Kind.CANCEL:
            machine.cancel(turn, self._target(said.cancels, turn, lookup))
        elif turn.content is None:
            self._empty(turn)
        elif machine.instant:
            machine.answer_now(turn)
        else:
            self._wait(turn)

    def _new(self, entry: bytes, said: Parsed, row: int) -> Turn:
        machine = self.machine
        return Turn(
            row,
            turn_id(machine.agent, machine.source, self.incarnation, entry),
            self.incarnation,
            entry,
            said.kind,
            machine.batch.now_ms,
            identity=said.identity,
            cancels=said.cancels,
            sender=said.sender,
            channel=said.channel,
            thread=said.thread,
            message_id=said.message_id,
            traceparent=said.traceparent,
            content=said.content,
        )

    def _wait(self, turn: Turn) -> None:
        """Into its channel's queue, or parked there when the channel has its share already."""
        book = self.machine.book
        lane = turn.lane
        if book.parked.get(lane) or book.lane_size(lane) >= self.machine.config.channel_backlog_max:
            turn.parked = True
            turn.content = None
            book.parked[lane] = book.parked.get(lane, 0) + 1
            book.drop(turn)  # only the ledger keeps parked turns
        else:
            book.enqueue(turn)

    def _empty(self, turn: Turn) -> None:
        book = self.machine.book
        turn.move(State.EMPTY)
        turn.outcome = Outcome.EMPTY
        turn.terminal_at_ms = book.batch.now_ms
        turn.ack_attempts = 1
        book.acks[turn.row] = turn
        book.batch.note("empty", turn.entry)

    def _again(self, turn: Turn, item: Entry) -> None:
        """A turn whose entry is offered again: acknowledge it again, or leave it pending."""
        machine, book = self.machine, self.machine.book
        if item.fields is None and turn.parked:
            self._payload_lost(turn)
            return
        if turn.state is State.RECEIVED:
            return
        if not machine.acks_at_dispatch and not turn.terminal:
            return
        if turn.row not in book.open or turn.ack is Ack.ACKED:
            book.loose[turn.entry] = None
            return
        forgotten = turn.ack is Ack.FORGOTTEN
        if forgotten:
            book.touch(turn)
            turn.ack = Ack.UNACKED
        turn.ack_attempts = max(turn.ack_attempts, 1)
        if forgotten or turn.row not in book.flying:  # what flies may be its answer alone
            book.acks[turn.row] = turn

    def _lost(self, entry: bytes) -> None:
        """Trimmed before it was ever read: acknowledged, and the loss is on record."""
        self.machine.book.loose[entry] = None
        self.machine.batch.note("trimmed", entry)

    def _payload_lost(self, turn: Turn) -> None:
        book = self.machine.book
        self._unpark(turn)
        book.lost_entries.add(turn.entry)
        self.machine.reply(turn, State.DONE, Outcome.PAYLOAD_LOST)
        book.batch.note("payload_lost", turn.entry)

    def _unpark(self, turn: Turn) -> None:
        book = self.machine.book
        book.adopt(turn)
        book.touch(turn)
        turn.parked = False
        turn.generation += 1
        left = book.parked.get(turn.lane, 0) - 1
        if left > 0:
            book.parked[turn.lane] = left
        else:
            book.parked.pop(turn.lane, None)

    def fetched(self, contents: Mapping[bytes, bytes | None], lookup: Lookup) -> None:
        """The contents of parked turns of one channel, in order; None for one that is gone."""
        book = self.machine.book
        known = lookup.by_entries(self.incarnation, list(contents))
        for entry, content in contents.items():
            # The rows are those before this tick: what the tick has taken in hand is in the book.
            turn = book.by_entry.get((self.incarnation, entry)) or known.get(entry)
            if turn is None or not turn.parked or turn.state is not State.RECEIVED:
                continue
            if content is None:
                self._payload_lost(turn)
                continue
            self._unpark(turn)
            turn.content = content
            book.enqueue(turn)

    def room(self, lane: bytes) -> int:
        """How many parked turns of a channel should be fetched now; 0 while it has enough."""
        book, share = self.machine.book, self.machine.config.channel_backlog_max
        size = book.lane_size(lane)
        if not book.parked.get(lane) or size > share // 2:
            return 0
        return min(max(share - size, 1), FETCH_MAX)

    def restart_at(self, incarnation: int, lookup: Lookup) -> None:
        """The stream began anew: its old entries are gone, so nothing of them is pending."""
        machine, book = self.machine, self.machine.book
        self.incarnation = incarnation
        self.watermark = self.last_taken = ZERO_ID
        for turn in list(book.open.values()):
            if turn.ack is not Ack.ACKED:
                book.touch(turn)
                turn.ack = Ack.ACKED
                machine.close(turn)
        book.acks.clear()
        book.loose.clear()
        for turn in lookup.parked_elsewhere(incarnation):
            turn.ack = Ack.ACKED
            self._payload_lost(turn)

    def restore(self, turns: Sequence[Turn], parked: Mapping[bytes, int]) -> list[Turn]:
        """Take open turns back into memory; the cancel entries that still wait for their target."""
        book = self.machine.book
        book.parked = dict(parked)
        waiting: list[Turn] = []
        for turn in turns:
            book.adopt(turn)
            if turn.ack_attempts:
                book.repeated.add(turn.row)
            if turn.attempt and turn.state is not State.DISPATCHED:
                book.ended_runs.append((turn.id, turn.attempt))
            if turn.state is State.DISPATCHED:
                book.occupy(turn)
        for turn in turns:
            if turn.state is State.RECEIVED:
                if turn.kind is Kind.CANCEL:
                    waiting.append(turn)
                else:
                    book.enqueue(turn)
            elif turn.state is State.HELD and turn.release:
                book.enqueue(turn, front=True)
        return waiting

    def resume_cancel(self, order: Turn, lookup: Lookup) -> None:
        """A cancel entry that a crash left waiting: look at its target again."""
        if order.state is State.RECEIVED:
            self.machine.cancel(order, self._target(order.cancels, order, lookup))

    def _target(self, cancels: bytes | None, order: Turn, lookup: Lookup) -> Turn | None:
        """The turn that a cancel entry names: by entry id, by turn id, or by message id."""
        if not cancels:
            return None
        book = self.machine.book
        named = self._as_entry(cancels, order.incarnation)
        turn: Turn | None = None
        if named is not None and named != (order.incarnation, order.entry):
            incarnation, entry = named
            turn = book.by_entry.get(named)
            if turn is None and incarnation == self.incarnation:
                turn = book.batch.fresh.get(entry)
            turn = turn or lookup.by_entries(incarnation, [entry]).get(entry)
        if turn is None:
            fresh = [
                t
                for t in book.batch.created
                if t.message_id == cancels and t.kind is Kind.MESSAGE and t.row < order.row
            ]
            turn = fresh[-1] if fresh else lookup.by_message(cancels, order.row)
        return self._in_memory(turn) if turn is not None else None

    def open_turn(self, incarnation: int, entry: bytes, lookup: Lookup) -> Turn:
        """A turn to act upon, taken into memory if it was parked. UsageError: no such turn."""
        turn = self.machine.book.by_entry.get((incarnation, entry))
        turn = turn or lookup.by_entries(incarnation, [entry]).get(entry)
        if turn is None:
            raise UsageError("no such turn", hint="cowboy turns list AGENT shows the open ones")
        return self._in_memory(turn)

    def _in_memory(self, turn: Turn) -> Turn:
        book = self.machine.book
        current = book.open.get(turn.row)
        if current is not None:
            return current
        if turn.parked:
            self._unpark(turn)
        return turn

    def _as_entry(self, cancels: bytes, incarnation: int) -> tuple[int, bytes] | None:
        """Incarnation and packed id when this is a turn id of this source, or an entry id."""
        try:
            text = cancels.decode()
            if text.count(".") == 3:
                agent, source, named, entry = parse_turn_id(text)
                ours = (agent, source) == (self.machine.agent, self.machine.source)
                return (named, entry) if ours and 0 < named <= self.incarnation else None
            ms, _, seq = text.partition("-")
            if not (ms.isascii() and ms.isdigit() and seq.isascii() and seq.isdigit()):
                return None
            packed = int(ms).to_bytes(8, "big") + int(seq).to_bytes(8, "big")
        except (UnicodeDecodeError, ValueError, OverflowError):
            return None
        return incarnation, packed

    def describe(self) -> dict[str, str]:
        """Position for `status`: ids as Redis writes them."""
        return {
            "watermark": unpack_id(self.watermark).decode(),
            "last_taken": unpack_id(self.last_taken).decode(),
        }
