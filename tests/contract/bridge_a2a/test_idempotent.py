"""The contract by which a message may be sent again: declared by the card, enabled here."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from corral.bridge.a2a.card import IDEMPOTENT_URI
from corral.bridge.ports import Card, MayHaveLeft
from tests.contract.bridge_a2a.kit import AGENT, agents, submission, view
from tests.harness.a2a_peers import Peer, scripted_agent
from tests.harness.fault_proxy import Fault, FaultProxy, Place


@pytest.fixture(scope="module")
def twice() -> Iterator[Peer]:
    """An agent that knows messages that come again."""
    with scripted_agent("--idempotent", "3600") as peer:
        yield peer


@pytest.fixture
async def front(twice: Peer, tmp_path: Path) -> AsyncIterator[tuple[FaultProxy, str]]:
    place = tmp_path / "proxy"
    async with FaultProxy(Place(path=twice.place), Place(path=place)) as found:
        yield found, f"unix:{place}:/"


@pytest.mark.parametrize(("enabled", "kept_s"), [(True, 3600.0), (False, None)])
async def test_both_sides_must_say_so(twice: Peer, enabled: bool, kept_s: float | None) -> None:
    async with agents(twice.url, idempotent=enabled) as found:
        card = await found.card(AGENT)
    assert isinstance(card, Card)
    assert card.idempotent_for_s == kept_s


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_message_whose_answer_was_lost_has_the_task_that_it_had(
    front: tuple[FaultProxy, str], twice: Peer, version: str
) -> None:
    proxy, url = front
    ours = submission("after 60 x")
    async with agents(url, idempotent=True, version=version) as found:
        lost = proxy.arm(ours.message_id.encode(), Fault.DROP_ANSWER)
        assert isinstance(await found.send(ours), MayHaveLeft)
        first = view(await found.send(ours))
        assert view(await found.send(ours)).task_id == first.task_id
    assert lost.hits == 1
    assert twice.starts(ours.message_id) == 1
    assert len([one for one in twice.effects if one.get("message_id") == ours.message_id]) == 3


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("enabled", [True, False])
async def test_extension_is_named_when_it_is_relied_on(
    front: tuple[FaultProxy, str], version: str, enabled: bool
) -> None:
    proxy, url = front
    async with agents(url, idempotent=enabled, version=version) as found:
        seen = proxy.arm(f"A2A-Extensions: {IDEMPOTENT_URI}".encode(), Fault.HOLD_ANSWER)
        proxy.release()
        view(await found.send(submission("echo")))
    assert seen.hits == (1 if enabled else 0)


async def test_killed_agent_still_knows_the_message(tmp_path: Path) -> None:
    """The scriptable agent keeps the contract across its own death, as the contract asks."""
    ours = submission("after 60 x")
    task_ids, starts = set(), []
    for _ in range(2):
        with scripted_agent("--idempotent", "3600", folder=tmp_path) as peer:  # ends by SIGKILL
            async with agents(peer.url, idempotent=True) as found:
                task_ids.add(view(await found.send(ours)).task_id)
            starts.append(peer.starts(ours.message_id))
    assert len(task_ids) == 1
    assert starts == [1, 1]
