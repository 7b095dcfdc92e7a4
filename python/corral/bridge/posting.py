"""One Matrix event of ours: sent under its id, with what each answer of the homeserver asks for."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, TypeVar

from corral.bridge import audit, domain, identities
from corral.bridge.domain import Reason
from corral.bridge.identities import Stage
from corral.bridge.machine import IN_PROCESS_PAUSE_MAX_S, Machine, Pauses
from corral.bridge.ports import (
    AuthFailed,
    Content,
    Forbidden,
    Found,
    Joined,
    Limited,
    Place,
    Sent,
    TooLarge,
    Unreachable,
)
from corral.core import logs

MESSAGE: Final = "m.room.message"
FAULT: Final = "fault_"

_log = logs.get("bridge.posting")

T = TypeVar("T")
Problem = Limited | TooLarge | Forbidden | Unreachable | AuthFailed


class Undeliverable(Exception):
    """The room will not have it, ever. `reason` is the job's, `code` the evidence."""

    def __init__(self, reason: Reason, code: str) -> None:
        super().__init__(code)
        self.reason = reason
        self.code = code


def place(machine: Machine) -> Place:
    job = machine.job
    return Place(job.room_id, job.event_id, job.thread_root)


def our_id(machine: Machine, stage: Stage, slot: int = 0) -> str:
    job = machine.job
    return identities.matrix_txn(stage, slot, job.job_id, job.ghost)


async def post(machine: Machine, txn_id: str, content: Content, *, give_back: bool = True) -> str:
    """The event's id. `Undeliverable` when it will never be there.

    When it is to be tried later the job is given back (`Released`); without `give_back` that is
    `Undeliverable`, too.
    """
    found = await _sent_long_ago(machine, txn_id)
    if found is not None:
        return found
    job = machine.job

    async def send() -> Sent | Problem:
        return await machine.rooms.send(job.ghost, job.room_id, txn_id, MESSAGE, content)

    sent = await insist(machine, send, give_back=give_back)
    audit.posted(job.job_id, job.room_id, sent.event_id, txn_id)
    return sent.event_id


async def insist(
    machine: Machine, ask: Callable[[], Awaitable[T | Problem]], *, give_back: bool = True
) -> T:
    """Asks until it is done: obeys limits, joins the room once, gives the job back on trouble."""
    joined = False
    while True:
        answer = await answered(machine, ask)
        machine.pauses.heard(Pauses.MATRIX, answer)
        if not give_back and isinstance(answer, Limited | Unreachable | AuthFailed):
            if isinstance(answer, AuthFailed):
                machine.pauses.pause(Pauses.MATRIX, machine.policy.retry_max_s)
            raise Undeliverable(Reason.REPLY_UNDELIVERABLE, getattr(answer, "code", "limited"))
        match answer:
            case Limited():
                await _limited(machine, answer)
            case Forbidden():
                if joined:
                    raise Undeliverable(Reason.ROOM_REFUSED, answer.code)
                joined = True
                await _join(machine, answer)
            case TooLarge():
                raise Undeliverable(Reason.REPLY_UNDELIVERABLE, answer.code)
            case Unreachable():
                await _away(machine, answer.code)
            case AuthFailed():
                await machine.refused_us(Pauses.MATRIX, answer.code)
            case _:
                return answer


async def answered(
    machine: Machine, ask: Callable[[], Awaitable[T | Problem]]
) -> T | Problem | Unreachable:
    """A fault of the program on the way to the homeserver is no refusal: as if it were away."""
    try:
        return await ask()
    except Exception as error:
        _log.error("fault", job_id=machine.job.job_id, **logs.fault(error))
        return Unreachable(f"{FAULT}{type(error).__name__}")


async def _away(machine: Machine, code: str) -> None:
    """Waits for the homeserver, however long. What it does not take for a day while it serves
    others is given up."""
    clocks = await machine.held.clocks()
    late = (clocks.since_reply_s or 0.0) > domain.PROJECTION_BUDGET_S
    alone = late and (code.startswith(FAULT) or machine.pauses.serves(Pauses.MATRIX))
    if alone and machine.job.faults + 1 >= machine.policy.attempts_max:
        raise Undeliverable(Reason.REPLY_UNDELIVERABLE, code)
    await machine.again(code, fault=alone)


async def _limited(machine: Machine, answer: Limited) -> None:
    pause_s = min(answer.retry_after_ms / 1000, domain.LIMITED_MAX_S)
    if pause_s > IN_PROCESS_PAUSE_MAX_S:
        await machine.put_off(timedelta(seconds=pause_s), "rate_limited")
    await asyncio.sleep(pause_s)  # whatever comes meanwhile: the homeserver asked for it


async def _join(machine: Machine, refused: Forbidden) -> None:
    job = machine.job
    answer = await answered(machine, lambda: machine.rooms.join(job.ghost, job.room_id))
    machine.pauses.heard(Pauses.MATRIX, answer)
    match answer:
        case Joined():
            return
        case Limited():
            await _limited(machine, answer)
        case Unreachable():
            await _away(machine, answer.code)
        case AuthFailed():
            await machine.refused_us(Pauses.MATRIX, answer.code)
        case _:
            raise Undeliverable(Reason.ROOM_REFUSED, refused.code)


async def _sent_long_ago(machine: Machine, txn_id: str) -> str | None:
    """Homeservers forget transaction ids: after hours the room itself is asked first.

    Whatever of the job it is, it was not sent before the job was there.
    """
    clocks = await machine.held.clocks()
    if clocks.since_created_s < domain.SEARCH_AFTER_S:
        return None
    job = machine.job

    async def search() -> Found | Problem:
        return await machine.rooms.find(job.ghost, job.room_id, txn_id)

    return (await insist(machine, search)).event_id
