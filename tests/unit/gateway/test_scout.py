"""The agent that `./corral up --bridge` has behind its gateway."""

import pytest

from corral.local.scout import SLOW_MAX_S, plan


@pytest.mark.parametrize(
    ("prompt", "planned"),
    [
        ("hello", (0, "HELLO")),
        (" grüße\n", (0, "GRÜSSE")),
        ("slow 3 all done", (3, "ALL DONE")),
        ("SLOW 0.5", (0.5, "DONE")),
        ("slow 1e9 x", (SLOW_MAX_S, "X")),
        ("slow down", (0, "SLOW DOWN")),
        ("", (0, "")),
    ],
)
def test_it_answers_in_capitals(prompt: str, planned: tuple[float, str]) -> None:
    assert plan(prompt) == planned
