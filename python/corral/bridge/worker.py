"""One claimed job, from where it stands to where it can be left: the dispatch of the machine."""

import asyncio

from corral.bridge import audit, calls, domain, projection, waiting
from corral.bridge.domain import ENDS, Reason, State
from corral.bridge.errors import LeaseLostError, LedgerError
from corral.bridge.machine import Machine, Released
from corral.core import logs

_log = logs.get("bridge.worker")


async def run(machine: Machine) -> bool:
    """Works until the job has ended or is given back; whether its lease is still ours.

    It is when the database did not answer. Raises only for a cancellation.
    """
    job_id = machine.job.job_id
    try:
        await _steps(machine)
    except Released:
        return False
    except LeaseLostError:
        _log.warning("lease lost", job_id=job_id)
    except LedgerError as error:
        _log.warning("left", job_id=job_id, code=error.code)
        return True
    except asyncio.CancelledError:
        raise
    except Exception as error:
        _log.error("fault", job_id=job_id, **logs.fault(error))
        await _after_fault(machine, type(error).__name__)
    return False


async def _steps(machine: Machine) -> None:
    while not machine.job.terminal:
        match machine.job.state:
            case State.PENDING | State.A2A_PREPARED:
                await calls.step(machine)
            case State.AWAITING_TASK:
                await waiting.poll(machine)
            case State.AWAITING_INPUT:
                await waiting.for_input(machine)
            case _:
                await projection.project(machine)
    audit.ended(machine.job)


async def _after_fault(machine: Machine, kind: str) -> None:
    """A fault of the program must not hold up a room for ever: again later, dead in the end."""
    job = machine.job
    try:
        if job.faults + 1 < machine.policy.attempts_max:
            await machine.again(kind, fault=True)
        reason = Reason.RETRIES_EXHAUSTED
        if job.state is not State.REPLY_PENDING:
            await machine.end(reason, code=kind)
        elif job.reason is not reason:
            # The room is told at least that: with tries of its own.
            code = domain.error_code(kind)
            await machine.held.change("replaced", ENDS[reason].value, reason.value, code)
        else:
            await machine.held.change("finish")
            return
        await machine.held.release(0.0)
    except (Released, LeaseLostError, LedgerError):
        return
