"""The ledger's machine with real agents over HTTP: the SDK's, the scriptable one, the gateway."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from corral.bridge.a2a import target as a2a
from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.database import Target
from corral.bridge.machine import AgentPolicy
from corral.bridge.ports import Card, CardAnswer, Refused, SendAnswer, Submission, Unreachable
from corral.gateway.domain import Limits, Send, State
from corral.gateway.store import Caller
from corral.local.wait import until_async
from tests.contract.bridge.bridge import PATIENCE_S, Bridge
from tests.contract.bridge.kit import mention
from tests.contract.gateway.kit import CLIENTS, gateway
from tests.harness.a2a_peers import RELEASES, Peer, scripted_agent, sdk_agent
from tests.harness.bridge_world import Agent, World
from tests.harness.fault_proxy import Fault, FaultProxy, Place

IDEMPOTENT = AgentPolicy(idempotent=True)


@contextlib.asynccontextmanager
async def bridged(
    ledger: Target, url: str, *, policy: AgentPolicy | None = None, **options: Any
) -> AsyncIterator[Bridge]:
    """A bridge whose ghost `scout` is the agent at `url`."""
    idempotent = policy is not None and policy.idempotent
    agents = HttpAgents({"scout": a2a.Target("scout", url, idempotent=idempotent, **options)})
    try:
        async with Bridge(ledger, World(agent=cast(Agent, agents)), agent=policy) as bridge:
            yield bridge
    finally:
        await agents.close()


# ---- the SDK's agents, at most once ---------------------------------------------------------


@pytest.fixture(scope="module", params=RELEASES)
def sdk(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with sdk_agent(request.param) as peer:
        yield peer


@pytest.mark.parametrize(
    ("text", "end", "said"),
    [
        ("say grüße", ("delivered", "answered"), ["grüße"]),
        ("message hello", ("delivered", "answered"), ["hello"]),
        ("fail because", ("delivered", "task_failed"), ["FAILED because"]),
        ("reject no", ("denied", "task_rejected"), ["NOTICE task_rejected"]),
        ("login please", ("denied", "auth_required"), ["NOTICE auth_required"]),
    ],
)
async def test_mention_is_answered_by_an_sdk_agent(
    one_target: Target, sdk: Peer, text: str, end: tuple[str, str], said: list[str]
) -> None:
    async with bridged(one_target, sdk.url) as bridge:
        await bridge.receive(mention("a", text=text))
        assert await bridge.quiet() == [end]
        assert bridge.world.rooms.said() == said


async def test_artifacts_of_an_sdk_agent(one_target: Target, sdk: Peer) -> None:
    async with bridged(one_target, sdk.url) as bridge:
        await bridge.receive(mention("a", text="artifact words"))
        assert await bridge.quiet() == [("delivered", "answered")]
        said = bridge.world.rooms.said()
    assert [one for one in said if one.startswith("ARTIFACT")][-1] == "ARTIFACT result"
    assert "ARTIFACT picture.png" in said


# ---- F50: an answer that is lost ------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["plain", "idempotent"])
def scripted(request: pytest.FixtureRequest) -> Iterator[tuple[Peer, bool]]:
    options = ("--idempotent", "3600") if request.param else ()
    with scripted_agent(*options) as peer:
        yield peer, request.param


@pytest.mark.parametrize("fault", [Fault.DROP_ANSWER, Fault.CUT_ANSWER])
@pytest.mark.parametrize(
    "policy", [AgentPolicy(), AgentPolicy(reconcile=True), IDEMPOTENT], ids=["", "find", "repeat"]
)
async def test_f50_lost_answer(
    one_target: Target,
    scripted: tuple[Peer, bool],
    policy: AgentPolicy,
    fault: Fault,
    tmp_path: Path,
) -> None:
    """One start, whatever is enabled; repeated only where the agent declares it, too."""
    peer, declared = scripted
    repeats = declared and policy.idempotent
    place = tmp_path / "front"
    async with (
        FaultProxy(Place(path=peer.place), Place(path=place)) as front,
        bridged(one_target, f"unix:{place}:/", policy=policy) as bridge,
    ):
        front.arm(b"SendMessage", fault, after_bytes=30)
        await bridge.receive(mention("a", text="echo hi"))
        ends = await bridge.quiet()
    known = policy.reconcile or repeats
    assert ends == [("delivered", "answered") if known else ("ambiguous", "call_uncertain")]
    sends = [one for one in peer.effects if one["call"] == "send"]
    assert [one["did"] for one in sends] == (["started", "again"] if repeats else ["started"])


async def test_f50_agent_that_is_down_is_tried_again(one_target: Target, tmp_path: Path) -> None:
    """Nothing left, so the same message may go; the agent comes up meanwhile."""
    async with bridged(one_target, f"unix:{tmp_path / 'agent'}:/") as bridge:
        await bridge.receive(mention("a", text="echo hi"))
        await bridge.reaches("pending")
        with scripted_agent(folder=tmp_path) as peer:
            assert await bridge.quiet() == [("delivered", "answered")]
            assert [one["did"] for one in peer.effects if one["call"] == "send"] == ["started"]


# ---- the gateway, in idempotent mode --------------------------------------------------------


async def test_gateway_never_leaves_the_outcome_uncertain(
    one_target: Target, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(CLIENTS["ann"])
    place = tmp_path / "front"
    async with (
        gateway(tmp_path),
        FaultProxy(Place(path=tmp_path / "socket"), Place(path=place)) as front,
        bridged(
            one_target, f"unix:{place}:/a2a/scout/", policy=IDEMPOTENT, token_file=token
        ) as bridge,
    ):
        for number, fault in enumerate([Fault.DROP_ANSWER, Fault.CUT_ANSWER, Fault.CUT_REQUEST]):
            front.arm(b"SendMessage", fault, after_bytes=30 * number)
            await bridge.receive(mention(f"e{number}", text=f"say {number}"))
            ends = await bridge.quiet(number + 1)
            assert ends == [("delivered", "answered")] * (number + 1)
        assert bridge.world.rooms.said() == ["0", "1", "2"]


async def test_gateway_without_room_is_asked_again_until_there_is_some(
    one_target: Target, tmp_path: Path
) -> None:
    """M8: "full" is a definite refusal, which spends no attempt."""
    token = tmp_path / "token"
    token.write_text(CLIENTS["ann"])
    url = f"unix:{tmp_path / 'socket'}:/a2a/scout/"
    async with (
        gateway(tmp_path, limits=Limits(open_tasks_max=1)) as found,
        bridged(one_target, url, token_file=token) as bridge,
    ):
        ann = Caller("ann", "scout")
        taken = await found.send(ann, Send("m", "work"))
        await bridge.receive(mention("e1", text="say hi"))

        async def refused() -> bool:
            [row] = await bridge.rows()
            return bool(row["never_left"] > bridge.policy.attempts_max)

        await until_async(refused, PATIENCE_S, "more refusals than there are attempts")
        await found.cancel(ann, taken.task_id)
        assert await bridge.quiet() == [("delivered", "answered")]
        assert bridge.world.rooms.said() == ["hi"]


async def test_task_that_the_bridge_gives_up_makes_room_at_the_gateway(
    one_target: Target, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text(CLIENTS["ann"])
    url = f"unix:{tmp_path / 'socket'}:/a2a/scout/"
    policy = AgentPolicy(task_timeout_s=0.5)
    async with (
        gateway(tmp_path, limits=Limits(open_tasks_max=1)) as found,
        bridged(one_target, url, policy=policy, token_file=token) as bridge,
    ):
        await bridge.receive(mention("e1", text="work"))
        assert await bridge.quiet() == [("ambiguous", "task_timeout")]
        [row] = await bridge.rows()

        async def over() -> bool:
            task = await found.get(Caller("ann", "scout"), row["task_id"])
            return task.state is State.CANCELED

        await until_async(over, PATIENCE_S, "the bridge to end the task that it gave up")


class Refusing(Agent):
    """Does it and loses the answer; whatever comes again is refused."""

    async def send(self, submission: Submission) -> SendAnswer:
        first = await super().send(submission)
        return first if len(self.sends) == 1 else Refused("a2a_http_404")


async def test_refusal_of_a_repetition_proves_nothing_about_the_first(one_target: Target) -> None:
    agent = Refusing(card_answer=Card("agent", "1.0", idempotent_for_s=3600))
    async with Bridge(one_target, World(agent=agent), agent=IDEMPOTENT) as bridge:
        await bridge.receive(mention("a", text="lost found"))
        assert await bridge.quiet() == [("ambiguous", "call_uncertain")]


class Away(Agent):
    """Does it, loses the answer and goes away; its card is there again after a while."""

    back: CardAnswer

    async def send(self, submission: Submission) -> SendAnswer:
        first = not self.sends
        answer = await super().send(submission)
        if first:
            self.back, self.card_answer = self.card_answer, Unreachable("refused")
        return answer

    async def card(self, agent: str) -> CardAnswer:
        answer = await super().card(agent)
        if isinstance(answer, Unreachable):
            self.card_answer = self.back
        return answer


async def test_agent_that_is_away_when_a_call_is_recovered_is_waited_for(
    one_target: Target,
) -> None:
    """It is asked for its card before the message goes again; no card is no answer."""
    agent = Away(card_answer=Card("agent", "1.0", idempotent_for_s=3600), idempotent=True)
    async with Bridge(one_target, World(agent=agent), agent=IDEMPOTENT) as bridge:
        await bridge.receive(mention("a", text="lost found"))
        assert await bridge.quiet() == [("delivered", "answered")]
    assert (len(agent.sends), len(agent.begun)) == (2, 1)
