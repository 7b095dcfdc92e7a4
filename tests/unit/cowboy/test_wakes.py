"""Turns that a live session answers: what the machine does that no program's run needs."""

import pytest

from corral.cowboy.domain import Outcome, State
from corral.cowboy.machine import NO_ROOM_RETRY_MS
from corral.cowboy.runner.domain import RunOutcome, RunPhase
from tests.unit.cowboy import stages
from tests.unit.cowboy.world import World


def woken(policy: str = "notify") -> tuple[World, bytes]:
    world = World(runner="tamq", on_interrupt=policy)
    return world, stages.running(world)


def die(world: World) -> None:
    """The runner is killed and another one connects."""
    world.lose_runner(dead=True)
    world.connect_runner()
    world.tick()
    world.talk()


def answer(world: World, entry: bytes, body: bytes = b"done") -> None:
    machine = world.driver.machine
    turn = machine.book.by_entry[1, entry]
    world.post(lambda: machine.answered(turn, Outcome.COMPLETED, body, "reply 00"))
    world.tick()


def test_an_answer_ends_the_run_and_is_the_reply() -> None:
    world, entry = woken()
    turn_id = world.turn(entry).id
    answer(world, entry)
    assert (world.state(entry), world.turn(entry).detail) == (State.REPLYING, "reply 00")
    assert world.runner.runs[turn_id].ending
    world.runner.end(turn_id, "killed")
    world.talk()
    assert turn_id not in world.runner.runs, "it may be forgotten"
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "done")]


def test_an_answer_while_no_runner_is_there_ends_the_run_later() -> None:
    world, entry = woken()
    turn_id = world.turn(entry).id
    world.lose_runner()
    world.tick()
    answer(world, entry)
    assert not world.runner.runs[turn_id].ending
    world.connect_runner()
    world.tick()
    assert world.runner.runs[turn_id].ending
    world.runner.end(turn_id, "killed")
    world.talk()
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "done")]


def test_a_daemon_that_dies_with_the_answer_ends_the_run_afterwards() -> None:
    world, entry = woken()
    machine = world.driver.machine
    turn = machine.book.by_entry[1, entry]
    world.post(lambda: machine.answered(turn, Outcome.COMPLETED, b"done", "reply 00"))
    world.tick(die=True)
    assert not world.runner.runs[turn.id].ending
    world.attach()
    world.connect_runner()
    world.tick()
    assert world.runner.runs[turn.id].ending
    world.runner.end(turn.id, "killed")
    world.talk()
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "done")]


def test_the_death_of_a_runner_repeats_the_attempt() -> None:
    world, entry = woken()
    started = world.turn(entry)
    world.later(60_000)
    for _ in range(3):
        die(world)
    turn = world.turn(entry)
    assert (turn.attempt, turn.starts) == (1, 1)
    assert turn.started_at_ms == started.started_at_ms
    assert world.runner.runs[turn.id].phase is RunPhase.RUNNING
    answer(world, entry)
    world.runner.end(turn.id, "killed")
    world.talk()
    world.finish()


def test_a_repeat_that_died_at_the_barrier_is_the_same_attempt_still() -> None:
    world, entry = woken()
    world.lose_runner(dead=True)
    world.connect_runner()
    world.tick()
    world.hear()
    world.tick()  # asked to prepare again; its answer is not heard
    assert world.runner.runs[world.turn(entry).id].phase is RunPhase.PREPARED
    die(world)
    turn = world.turn(entry)
    assert (turn.attempt, turn.starts) == (1, 1)
    assert world.runner.running == [turn.id]
    answer(world, entry)
    world.runner.end(turn.id, "killed")
    world.talk()
    world.finish()


def test_a_repeat_that_finds_no_room_is_made_again() -> None:
    world, entry = woken()
    world.runner.refusing = "system_refused: Too many open files"
    die(world)
    world.runner.refusing = ""
    assert world.runner.running == []
    world.later(NO_ROOM_RETRY_MS)
    world.tick()
    world.talk()
    assert world.runner.running == [world.turn(entry).id]
    assert world.turn(entry).attempt == 1
    answer(world, entry)
    world.runner.end(world.turn(entry).id, "killed")
    world.talk()
    world.finish()


def test_a_repeat_that_is_refused_is_no_proof_that_nobody_was_woken() -> None:
    world, entry = woken()
    world.runner.refusing = "source_unknown"
    die(world)
    assert world.turn(entry).outcome is Outcome.INTERRUPTED
    world.finish()


def test_a_cancel_lets_a_repeat_go_so_that_it_withdraws_the_wake() -> None:
    world, entry = woken()
    world.cancel(stages.TARGET_ID)
    die(world)
    turn = world.turn(entry)
    assert world.runner.runs[turn.id].ending
    world.runner.end(turn.id, "killed")
    world.talk()
    assert world.turn(entry).outcome is Outcome.CANCELLED
    world.finish()


def test_an_answer_before_the_cancelled_run_is_over_wins() -> None:
    world, entry = woken()
    cancel = world.cancel(stages.TARGET_ID)
    answer(world, entry)
    world.runner.end(world.turn(entry).id, "killed")
    world.talk()
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "done")]
    assert world.outcomes(cancel) == [Outcome.CANCEL_TOO_LATE]


@pytest.mark.parametrize(
    ("policy", "outcome"), [("notify", Outcome.INTERRUPTED), ("hold", Outcome.HELD)]
)
def test_a_session_that_ended_is_an_interruption(policy: str, outcome: Outcome) -> None:
    world, entry = woken(policy)
    world.runner.end(world.turn(entry).id, RunOutcome.SESSION_ENDED, b"", "the session ended")
    world.talk()
    assert world.turn(entry).outcome is outcome
    world.settle_all()


def test_a_session_that_ended_is_resumed_under_another_attempt() -> None:
    world, entry = woken("resume")
    world.runner.end(world.turn(entry).id, RunOutcome.SESSION_ENDED, b"", "the session ended")
    world.talk()
    turn = world.turn(entry)
    assert (turn.attempt, turn.starts) == (2, 2)
    assert world.runner.runs[turn.id].resumed
    answer(world, entry)
    world.runner.end(turn.id, "killed")
    world.talk()
    world.finish()
