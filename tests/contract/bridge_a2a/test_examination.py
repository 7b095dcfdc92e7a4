"""`a2a-bridge card` and doctor: each fault of a card is found, and a good one passes."""

from pathlib import Path
from typing import Any

import pytest

from corral.bridge.a2a.examination import Examination, Severity, examine
from corral.bridge.a2a.target import Target
from corral.bridge.a2a.wire import Version
from tests.contract.bridge_a2a.kit import AGENT, served


async def examined(url: str, **options: Any) -> Examination:
    return await examine(Target(AGENT, url, **options))


def codes(found: Examination) -> list[str]:
    return [one.code for one in found.findings]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_good_card(tmp_path: Path, version: str) -> None:
    async with served(tmp_path, card_version=version) as (_, url):
        found = await examined(url)
    assert found.findings == ()
    assert found.healthy
    assert (found.protocol, found.endpoint) == (version, "http://localhost/rpc")


@pytest.mark.parametrize(("says", "speaks"), [("1.0", "0.3"), ("0.3", "1.0")])
async def test_f51_version_mismatch_is_named(tmp_path: Path, says: str, speaks: str) -> None:
    async with served(tmp_path, card_version=says, wires=(speaks,)) as (agent, url):
        found = await examined(url)
        assert not agent.tasks
    [finding] = found.findings
    assert finding.code == "card_version_mismatch"
    assert finding.severity is Severity.WARNING
    assert f"says {says} and the agent speaks {speaks}" in finding.text
    assert found.protocol == speaks


async def test_wire_that_is_neither(tmp_path: Path) -> None:
    async with served(tmp_path, wires=()) as (_, url):
        found = await examined(url)
    assert codes(found) == ["card_version_mismatch"]
    assert not found.healthy


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"card_version": "2.0"}, "card_no_interface"),
        ({"rpc_url": "ftp://elsewhere.example.org/"}, "card_other_server"),
        ({"card_path": "/other.json"}, "a2a_card_missing"),
        ({"rpc_url": "/nowhere"}, "agent_unhealthy"),
    ],
)
async def test_faults(tmp_path: Path, options: dict[str, Any], code: str) -> None:
    async with served(tmp_path, **options) as (_, url):
        found = await examined(url)
    assert codes(found) == [code]
    assert not found.healthy
    assert all(one.hint for one in found.findings)


async def test_agent_that_is_away(tmp_path: Path) -> None:
    assert codes(await examined(f"unix:{tmp_path / 'none'}:/")) == ["a2a_connect"]


async def test_url_that_is_none() -> None:
    found = await examined("gopher://x")
    assert codes(found) == ["url_invalid"]


async def test_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("right")
    async with served(tmp_path, token_file=token) as (_, url):
        assert codes(await examined(url)) == ["a2a_http_401"]
        assert codes(await examined(url, token_file=tmp_path / "none")) == ["a2a_token_unreadable"]
        assert (await examined(url, token_file=token)).healthy


async def test_token_in_the_clear(tmp_path: Path) -> None:
    from corral.bridge.a2a.examination import of_target

    def found(url: str) -> list[str]:
        return [one.code for one in of_target(Target(AGENT, url, token_file=tmp_path))]

    assert found("http://agent.example.org/") == ["token_in_the_clear"]
    assert found("https://agent.example.org/") == found("http://127.0.0.1/") == []


async def test_idempotency_must_be_on_both_sides(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, url):
        assert codes(await examined(url, idempotent=True)) == ["card_not_idempotent"]
    (tmp_path / "2").mkdir()
    async with served(tmp_path / "2", idempotent_s=60) as (_, url):
        assert codes(await examined(url, idempotent=True)) == []
        assert codes(await examined(url)) == ["card_idempotent"]


async def test_version_that_the_operator_set(tmp_path: Path) -> None:
    async with served(tmp_path, card_version="1.0") as (_, url):
        found = await examined(url, version=Version.V0_3)
    assert codes(found) == ["card_version_unlike_setting"]
    assert found.healthy
    assert found.protocol == "0.3"
