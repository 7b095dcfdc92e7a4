"""The judge of random kills finds nothing in a clean message, and each fault in a spoilt one."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness.tamq_judge import of_message

Message = dict[str, Any]
Spoil = Callable[[Message], object]


def clean() -> Message:
    """Cut off, written, written again for want of an acknowledgement, then acknowledged."""
    return {
        "row": {
            "state": "acknowledged", "max_attempts": 5, "serial": 3, "attempt_count": 3,
            "body": "body of k", "idempotency_key": "k",
        },
        "attempts": [
            {"serial": 1, "outcome": "failed", "reason": "lease_expired"},
            {"serial": 2, "outcome": "failed", "reason": "ack_timeout"},
            {"serial": 3, "outcome": "written", "reason": None},
        ],
        "retried": 0,
        "shown": [2, 3],
    }  # fmt: skip


SPOILS: dict[str, Spoil] = {
    "is pending": lambda m: m["row"].update(state="pending"),
    "attempts and their count differ": lambda m: m["row"].update(serial=4),
    "attempts, at most": lambda m: m["row"].update(max_attempts=2),
    "was retried twice": lambda m: m.update(retried=2),
    "an attempt is open": lambda m: m["attempts"][2].update(outcome="open"),
    "injected, with 0 writes": lambda m: (
        m["row"].update(state="injected"), m["attempts"][2].update(outcome="failed"),
    ),
    "failed before": lambda m: m["row"].update(state="failed"),
    "its body changed": lambda m: m["row"].update(body="other"),
    "were shown": lambda m: m["shown"].append(4),
    "2 attempts are recorded as written, 1 were shown": lambda m: m["shown"].pop(),
}  # fmt: skip


def test_a_clean_message_breaks_no_rule() -> None:
    assert of_message(**clean()) == []


@pytest.mark.parametrize("problem", sorted(SPOILS))
def test_a_fault_is_found(problem: str) -> None:
    message = copy.deepcopy(clean())
    SPOILS[problem](message)
    assert any(problem in one for one in of_message(**message))
