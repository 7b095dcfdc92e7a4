"""From `sources.json` to a program and its environment."""

import json
from typing import Any

import pytest

from corral.core.errors import ConfigError
from corral.cowboy.config import PAYLOAD_CEILING_BYTES, SourcesFile, parse_sources
from corral.cowboy.runner import configured, inherited
from corral.cowboy.runner.domain import REPLY_MAX_BYTES_LIMIT
from corral.cowboy.runner.plan import (
    EchoPlan,
    ExecPlan,
    MetadataError,
    OutputRules,
    run_environment,
)
from tests.unit.runner.world import prepare_request

TOKEN = "ab" * 16
PLAN = ExecPlan(("/bin/agent",), {}, 600, OutputRules(False, 65_536))


def sources(**runner: Any) -> SourcesFile:
    source = {
        "stream": "scout:a2a:inbox",
        "outbox": "scout:a2a:outbox",
        "group": "cowboy",
        "consumer": "harness-a2a",
        "reclaim_idle_ms": 600_000,
        "read_count": 10,
        "ack": "dispatch",
        "on_interrupt": "notify",
        "runner": runner,
    }
    return parse_sources(json.dumps({"version": 1, "agent": "scout", "sources": {"a2a": source}}))


def test_an_exec_source_with_and_without_its_options() -> None:
    plain = configured.plans(sources(kind="exec", command=["/bin/agent"]))
    assert plain == {"a2a": PLAN}
    full = sources(
        kind="exec",
        command=["agent", "-v", ""],
        output="json",
        environment={"MODEL": "größer"},
        turn_timeout_s=5,
        reply_max_bytes=10,
    )
    assert configured.plans(full) == {
        "a2a": ExecPlan(("agent", "-v", ""), {"MODEL": "größer"}, 5, OutputRules(True, 10))
    }


def test_an_echo_source() -> None:
    plans = configured.plans(sources(kind="echo", reply_max_bytes=10))
    assert plans == {"a2a": EchoPlan(OutputRules(False, 10))}


def test_the_configuration_allows_no_reply_that_fits_no_frame() -> None:
    assert PAYLOAD_CEILING_BYTES <= REPLY_MAX_BYTES_LIMIT
    largest = sources(kind="echo", reply_max_bytes=REPLY_MAX_BYTES_LIMIT)
    assert configured.plans(largest)
    runner = largest.sources["a2a"].runner.model_copy(
        update={"reply_max_bytes": REPLY_MAX_BYTES_LIMIT + 1}
    )
    source = largest.sources["a2a"].model_copy(update={"runner": runner})
    over = largest.model_copy(update={"sources": {"a2a": source}})
    with pytest.raises(ConfigError, match=r"^sources\.a2a\.runner\.reply_max_bytes: "):
        configured.plans(over)


def test_the_runners_variables_win_over_configured_ones() -> None:
    """The configuration refuses these names; the runner does not depend on that."""
    plan = ExecPlan(("x",), {"CORRAL_TURN_ID": "forged", "PATH": "/bin"}, 1, PLAN.output)
    environment = run_environment(plan, "scout", prepare_request("t"), TOKEN)
    assert environment[b"CORRAL_TURN_ID"] == b"t"
    assert environment[b"PATH"] == b"/bin"


def test_what_is_inherited_is_weaker_than_what_is_configured() -> None:
    runner = sources(kind="exec", command=["x"], environment={"MODEL": "own"})
    plan = configured.plans(runner, {"MODEL": "inherited", "PATH": "/agent/bin"})["a2a"]
    assert isinstance(plan, ExecPlan)
    environment = run_environment(plan, "scout", prepare_request("t"), TOKEN)
    assert (environment[b"MODEL"], environment[b"PATH"]) == (b"own", b"/agent/bin")
    assert environment[b"LANG"] == b"C.UTF-8"


def test_only_the_agents_own_variables_are_inherited() -> None:
    own = {"PATH": "/bin", "HOME": "/h", "API_KEY": "k", "CREDENTIALS_DIRECTORY": "/c"}
    services = (
        *("COWBOY_CONFIG", "COWBOY_REDIS_PASSWORD", "CORRAL_SENDER", "CORRAL_RUN_TOKEN"),
        *("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "INVOCATION_ID"),
        *("JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "TRACEPARENT"),
    )
    assert inherited.for_runs({**own, **dict.fromkeys(services, "x")}) == own


def test_what_is_not_known_is_not_set() -> None:
    request = prepare_request("t", sender=None, channel=None, traceparent=None)
    environment = run_environment(PLAN, "scout", request, TOKEN)
    assert sorted(environment) == [
        b"CORRAL_AGENT",
        b"CORRAL_ENTRY_ID",
        b"CORRAL_RESUMED",
        b"CORRAL_RUN_TOKEN",
        b"CORRAL_SESSION_ID",
        b"CORRAL_SOURCE",
        b"CORRAL_TURN_ID",
        b"LANG",
        b"PATH",
    ]


def test_empty_is_not_unknown() -> None:
    environment = run_environment(PLAN, "scout", prepare_request("t", sender=b""), TOKEN)
    assert environment[b"CORRAL_SENDER"] == b""


def test_a_nul_byte_is_refused_without_repeating_the_value() -> None:
    with pytest.raises(MetadataError, match="CORRAL_SENDER contains a NUL byte") as caught:
        run_environment(PLAN, "scout", prepare_request("t", sender=b"private\0"), TOKEN)
    assert "private" not in str(caught.value)
