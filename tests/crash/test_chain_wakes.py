"""As test_chain_kills.py, where a live session answers: the boundaries of a wake, and of its reply.

TAMQ, the daemon and the runner are killed at each point that one wake passes. The session is shown
the message once or more, under one id; the room has one answer.
"""

import asyncio
from dataclasses import dataclass

import pytest

from corral.cowboy import points as cowboy
from corral.local.deployment import DAEMON, RUNNER
from corral.tamq import points as tamq
from corral.tamq.terminal import points as terminal
from tests.harness.armed import known_points
from tests.harness.boundaries import LIVE_SESSION, owner
from tests.harness.chain_judge import (
    ANSWER,
    COMPLETE,
    UNASKED,
    Stands,
    job_ends,
    judge,
    judge_the_trace,
    judge_the_whole,
    quiet,
)
from tests.harness.chain_live import KINDS, World

TAMQ = "tamq"
UNWOKEN = Stands("turn", "tamq could not be asked: ")
POINTS: dict[str, Stands | None] = {
    tamq.ADMITTED: UNWOKEN,
    tamq.LEASED: UNWOKEN,
    tamq.INJECTED: UNWOKEN,
    tamq.RECORDED: UNWOKEN,
    tamq.ACKED: COMPLETE,  # cowboy withdraws the wake when the turn has its answer
    "runner.wake.sending": Stands("turn", "TAMQ has no message of it"),
    "runner.wake.sent": Stands("wake", "the session "),
    "runner.wake.withdrawn": None,
    cowboy.ANSWER: UNASKED,
    cowboy.ANSWERED: UNASKED,
}

BEHIND = (tamq.ACKED, "runner.wake.withdrawn", cowboy.ANSWER, cowboy.ANSWERED)

# What one wake does not pass.
ELSEWHERE = {
    tamq.EXPIRED: "of a wake that nobody takes in time: test_tamq_kills.py",
    tamq.RETRIED: "of an operator's command: test_tamq_kills.py",
    tamq.REBOUND: "of an operator's command: test_tamq_kills.py",
    tamq.REGISTERED: "of a session that begins: test_tamq_kills.py",
    tamq.GONE: "of a session that ends: test_tamq_kills.py",
    terminal.TYPING: "of `tamq run`, which is the session: test_tamq_sessions.py",
    terminal.PASTED: "of `tamq run`, which is the session: test_tamq_sessions.py",
    terminal.SUBMITTED: "of `tamq run`, which is the session: test_tamq_sessions.py",
    "core.sqlite.commit.before": "beside the points of each commit: test_core_sqlite_kill.py",
    "core.sqlite.commit.after": "beside the points of each commit: test_core_sqlite_kill.py",
}


@dataclass(frozen=True)
class Victim:
    """Whoever passes a point: TAMQ, or one of cowboy's."""

    world: World
    point: str

    @property
    def of_tamq(self) -> bool:
        return self.point.startswith("tamq.")

    async def arm(self) -> None:
        process = self.world.live.tamq
        if self.of_tamq:
            await asyncio.to_thread(process.kill)
            await asyncio.to_thread(process.start_armed, self.point)
            await self.world.registered()
        else:
            await self.world.chain.arm(owner(self.point), f"{self.point}:1")

    async def dies(self) -> None:
        if self.of_tamq:
            await asyncio.to_thread(self.world.live.tamq.dies)
        else:
            await self.world.chain.killed(owner(self.point))

    async def start(self) -> None:
        if self.of_tamq:
            await asyncio.to_thread(self.world.live.tamq.start_again)
        else:
            await self.world.chain.start(owner(self.point))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("point", POINTS)
async def test_killed_at(world: World, point: str) -> None:
    stands, victim = POINTS[point], Victim(world, point)
    await victim.arm()
    async with world.talk() as talk:
        # Where the point is not behind the answer, the answer waits for the trace.
        answering = asyncio.create_task(world.answers()) if point in BEHIND else None
        await victim.dies()
        if stands is COMPLETE:
            await talk.over()
            await job_ends(talk)
        told = await world.chain.trace(talk.asked)
        await judge_the_trace(talk, stands, told, len(world.chain.starts()))
        await victim.start()
        await (answering or world.answers())
        await talk.over()
        await quiet(talk)
        await judge(talk, len(world.chain.starts()), ANSWER)
        await world.withdrawn()
        whole = await judge_the_whole(talk, KINDS)
        assert whole["starts"] == 1
        assert len([hop for hop in whole["hops"] if hop["kind"] == "wake"]) == 1
        turn = await world.shown()
        assert len({one["message"] for one in world.live.shown if one["turn"] == turn}) == 1


def test_no_point_of_a_wake_is_forgotten() -> None:
    assert set(POINTS) | set(ELSEWHERE) == {*known_points(TAMQ), *LIVE_SESSION}
    assert {owner(point) for point in LIVE_SESSION} == {DAEMON, RUNNER}
