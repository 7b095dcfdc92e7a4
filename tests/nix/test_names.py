"""Names never meet, whatever agents and sources are called; and both languages make the same."""

import fnmatch
import json
import random
from itertools import combinations
from typing import Any

import pytest

from corral.cowboy.config import SourceConfig, is_name, parse_sources
from tests.nix import acl_lines, nix

HOSTILE = (
    *("", "a", "a1", "a-", "a-b", "a--b", "z9-", "1a", "-a", "A", "aB", "a_b", "a.b", "a:b", "*"),
    *("a*", "a?", "[a]", "a b", "a\n", "\na", "a\t", "a/b", "..", "~", "%R~a", "@a@", "a\\", "ä"),
    *("a" * 31, "a" * 32, "default", "operator", "metrics", "user", "inbox", "cowboy", "source"),
)


def test_both_languages_accept_the_same_names() -> None:
    names = json.dumps(json.dumps(HOSTILE))  # Nix strings have JSON's escapes
    tried = (
        f'map (n: (builtins.tryEval (corral.names.name "x" n)).success) (builtins.fromJSON {names})'
    )
    accepted = nix.evaluate(nix.with_lib(tried))
    assert dict(zip(HOSTILE, accepted, strict=True)) == {name: is_name(name) for name in HOSTILE}


def test_both_languages_derive_the_same_keys() -> None:
    rendered = nix.render('{ agents.a.sources.b.runner.kind = "echo"; }')
    config: SourceConfig = parse_sources(
        json.dumps(rendered["agents"]["a"]["sources_json"])
    ).sources["b"]
    assert nix.evaluate(nix.with_lib('corral.names.keys "a" "b"')) == {
        "inbox": config.stream,
        "outbox": config.outbox,
        "sent": config.sent_key,
        "replies": config.replies_key,
        "ledger": config.ledger_key,
        "fence": config.fence_key,
        "dead": config.dead_stream,
    }


class Reach:
    """What the ACL of a rendered topology lets each identity touch."""

    def __init__(self, rendered: dict[str, Any]) -> None:
        self.lines = [acl_lines.parse(line) for line in rendered["redis"]["acl"]]
        self.keys = {
            (agent, source): [
                f"{agent}:{source}:{part}"
                for part in ("inbox", "outbox", "sent", "replies", "ledger", "fence", "inbox:dead")
            ]
            for agent, options in rendered["agents"].items()
            for source in options["sources_json"]["sources"]
        }

    def sources_touched(self, line: acl_lines.Line) -> set[tuple[str, str]]:
        """Sources of which at least one key matches a pattern of the identity."""
        patterns = [key.partition("~")[2] for grant in line.grants for key in grant.keys]
        return {
            owner
            for owner, keys in self.keys.items()
            if any(fnmatch.fnmatchcase(key, pattern) for key in keys for pattern in patterns)
        }


def assert_apart(rendered: dict[str, Any]) -> None:
    """Every identity is its own, and reaches its own sources only."""
    reach = Reach(rendered)
    users = [line.user for line in reach.lines]
    assert len(users) == len(set(users))
    credentials = [identity["credential"] for identity in rendered["identities"].values()]
    assert len(credentials) == len(set(credentials)) == len(users) - 1
    keys = [key for of_source in reach.keys.values() for key in of_source]
    assert len(keys) == len(set(keys))
    for line in reach.lines:
        if line.user.startswith("agent-"):
            agent = line.user.removeprefix("agent-")
            assert reach.sources_touched(line) == {own for own in reach.keys if own[0] == agent}
        elif line.user.startswith("source."):
            _, agent, source = line.user.split(".")
            assert reach.sources_touched(line) == {(agent, source)}
        elif line.user == "default":  # off: its rights serve the replay of the append-only file
            assert "off" in line.flags


def topology(names: dict[str, list[str]]) -> str:
    """A topology of echo sources."""
    as_options = {
        "agents": {
            agent: {"sources": {source: {"runner": {"kind": "echo"}} for source in sources}}
            for agent, sources in names.items()
        }
    }
    return f"builtins.fromJSON {json.dumps(json.dumps(as_options))}"


def test_an_agent_a_b_with_c_beside_an_agent_a_with_b_c() -> None:
    rendered = nix.render(topology({"a-b": ["c"], "a": ["b-c"]}))
    assert sorted(rendered["identities"]) == [
        *("agent-a", "agent-a-b", "metrics", "operator", "source.a-b.c", "source.a.b-c"),
    ]
    assert_apart(rendered)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"a": ["inbox", "outbox", "sent"], "inbox": ["a"]}, id="words of keys"),
        pytest.param({"agent": ["source"], "source": ["agent"]}, id="words of identities"),
        pytest.param({"default": ["a"], "operator": ["a"], "metrics": ["a"]}, id="fixed users"),
        pytest.param({"a": ["a"], "a-a": ["a"], "a-": ["a-", "a--"]}, id="prefixes"),
    ],
)
def test_names_that_look_like_parts(names: dict[str, list[str]]) -> None:
    assert_apart(nix.render(topology(names)))


def test_random_names_of_two_letters_and_a_dash(rng: random.Random) -> None:
    pool = ["a", "b", *("".join(pair) for pair in combinations("ab-ab-", 2) if pair[0] != "-")]
    pool += [f"{first}-{second}" for first in "ab" for second in pool]
    names = {agent: rng.sample(sorted(set(pool)), 4) for agent in rng.sample(sorted(set(pool)), 12)}
    assert_apart(nix.render(topology(names)))


def test_the_check_would_notice_an_identity_that_reaches_further() -> None:
    rendered = nix.render(topology({"a": ["s"], "a-b": ["s"]}))
    lines = rendered["redis"]["acl"]
    rendered["redis"]["acl"] = [line.replace("~a:* ", "~a* ") for line in lines]
    assert rendered["redis"]["acl"] != lines
    with pytest.raises(AssertionError):
        assert_apart(rendered)
