"""The daemon dies at any moment: after each step of several lives, and of a scripted whole one."""

from collections.abc import Callable

import pytest

from corral.cowboy.domain import Outcome
from tests.unit.cowboy import stages
from tests.unit.cowboy.stages import STAGES, Stage, holding_world
from tests.unit.cowboy.world import World

both_acks = pytest.mark.parametrize("ack", ["dispatch", "reply"])
Step = Callable[[World], object]


@both_acks
@pytest.mark.parametrize("stage", list(STAGES), ids=lambda stage: stage.__name__)
def test_what_is_read_back_is_what_was_known(stage: Stage, ack: str) -> None:
    """`checks` compares the memory with the ledger after the tick that follows."""
    world = holding_world(ack)
    entry = stage(world)
    before = world.turn(entry)
    waited = [t.row for q in world.driver.machine.book.queues.values() for t in q]
    world.crash()
    after = [t.row for q in world.driver.machine.book.queues.values() for t in q]
    assert after == waited
    world.attach()
    world.tick()
    turn = world.turn(entry)
    assert (turn.state, turn.outcome, turn.starts) == (before.state, before.outcome, before.starts)
    world.finish()


def _add(world: World) -> None:
    for number in range(3):
        world.add(channel=b"red", message_id=b"m%d" % number)
    world.add(channel=b"blue", message_id=b"b")
    world.add(None, kind=b"cancel", cancels=b"m1")
    world.add(b"")


def _end_one(world: World) -> None:
    for turn_id in world.runner.running[:1]:
        world.runner.end(turn_id, "completed", b"done")


def _cancel_running(world: World) -> None:
    world.add(None, kind=b"cancel", cancels=b"m0", message_id=b"c")


def _settle_one(world: World) -> None:
    if world.driver.out.packets:
        world.settle()


def _fetch_one(world: World) -> None:
    if world.driver.out.fetches:
        world.fetch()


ROUND: list[Step] = [World.read, World.tick, World.hear, World.tick, _settle_one, World.tick]
LIFE: list[Step] = [
    _add, *ROUND, *ROUND, _cancel_running, *ROUND, _end_one, *ROUND, _settle_one, World.reclaim,
    World.tick, _fetch_one, World.tick, _end_one, *ROUND, *ROUND, _fetch_one, *ROUND,
]  # fmt: skip


@both_acks
@pytest.mark.parametrize("runner_too", [False, True])
@pytest.mark.parametrize("at", range(len(LIFE) + 1))
def test_killed_after_any_step(at: int, ack: str, *, runner_too: bool) -> None:
    world = World(ack=ack, on_interrupt="resume", channel_backlog_max=1, turns_concurrent_max=2)
    for step in LIFE[:at]:
        step(world)
    world.crash()
    if runner_too:
        world.runner.die()
    world.attach()
    world.connect_runner()
    world.tick()
    for step in LIFE[at:]:
        step(world)
    world.finish()
    ended = {turn.message_id: turn.outcome for turn in world.turns() if turn.message_id}
    assert set(ended) == {b"m0", b"m1", b"m2", b"b", b"c"}
    assert ended[b"m1"] is Outcome.CANCELLED
    assert ended[b"m2"] is ended[b"b"] is Outcome.COMPLETED


@both_acks
@pytest.mark.parametrize("at", [at for at, step in enumerate(LIFE) if step is World.tick])
@pytest.mark.parametrize("fails", [False, True])
def test_killed_after_any_commit_and_before_its_effects_or_the_commit_fails(
    at: int, ack: str, *, fails: bool
) -> None:
    world = World(ack=ack, on_interrupt="resume", channel_backlog_max=1, turns_concurrent_max=2)
    for step in LIFE[:at]:
        step(world)
    world.tick(fail=fails, die=not fails)
    world.attach()
    world.connect_runner()
    for step in LIFE[at:]:
        step(world)
    world.finish()
    assert len([turn for turn in world.turns() if turn.message_id]) == 5


def test_a_source_that_never_attached_has_an_empty_ledger() -> None:
    world = World(started=False)
    world.crash()
    assert world.turns() == []
    assert world.driver.intake.incarnation == 0
    stages.done(_started(world))
    assert world.driver.intake.incarnation == 1
    world.finish()


def _started(world: World) -> World:
    world.attach()
    world.connect_runner()
    world.tick()
    return world
