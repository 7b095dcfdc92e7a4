"""F51: the card says one version and the wire is another; the card is elsewhere, or leads there."""

from pathlib import Path

import pytest

from corral.bridge.a2a.agents import HttpAgents
from corral.bridge.ports import Refused, Task, Unreachable
from corral.local import a2a_tasks
from tests.contract.bridge_a2a.kit import AGENT, agents, served, submission, view

MISMATCHES = [("1.0", "0.3"), ("0.3", "1.0")]


@pytest.mark.parametrize(("says", "speaks"), MISMATCHES)
async def test_f51_card_says_another_version(tmp_path: Path, says: str, speaks: str) -> None:
    """The refusal proves that nothing was begun: the other version is tried, and remembered."""
    async with (
        served(tmp_path, card_version=says, wires=(speaks,)) as (agent, url),
        agents(url) as found,
    ):
        ours = submission("after 60 x")
        task = view(await found.send(ours))
        assert view(await found.get(AGENT, task.task_id)).task_id == task.task_id
        card = await found.card(AGENT)
        assert getattr(card, "protocol", None) == speaks
        assert a2a_tasks.starts(agent.log) == {ours.message_id: 1}


@pytest.mark.parametrize(("says", "speaks"), MISMATCHES)
async def test_f51_version_that_the_operator_set_is_not_changed(
    tmp_path: Path, says: str, speaks: str
) -> None:
    async with served(tmp_path, card_version=says, wires=(speaks,)) as (_, url):
        async with agents(url, version=says) as found:
            answer = await found.send(submission("echo"))
            assert answer == Refused("a2a_rpc_method_not_found")
        async with agents(url, version=speaks) as found:
            assert await sends(found)


@pytest.mark.parametrize(
    ("path", "below"),
    [("/.well-known/agent.json", ""), ("/cards/mine.json", "cards/mine.json")],
)
async def test_f51_card_at_another_path(tmp_path: Path, path: str, below: str) -> None:
    async with served(tmp_path, card_path=path) as (_, url), agents(url + below) as found:
        assert await sends(found)


async def test_f51_card_that_is_nowhere(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, url), agents(f"{url}elsewhere") as found:
        assert await found.card(AGENT) == Unreachable("a2a_card_missing")


async def test_f51_card_that_leads_elsewhere(tmp_path: Path) -> None:
    async with served(tmp_path, rpc_url="ftp://other.example.org/rpc") as (_, url):
        async with agents(url) as found:
            assert await found.card(AGENT) == Refused("a2a_card_other_server")
        async with agents(url, endpoint=f"{url}rpc") as found:
            assert await sends(found)


async def sends(found: HttpAgents) -> bool:
    return isinstance(await found.send(submission("echo")), Task)
