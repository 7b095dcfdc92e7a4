"""Redis was emptied, or the stream deleted: a new incarnation, with whatever was open before."""

import pytest

from corral.cowboy.domain import ZERO_ID, Ack, Outcome, State
from tests.unit.cowboy import stages
from tests.unit.cowboy.stages import STAGES, Stage, holding_world
from tests.unit.cowboy.world import World

both_acks = pytest.mark.parametrize("ack", ["dispatch", "reply"])


def empty_and_attach(world: World) -> None:
    world.empty_redis()
    world.attach()
    world.tick()


@both_acks
@pytest.mark.parametrize("stage", list(STAGES), ids=lambda stage: stage.__name__)
@pytest.mark.parametrize("crash", [False, True])
def test_open_turns_go_on_in_a_new_incarnation(stage: Stage, ack: str, *, crash: bool) -> None:
    world = holding_world(ack)
    entry = stage(world)
    (before,) = (turn for turn in world.turns() if turn.entry == entry)
    world.empty_redis()
    if crash:
        world.crash()
        world.connect_runner()
    world.attach()
    world.tick()
    (turn,) = (turn for turn in world.turns() if turn.entry == entry)
    assert turn.ack is Ack.ACKED, "its entry is gone, so nothing of it is pending"
    assert not turn.parked
    assert world.driver.intake.watermark == ZERO_ID
    world.quiesce()
    (turn,) = (turn for turn in world.turns() if turn.entry == entry)
    if stage is stages.parked:
        assert turn.outcome is Outcome.PAYLOAD_LOST
        assert world.outcomes(entry) == [Outcome.PAYLOAD_LOST]
    elif before.terminal:
        assert turn.outcome is before.outcome
    elif stage in {stages.held, stages.telling_held}:
        assert turn.state is State.HELD
    else:
        assert turn.outcome is Outcome.COMPLETED
    world.finish()


def test_the_same_ids_in_a_new_stream_are_new_turns() -> None:
    world = World()
    former = stages.running(world)
    empty_and_attach(world)
    fresh = world.deliver(channel=b"blue")
    assert fresh == former
    assert [turn.incarnation for turn in world.turns()] == [1, 2]
    assert [turn.id for turn in world.turns()] == ["scout.a2a.1.1-0", "scout.a2a.2.1-0"]
    world.finish()
    assert sorted(world.outcomes(fresh)) == [Outcome.COMPLETED] * 2


def test_a_channel_keeps_its_order_across_incarnations() -> None:
    world = World()
    first = stages.running(world)
    stages.other(world)
    empty_and_attach(world)
    fresh = stages.other(world)
    assert fresh == first
    former = [turn for turn in world.turns() if turn.incarnation == 1]
    (new,) = (turn for turn in world.turns() if turn.incarnation == 2)
    world.runner.end(former[0].id, "completed")
    world.talk()
    running = [turn.id for turn in world.turns() if turn.state is State.DISPATCHED]
    assert running == [former[1].id]
    world.finish()
    assert world.turn(new.entry).state is State.DONE


def test_many_parked_turns_of_several_channels_are_lost_with_their_stream_and_told() -> None:
    world = World(channel_backlog_max=1)
    for channel in (b"red", b"blue", None):
        for _ in range(3):
            world.add(channel=channel)
    world.read()
    world.tick()
    parked = [turn.id for turn in world.turns() if turn.parked]
    assert len(parked) == 6
    empty_and_attach(world)
    assert world.driver.machine.book.parked == {}
    world.finish()
    lost = {turn.id for turn in world.turns() if turn.outcome is Outcome.PAYLOAD_LOST}
    assert lost == set(parked)


def test_killed_after_the_new_incarnation_was_committed_and_before_redis_knew() -> None:
    world = World()
    entry = stages.running(world)
    world.empty_redis()
    world.attach(die_before_claim=True)
    world.attach()
    world.connect_runner()
    world.tick()
    assert world.driver.intake.incarnation == 3
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_an_incarnation_that_could_not_be_committed_is_begun_again() -> None:
    world = World()
    stages.running(world)
    world.empty_redis()
    driver = world.driver
    driver.urgent.append(lambda: driver.intake.restart_at(2, driver.ledger))
    world.tick(fail=True)
    assert driver.intake.incarnation == 1
    world.attach()
    assert driver.intake.incarnation == 2
    world.finish()


def test_answers_that_were_lost_with_redis_are_added_again() -> None:
    world = World()
    entry = stages.replying(world)
    world.lose_answer()
    world.redis.empty()
    world.attach()
    world.tick()
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_a_cancel_that_waits_goes_on_in_a_new_incarnation() -> None:
    world = World()
    entry = stages.running(world)
    order = world.cancel(stages.TARGET_ID)
    empty_and_attach(world)
    world.finish()
    assert world.state(entry) is State.CANCELLED
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]
