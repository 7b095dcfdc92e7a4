"""The alert rules of gateway and bridge with the real `promtool`, and the pages that they name."""

import re
from pathlib import Path

import pytest

from corral.bridge import counts, http
from corral.bridge.main import cli as bridge_cli
from corral.core.metrics import Metrics
from corral.gateway import figures
from corral.gateway.main import cli as gateway_cli
from tests.harness.alerts import ROOT, RUNBOOKS, Case, Rules, series
from tests.unit.cowboy_cli.reference import commands_in, leaves

MONITORING = ROOT / "monitoring"
WAL_LIMIT = 256 * 1024 * 1024
AGENT = {"agent": "scout"}
LEG = {"agent": "scout", "leg": "publish"}
CLIENT = {"client": "bridge"}
REFUSED = {"result": "conflict"}
DENIED = {"reason": "queue_room_capacity_rejected"}
RISES = "5x120 5+1x10 15x110"

WRITTEN = series("gateway_written_timestamp_seconds", {})
WORKS = series("gateway_leg_works", LEG)
DELIVERY, TASK = (series(f"gateway_oldest_{what}_seconds", AGENT) for what in ("delivery", "task"))
OVERDUE = series("gateway_overdue_total", {})
OPEN, KNOWN = series("gateway_open_tasks", CLIENT), series("gateway_known_tasks", {})
UNAUTHORIZED = series("gateway_unauthorized_total", {})
WAL = series("gateway_wal_bytes", {})

GATEWAY = Rules(
    MONITORING / "gateway.rules.yml",
    {
        WRITTEN: "0+15x240",
        WORKS: "1x240",
        DELIVERY: "60x240",
        TASK: "1800x240",
        OVERDUE: "5x240",
        OPEN: "99x240",
        series("gateway_open_tasks_max", {}): "100x240",
        KNOWN: "900x240",
        series("gateway_tasks_max", {}): "1000x240",
        UNAUTHORIZED: "5x240",
        WAL: f"{WAL_LIMIT}x240",
    },
    {
        "GatewayMetricsStale": Case(
            WRITTEN, "0+15x120 1800x120", "critical",
            "The gateway has not written its metrics for a minute.", "gateway-down",
        ),
        "GatewayLegBroken": Case(
            WORKS, "1x120 0x120", "critical",
            "The leg publish between the gateway and scout does not work.", "gateway-leg", LEG,
        ),
        "GatewayDeliveryWaits": Case(
            DELIVERY, "60x120 61x120", "warning",
            "A message for scout has waited in the gateway for a minute.", "gateway-leg", AGENT,
        ),
        "GatewayTaskUnanswered": Case(
            TASK, "1800x120 1801x120", "warning",
            "A task of scout has not ended for half an hour.", "gateway-task-old", AGENT,
        ),
        "GatewayTasksOverdue": Case(
            OVERDUE, "5x120 6x120", "warning",
            "Tasks ended because nothing came in time.", "gateway-task-old",
        ),
        "GatewayClientFull": Case(
            OPEN, "99x120 100x120", "warning",
            "The client bridge has as many open tasks as it may; its messages are refused.",
            "gateway-full", CLIENT,
        ),
        "GatewayFull": Case(
            KNOWN, "900x120 1000x120", "critical",
            "The gateway knows as many tasks as it may, and takes no message.", "gateway-full",
            also=frozenset({"GatewayNearlyFull"}),
        ),
        "GatewayNearlyFull": Case(
            KNOWN, "900x120 901x120", "warning",
            "The gateway knows nine tenths of the tasks that it may.", "gateway-full",
        ),
        "GatewayUnauthorized": Case(
            UNAUTHORIZED, RISES, "warning",
            "Somebody calls the gateway again and again without the token of a client.",
            "gateway-unauthorized",
        ),
        "GatewayLogLarge": Case(
            WAL, f"{WAL_LIMIT}x120 {WAL_LIMIT + 1}x120", "warning",
            "The write-ahead log of the gateway's tasks has more than 256 MiB.",
            "gateway-log-large",
        ),
    },
)  # fmt: skip

LAST = series("bridge_last_transaction_age_seconds", {})
TRANSACTIONS = series("bridge_transactions_total", REFUSED)
QUEUE = series("bridge_queue_full_total", DENIED)


def oldest(state: str) -> str:
    return series("bridge_oldest_job_age_seconds", {"state": state})


def unresolved(state: str) -> str:
    return series("bridge_jobs_unresolved", {"state": state})


BRIDGE = Rules(
    MONITORING / "bridge.rules.yml",
    {
        LAST: "7x240",
        TRANSACTIONS: "5x240",
        oldest("pending"): "300x240",
        oldest("awaiting_task"): "3000x240",
        unresolved("ambiguous"): "0x240",
        QUEUE: "5x240",
    },
    {
        "BridgeDown": Case(
            LAST, "7x120 stale", "critical",
            "No bridge tells its metrics; mentions wait at the homeserver.", "bridge-down",
        ),
        "BridgeTransactionsRefused": Case(
            TRANSACTIONS, RISES, "critical",
            "The homeserver is refused again and again (conflict); it delivers nothing more "
            "until that ends.", "bridge-transactions-refused", REFUSED,
        ),
        "BridgeJobWaits": Case(
            oldest("pending"), "300x120 301x120", "warning",
            "A mention has stood at pending for five minutes.", "bridge-job-waits",
            {"state": "pending"},
        ),
        "BridgeJobUnresolved": Case(
            unresolved("ambiguous"), "0x120 2x120", "warning",
            "2 mentions ended ambiguous; a person must look.", "bridge-job-unresolved",
            {"state": "ambiguous"},
        ),
        "BridgeQueueFull": Case(
            QUEUE, "5x120 6x120", "warning",
            "Mentions are denied for want of room (queue_room_capacity_rejected).",
            "bridge-queue-full", DENIED,
        ),
    },
)  # fmt: skip

each = pytest.mark.parametrize("rules", [GATEWAY, BRIDGE], ids=["gateway", "bridge"])
PAGES = sorted({case.page for rules in (GATEWAY, BRIDGE) for case in rules.cases.values()})


@each
def test_the_rules_load(rules: Rules) -> None:
    rules.load()


@each
def test_each_alert_fires_past_its_limit_and_none_at_it(rules: Rules, tmp_path: Path) -> None:
    rules.fire(tmp_path)


@each
def test_every_rule_has_its_case_and_its_page(rules: Rules) -> None:
    assert rules.names() == list(rules.cases)
    rules.have_pages()


def test_the_gateways_rules_use_metrics_that_exist() -> None:
    known = {*figures.GAUGES, *(f"{name}_total" for name in figures.COUNTERS)}
    assert GATEWAY.used("gateway") <= known


def bridge_metrics() -> Metrics:
    metrics = Metrics("bridge")
    counts.Counts(metrics)
    http.Counts(metrics)
    return metrics


def test_the_bridges_rules_use_metrics_and_results_that_exist() -> None:
    described = set(re.findall(r"^# TYPE bridge_(\w+) ", bridge_metrics().render(), re.MULTILINE))
    assert BRIDGE.used("bridge") <= described
    page = (ROOT / "docs" / "reference" / "bridge.md").read_text()
    assert set(re.findall(r"^\| `bridge_(\w+)` \|", page, re.MULTILINE)) == described
    source = Path(http.__file__).read_text()
    (results,) = re.findall(r'result=~"([^"]+)"', BRIDGE.file.read_text())
    for result in set(results.split("|")) - {"conflict", "failed"}:
        assert f'"{result.upper()}"' in source, result


def test_what_is_denied_first_is_seen_to_rise() -> None:
    """A counter that appears with 1 has not increased."""
    assert f"{QUEUE} 0.0" in bridge_metrics().render()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_exist(page: str) -> None:
    text = (RUNBOOKS / f"{page}.md").read_text()
    used = [
        (program, words)
        for program in ("a2a-bridge", "corral-gateway")
        for words in commands_in(text, program)
    ]
    assert used
    known = {
        program: [words[1:] for words, _ in leaves((program,), group)]
        for program, group in (("a2a-bridge", bridge_cli), ("corral-gateway", gateway_cli))
    }
    for program, words in used:
        assert any(words[: len(one)] == one for one in known[program]), (program, words)
