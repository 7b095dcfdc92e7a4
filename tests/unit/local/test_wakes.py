"""The model of the demo's wakes finds nothing in a clean run, and each fault in a spoilt one."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.errors import UnavailableError
from corral.local.session import MESSAGE, confirm
from corral.local.wakes import KILLS_S, PANE, PTY, WAKES_EACH, Wakes, plan
from corral.local.wakes_model import Receipt, Shown, Wake, WakeEvidence, judge
from corral.tamq.terminal.base import Wake as Injected
from corral.tamq.terminal.text import render

Spoil = Callable[[WakeEvidence], object]


def clean() -> WakeEvidence:
    """One wake that is confirmed at once, and one that is shown twice, with a kill in between."""
    return WakeEvidence(
        planned=2,
        wakes=[Wake("a", PANE, "one", ("1-x", "1-x")), Wake("b", PTY, "two", ("2-y", "2-y"))],
        shown=[
            Shown(PANE, "1-x", 1, "one", 10),
            Shown(PTY, "2-y", 1, "two", 20),
            Shown(PTY, "2-y", 2, "two", 40),
        ],
        receipts=[
            Receipt("1-x", "a", "acknowledged", 1, 9, (1,)),
            Receipt("2-y", "b", "acknowledged", 2, 9, (2, 1)),
        ],
        kills_ms=[30],
        sessions={PANE: True, PTY: True},
    )


def change_receipt(evidence: WakeEvidence, **fields: object) -> None:
    evidence.receipts[1] = replace(evidence.receipts[1], **fields)  # type: ignore[arg-type]


def change_wake(evidence: WakeEvidence, **fields: object) -> None:
    evidence.wakes[1] = replace(evidence.wakes[1], **fields)  # type: ignore[arg-type]


def change_shown(evidence: WakeEvidence, **fields: object) -> None:
    evidence.shown[2] = replace(evidence.shown[2], **fields)  # type: ignore[arg-type]


SPOILS: dict[str, tuple[Spoil, set[str]]] = {
    "a row is lost": (lambda e: e.receipts.pop(), {"wake_lost"}),
    "another message has its id": (lambda e: change_receipt(e, key="c"), {"wake_lost"}),
    "never shown": (lambda e: e.shown.pop(0), {"wake_lost"}),
    "never answered": (lambda e: setattr(e, "planned", 3), {"wake_unanswered"}),
    "not acknowledged": (lambda e: change_receipt(e, state="failed"), {"wake_state"}),
    "two ids": (lambda e: change_wake(e, message_ids=("2-y", "3-z")), {"wake_key"}),
    "two rows": (
        lambda e: e.receipts.append(replace(e.receipts[1], message_id="3-z")), {"wake_key"},
    ),
    "too many attempts": (lambda e: change_receipt(e, attempts_max=1), {"wake_attempts"}),
    "an attempt is not recorded": (lambda e: change_receipt(e, attempts=(2,)), {"wake_attempts"}),
    "shown, not counted": (lambda e: change_shown(e, attempt=3), {"wake_attempts"}),
    "shown twice as one attempt": (lambda e: change_shown(e, attempt=1), {"wake_attempts"}),
    "other words": (lambda e: change_shown(e, body="tw"), {"wake_invented"}),
    "the other session": (lambda e: change_shown(e, repo=PANE), {"wake_invented"}),
    "nobody sent it": (
        lambda e: e.shown.append(Shown(PANE, "9-q", 1, "nine", 50)), {"wake_invented"},
    ),
    "a session ended": (lambda e: e.sessions.update({PTY: False}), {"session_ended"}),
    "no kill": (lambda e: e.kills_ms.clear(), {"wake_not_shown"}),
    "no redelivery across it": (lambda e: setattr(e, "kills_ms", [50]), {"wake_not_shown"}),
    "trouble": (lambda e: e.trouble.append("too late"), {"wake_trouble"}),
}  # fmt: skip


def test_a_clean_run_breaks_no_rule() -> None:
    report = judge(clean())
    assert report.ok
    rows = dict(report.summary.rows())
    assert rows["wakes acknowledged"] == "2"
    assert rows["wakes redelivered"] == rows["redelivered across a kill of TAMQ"] == "1"
    assert rows["sessions that outlived them"] == "2 of 2"


@pytest.mark.parametrize("name", sorted(SPOILS))
def test_a_fault_is_found(name: str) -> None:
    spoil, rules = SPOILS[name]
    evidence = clean()
    spoil(evidence)
    report = judge(evidence)
    assert {violation.rule for violation in report.violations} >= rules
    assert report.as_dict()["ok"] is False


@given(st.integers(0, 2**32))
def test_the_plan_repeats_and_begins_in_both_sessions(seed: int) -> None:
    planned, kills_s = plan(random.Random(seed))
    assert (planned, kills_s) == plan(random.Random(seed))
    assert len({one.key for one in planned}) == len(planned) == 2 * WAKES_EACH
    assert {one.repo for one in planned if one.at_s == 0.0} == {PANE, PTY}
    assert len(kills_s) == len(KILLS_S)


@given(st.integers(0, 2**32), st.integers(1, 9))
def test_the_session_reads_the_envelope_back(seed: int, attempt: int) -> None:
    for one in plan(random.Random(seed))[0]:
        wake = Injected("7-ab", attempt, "coordination-engine (uid 0, pid 1)", one.body)
        found = MESSAGE.search(render(wake, one_line=True).text + "\n")
        assert found is not None
        assert (found["id"], int(found["attempt"]), found["body"]) == ("7-ab", attempt, one.body)


def test_without_tmux_one_line_says_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="tmux is missing") as caught:
        Wakes(tmp_path / "wakes", random.Random(1))
    assert "apt-get install tmux" in caught.value.hint


def test_a_confirmation_that_is_never_taken_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.local.session.CONFIRMING_MAX_S", 0.2)
    assert confirm(str(tmp_path / "none"), "1-x") is False
