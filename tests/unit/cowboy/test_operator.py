"""What an operator does to held turns: release and abandon, once or twice, and across crashes."""

import pytest

from corral.cowboy.domain import NOTICES, Outcome, State
from tests.unit.cowboy import stages
from tests.unit.cowboy.stages import holding_world

both_acks = pytest.mark.parametrize("ack", ["dispatch", "reply"])


@both_acks
def test_a_released_turn_runs_again_as_a_resumed_one(ack: str) -> None:
    world = holding_world(ack)
    entry = stages.held(world)
    world.release(entry)
    world.tick()
    turn = world.turn(entry)
    assert (turn.state, turn.attempt, turn.release) == (State.DISPATCHED, 2, False)
    assert world.runner.runs[turn.id].resumed
    world.finish()
    assert world.outcomes(entry) == [Outcome.HELD, Outcome.COMPLETED]
    assert world.runner.went[turn.id] == 2


def test_a_released_turn_goes_before_those_that_wait() -> None:
    world = holding_world()
    entry = stages.released(world)
    behind = stages.other(world)
    (running,) = world.driver.machine.book.busy.values()
    world.talk()
    world.end_run(running.entry)
    assert world.state(entry) is State.DISPATCHED
    assert world.state(behind) is State.RECEIVED
    world.finish()


def test_a_release_is_durable() -> None:
    world = holding_world()
    entry = stages.released(world)
    world.restart()
    assert world.turn(entry).release
    world.finish()
    assert world.state(entry) is State.DONE


def test_a_second_release_while_the_first_waits_changes_nothing() -> None:
    world = holding_world()
    entry = stages.released(world)
    world.release(entry)
    world.tick()
    world.release(entry)
    world.release(entry)
    world.tick()
    world.finish()
    assert world.outcomes(entry) == [Outcome.HELD, Outcome.COMPLETED]
    assert world.runner.went[world.turn(entry).id] == 2


def test_two_releases_in_one_tick() -> None:
    world = holding_world()
    entry = stages.held(world)
    world.release(entry)
    world.release(entry)
    world.tick()
    world.finish()
    assert world.runner.went[world.turn(entry).id] == 2


def test_a_released_turn_may_be_held_again_and_released_again() -> None:
    world = holding_world()
    entry = stages.held(world)
    world.release(entry)
    world.tick()
    world.talk()
    world.lose_runner(dead=True)
    world.connect_runner()
    world.tick()
    world.talk()
    world.settle_all()
    assert (world.state(entry), world.turn(entry).starts) == (State.HELD, 2)
    world.release(entry)
    world.tick()
    world.finish()
    assert world.outcomes(entry) == [Outcome.HELD, Outcome.HELD, Outcome.COMPLETED]


@both_acks
@pytest.mark.parametrize("stage", [stages.held, stages.released])
def test_an_abandoned_turn_is_a_dead_letter_and_its_sender_hears_of_it(
    stage: stages.Stage, ack: str
) -> None:
    world = holding_world(ack)
    entry = stage(world)
    world.abandon(entry)
    world.abandon(entry)
    world.tick()
    world.finish()
    assert world.state(entry) is State.DEAD
    assert world.answers(entry)[1:] == [(Outcome.ABANDONED, NOTICES[Outcome.ABANDONED])]
    (letter,) = world.redis.dead
    assert (letter["content"], letter["outcome"]) == ("do it", Outcome.ABANDONED)
    assert world.runner.went[world.turn(entry).id] == 1


@both_acks
def test_a_held_turn_waits_through_restarts(ack: str) -> None:
    world = holding_world(ack)
    entry = stages.held(world)
    for _ in range(3):
        world.restart()
        world.settle_all()
    world.finish()
    assert world.state(entry) is State.HELD
    assert world.outcomes(entry) == [Outcome.HELD]
    assert (entry in world.redis.pending) == (ack == "reply")
    assert world.driver.intake.watermark < entry
