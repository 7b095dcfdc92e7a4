"""Planted bugs of the bridge: each breaks one promise in the way that a plausible mistake would."""

from collections.abc import Callable, Mapping
from typing import Any

from corral.core.ids import new_uuid


def _send_again() -> None:
    """A call of which nobody knows is simply made again."""
    from corral.bridge import calls

    async def eager(machine: Any, code: str) -> None:
        del code
        await calls._settle(machine, await machine.agents.send(calls._submission(machine)))

    calls._uncertain = eager


def _new_transaction_ids() -> None:
    """Each send of an event has an id of its own."""
    from corral.bridge import identities

    identities.matrix_txn = lambda *_: new_uuid()


def _new_control_ids() -> None:
    """The id of a question is made when it is sent, not when it is planned."""
    from corral.bridge import controls
    from corral.bridge.posting import post

    async def fresh(machine: Any, _txn: str, content: Any, **more: Any) -> str:
        return await post(machine, new_uuid(), content, **more)

    controls.posting.post = fresh  # type: ignore[attr-defined]


def _call_before_commit() -> None:
    """The attempt is recorded when the agent has answered."""
    from corral.bridge.jobs import Held

    change, late = Held.change, {}

    async def lazy(self: Any, name: str, *args: Any) -> Any:
        if name == "prepare" and self.job.job_id not in late:
            late[self.job.job_id] = args
            return self.job
        if self.job.job_id in late and self.job.state.value == "pending":
            await change(self, "prepare", *late[self.job.job_id])
        return await change(self, name, *args)

    Held.change = lazy  # type: ignore[method-assign]


PLANTS: Mapping[str, Callable[[], None]] = {
    "send-again": _send_again,
    "new-transaction-ids": _new_transaction_ids,
    "new-control-ids": _new_control_ids,
    "call-before-commit": _call_before_commit,
}
