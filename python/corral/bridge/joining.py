"""Ghosts go where they are invited: at once when it is heard, and at the start for what was missed.

Nothing of an invitation is stored: the homeserver has it until it is answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from corral.bridge.events import Invite
from corral.bridge.limits import Policy
from corral.bridge.ports import AuthFailed, JoinAnswer, Joined, Limited, TooLarge, Unreachable
from corral.bridge.ports import Forbidden as Refused
from corral.core import logs
from corral.core.backoff import Backoff

WAITING_MAX: Final = 10_000
AT_ONCE: Final = 16  # requests; a pause between two of one invitation holds up no other
TRIES_MAX: Final = 20
PAUSE_MAX_S: Final = 30.0

_log = logs.get("bridge.joining")
_Problem = Limited | TooLarge | Refused | Unreachable | AuthFailed
AnswerT = TypeVar("AnswerT")


class Host(Protocol):
    """What is asked of the homeserver."""

    async def join(self, ghost: str, room_id: str) -> JoinAnswer: ...

    async def invitations(self, ghost: str) -> Sequence[tuple[str, str]] | _Problem: ...


class Joining:
    """`heard` takes invitations; `run` answers them, several at once, in no order."""

    def __init__(self, host: Host, policy: Policy, ghosts: Mapping[str, str]) -> None:
        self._host = host
        self._policy = policy
        self._ghosts = tuple(ghosts)
        self._waiting: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._open: set[tuple[str, str]] = set()
        self._at_once = asyncio.Semaphore(AT_ONCE)

    def heard(self, invites: Sequence[Invite]) -> None:
        """Does not block. What does not fit is found again at the next start."""
        for one in invites:
            self._take(one.ghost, one.room_id, one.sender)

    def _take(self, ghost: str, room_id: str, sender: str) -> None:
        if not self._policy.may_invite(sender, room_id):
            _log.info("invitation not accepted", ghost=ghost, room_id=room_id)
            return
        one = (ghost, room_id)
        if one not in self._open and len(self._open) < WAITING_MAX:
            self._open.add(one)
            self._waiting.put_nowait(one)

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            for ghost in self._ghosts:
                group.create_task(self._missed(ghost))
            while True:
                group.create_task(self._join(*await self._waiting.get()))

    async def _ask(self, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | Unreachable:
        async with self._at_once:
            try:
                return await ask()
            except Exception as error:  # one room's fault is no other's
                _log.error("fault", **logs.fault(error))
                return Unreachable("fault")

    async def _missed(self, ghost: str) -> None:
        backoff = Backoff(0.5, PAUSE_MAX_S)
        while True:
            found = await self._ask(lambda: self._host.invitations(ghost))
            if isinstance(found, Limited | Unreachable | AuthFailed):
                await asyncio.sleep(backoff.next_s())
                continue
            if isinstance(found, Sequence):
                for room_id, sender in found:
                    self._take(ghost, room_id, sender)
            return

    async def _join(self, ghost: str, room_id: str) -> None:
        try:
            await self._tries(ghost, room_id)
        finally:
            self._open.discard((ghost, room_id))

    async def _tries(self, ghost: str, room_id: str) -> None:
        backoff = Backoff(0.2, PAUSE_MAX_S)
        for _ in range(TRIES_MAX):
            answer = await self._ask(lambda: self._host.join(ghost, room_id))
            if isinstance(answer, Joined):
                _log.info("joined", ghost=ghost, room_id=room_id)
                return
            if isinstance(answer, Refused | TooLarge):
                _log.info("not joined", ghost=ghost, room_id=room_id, code=answer.code)
                return
            pause_s = answer.retry_after_ms / 1000 if isinstance(answer, Limited) else 0.0
            await asyncio.sleep(max(pause_s, backoff.next_s()))
        _log.warning("not joined", ghost=ghost, room_id=room_id, code="tries_exhausted")
