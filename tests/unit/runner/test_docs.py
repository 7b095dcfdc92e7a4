"""The reference page of the protocol names what the code has."""

import re
from pathlib import Path
from typing import get_args

import pytest

from corral.core import crashpoints
from corral.cowboy.runner import domain
from corral.cowboy.runner.book import RESULTS_HELD_MAX
from corral.cowboy.runner.domain import Event, Request, RunOutcome, RunPhase
from corral.cowboy.runner.main import RunnerOptions
from corral.cowboy.runner.plan import DEFAULT_ENVIRONMENT
from corral.cowboy.runner.starter import FDS_PER_RUN, RUNS_MAX
from corral.cowboy.runner.store import RunRecord
from corral.cowboy.runner.transport import CONNECTIONS_MAX
from tests.unit.runner.world import ROOT, prepare_request

assert RunnerOptions.__module__  # what is imported here registers every crash point


@pytest.fixture(scope="module")
def page() -> str:
    return (ROOT / "docs" / "reference" / "runner-protocol.md").read_text("utf-8")


def rows(page: str, heading: str) -> dict[str, str]:
    """The table whose first heading is this: what its first cells name, and the other cells."""
    _, _, after = page.partition(f"\n\n| {heading} |")
    table, _, _ = after.partition("\n\n")
    found = {}
    for line in table.splitlines()[2:]:
        first, _, rest = line.strip("| ").partition("|")
        found.update(dict.fromkeys(re.findall(r"`([\w.]+)[^`]*`", first), rest))
    return found


def test_operations_and_events(page: str) -> None:
    assert set(rows(page, "`op`")) == set(domain._OPS.values())
    assert set(rows(page, "`ev`")) == set(domain._EVENTS.values())
    assert len(get_args(Request)) == len(domain._OPS)
    assert set(get_args(Event)) == set(domain._EVENTS)


def test_the_keys_of_a_prepare(page: str) -> None:
    named = re.findall(r"`(\w+)`", rows(page, "`op`")["prepare"].split("|")[0])
    assert named == list(prepare_request("t").__slots__)


def test_states_and_outcomes(page: str) -> None:
    assert set(rows(page, "`state`")) == set(RunPhase)
    assert set(rows(page, "`outcome`")) == set(RunOutcome)


def test_reasons_of_refusals(page: str) -> None:
    source = "".join(
        (Path(domain.__file__).parent / name).read_text() for name in ("book.py", "starter.py")
    )
    raised = set(re.findall(r'RefusedError\(f?"(\w+)', source))
    raised |= set(re.findall(r'_refuse\(request, f"(\w+)', source))
    assert set(rows(page, "`refused.reason`")) == raised


def test_crash_points(page: str) -> None:
    registered = {
        name: doc for name, doc in crashpoints.registered().items() if name.startswith("runner.")
    }
    assert {name: doc.strip("| ") for name, doc in rows(page, "point").items()} == registered


def test_limits_defaults_and_records(page: str) -> None:
    for text in (
        f"at most {domain.FRAME_MAX_BYTES // 2**20} MiB",
        f"at most {domain.TURN_MAX_CHARS} of letters",
        f"1 to {domain.ATTEMPT_MAX:,}",
        f"at most {domain.QUERY_MAX_TURNS:,} pairs",
        f"at most {CONNECTIONS_MAX};",
        f"{RUNS_MAX:,} runs",
        f"({FDS_PER_RUN} each)",
        f"{RESULTS_HELD_MAX:,} results",
        *(f"`{name.decode()}={value.decode()}`" for name, value in DEFAULT_ENVIRONMENT.items()),
    ):
        assert text in page
    records = page.split("## Records")[1].split("##", maxsplit=1)[0]
    assert all(f"`{name}`" in records for name in RunRecord._fields)
