"""What the parts of the job machine share: the held job, the other sides, the numbers, the ends."""

import asyncio
import contextlib
import json
import random
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from corral.bridge import domain, points
from corral.bridge.domain import ENDS, Limits, Reason, State, storable
from corral.bridge.jobs import Held, Job
from corral.bridge.ports import (
    Agents,
    Artifact,
    AuthFailed,
    Contents,
    MayHaveLeft,
    NeverLeft,
    Reply,
    Rooms,
    Submission,
    Unreachable,
)
from corral.core.crashpoints import crashpoint

SERVES_S: Final = 60.0  # for so long an answer shows that the other side is there
REFUSAL_FORGOTTEN_S: Final = 60.0  # after its pause, if nobody has asked since
IN_PROCESS_PAUSE_MAX_S: Final = 5.0  # a longer one gives the lease back


class Released(Exception):
    """The job was given back: this worker is done with it for now."""


@dataclass(frozen=True, slots=True)
class AgentPolicy:
    """What is configured for one agent. Seconds."""

    task_timeout_s: float = 600.0
    reconcile: bool = False
    idempotent: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """The numbers of the job machine. Seconds."""

    agents: Mapping[str, AgentPolicy]
    limits: Limits = field(default_factory=Limits)
    lease_s: float = 30.0
    retry_initial_s: float = 1.0
    retry_max_s: float = 30.0
    attempts_max: int = 5
    input_wait_timeout_s: float = 600.0
    reconcile_timeout_s: float = 60.0
    placeholder_after_s: float = 2.0
    pin: bool = False


class Pauses:
    """Who is not asked for a while, since it did not accept us. Readiness tells."""

    MATRIX: Final = ""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._served: dict[str, float] = {}

    def pause(self, side: str, seconds: float) -> None:
        """`side` is an agent's name, or MATRIX."""
        self._until[side] = asyncio.get_running_loop().time() + seconds

    def works(self, side: str) -> None:
        self._until.pop(side, None)
        self._served[side] = asyncio.get_running_loop().time()

    def serves(self, side: str) -> bool:
        """Whether it answered somebody lately: who gets no answer now is alone with that."""
        served = self._served.get(side)
        return served is not None and asyncio.get_running_loop().time() - served < SERVES_S

    def heard(self, side: str, answer: object) -> None:
        """Whatever it answers, it took our credentials, unless it says otherwise or nothing."""
        if not isinstance(answer, AuthFailed | Unreachable | NeverLeft | MayHaveLeft):
            self.works(side)

    @property
    def failing(self) -> list[str]:
        """Whoever refused us and has not accepted us since; not for ever, when nobody asks."""
        since = asyncio.get_running_loop().time() - REFUSAL_FORGOTTEN_S
        return sorted(side for side, until in self._until.items() if until > since)

    def paused(self) -> list[str]:
        now = asyncio.get_running_loop().time()
        return [side for side, until in self._until.items() if until > now]


@dataclass(slots=True)
class Machine:
    """One job in work, with everything that its steps need."""

    held: Held
    agents: Agents
    rooms: Rooms
    contents: Contents
    policy: Policy
    pauses: Pauses
    rng: random.Random

    @property
    def job(self) -> Job:
        return self.held.job

    @property
    def agent_policy(self) -> AgentPolicy | None:
        return self.policy.agents.get(self.job.ghost)

    async def end(
        self,
        reason: Reason,
        *,
        text: str = "",
        artifacts: Sequence[Artifact] = (),
        context_id: str | None = None,
        task_id: str | None = None,
        code: str | None = None,
    ) -> None:
        """Commits how the job will end and what the room will be told."""
        await self.held.change(
            "result",
            ENDS[reason].value,
            reason.value,
            storable(text) if text else None,
            pack(artifacts) if artifacts else None,
            context_id,
            None if code is None else domain.error_code(code),
            task_id,
        )
        crashpoint(points.RESULT)

    def submission(self, message_id: str, text: str | None, task_id: str | None) -> Submission:
        """A message of this job's user, in its conversation."""
        job = self.job
        return Submission(
            agent=job.ghost,
            message_id=message_id,
            context_id=job.context_id,
            task_id=task_id,
            text=text or "",
            user=job.sender,
            traceparent=job.traceparent,
        )

    async def replied(self, answer: Reply) -> None:
        """The agent answered at once, without a task: that is the job's end."""
        await self.end(
            Reason.ANSWERED,
            text=answer.text,
            artifacts=answer.artifacts,
            context_id=answer.context_id or None,
        )

    async def again(self, code: str, *, fault: bool = False) -> None:
        """A failure that may be repeated: after a pause that grows with the failures in a row.

        `fault`: it is not that the other side is away. These are counted apart: absence, however
        long, ends no answer.
        """
        await self.put_off(self.retry_pause(), code, spent=1, faults=int(fault))

    async def put_off(
        self, pause: timedelta, code: str, *, spent: int = 0, faults: int = 0
    ) -> None:
        await self.held.change("failed", pause, spent, domain.error_code(code), faults)
        raise Released

    def retry_pause(self) -> timedelta:
        policy = self.policy
        pause_s = domain.retry_pause_s(
            self.job.failures + 1, policy.retry_initial_s, policy.retry_max_s, self.rng
        )
        return timedelta(seconds=pause_s)

    async def refused_us(self, side: str, code: str) -> None:
        """The other side does not accept our credentials: nothing is spent, work stops there."""
        self.pauses.pause(side, self.policy.retry_max_s)
        await self.put_off(timedelta(seconds=self.policy.retry_max_s), code)

    async def pause(self, seconds: float) -> None:
        """Waits, but not once a control has come. Whoever looks for controls clears that first."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self.held.wake.wait()


def intended(job: Job) -> tuple[State, Reason]:
    """Of a job in `reply_pending`: the database has made sure that both are there."""
    if job.intended is None or job.reason is None:
        raise ValueError(f"job {job.job_id} has no intended end")
    return job.intended, job.reason


def pack(artifacts: Sequence[Artifact]) -> bytes:
    """Artifacts as the ledger keeps them until they are shown."""
    rows = [
        {
            "artifact_id": storable(one.artifact_id),
            "name": storable(one.name),
            "text": None if one.text is None else storable(one.text),
            "data": None if one.data is None else b64encode(one.data).decode(),
            "media_type": storable(one.media_type),
            "url": None if one.url is None else storable(one.url),
        }
        for one in artifacts
    ]
    return json.dumps(rows).encode()


def unpack(stored: bytes | None) -> list[Artifact]:
    rows: list[dict[str, Any]] = json.loads(stored) if stored else []
    return [
        Artifact(**{**row, "data": None if row["data"] is None else b64decode(row["data"])})
        for row in rows
    ]
