"""Channels that have their share: what is parked, fetched again, in order, or lost meanwhile."""

import pytest

from corral.cowboy import intake
from corral.cowboy.domain import Outcome, State, unpack_id
from corral.cowboy.redisconn import NotNow
from tests.unit.cowboy.stages import CHANNEL
from tests.unit.cowboy.world import World


def crowd(world: World, count: int, channel: bytes | None = CHANNEL) -> list[bytes]:
    """So many messages of one channel, taken in at once."""
    entries = [world.add(b"%d" % number, channel=channel) for number in range(count)]
    world.read()
    world.tick()
    return entries


def run_next(world: World) -> None:
    """Whatever runs ends and is answered."""
    world.talk()
    for turn_id in world.runner.running:
        world.runner.end(turn_id, "completed", b"done")
    world.talk()
    world.settle_all()


def served(world: World) -> list[str]:
    return [added["in_reply_to"] for added in world.redis.outbox]


@pytest.mark.parametrize("share", [1, 2, 5])
def test_a_channel_at_its_share_and_one_past_it(share: int) -> None:
    world = World(channel_backlog_max=share)
    entries = crowd(world, share + 1)
    turns = [world.turn(entry) for entry in entries]
    assert [turn.parked for turn in turns] == [False] * share + [True]
    assert turns[-1].state is State.RECEIVED
    assert turns[-1].content is None, "it is in Redis still"
    assert entries[-1] in world.redis.pending
    world.finish()


def test_other_channels_do_not_feel_it() -> None:
    world = World(channel_backlog_max=1)
    crowd(world, 5)
    other = world.deliver(channel=b"blue")
    assert not world.turn(other).parked
    assert world.state(other) is State.DISPATCHED
    world.finish()


@pytest.mark.parametrize("share", [1, 2, 4])
@pytest.mark.parametrize("restart", [False, True])
def test_parked_turns_run_in_the_order_of_their_entries(share: int, *, restart: bool) -> None:
    world = World(channel_backlog_max=share)
    entries = crowd(world, 9)
    while len(served(world)) < len(entries):
        world.fetch_all()
        if restart:
            world.restart()
            world.fetch_all()
        run_next(world)
    world.finish()
    assert served(world) == [unpack_id(entry).decode() for entry in entries]


def test_what_comes_while_some_are_parked_waits_behind_them() -> None:
    world = World(channel_backlog_max=2)
    entries = crowd(world, 4)
    run_next(world)  # there is room now, but two are parked
    late = world.deliver(channel=CHANNEL)
    assert world.turn(late).parked
    while len(served(world)) < 5:
        world.fetch_all()
        run_next(world)
    assert served(world) == [unpack_id(entry).decode() for entry in [*entries, late]]
    world.finish()


def test_fetching_begins_at_half_a_share_and_fills_it() -> None:
    world = World(channel_backlog_max=4)
    entries = crowd(world, 10)
    run_next(world)
    assert not world.driver.out.fetches, "three of four are left"
    run_next(world)
    (fetch,) = world.driver.out.fetches
    assert fetch == (CHANNEL, entries[4:6])
    world.finish()


def test_no_more_is_fetched_at_a_time_than_fits_in_memory() -> None:
    most = intake.FETCH_MAX
    world = World(channel_backlog_max=100)
    crowd(world, 100 + most + 1)
    lane = world.driver.machine.book.queues[CHANNEL]
    for turn in list(lane)[: 100 - 1]:
        world.add(None, kind=b"cancel", cancels=turn.id.encode())
    world.read()
    world.tick()
    (_, entries) = world.driver.out.fetches[0]
    assert len(entries) == most
    world.finish()


def test_one_fetch_per_channel_at_a_time() -> None:
    world = World(channel_backlog_max=1)
    crowd(world, 4)
    run_next(world)
    assert len(world.driver.out.fetches) == 1
    world.tick()
    world.tick()
    assert len(world.driver.out.fetches) == 1
    world.finish()


def test_a_fetch_that_failed_is_made_again() -> None:
    world = World(channel_backlog_max=1)
    entries = crowd(world, 2)
    run_next(world)
    lane, _ = world.driver.out.fetches.popleft()
    world.driver.fetched(lane, NotNow("LOADING"))
    world.tick()
    assert world.driver.out.fetches[0] == (lane, entries[1:])
    world.finish()


def test_a_fetch_that_was_lost_with_its_connection_is_made_again() -> None:
    world = World(channel_backlog_max=1)
    entries = crowd(world, 2)
    run_next(world)
    assert world.driver.out.fetches
    world.detach()
    world.attach()
    world.tick()
    assert world.driver.out.fetches[0] == (CHANNEL, entries[1:])
    world.finish()


@pytest.mark.parametrize("ack", ["dispatch", "reply"])
def test_the_content_was_removed_meanwhile(ack: str) -> None:
    world = World(channel_backlog_max=1, ack=ack)
    entries = crowd(world, 4)
    world.redis.delete(entries[1])
    while world.state(entries[3]) is not State.DONE:
        world.fetch_all()
        run_next(world)
    assert world.outcomes(entries[1]) == [Outcome.PAYLOAD_LOST]
    assert [note.entry for note in world.notes("payload_lost")] == ["2-0"]
    world.finish()


@pytest.mark.parametrize("by", ["reclaim", "drain"])
def test_redis_says_that_the_content_of_a_parked_turn_is_gone(by: str) -> None:
    world = World(channel_backlog_max=1)
    _, entry = crowd(world, 2)
    world.redis.delete(entry)
    if by == "reclaim":
        world.reclaim()
    else:
        world.restart()
    world.tick()
    assert world.turn(entry).outcome is Outcome.PAYLOAD_LOST
    world.finish()
    assert world.outcomes(entry) == [Outcome.PAYLOAD_LOST]


def test_contents_that_come_too_late_start_nothing() -> None:
    world = World(channel_backlog_max=1)
    _, entry = crowd(world, 2)
    run_next(world)
    lane, wanted = world.driver.out.fetches.popleft()
    world.cancel(unpack_id(entry))
    world.driver.fetched(lane, world.redis.fetch(wanted))
    world.tick()
    assert world.turn(entry).outcome is Outcome.CANCELLED
    world.finish()
    assert world.runner.went[world.turn(entry).id] == 0


def test_parked_and_gone_in_the_batch_that_took_it_in() -> None:
    world = World(channel_backlog_max=1)
    for _ in range(2):
        world.add(channel=CHANNEL)
    world.read()
    world.redis.delete(world.redis.history()[1].entry)
    world.reclaim()
    world.tick()
    world.finish()


def test_two_channels_without_a_name_are_one() -> None:
    world = World(channel_backlog_max=1)
    first, second = world.add(channel=None), world.add(channel=b"")
    world.read()
    world.tick()
    assert world.turn(second).parked
    world.restart()
    run_next(world)
    world.fetch_all()
    assert world.state(second) is State.DISPATCHED
    world.finish()
    assert world.outcomes(first) == world.outcomes(second) == [Outcome.COMPLETED]
