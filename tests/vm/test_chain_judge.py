"""What the judge of the whole way finds left on it."""

import pytest
from pydantic import TypeAdapter

from corral.local.evidence import Effect, Evidence, Leftovers, Policy
from tests.vm.programs.chain import Behind, left_over, unfinished

ENDED = [
    {"task_id": f"t{number}", "state": state}
    for number, state in enumerate(("completed", "failed"))
]


def test_a_way_on_which_nothing_is_left_has_no_fault() -> None:
    clean = Leftovers(pending={"a2a": 0}, undelivered={"a2a": 0})
    assert left_over(clean) == []
    assert unfinished(ENDED, 2) == []


@pytest.mark.parametrize(
    ("leftovers", "found"),
    [
        (Leftovers(pending={"a2a": 1}), "1 entries of a2a are pending"),
        (Leftovers(undelivered={"a2a": 2}), "2 entries of a2a are unread"),
        (Leftovers(ledger_faults=["foreign key: 1"]), "foreign key: 1"),
    ],
)
def test_what_redis_or_the_ledger_has_is_found(leftovers: Leftovers, found: str) -> None:
    assert left_over(leftovers) == [found]


def test_an_open_task_and_one_too_many_are_found() -> None:
    assert unfinished([*ENDED, {"task_id": "t9", "state": "working"}], 2) == [
        "task t9 is working",
        "3 tasks, 2 mentions",
    ]


def test_what_another_machine_exports_comes_whole() -> None:
    inbound = Evidence(policies={"a2a": Policy("dispatch", "notify")})
    inbound.effects = [Effect(ev="start", turn="scout.a2a.1", run=7, at_ms=1.5)]
    inbound.leftovers = Leftovers(pending={"a2a": 1}, ledger_faults=["foreign key: 1"])
    known, adapter = Behind(inbound, ENDED), TypeAdapter(Behind)
    assert adapter.validate_json(adapter.dump_json(known)) == known
