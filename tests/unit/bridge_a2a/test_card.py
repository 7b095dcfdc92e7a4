"""Agent cards of both versions, and whatever else is served in their place."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.bridge.a2a import card as cards
from corral.bridge.a2a.reading import BadAnswerError
from corral.bridge.a2a.wire import Version

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
KEYS = st.sampled_from([
    "name", "url", "supportedInterfaces", "protocolBinding", "protocolVersion", "tenant",
    "preferredTransport", "additionalInterfaces", "transport", "capabilities", "extensions",
    "uri", "params", "required", "retentionSeconds",
])  # fmt: skip
SHAPED = st.recursive(
    LEAVES | st.sampled_from(["JSONRPC", "1.0", cards.IDEMPOTENT_URI]),
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner),
    max_leaves=12,
)


def parsed(**fields: Any) -> cards.AgentCard:
    return cards.parse(json.dumps({"name": "n"} | fields).encode())


def interface(version: str = "1.0", binding: str = "JSONRPC", **more: Any) -> dict[str, Any]:
    url = f"http://localhost/{version}"
    return {"url": url, "protocolBinding": binding, "protocolVersion": version} | more


@given(st.dictionaries(KEYS, SHAPED))
def test_anything_is_a_card_or_a_bad_answer(document: dict[str, Any]) -> None:
    try:
        card = cards.parse(json.dumps(document).encode())
    except BadAnswerError:
        return
    chosen = card.choose(None)
    assert chosen is None or chosen.usable
    assert card.idempotent_for_s is None or card.idempotent_for_s > 0


@given(st.binary())
def test_any_bytes_are_a_card_or_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswerError):
        cards.parse(body)


def test_card_of_1_0() -> None:
    card = parsed(supportedInterfaces=[interface("0.3"), interface("1.0", tenant="t")])
    chosen = card.choose(None)
    assert chosen is not None
    assert (chosen.version, chosen.url, chosen.tenant) == (
        Version.V1_0,
        "http://localhost/1.0",
        "t",
    )
    older = card.choose(Version.V0_3)
    assert older is not None
    assert older.url == "http://localhost/0.3"


def test_card_of_0_3() -> None:
    card = parsed(
        protocolVersion="0.3.0",
        url="http://localhost/grpc",
        preferredTransport="GRPC",
        additionalInterfaces=[{"url": "http://localhost/rpc", "transport": "JSONRPC"}],
    )
    chosen = card.choose(None)
    assert chosen is not None
    assert (chosen.version, chosen.url) == (Version.V0_3, "http://localhost/rpc")


def test_card_of_0_3_says_nothing_of_its_transport() -> None:
    chosen = parsed(url="http://localhost/").choose(None)
    assert chosen is not None
    assert chosen.version is Version.V0_3


def test_card_that_is_both() -> None:
    card = parsed(
        supportedInterfaces=[interface("1.0")], url="http://localhost/", protocolVersion="0.3.0"
    )
    assert [one.version for one in card.interfaces] == [Version.V1_0, Version.V0_3]


@pytest.mark.parametrize(
    ("declared", "version"),
    [
        ("1.0", Version.V1_0), ("1.0.0", Version.V1_0), ("1", Version.V1_0), ("1.7", Version.V1_0),
        ("0.3", Version.V0_3), ("0.3.0", Version.V0_3), ("0.2.5", Version.V0_3),
        ("v0.3", Version.V0_3), ("0.1", None), ("2.0", None), ("", None), ("one", None),
        ("1.0-rc", None),
    ],
)  # fmt: skip
def test_versions(declared: str, version: Version | None) -> None:
    assert cards.version_of(declared) is version


def test_f51_card_without_a_wire_that_we_speak_is_not_used() -> None:
    card = parsed(supportedInterfaces=[interface("2.0"), interface("1.0", "GRPC")])
    assert card.choose(None) is None


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/", ["/.well-known/agent-card.json", "/.well-known/agent.json"]),
        ("/a2a/x/", ["/a2a/x/.well-known/agent-card.json", "/a2a/x/.well-known/agent.json"]),
        ("/cards/x.json", ["/cards/x.json"]),
        ("/card.json?tenant=1", ["/card.json?tenant=1"]),
    ],
)
def test_f51_where_a_card_is_looked_for(path: str, wanted: list[str]) -> None:
    assert list(cards.paths(path)) == wanted


def extension(params: object, uri: str = cards.IDEMPOTENT_URI) -> dict[str, Any]:
    return {"capabilities": {"extensions": [{"uri": uri, "params": params}]}}


@pytest.mark.parametrize(
    ("params", "kept_s"),
    [
        ({"retentionSeconds": 3600}, 3600.0),
        ({"retentionSeconds": 0.5}, 0.5),
        ({"retentionSeconds": 0}, None),
        ({"retentionSeconds": -1}, None),
        ({"retentionSeconds": True}, None),
        ({"retentionSeconds": "3600"}, None),
        ({"retentionSeconds": 1e300}, None),
        ({}, None),
        (None, None),
    ],
)
def test_retention_must_be_said(params: object, kept_s: float | None) -> None:
    card = parsed(supportedInterfaces=[interface()], **extension(params))
    assert card.idempotent_for_s == kept_s


def test_extensions_that_callers_need_are_named() -> None:
    wanted = {"uri": "urn:x", "required": True}
    ours = {"uri": cards.IDEMPOTENT_URI, "required": True, "params": {"retentionSeconds": 1}}
    capabilities = {"extensions": [wanted, ours, {"uri": "urn:y"}, 7]}
    card = parsed(supportedInterfaces=[interface()], capabilities=capabilities)
    assert card.required == ("urn:x",)
