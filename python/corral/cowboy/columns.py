"""A turn as the values of its row, for each statement of the ledger that writes or reads one."""

from collections.abc import Mapping, Sequence
from typing import Final

from corral.cowboy.domain import Ack, Kind, Outcome, Slot, State
from corral.cowboy.turn import Guard, Turn

COLUMNS: Final = 36

# SQLite asks an adapter for every value that is not exactly a str: a microsecond each.
_TEXT: Mapping[object, str | None] = {None: None} | {
    member: member.value
    for names in (State, Ack, Kind, Outcome, Slot)
    for member in names.__members__.values()
}


def values(source_id: int, turn: Turn) -> tuple[object, ...]:
    """For `insert_turn`: all columns, in the order of the table."""
    return (
        turn.row,
        source_id,
        turn.id,
        turn.incarnation,
        turn.entry,
        _TEXT[turn.kind],
        turn.received_at_ms,
        _TEXT[turn.state],
        _TEXT[turn.intent],
        turn.generation,
        _TEXT[turn.ack],
        int(turn.closed),
        turn.ack_attempts,
        turn.attempt,
        turn.starts,
        turn.started_at_ms,
        int(turn.release),
        int(turn.parked),
        turn.identity,
        turn.cancels,
        turn.sender,
        turn.channel,
        turn.thread,
        turn.message_id,
        turn.traceparent,
        _TEXT[turn.outcome],
        _TEXT[turn.slot],
        turn.detail,
        int(turn.dead_copy),
        turn.effect,
        turn.effect_attempts,
        turn.outbox_id,
        turn.dead_id,
        turn.terminal_at_ms,
        turn.body,
        turn.content,
    )


def turn_of(row: Sequence[object]) -> Turn:
    """A turn from a whole row (the columns of the table, in order; a later release adds others)."""
    whole = list(row[:COLUMNS])
    del whole[11]  # closed: derived
    del whole[1]  # source_id
    (row_id, turn_id, incarnation, entry, kind, received_at_ms, state, intent, generation, ack,
     ack_attempts, attempt, starts, started_at_ms, release, parked, identity, cancels, sender,
     channel, thread, message_id, traceparent, outcome, slot, detail, dead_copy, effect,
     effect_attempts, outbox_id, dead_id, terminal_at_ms, body, content) = whole  # fmt: skip
    return Turn(
        row=row_id,  # type: ignore[arg-type]  # the table is STRICT: types are the schema's
        id=turn_id,  # type: ignore[arg-type]
        incarnation=incarnation,  # type: ignore[arg-type]
        entry=entry,  # type: ignore[arg-type]
        kind=Kind(str(kind)),
        received_at_ms=received_at_ms,  # type: ignore[arg-type]
        state=State(str(state)),
        intent=State(str(intent)) if intent is not None else None,
        generation=generation,  # type: ignore[arg-type]
        ack=Ack(str(ack)),
        ack_attempts=ack_attempts,  # type: ignore[arg-type]
        attempt=attempt,  # type: ignore[arg-type]
        starts=starts,  # type: ignore[arg-type]
        started_at_ms=started_at_ms,  # type: ignore[arg-type]
        release=bool(release),
        parked=bool(parked),
        identity=identity,  # type: ignore[arg-type]
        cancels=cancels,  # type: ignore[arg-type]
        sender=sender,  # type: ignore[arg-type]
        channel=channel,  # type: ignore[arg-type]
        thread=thread,  # type: ignore[arg-type]
        message_id=message_id,  # type: ignore[arg-type]
        traceparent=traceparent,  # type: ignore[arg-type]
        outcome=Outcome(str(outcome)) if outcome is not None else None,
        slot=Slot(str(slot)) if slot is not None else None,
        detail=detail,  # type: ignore[arg-type]
        dead_copy=bool(dead_copy),
        effect=effect,  # type: ignore[arg-type]
        effect_attempts=effect_attempts,  # type: ignore[arg-type]
        outbox_id=outbox_id,  # type: ignore[arg-type]
        dead_id=dead_id,  # type: ignore[arg-type]
        terminal_at_ms=terminal_at_ms,  # type: ignore[arg-type]
        body=body,  # type: ignore[arg-type]
        content=content,  # type: ignore[arg-type]
    )


def update(turn: Turn, guard: Guard) -> tuple[object, ...]:
    """For `update_turn`: all that may change, then what the row must still be."""
    return (
        _TEXT[turn.state],
        _TEXT[turn.intent],
        turn.generation,
        _TEXT[turn.ack],
        int(turn.closed),
        turn.ack_attempts,
        turn.attempt,
        turn.starts,
        turn.started_at_ms,
        int(turn.release),
        int(turn.parked),
        _TEXT[turn.outcome],
        _TEXT[turn.slot],
        turn.detail,
        int(turn.dead_copy),
        turn.effect,
        turn.effect_attempts,
        turn.outbox_id,
        turn.dead_id,
        turn.terminal_at_ms,
        turn.body,
        turn.content,
        turn.row,
        _TEXT[guard.state],
        guard.generation,
    )


def is_answered(turn: Turn) -> bool:
    """Whether `insert_answered` says all of a new turn: what it does not bind is as it has it."""
    return (
        turn.state is State.REPLYING
        and turn.outcome is Outcome.COMPLETED
        and turn.intent is State.DONE
        and turn.generation == 1
        and turn.effect == 1
        and turn.effect_attempts == 0
        and turn.attempt == 0
        and turn.kind is Kind.MESSAGE
        and turn.slot is Slot.REPLY
        and turn.ack is Ack.UNACKED
        and turn.starts == 0
        and not (turn.dead_copy or turn.release or turn.parked)
        and turn.started_at_ms is None
        and turn.cancels is None
        and turn.detail is None
        and turn.outbox_id is None
        and turn.dead_id is None
    )


def answered(source_id: int, turn: Turn) -> tuple[object, ...]:
    """For `insert_answered`; only of a turn for which `is_answered` holds."""
    return (
        turn.row,
        source_id,
        turn.id,
        turn.incarnation,
        turn.entry,
        turn.received_at_ms,
        turn.ack_attempts,
        turn.identity,
        turn.sender,
        turn.channel,
        turn.thread,
        turn.message_id,
        turn.traceparent,
        turn.body,
        turn.content,
    )


def is_done(turn: Turn, guard: Guard) -> bool:
    """Whether `finish_done` writes the same as `finish_turn`, with fewer values."""
    return (
        turn.state is State.DONE
        and turn.ack is Ack.ACKED
        and turn.generation == guard.generation + 1
        and turn.ack_attempts == 1
        and turn.effect_attempts == 0
        and turn.dead_id is None
    )


def finish(turn: Turn, guard: Guard) -> tuple[object, ...]:
    """For `finish_turn`: what changes with the end of a turn that was `replying`."""
    return (
        _TEXT[turn.state],
        turn.generation,
        _TEXT[turn.ack],
        int(turn.closed),
        turn.ack_attempts,
        turn.effect_attempts,
        turn.outbox_id,
        turn.dead_id,
        turn.terminal_at_ms,
        turn.row,
        guard.generation,
    )
