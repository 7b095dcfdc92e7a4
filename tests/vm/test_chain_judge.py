"""What the judge of the whole way finds left on it."""

import pytest

from corral.local.evidence import Leftovers
from tests.vm.programs.chain import left_over, unfinished

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
