"""Acknowledgements: when they are due, refused, retried, forgotten, repeated, and short."""

import pytest

from corral.cowboy.book import RETRY_MS, retry_delay_ms
from corral.cowboy.domain import Ack, Outcome, State
from corral.cowboy.redisconn import NotNow
from tests.unit.cowboy import stages
from tests.unit.cowboy.model_redis import Faults
from tests.unit.cowboy.world import World

NOT_NOW = Faults(ack=NotNow("LOADING"), own_ack=NotNow("LOADING"))


def test_dispatch_acknowledges_with_the_hand_over() -> None:
    world = World()
    entry = stages.dispatched(world)
    turn = world.turn(entry)
    assert (turn.ack, turn.ack_attempts) == (Ack.UNACKED, 1), "the attempt is committed first"
    world.settle_all()
    assert world.turn(entry).ack is Ack.ACKED
    assert world.redis.pending == set()
    assert world.state(entry) is State.DISPATCHED
    world.finish()


def test_dispatch_leaves_pending_what_only_waits() -> None:
    world = World()
    entry = stages.queued(world)
    world.settle_all()
    assert world.redis.pending == {entry}
    assert world.turn(entry).ack_attempts == 0
    world.finish()


def test_reply_acknowledges_with_the_answer_and_in_its_script() -> None:
    world = World(ack="reply")
    entry = stages.replying(world)
    world.settle_all()
    assert not world.notes("ack_short")
    turn = world.turn(entry)
    assert (turn.state, turn.ack, turn.ack_attempts) == (State.DONE, Ack.ACKED, 0)
    assert world.redis.pending == set()
    world.finish()


@pytest.mark.parametrize("stage", [stages.dispatched, stages.running, stages.replying, stages.held])
def test_reply_leaves_pending_what_has_no_answer(stage: stages.Stage) -> None:
    world = stages.holding_world("reply")
    entry = stage(world)
    world.reclaim()
    world.tick()
    if stage is not stages.replying:
        world.settle_all()
    assert entry in world.redis.pending
    assert world.turn(entry).ack_attempts == 0
    world.finish()


@pytest.mark.parametrize("ack", ["dispatch", "reply"])
def test_entries_without_a_turn_and_empty_ones_are_acknowledged_at_once(ack: str) -> None:
    world = World(ack=ack)
    first = world.deliver(message_id=b"m")
    second = world.deliver(message_id=b"m")
    blank = world.deliver(b"")
    world.settle_all()
    assert world.redis.pending == ({first} if ack == "reply" else set())
    assert world.turn(blank).closed
    assert second not in {turn.entry for turn in world.turns()}
    world.finish()


def test_a_refused_acknowledgement_is_tried_again_later() -> None:
    world = World(ack_attempts_max=3)
    entry = stages.dispatched(world)
    world.settle_all(stages.ACK_REFUSED)
    assert world.turn(entry).ack_attempts == 2
    world.tick()
    assert not world.driver.out.packets, "not before its time"
    world.later(retry_delay_ms(2))
    world.tick()
    world.settle_all()
    assert world.turn(entry).ack is Ack.ACKED
    assert not world.notes("ack_forgotten")
    world.finish()


@pytest.mark.parametrize("most", [1, 3])
def test_acknowledgements_are_forgotten_at_their_limit_and_not_before(most: int) -> None:
    world = World(ack_attempts_max=most)
    entry = stages.dispatched(world)
    for attempt in range(1, most + 1):
        assert (world.turn(entry).ack, world.turn(entry).ack_attempts) == (Ack.UNACKED, attempt)
        world.settle_all(stages.ACK_REFUSED)
        world.later(RETRY_MS[-1])
        world.tick()
    assert world.turn(entry).ack is Ack.FORGOTTEN
    assert world.turn(entry).ack_attempts == most
    assert not world.driver.out.packets
    assert len(world.notes("ack_forgotten")) == 1
    world.finish()


@pytest.mark.parametrize("policy", ["dispatch", "reply"])
def test_what_was_forgotten_is_acknowledged_when_it_is_offered_again(policy: str) -> None:
    world = World(ack_attempts_max=1, ack=policy)
    entry = stages.replying(world)
    world.settle_all(stages.ACK_REFUSED)
    assert (world.state(entry), world.turn(entry).ack) == (State.DONE, Ack.FORGOTTEN)
    assert world.driver.intake.watermark < entry
    world.reclaim()
    world.tick()
    world.settle_all()
    assert world.turn(entry).closed
    assert world.driver.intake.watermark == entry
    assert world.outcomes(entry) == [Outcome.COMPLETED]
    world.finish()


def test_what_was_forgotten_may_be_refused_again() -> None:
    world = World(ack_attempts_max=1)
    entry = stages.forgotten(world)
    world.reclaim()
    world.tick()
    world.settle_all(stages.ACK_REFUSED)
    assert world.turn(entry).ack is Ack.FORGOTTEN
    world.finish()


def test_what_was_forgotten_after_it_was_done_does_not_stay_open_for_ever() -> None:
    world = World(ack_attempts_max=1)
    entry = stages.replying(world)
    world.lose_answer()  # the XACK of this packet was done
    assert world.redis.pending == set()
    world.attach()
    world.tick()
    world.settle_all(stages.ACK_REFUSED)
    assert world.turn(entry).ack is Ack.FORGOTTEN
    world.detach()
    world.attach()  # Redis offers nothing again: it is not pending
    world.tick()
    world.settle_all()
    assert world.turn(entry).closed
    assert world.driver.intake.watermark == entry
    world.finish()


def test_what_was_forgotten_and_deleted_does_not_stay_open_for_ever() -> None:
    world = World(ack_attempts_max=1)
    entry = stages.forgotten(world)
    assert world.turn(entry).ack is Ack.FORGOTTEN
    world.redis.delete(entry)
    world.reclaim()  # Redis takes it off the pending list by itself, and says so once
    world.tick()
    assert world.turn(entry).closed
    assert world.driver.intake.watermark == entry
    world.finish()


def test_what_was_forgotten_is_offered_again_while_its_answer_is_on_the_wire() -> None:
    world = World(ack_attempts_max=1)
    entry = stages.running(world)
    world.settle_all(stages.ACK_REFUSED)
    assert world.turn(entry).ack is Ack.FORGOTTEN
    world.end_run(entry)
    answer = world.driver.out.packets[0]
    world.reclaim()
    world.tick()
    assert world.turn(entry).ack is Ack.UNACKED
    assert world.driver.out.packets[0] is answer
    world.settle_all()
    assert world.turn(entry).closed, "and not only when it is offered once more"
    world.finish()


def test_an_unreachable_or_busy_redis_spends_no_attempt() -> None:
    world = World(ack_attempts_max=1)
    entry = stages.dispatched(world)
    world.settle_all(NOT_NOW)
    world.later(500)
    world.tick()
    world.settle_all(NOT_NOW)
    world.detach()
    world.attach()
    world.tick()
    assert (world.turn(entry).ack, world.turn(entry).ack_attempts) == (Ack.UNACKED, 1)
    world.settle_all()
    assert world.turn(entry).ack is Ack.ACKED
    world.finish()


def test_zero_is_success_and_at_the_first_time_an_anomaly() -> None:
    world = World()
    entry = stages.dispatched(world)
    world.redis.pending.clear()  # as with the wrong group
    world.settle_all()
    assert world.turn(entry).ack is Ack.ACKED
    assert [note.detail for note in world.notes("ack_short")] == ["0 of 1"]


def test_a_count_below_a_whole_batch() -> None:
    world = World(turns_concurrent_max=3)
    entries = [world.add(channel=b"c%d" % number) for number in range(3)]
    world.read()
    world.tick()
    world.redis.pending.discard(entries[1])
    world.settle_all()
    assert [note.detail for note in world.notes("ack_short")] == ["2 of 3"]
    world.finish()


@pytest.mark.parametrize("crash", [True, False])
def test_a_repeated_acknowledgement_may_well_be_zero(*, crash: bool) -> None:
    world = World()
    entry = stages.dispatched(world)
    world.lose_answer()
    assert world.redis.pending == set()
    if crash:
        world.restart()
    else:
        world.attach()
        world.tick()
    world.settle_all()
    assert world.turn(entry).ack is Ack.ACKED
    assert not world.notes("ack_short"), "its first attempt had been done"
    world.finish()


def test_what_never_left_is_no_repetition() -> None:
    world = World()
    world.detach()
    world.attach()
    world.tick()
    stages.dispatched(world)
    world.redis.pending.clear()
    world.settle_all()
    assert len(world.notes("ack_short")) == 1


@pytest.mark.parametrize("stage", [stages.dispatched, stages.unacknowledged])
def test_a_deleted_entry_makes_no_short_count(stage: stages.Stage) -> None:
    world = World()
    entry = stage(world)
    world.redis.delete(entry)
    world.reclaim()
    world.tick()
    world.later(60_000)
    world.tick()
    world.settle_all()
    assert world.turn(entry).ack is Ack.ACKED
    assert not world.notes("ack_short")
    world.finish()


def test_an_entry_that_is_offered_again_is_acknowledged_again_and_never_started_again() -> None:
    world = World()
    entry = stages.running(world)
    world.reclaim()
    world.tick()
    world.settle_all()
    world.end_run(entry)
    world.settle_all()
    assert world.turn(entry).attempt == 1
    assert world.runner.went[world.turn(entry).id] == 1
    assert world.outcomes(entry) == [Outcome.COMPLETED]
    world.finish()


def test_the_delays_grow_to_a_limit() -> None:
    delays = [retry_delay_ms(attempts) for attempts in range(12)]
    assert delays == sorted(delays)
    assert delays[0] == delays[1] == RETRY_MS[0]
    assert delays[-1] == RETRY_MS[-1]
