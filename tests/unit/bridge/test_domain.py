"""The rules of jobs and controls: the tables of the docstring, capacities, pauses, clean text."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.bridge import domain, identities
from corral.bridge.domain import (
    CONTROL_TRANSITIONS,
    ENDS,
    TERMINAL,
    TRANSITIONS,
    ControlKind,
    ControlState,
    Limits,
    Queue,
    Reason,
    State,
)
from corral.bridge.identities import Stage


def table(heading: str) -> dict[str, set[str]]:
    """The rows under a heading of the module's docstring."""
    text = domain.__doc__ or ""
    rows = text.split(f"| {heading} | goes to |\n| --- | --- |\n")[1].split("\n\n")[0]
    found = {}
    for row in rows.splitlines():
        name, following = (re.findall(r"`(\w+)`", cell) for cell in row.split("|")[1:3])
        found[name[0]] = set(following)
    return found


def test_the_docstring_tells_the_transitions_of_jobs() -> None:
    code = {state.value: {one.value for one in TRANSITIONS[state]} for state in State}
    assert table("state") == code


def test_the_docstring_tells_the_transitions_of_controls() -> None:
    code = {
        state.value: {one.value for one in CONTROL_TRANSITIONS[state]} for state in ControlState
    }
    assert table("control") == code


def test_every_end_but_the_denial_at_admission_goes_through_reply_pending() -> None:
    into_terminal = {
        (state, target) for state in State for target in TRANSITIONS[state] if target in TERMINAL
    }
    assert {state for state, _ in into_terminal} == {State.PENDING, State.REPLY_PENDING}
    assert {target for state, target in into_terminal if state is State.PENDING} == {State.DENIED}


def test_every_reason_has_a_terminal_end() -> None:
    assert set(ENDS) == set(Reason)
    assert set(ENDS.values()) == TERMINAL


@pytest.mark.parametrize(("rooms", "total", "expected"), [
    (1, 3, None),
    (2, 3, Reason.ROOM_QUEUE_FULL),
    (1, 4, Reason.GLOBAL_QUEUE_FULL),
    (2, 4, Reason.ROOM_QUEUE_FULL),
])  # fmt: skip
def test_the_rooms_capacity_is_looked_at_before_the_global_one(
    rooms: int, total: int, expected: Reason | None
) -> None:
    limits = Limits(room_queue_capacity=2, global_queue_capacity=4)
    assert Queue(limits, {"!a": rooms}, total).admit("!a") is expected


def test_targets_accepted_earlier_in_the_batch_count() -> None:
    queue = Queue(Limits(room_queue_capacity=2, global_queue_capacity=3), {}, 0)
    answers = [queue.admit(room) for room in ("!a", "!a", "!a", "!b", "!b")]
    assert answers == [None, None, Reason.ROOM_QUEUE_FULL, None, Reason.GLOBAL_QUEUE_FULL]


def test_one_slot_is_kept_for_unpin() -> None:
    limits = Limits(control_capacity_per_job=5)
    others = [kind for kind in ControlKind if kind is not ControlKind.UNPIN]
    assert all(domain.control_fits(kind, 3, limits) for kind in ControlKind)
    assert not any(domain.control_fits(kind, 4, limits) for kind in others)
    assert domain.control_fits(ControlKind.UNPIN, 4, limits)
    assert not domain.control_fits(ControlKind.UNPIN, 5, limits)


@given(st.floats(0, 1e6), st.randoms(use_true_random=False))
def test_polls_come_from_50_ms_on_and_at_most_every_15_s(
    elapsed_s: float, rng: random.Random
) -> None:
    pause_s = domain.poll_pause_s(elapsed_s, rng)
    assert 0.9 * domain.POLL_FIRST_S <= pause_s <= domain.POLL_MAX_S
    assert pause_s <= max(domain.POLL_FIRST_S, elapsed_s * domain.POLL_SHARE)


@given(st.integers(1, 5000), st.randoms(use_true_random=False))
def test_retry_pauses_are_capped(failures: int, rng: random.Random) -> None:
    assert 0.9 <= domain.retry_pause_s(failures, 1.0, 30.0, rng) <= 30.0


def test_retry_pauses_double() -> None:
    class Never(random.Random):
        def random(self) -> float:
            return 0.0

    pauses = [domain.retry_pause_s(count, 1.0, 30.0, Never()) for count in range(1, 8)]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


@given(st.text(st.characters()))
def test_f46_any_text_becomes_storable(text: str) -> None:
    clean = domain.storable(text)
    assert "\0" not in clean
    assert clean.encode("utf-8").decode() == clean
    assert len(clean) == len(text) or any("\ud800" <= ch <= "\udfff" for ch in text)


@given(st.text())
def test_text_without_nul_is_stored_as_it_is(text: str) -> None:
    kept = text.replace("\0", "")
    assert domain.storable(kept) == kept


@given(st.text())
def test_error_codes_are_one_short_word(text: str) -> None:
    assert re.fullmatch(r"[\w.-]{1,64}", domain.error_code(text), re.ASCII)


def test_ids_are_what_they_were_in_earlier_releases() -> None:
    """Stored ids must keep their meaning: a change here needs a new tag, not a new expectation."""
    job = identities.job("$event", "scout")
    assert job == "f6954b12c8baf17000d3f7efcfac24ac"
    assert identities.message(job)[:16] == "290f6e50008b1209"
    assert identities.matrix_txn(Stage.EDIT, 0, job, "scout")[:16] == "7fc2505643e037e0"
    assert identities.control(job, "cancel", "$source", 0) == "8334a447a549c43f27e64d0c4e66b612"


def test_matrix_ids_differ_by_ghost_stage_slot_and_job() -> None:
    made = {
        identities.matrix_txn(stage, slot, job, ghost)
        for stage in Stage
        for slot in (0, 1, 10)
        for job in ("a", "b")
        for ghost in ("one", "two")
    }
    assert len(made) == len(Stage) * 3 * 2 * 2
