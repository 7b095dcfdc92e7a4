"""Order in a channel, slots across channels, the echo runner, and what a machine can tell."""

import pytest

from corral.cowboy.domain import Kind, Outcome, State
from corral.cowboy.machine import Machine
from tests.unit.cowboy import stages
from tests.unit.cowboy.samples import AGENT, SOURCE, entry_id, source_config
from tests.unit.cowboy.world import World


def test_one_channel_is_served_in_order_and_one_at_a_time() -> None:
    world = World(turns_concurrent_max=4)
    entries = [world.add(b"%d" % number, channel=b"red") for number in range(4)]
    world.read()
    world.tick()
    for number, entry in enumerate(entries):
        world.talk()
        assert world.runner.running == [world.turn(entry).id]
        assert [world.state(later) for later in entries[number + 1 :]] == [State.RECEIVED] * (
            3 - number
        )
        world.end_run(entry)
    world.finish()


def test_entries_without_channel_share_one() -> None:
    world = World()
    first, second, third = (world.add(channel=channel) for channel in (None, b"", None))
    world.read()
    world.tick()
    assert [world.state(entry) for entry in (first, second, third)] == [
        State.DISPATCHED, State.RECEIVED, State.RECEIVED,
    ]  # fmt: skip
    world.finish()


@pytest.mark.parametrize("most", [1, 2])
def test_no_more_runs_than_slots_and_every_channel_gets_its_turn(most: int) -> None:
    world = World(turns_concurrent_max=most)
    for channel in (b"red", b"red", b"blue", b"green"):
        world.add(channel=channel)
    world.read()
    world.tick()
    served: list[str] = []
    while len(served) < 4:
        world.talk()
        running = world.runner.running
        assert 1 <= len(running) <= most
        served.append(running[0])
        world.runner.end(running[0], "completed")
        world.talk()
    ids = [turn.id for turn in world.turns()]
    assert sorted(served) == sorted(ids)
    assert served.index(ids[1]) == 3, "the second of red waits for the others' first"
    world.finish()


@pytest.mark.parametrize(("left", "running"), [(0, 0), (1, 1), (9, 2)])
def test_the_agents_own_limit(left: int, running: int) -> None:
    world = World(turns_concurrent_max=2)
    world.driver.machine.slots_left = lambda: left
    for channel in (b"red", b"blue", b"green"):
        world.add(channel=channel)
    world.read()
    world.tick()
    assert len(world.driver.machine.book.busy) == running


def test_without_a_runner_nothing_is_handed_over() -> None:
    world = World(started=False)
    world.attach()
    world.tick()
    entry = world.deliver()
    assert world.state(entry) is State.RECEIVED
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


# ---------------------------------------------------------------- echo


def test_echo_answers_in_the_tick_that_takes_the_entry() -> None:
    world = World(runner="echo", started=False)
    world.attach()
    world.tick()
    entry = world.deliver(b"hello", channel=b"red")
    turn = world.turn(entry)
    assert (turn.state, turn.starts, turn.attempt) == (State.REPLYING, 0, 0)
    world.settle_all()
    assert world.answers(entry) == [(Outcome.COMPLETED, "hello")]
    assert world.turn(entry).closed


def test_echo_at_its_limit_and_one_past_it() -> None:
    limit = source_config(runner="echo").runner.reply_max_bytes
    world = World(runner="echo")
    fits, exceeds = world.deliver(b"x" * limit), world.deliver(b"x" * (limit + 1))
    world.finish()
    assert world.outcomes(fits) == [Outcome.COMPLETED]
    assert world.outcomes(exceeds) == [Outcome.REPLY_TOO_LARGE]


def test_a_machine_needs_only_names_and_settings() -> None:
    machine = Machine(AGENT, SOURCE, source_config())
    assert not machine.runner_up
    assert Machine(AGENT, SOURCE, source_config(runner="echo")).runner_up
    assert machine.expects("scout.a2a.1.1-0", 1) is None
    assert machine.book.oldest_unanswered() is None


def test_the_oldest_unanswered_turn_and_the_count_by_state() -> None:
    world = World(channel_backlog_max=2)
    book = world.driver.machine.book
    first = stages.running(world)
    world.later(5)
    for _ in range(2):
        stages.other(world)
    world.cancel(b"1-0")
    oldest = book.oldest_unanswered()
    assert oldest is not None
    assert oldest.entry == first == entry_id(1)
    assert book.parked == {stages.CHANNEL: 1}
    assert book.states() == {"dispatched": 1, "received": 3}, "queued, parked and the cancel"
    assert Kind.CANCEL in {turn.kind for turn in book.open.values()}
    world.finish()
    assert book.oldest_unanswered() is None
    assert book.states() == {}
