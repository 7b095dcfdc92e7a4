"""The state table of `domain`'s docstring, against the code; and what each outcome is for."""

import re

import pytest

from corral.cowboy import domain
from corral.cowboy.domain import (
    NOTICES,
    REPLY_OUTCOMES,
    TERMINAL,
    TRANSITIONS,
    Outcome,
    State,
)
from corral.cowboy.runner.domain import REPLY_OUTCOMES as RUN_REPLY_OUTCOMES
from corral.cowboy.runner.domain import RunOutcome
from corral.cowboy.turn import TransitionError
from tests.unit.cowboy.samples import turn

DOC = domain.__doc__ or ""
INTENTS_WORDS = "and the four intents below"


def table() -> dict[State, frozenset[State]]:
    """The rows of the docstring's table; the words for the intents are replaced by them."""
    rows: dict[State, frozenset[State]] = {}
    for line in DOC.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 3:
            continue
        targets = {State(name) for name in re.findall(r"`(\w+)`", cells[2])}
        if INTENTS_WORDS in cells[2]:
            targets |= intents()
        rows[State(cells[0].strip("`"))] = frozenset(targets)
    return rows


def intents() -> set[State]:
    """What the paragraph below the table calls the intents of a replying turn."""
    told = re.search(r"carries its intent.*?confirmed:(.*?)\.", DOC, re.DOTALL)
    assert told is not None
    return {State(name) for name in re.findall(r"`(\w+)`", told[1])}


def test_the_table_is_the_code() -> None:
    assert table() == TRANSITIONS
    assert set(TRANSITIONS) == set(State)


def test_there_are_four_intents() -> None:
    assert intents() == {State.DONE, State.HELD, State.DEAD, State.CANCELLED}
    assert DOC.count(INTENTS_WORDS) == 1


def test_terminal_states_are_those_without_a_way_out() -> None:
    assert {state for state, nexts in table().items() if not nexts} == TERMINAL
    assert {State.DONE, State.EMPTY, State.DEAD, State.CANCELLED} == TERMINAL


def test_every_state_can_be_reached_and_can_end() -> None:
    def reach(start: State) -> set[State]:
        seen = {start}
        todo = [start]
        while todo:
            fresh = TRANSITIONS[todo.pop()] - seen
            seen |= fresh
            todo += fresh
        return seen

    assert reach(State.RECEIVED) == set(State)
    for state in State:
        assert reach(state) & TERMINAL


@pytest.mark.parametrize("to", list(State))
@pytest.mark.parametrize("start", list(State))
def test_a_turn_moves_along_the_table_only(start: State, to: State) -> None:
    moving = turn(state=start, generation=7)
    if to in TRANSITIONS[start]:
        moving.move(to)
        assert (moving.state, moving.generation) == (to, 8)
    else:
        with pytest.raises(TransitionError) as error:
            moving.move(to)
        assert error.value.ids == {"turn_id": moving.id}
        assert (moving.state, moving.generation) == (start, 7)


def test_every_outcome_is_a_reply_or_has_the_words_of_a_notice() -> None:
    assert set(NOTICES) | REPLY_OUTCOMES | {Outcome.EMPTY} == set(Outcome)
    assert not set(NOTICES) & (REPLY_OUTCOMES | {Outcome.EMPTY})
    for words in NOTICES.values():
        assert words.strip() == words
        assert words.endswith(".")


def test_the_runner_knows_no_outcome_that_a_turn_cannot_have() -> None:
    for outcome in RunOutcome:
        if outcome not in {RunOutcome.KILLED, RunOutcome.SESSION_ENDED}:
            assert Outcome(outcome.value)
    assert {str(outcome) for outcome in RUN_REPLY_OUTCOMES} == set(REPLY_OUTCOMES)
