"""What is kept as rendered is what Nix renders, and says what it must."""

import json
from pathlib import Path
from typing import Any

import pytest

from corral.cowboy.config import (
    AgentLimits,
    EchoRunner,
    ExecRunner,
    SourceConfig,
    TamqRunner,
    parse_sources,
)
from tests.nix import acl_lines, golden, nix, topologies

HOW = "it differs from what Nix renders; write it anew: python -m tests.nix.golden"


@pytest.fixture(scope="module")
def demo() -> dict[str, Any]:
    return golden.demo()


def test_the_acl_of_the_host_is_up_to_date() -> None:
    assert golden.HOST_ACL.read_text(encoding="utf-8") == golden.host_acl()


def test_the_golden_file_is_the_rendering(demo: dict[str, Any]) -> None:
    assert golden.DEMO.read_text(encoding="utf-8") == golden.canonical(demo), HOW


def test_the_page_shows_the_rendering(demo: dict[str, Any]) -> None:
    text = golden.PAGE.read_text(encoding="utf-8")
    assert text == golden.page(text, demo), HOW


def test_writing_it_anew_changes_nothing(
    demo: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{golden.BEGIN}\nstale\n{golden.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(golden, "DEMO", tmp_path / "demo.json")
    monkeypatch.setattr(golden, "PAGE", page)
    golden.main()
    assert golden.DEMO.read_text(encoding="utf-8") == golden.canonical(demo)
    written = page.read_text(encoding="utf-8")
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "stale" not in written
    golden.main()
    assert page.read_text(encoding="utf-8") == written


def test_a_page_without_the_part_is_an_error(demo: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no part between"):
        golden.page(f"{golden.BEGIN}\n", demo)


def test_the_page_speaks_for_every_identity(demo: dict[str, Any]) -> None:
    """It shows one agent and one source; the others differ in their names alone."""
    lines = {line.user: line for line in map(acl_lines.parse, demo["redis"]["acl"])}
    for agent, options in demo["agents"].items():
        for user, shown, source in [
            (f"agent-{agent}", "agent-scout", "a2a"),
            *((f"source.{agent}.{s}", "source.scout.a2a", s) for s in _sources(options)),
        ]:
            mine = golden.named(str(lines.pop(user).grants), agent, source)
            model = next(
                acl_lines.parse(line)
                for line in demo["redis"]["acl"]
                if line.startswith(f"user {shown} ")
            )
            assert mine == golden.named(str(model.grants), "scout", "a2a")
    assert lines.keys() == {"default", "operator", "metrics"}


def _sources(options: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = options["sources_json"]["sources"]
    return found


def test_the_page_says_that_a_change_is_a_restart() -> None:
    assert "**A change of the ACL is a restart of Redis.**" in golden.PAGE.read_text(
        encoding="utf-8"
    )


def test_the_daemon_accepts_every_sources_json(demo: dict[str, Any]) -> None:
    for agent, options in demo["agents"].items():
        assert parse_sources(json.dumps(options["sources_json"])).agent == agent


def test_the_demo_is_bound_to_no_machine(demo: dict[str, Any]) -> None:
    paths = [*demo["paths"].values(), demo["redis"]["socket"]]
    for options in demo["agents"].values():
        paths += options["sockets"].values()
        for source in _sources(options).values():
            paths += source["runner"].get("command", [])
    assert [path for path in paths if path.startswith("/")] == []


def test_every_placeholder_is_a_credential_and_every_credential_has_one(
    demo: dict[str, Any],
) -> None:
    flags = [flag for line in demo["redis"]["acl"] for flag in acl_lines.parse(line).flags]
    placeholders = sorted(flag[2:-1] for flag in flags if flag.startswith("#@"))
    assert placeholders == sorted(demo["credentials"])
    named = {line.user for line in map(acl_lines.parse, demo["redis"]["acl"])} - {"default"}
    assert named == set(demo["identities"])
    used = {identity["credential"] for identity in demo["identities"].values()}
    assert used == set(demo["credentials"])


FULL = """{
  agents.a = {
    user = "ann";
    limits.turns_concurrent_max = 7;
    sources = {
      e = {
        runner = {
          kind = "exec"; command = [ "/bin/agent" "--x" ]; output = "json";
          environment.K = "v"; turn_timeout_s = 30; reply_max_bytes = 100;
        };
        client = { user = "gateway"; units = [ "a2a-gateway.service" ]; };
        ack = "reply"; on_interrupt = "hold";
        %s
      };
      f.runner = { kind = "echo"; reply_max_bytes = 5; };
      g.runner = {
        kind = "tamq"; repo = "shop"; socket = "/t/tamq.sock";
        turn_timeout_s = 40; reply_max_bytes = 200;
      };
    };
  };
  paths = { config = "/c"; state = "/s"; runtime = "/r"; };
  redis = { socket = "/q/redis.sock"; settings = { maxmemory = "1gb"; maxclients = "100"; }; };
  operator = { user = "root"; units = [ "operator-env.service" ]; };
  metrics = { user = "exporter"; units = [ "exporter.service" ]; };
}"""


# All different, and none a default.
LIMITS = {
    "ack_attempts_max": 6,
    "backlog_max": 1001,
    "block_ms": 2001,
    "channel_backlog_max": 101,
    "content_max_bytes": 4096,
    "dispatch_attempts_max": 7,
    "metadata_max_bytes": 1025,
    "outbox_attempts_max": 11,
    "read_count": 12,
    "reclaim_idle_ms": 600_001,
    "retention_h": 48,
    "trim_interval_ms": 1002,
    "turns_concurrent_max": 5,
}


@pytest.fixture(scope="module")
def full() -> dict[str, Any]:
    return nix.render(FULL % " ".join(f"{limit} = {value};" for limit, value in LIMITS.items()))


def test_every_option_reaches_the_file(full: dict[str, Any]) -> None:
    file = full["agents"]["a"]["sources_json"]
    assert file["limits"] == {"turns_concurrent_max": 7}
    source = file["sources"]["e"]
    assert LIMITS.keys() == set(topologies.LIMITS)
    assert {limit: source[limit] for limit in LIMITS} == LIMITS
    assert (source["ack"], source["on_interrupt"]) == ("reply", "hold")
    assert source["runner"] == {
        "kind": "exec",
        "command": ["/bin/agent", "--x"],
        "output": "json",
        "environment": {"K": "v"},
        "turn_timeout_s": 30,
        "reply_max_bytes": 100,
    }


def test_the_options_are_those_of_the_daemon(full: dict[str, Any]) -> None:
    """A setting that the daemon gains or loses is missed here, not on a host."""
    file = full["agents"]["a"]["sources_json"]
    parse_sources(json.dumps(file))
    assert file["limits"].keys() == AgentLimits.model_fields.keys()
    assert file["sources"]["e"].keys() == SourceConfig.model_fields.keys()
    assert file["sources"]["e"]["runner"].keys() == ExecRunner.model_fields.keys()
    assert file["sources"]["f"]["runner"].keys() == EchoRunner.model_fields.keys()
    assert file["sources"]["g"]["runner"].keys() == TamqRunner.model_fields.keys()


def test_the_tables_of_a_whole_topology(full: dict[str, Any]) -> None:
    agent = full["agents"]["a"]
    assert agent["user"] == "ann"
    assert agent["identity"] == "agent-a"
    assert agent["sockets"] == {
        "control": "/r/a/control.sock",
        "reply": "/r/a/reply.sock",
        "runner": "/r/a/runner.sock",
    }
    assert agent["credentials"] == {"redis-password": "redis-agent-a"}
    assert full["redis"]["socket"] == "/q/redis.sock"
    assert full["redis"]["settings"] == {
        "appendonly": "yes",
        "appendfsync": "always",
        "no-appendfsync-on-rewrite": "no",
        "maxmemory": "1gb",
        "maxmemory-policy": "noeviction",
        "maxclients": "100",
    }
    assert full["credentials"] == {
        "redis-agent-a": {"owner": "cowboy-a", "units": ["cowboy-a.service"]},
        "redis-source.a.e": {"owner": "gateway", "units": ["a2a-gateway.service"]},
        "redis-source.a.f": {"owner": "root", "units": []},
        "redis-source.a.g": {"owner": "root", "units": []},
        "redis-operator": {"owner": "root", "units": ["operator-env.service"]},
        "redis-metrics": {"owner": "exporter", "units": ["exporter.service"]},
    }
