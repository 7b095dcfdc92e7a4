"""One mention for each crash point on its way from a room to the agent and back.

Whoever passes the point is SIGKILLed there. While it is down, `corral trace` must say where the
message stands, and nothing that is not so. Then it is started again: the room has one answer or one
notice, the agent was started at most once for what it got, every ledger is at its end, and the
trace is whole. Each process alone, with every victim and policy, has crash tests of its own.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from corral.bridge import points as bridge
from corral.cowboy import points as cowboy
from corral.gateway import points as gateway
from corral.local.bridge_stack import BRIDGE
from corral.local.deployment import DAEMON, RUNNER
from corral.local.front import GATEWAY
from tests.harness.armed import known_points
from tests.harness.chain_cases import ASK, CANCEL, GATE, LONG, PLAIN, Case, Talk, beside
from tests.harness.chain_judge import (
    ANSWER,
    ASKED,
    COMPLETE,
    DECIDED,
    DISPATCHED,
    NOT_RUN,
    NOTICE,
    QUEUED,
    SHOWN,
    TAKEN,
    UNASKED,
    UNTOLD,
    WHOLE,
    Stands,
    job_ends,
    judge,
    judge_the_trace,
    judge_the_whole,
    quiet,
    tasks_rest,
)
from tests.harness.chain_stack import PATIENCE_S, ChainStack
from tests.harness.homeserver import ready_to_start


@dataclass(frozen=True)
class Kill:
    """`first`: another kill without which the point is not passed; it is of the same process, then
    started with the point armed, or of another one. `down`: who is not there when it is asked.
    `stands`: None where the rest of the way is a race with the kill."""

    point: str
    stands: Stands | None
    case: Case = PLAIN
    ends: frozenset[str] = ANSWER
    nth: int = 1
    first: str = ""
    down: str = ""
    process: str = ""

    @property
    def victim(self) -> str:
        return self.process or owner(self.point)

    @property
    def name(self) -> str:
        return f"{self.point}-{self.process}" if self.process else self.point


def owner(point: str) -> str:
    return {"bridge": BRIDGE, "gateway": GATEWAY, "runner": RUNNER}.get(
        point.partition(".")[0], DAEMON
    )


GONE = "runner.go.written"  # its death there leaves a run of which nobody knows the outcome
KILLS = (
    Kill(bridge.INTAKE, QUEUED),
    Kill(bridge.CLAIMING, QUEUED),
    Kill(bridge.CLAIMED, QUEUED),
    Kill(bridge.PREPARED, Stands("message", "nothing here says whether it arrived")),
    Kill(bridge.CALLED, TAKEN),
    Kill(bridge.NEVER_LEFT, Stands("message", NOT_RUN), down=GATEWAY),
    Kill(bridge.TASK, TAKEN),
    Kill(bridge.POLLED, TAKEN),
    Kill(bridge.RESULT, DECIDED),
    Kill(bridge.REPLY_SENT, DECIDED),
    Kill(bridge.REPLY, SHOWN),
    Kill(bridge.PLACEHOLDER_SENT, TAKEN, GATE),
    Kill(bridge.PLACEHOLDER, TAKEN, GATE),
    Kill(bridge.PIN_SENT, TAKEN, GATE),
    Kill(bridge.EDIT_SENT, DECIDED, GATE),
    Kill(bridge.UNPIN_SENT, SHOWN, GATE),
    Kill(bridge.PART_SENT, SHOWN, LONG),
    Kill(bridge.PART, SHOWN, LONG),
    Kill(bridge.FINISHING, SHOWN),
    Kill(bridge.FINISHED, COMPLETE),
    Kill(bridge.ASKED, ASKED, ASK),
    Kill(bridge.QUESTION, ASKED, ASK),
    Kill(bridge.QUESTION_SENT, ASKED, ASK),
    Kill(bridge.CONTROLLED, Stands("answer", "is recorded, and was not passed on yet"), ASK),
    # After those of the pin and of the question.
    Kill(bridge.CONTROL_PREPARED, Stands("answer", "may have been passed on"), ASK, nth=3),
    Kill(bridge.ANSWER_CALLED, Stands("answer", "may have been passed on"), ASK),
    Kill(bridge.CANCEL_CALLED, TAKEN, CANCEL, NOTICE),
    Kill(gateway.SENT, Stands("task", NOT_RUN)),
    Kill(gateway.ADDED, UNTOLD),
    Kill(gateway.PUBLISHED, UNTOLD),
    Kill(gateway.READ, UNTOLD),
    Kill(gateway.SETTLED, TAKEN),
    Kill(gateway.CANCELED, DISPATCHED, CANCEL, NOTICE),
    Kill(gateway.SWEPT, None, first=gateway.SENT),
    Kill(cowboy.READ, UNASKED),
    Kill(cowboy.DRAIN, UNASKED, first=cowboy.READ),
    Kill(cowboy.ATTACHED, UNASKED, first=cowboy.RECEIVED),
    Kill(cowboy.TICK, None),
    Kill(cowboy.RECEIVED, UNASKED),
    Kill(cowboy.DISPATCHED, UNASKED),
    Kill(cowboy.PREPARE, UNASKED),
    Kill(cowboy.PREPARED, UNASKED),
    Kill(cowboy.STARTED, UNASKED),
    Kill(cowboy.GO, UNASKED),
    Kill(cowboy.RESULT, UNASKED),
    Kill(cowboy.REPLYING, UNASKED),
    Kill(cowboy.OUTBOX, COMPLETE),
    Kill(cowboy.SETTLE, None),  # it may be that of the acknowledgement, or of the answer
    Kill(cowboy.ACK, None),
    Kill(cowboy.SETTLED, None),
    Kill(cowboy.FORGET, None),
    Kill(cowboy.TRIM_BEFORE, None),
    Kill(cowboy.TRIM_DONE, None),
    Kill(cowboy.INTERRUPTED, UNASKED, ends=NOTICE, first=GONE),
    Kill(cowboy.CANCEL, None, CANCEL, NOTICE),
    Kill("runner.prepare.received", DISPATCHED),
    Kill("runner.prepared.recorded", DISPATCHED),
    Kill("runner.prepared.sent", DISPATCHED),
    Kill("runner.go.recorded", DISPATCHED, ends=NOTICE),
    Kill(GONE, DISPATCHED, ends=NOTICE),
    Kill("runner.run.over", DISPATCHED, ends=NOTICE),
    Kill("runner.result.held", DISPATCHED, ends=NOTICE),
    Kill("runner.result.sent", None, ends=ANSWER | NOTICE),  # the daemon may have it
    Kill("runner.forget.done", COMPLETE),
    Kill("runner.recover.before", DISPATCHED, ends=NOTICE, first=GONE),
    Kill("runner.recover.killed", DISPATCHED, ends=NOTICE, first=GONE),
    *(
        Kill(f"core.sqlite.commit.{when}", None, process=process)
        for process in (GATEWAY, DAEMON)
        for when in ("before", "after")
    ),
)

# What one mention does not pass, and where it is killed at instead.
ELSEWHERE = {
    bridge.DENIED: "of a full queue: test_bridge_kills.py",
    bridge.NOTICE_SENT: "of a full queue: test_bridge_kills.py",
    bridge.PROGRESS_SENT: "a gateway's task tells no progress: test_bridge_matrix_kills.py",
    cowboy.HELD: "of a source whose policy is hold: test_boundaries.py",
    cowboy.ANSWER: "of a live session: test_chain_wakes.py",
    cowboy.ANSWERED: "of a live session: test_chain_wakes.py",
    "runner.wake.sending": "of a live session: test_chain_wakes.py",
    "runner.wake.sent": "of a live session: test_chain_wakes.py",
    "runner.wake.withdrawn": "of a live session: test_chain_wakes.py",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chain() -> AsyncIterator[ChainStack]:
    ready_to_start()
    async with ChainStack() as made:
        yield made


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: kill.name)
async def test_killed_at(chain: ChainStack, kill: Kill) -> None:
    with chain.trial(kill.name):
        await killed(chain, kill)


async def killed(chain: ChainStack, kill: Kill) -> None:
    began, before = len(chain.starts()), chain.kills().count(kill.point)
    if kill.down:
        await chain.kill(kill.down)
    await arm(chain, kill)
    async with beside(chain, kill.case) as talk:
        await die(chain, kill, talk.asked)
        await at_rest(talk, kill)
        told = await chain.trace(talk.asked)
        await judge_the_trace(talk, kill.stands, told, began)
        for process in filter(None, (kill.down, kill.victim)):
            await chain.start(process)
        await talk.over()
        await quiet(talk)
    assert chain.kills().count(kill.point) > before
    await judge(talk, began, kill.ends)
    await judge_the_whole(talk, WHOLE)


async def arm(chain: ChainStack, kill: Kill) -> None:
    """What comes first is armed first; the same process gets the other point when it starts."""
    if kill.first:
        await chain.arm(owner(kill.first), f"{kill.first}:1")
    if owner(kill.first) != kill.victim or not kill.first:
        await chain.arm(kill.victim, f"{kill.point}:{kill.nth}")


async def die(chain: ChainStack, kill: Kill, asked: str) -> None:
    if kill.first:
        earlier = owner(kill.first)
        await chain.killed(earlier)
        await chain.start(earlier, *([f"{kill.point}:{kill.nth}"] * (earlier == kill.victim)))
    await chain.killed(kill.victim)
    while kill.victim == BRIDGE and not await chain.jobs(asked):
        # It was another transaction, with what agents had said before.
        await chain.start(BRIDGE, f"{kill.point}:{kill.nth}")
        await chain.killed(BRIDGE)


async def at_rest(talk: Talk, kill: Kill) -> None:
    """Waits until nothing goes on that does not need the dead: so it is known what is true."""
    chain = talk.chain
    if kill.stands is None:
        return
    if kill.stands.ends:
        await talk.over()
        await job_ends(talk)
    elif kill.victim in {BRIDGE, GATEWAY} and kill.stands is not DISPATCHED:
        if kill.victim == BRIDGE:
            await tasks_rest(chain)
        assert await chain.deployment.until_quiet(PATIENCE_S, awaiting=False)


def test_no_point_is_forgotten() -> None:
    """A new one is killed at here, or it is said why a mention does not pass it."""
    known = {point for one in ("bridge", "gateway", "cowboy") for point in known_points(one)}
    killed = {kill.point for kill in KILLS}
    assert killed | set(ELSEWHERE) == known
    assert not killed & set(ELSEWHERE)
