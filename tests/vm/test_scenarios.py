"""Every scenario, with the seed of this run, two at a time.

A machine that is emulated waits, and works on one thing at a time, for much of a scenario; so two
of them end sooner side by side than one after the other.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.vm import scenario
from tests.vm.conftest import SECONDS

SIDE_BY_SIDE = 2
# Longest first, so that none is left alone at the end; the first two need no frozen machine.
FIRST = (
    *("first_boot", "bridge_first_boot", "chain_rollback", "kills", "bridge_kills", "power"),
    *("chain_first_boot", "network", "start_limit"),
)
# Not in the stage, whose time is short: services that start again and again, and two machines, take
# three to seven minutes each. `./corral vm run` runs them, and `nix flake check`.
BY_HAND = ("chain_kills", "chain_clock", "chain_rotation", "two_hosts")
REST = (name for name in scenario.names() if name not in FIRST and name not in BY_HAND)
NAMES = [*FIRST, *REST]


@dataclass(frozen=True)
class Ended:
    kept: Path | None
    lines: list[str]
    took_s: float


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest, session_seed: int) -> Iterator[dict[str, Future[Ended]]]:
    """The scenarios that were chosen, all started here."""
    chosen = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_scenario
    }
    begun: list[scenario.Run] = []

    def ended(one: scenario.Scenario) -> Ended:
        lines: list[str] = []
        began = time.monotonic()
        kept = scenario.run(one, session_seed, lines.append, begun.append)
        return Ended(kept, lines, time.monotonic() - began)

    ready = [scenario.named(name) for name in NAMES if name in chosen]
    pool = ThreadPoolExecutor(SIDE_BY_SIDE)
    try:
        yield {one.name: pool.submit(ended, one) for one in ready}
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for run in begun:
            run.release()  # of an interrupted session; else they are over
        pool.shutdown()


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", NAMES)
def test_scenario(
    name: str, runs: dict[str, Future[Ended]], record_property: Callable[[str, object], None]
) -> None:
    one = runs[name].result()
    record_property(SECONDS, round(one.took_s))
    scenario.say("\n".join(one.lines))
    assert one.kept is None, f"see {one.kept}"


def test_the_order_names_scenarios() -> None:
    assert {*FIRST, *BY_HAND} <= set(scenario.names())


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("given", "given"),
        ("bridge_kills", "bridge"),
        ("chain_first_boot", "chain"),
        ("kills", "standard"),
        ("full_disk", "standard"),
        ("two_hosts", "two"),
    ],
)
def test_a_machine_is_found_by_the_name_of_its_scenario(name: str, host: str) -> None:
    assert scenario.host_file(name).stem == host
