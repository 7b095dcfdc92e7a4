"""The alert rules with the real `promtool`: they load, each fires past its limit, none at it."""

import json
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest

from corral.cowboy import gauges
from tests.contract.kit import Backend, House
from tests.harness import alerts, promtool
from tests.harness.alerts import ROOT, RUNBOOKS, run_promtool
from tests.harness.dashboards import Dashboard
from tests.unit.cowboy_cli import test_dashboard
from tests.unit.cowboy_cli.reference import cowboy_words, known_commands
from tests.unit.gateway import test_rooms_dashboard

DASHBOARDS = {"cowboy": test_dashboard.DASHBOARD, "rooms": test_rooms_dashboard.DASHBOARD}
WAL_LIMIT = 256 * 1024 * 1024
SOURCE = {"agent": "scout", "source": "a2a"}
AGENT = {"agent": "scout"}
KINDS = ("interrupted", "poisoned", "outbox_refused", "notice_undelivered", "ack_short",
         "ack_forgotten", "trimmed", "deleted", "payload_lost", "passed_over",
         "incarnation_began")  # fmt: skip


def series(name: str, labels: dict[str, str]) -> str:
    return alerts.series(f"cowboy_{name}", labels)


def of_kind(kind: str) -> str:
    return series("events", SOURCE | {"kind": kind})


# An hour, a value each 15 s: everything at its limit, nothing past it.
AT_LIMIT = {
    series("written_timestamp_seconds", AGENT): "0+15x240",
    series("healthy", SOURCE): "1x240",
    series("last_poll_age_seconds", SOURCE): "60x240",
    series("runner_connected", AGENT): "1x240",
    series("oldest_unanswered_seconds", SOURCE): "1800x240",
    series("open_turns", SOURCE): "999x240",
    series("backlog_max", SOURCE): "1000x240",
    series("turns", SOURCE | {"state": "held"}): "0x240",
    series("ledger_wal_bytes", AGENT): f"{WAL_LIMIT}x240",
    **{of_kind(kind): "5x240" for kind in KINDS},
}


Case = partial(alerts.Case, labels=SOURCE)


def event(
    kind: str, severity: str, summary: str, page: str, values: str = "5x120 6x120"
) -> alerts.Case:
    labels = SOURCE | {"kind": kind}
    return Case(of_kind(kind), values, severity, summary, page, labels=labels)


CASES = {
    "CowboyMetricsStale": Case(
        series("written_timestamp_seconds", AGENT), "0+15x120 1800x120", "critical",
        "The daemon of scout has not written its metrics for a minute.", "metrics-stale",
        labels=AGENT,
    ),
    "CowboySourceUnhealthy": Case(
        series("healthy", SOURCE), "1x120 0x120", "critical",
        "Source a2a of scout does not work.", "source-unhealthy",
    ),
    "CowboyPollStale": Case(
        series("last_poll_age_seconds", SOURCE), "60x120 61x120", "critical",
        "Redis has not answered a poll of scout/a2a for a minute.", "stuck-stream",
    ),
    "CowboyRunnerDown": Case(
        series("runner_connected", AGENT), "1x120 0x120", "critical",
        "The runner of scout does not answer, so no turn can start.", "runner-down",
        labels=AGENT,
    ),
    "CowboyMessageUnanswered": Case(
        series("oldest_unanswered_seconds", SOURCE), "1800x120 1801x120", "warning",
        "A message to scout/a2a waits for its answer for half an hour.", "missing-reply",
    ),
    "CowboyBacklogFull": Case(
        series("open_turns", SOURCE), "999x120 1000x120", "warning",
        "scout/a2a has as many open turns as it may; nothing is read.", "backlog-full",
    ),
    "CowboyTurnHeld": Case(
        series("turns", SOURCE | {"state": "held"}), "0x120 2x120", "warning",
        "2 turns of scout/a2a wait for an operator.", "held-turn",
        labels=SOURCE | {"state": "held"},
    ),
    "CowboyRunsInterrupted": event(
        "interrupted", "warning", "Runs of scout/a2a are interrupted again and again.",
        "runner-down", "5x120 5+1x10 15x110",
    ),
    "CowboyTurnPoisoned": event(
        "poisoned", "critical", "A turn of scout/a2a was given up after its last start.", "poison"
    ),
    "CowboyOutboxRefused": event(
        "outbox_refused", "critical",
        "The outbox of scout/a2a refuses answers (outbox_refused).", "outbox-refused",
    ),
    "CowboyAcknowledgementLost": event(
        "ack_short", "warning", "Acknowledgements of scout/a2a do not land (ack_short).",
        "acknowledgement-lost",
    ),
    "CowboyEntryLost": event(
        "trimmed", "warning", "Entries of scout/a2a are lost before cowboy has them (trimmed).",
        "entry-lost",
    ),
    "CowboyRedisLostData": event(
        "incarnation_began", "critical", "The stream of scout/a2a was gone and began anew.",
        "redis-lost-data",
    ),
    "CowboyLedgerLogLarge": Case(
        series("ledger_wal_bytes", AGENT), f"{WAL_LIMIT}x120 {WAL_LIMIT + 1}x120", "warning",
        "The ledger's write-ahead log of scout has more than 256 MiB.", "ledger-log-large",
        labels=AGENT,
    ),
}  # fmt: skip


RULES = alerts.Rules(ROOT / "monitoring" / "cowboy.rules.yml", AT_LIMIT, CASES)


def test_the_rules_load() -> None:
    RULES.load()


def test_each_alert_fires_past_its_limit_and_none_at_it(tmp_path: Path) -> None:
    RULES.fire(tmp_path)


def test_every_rule_has_its_case_and_uses_metrics_that_exist() -> None:
    assert RULES.names() == list(CASES)
    assert RULES.used("cowboy") <= set(gauges.SOURCE) | set(gauges.AGENT) | {"turns", "events"}
    kinds = re.findall(r'kind=~?"([^"]+)"', RULES.file.read_text())
    assert {kind for each in kinds for kind in each.split("|")} == set(KINDS) <= set(gauges.KINDS)


PAGES = sorted(RUNBOOKS.glob("*.md"))


def test_every_alert_has_its_page_and_every_page_is_listed() -> None:
    RULES.have_pages()
    index = (RUNBOOKS / "README.md").read_text()
    for page in PAGES:
        assert page.stem == "README" or f"({page.name})" in index


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    used = cowboy_words(page.read_text())
    # Those of other programs: test_alerts_services.py.
    assert used or page.stem == "README" or page.stem.startswith(("bridge-", "gateway-"))
    for words in used:
        assert any(words[: len(known)] == known for known in known_commands()), words


def test_symptoms_have_pages() -> None:
    for symptom in ("missing-reply", "duplicate-reply", "stuck-stream", "poison", "lost-ledger"):
        assert (RUNBOOKS / f"{symptom}.md").exists()


@pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=DASHBOARDS)
def test_the_dashboards_queries_are_read(tmp_path: Path, dashboard: Dashboard) -> None:
    """By `promtool`, with a value for each of Grafana's variables."""
    variables = {"$agent": ".*", "$source": ".*", "$__rate_interval": "5m"}
    rules = []
    for number, query in enumerate(dashboard.queries()):
        text = re.sub(r"\$\w+", lambda found: variables[found[0]], query)
        rules.append({"record": f"query:{number}", "expr": text})
    file = tmp_path / "queries.yml"
    file.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run_promtool("check", "rules", file)


async def test_the_metrics_are_what_the_reference_lists(
    one_backend: Backend, tmp_path: Path
) -> None:
    async with House(one_backend, only=("echo",)) as house, house.inside(metrics_dir=tmp_path):
        await house.until_answered("echo", [await house.send("echo", "x")])
        file = tmp_path / f"cowboy-{house.deployment.agent}.prom"

        def counted() -> bool:
            return file.exists() and 'kind="done",source="echo"} 1.0' in file.read_text()

        await house.until(counted, "the metrics to be written")
        text = file.read_text()
        names = set(re.findall(r"^# TYPE cowboy_(\w+) gauge$", text, re.MULTILINE))
        assert names == {*gauges.SOURCE, *gauges.STATE, *gauges.KIND, *gauges.AGENT}
        for kind in gauges.KINDS:  # from the start, or a first event could not be seen to rise
            assert f'kind="{kind}",source="echo"' in text
        for line in text.splitlines():
            assert line.startswith("#") or 'agent="scout"' in line
        done = subprocess.run(
            [promtool.find(), "check", "metrics"], input=text, text=True, capture_output=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
