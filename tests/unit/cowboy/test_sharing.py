"""What sources share fairly, refusals that pass, and results of a former daemon."""

from typing import Any, cast

import pytest

from corral.core.clock import ManualClock
from corral.core.sqlite import SqliteWriter
from corral.cowboy.domain import State
from corral.cowboy.engine import Engine
from corral.cowboy.machine import NO_ROOM, NO_ROOM_RETRY_MS
from corral.cowboy.runner.domain import Refused
from corral.cowboy.store import Rows
from corral.cowboy.tick import Shared
from tests.unit.cowboy.samples import AGENT, source_config, turn
from tests.unit.cowboy.world import World


def engine(shared: Shared, name: str, waiting: int, first_row: int) -> Engine:
    """A source with a runner and so many waiting turns, each in a channel of its own."""
    made = Engine(shared, name, source_config(turns_concurrent_max=16))
    shared.machines.append(made.machine)
    made.machine.runner_up = True
    made.machine.book.begin(0)
    for row in range(first_row, first_row + waiting):
        one = turn(row=row, id=f"{AGENT}.{name}.1.{row}-0", channel=b"c%d" % row)
        made.machine.book.adopt(one)
        made.machine.book.enqueue(one)
    return made


def end_one(source: Engine) -> None:
    """One run of a source ends, and the tick in which it does hands waiting turns over."""
    book = source.machine.book
    book.vacate(next(iter(book.busy.values())))
    source.machine.dispatch_waiting()


def shared_slots(limit: int) -> Shared:
    return Shared(AGENT, "uuid", cast(SqliteWriter, None), Rows(), ManualClock(), limit)


def test_a_source_with_much_to_do_leaves_slots_to_one_that_waits() -> None:
    shared = shared_slots(limit=2)
    busy = engine(shared, "busy", 20, 1)
    busy.machine.dispatch_waiting()
    assert len(busy.machine.book.busy) == 2, "alone, a source may have all slots"
    late = engine(shared, "late", 1, 100)
    late.machine.dispatch_waiting()
    assert not late.machine.book.busy, "none is free"
    end_one(busy)
    assert len(busy.machine.book.busy) == 1, "its share, as another waits"
    late.machine.dispatch_waiting()
    assert len(late.machine.book.busy) == 1
    end_one(late)
    end_one(busy)
    busy.machine.dispatch_waiting()
    assert len(busy.machine.book.busy) == 2, "nobody waits any more"


@pytest.mark.parametrize("reason", NO_ROOM)
def test_a_runner_without_room_is_asked_again(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    entry = world.deliver()
    turn_id = world.turn(entry).id
    assert world.state(entry) is State.DISPATCHED
    refused = Refused(turn_id, 1, f"{reason}: for now")
    world.post(lambda: world.driver.machine.refused(refused.turn, refused.attempt, refused.reason))
    asked = prepares(world, monkeypatch)
    world.tick()
    assert world.state(entry) is State.DISPATCHED
    assert asked == []
    world.later(NO_ROOM_RETRY_MS)
    world.tick()
    assert asked == [turn_id]


def test_a_refusal_for_good_ends_the_turn() -> None:
    world = World()
    entry = world.deliver()
    turn_id = world.turn(entry).id
    world.post(lambda: world.driver.machine.refused(turn_id, 1, "metadata_invalid: NUL"))
    world.tick()
    world.settle_all()
    assert world.outcomes(entry) == ["start_failed"]


def prepares(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the turns that the runner is asked to prepare from now on."""
    asked: list[str] = []

    def prepare(turn_id: str, *_: Any, **__: Any) -> None:
        asked.append(turn_id)

    monkeypatch.setattr(world.runner, "prepare", prepare)
    return asked


def test_a_restart_lets_the_runner_forget_results_that_are_committed() -> None:
    world = World()
    entry = world.deliver()
    turn_id = world.turn(entry).id
    machine = world.driver.machine
    waiting = machine.book.by_id[turn_id]
    machine.book.begin(0)
    machine.book.touch(waiting)
    waiting.move(State.REPLYING)
    forgotten = [(one.id, one.attempt) for one in [waiting] if one.attempt]
    world.driver.intake.restore([waiting], {})
    assert machine.book.ended_runs == forgotten == [(turn_id, 1)]


def test_a_cancel_beside_the_fetch_of_a_parked_turn() -> None:
    world = World(channel_backlog_max=2, turns_concurrent_max=1)
    entries = [world.deliver(channel=b"red", message_id=b"m%d" % n) for n in range(6)]
    assert world.driver.machine.book.parked
    world.add(None, kind=b"cancel", cancels=b"m4")
    world.read()
    contents = dict.fromkeys(entries[2:], b"do it")
    intake, ledger = world.driver.intake, world.driver.ledger
    world.post(lambda: intake.fetched({**contents}, ledger))
    world.tick()
    assert world.state(entries[4]) is State.REPLYING
    queued = [one.entry for one in world.driver.machine.book.queues[b"red"]]
    assert entries[4] not in queued
    assert queued == sorted(queued)
