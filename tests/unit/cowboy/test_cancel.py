"""Cancel entries: in every stage of their target, by each of its names, and when they cannot."""

from collections.abc import Callable

import pytest

from corral.core.errors import UsageError
from corral.cowboy.domain import Outcome, State, unpack_id
from tests.unit.cowboy import stages
from tests.unit.cowboy.stages import CHANNEL, STAGES, TARGET_ID, Stage, holding_world
from tests.unit.cowboy.world import World

TOO_LATE = (
    stages.replying,
    stages.unacknowledged,
    stages.forgotten,
    stages.done,
    stages.dead,
    stages.cancelled,
    stages.empty,
)
IN_TIME = tuple(stage for stage in STAGES if stage not in TOO_LATE)
RUNNING = (stages.dispatched, stages.running)

by_entry: Callable[[World, bytes], bytes] = lambda _, entry: unpack_id(entry)  # noqa: E731
by_turn: Callable[[World, bytes], bytes] = lambda world, entry: world.turn(entry).id.encode()  # noqa: E731
by_message: Callable[[World, bytes], bytes] = lambda *_: TARGET_ID  # noqa: E731


def named(stage: Stage) -> str:
    return stage.__name__


all_names = pytest.mark.parametrize(
    "name", [by_entry, by_turn, by_message], ids=["by_entry", "by_turn", "by_message"]
)
both_acks = pytest.mark.parametrize("ack", ["dispatch", "reply"])


@pytest.mark.parametrize("stage", list(STAGES), ids=named)
def test_the_stages_are_what_they_say(stage: Stage) -> None:
    world = holding_world()
    entry = stage(world)
    assert world.state(entry) is STAGES[stage]
    world.finish()


@both_acks
@all_names
@pytest.mark.parametrize("stage", IN_TIME, ids=named)
def test_a_cancel_in_time(stage: Stage, name: Callable[[World, bytes], bytes], ack: str) -> None:
    world = holding_world(ack)
    entry = stage(world)
    order = world.cancel(name(world, entry))
    if stage in RUNNING:
        assert world.state(entry) is State.DISPATCHED, "not before its run is over"
        assert world.outcomes(order) == []
    world.quiesce()
    assert world.state(entry) is State.CANCELLED
    assert world.state(order) is State.DONE
    assert world.outcomes(entry)[-1] == Outcome.CANCELLED
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]
    assert world.runner.went[world.turn(entry).id] <= 1
    world.finish()


@both_acks
@all_names
@pytest.mark.parametrize("stage", TOO_LATE, ids=named)
def test_a_cancel_too_late(stage: Stage, name: Callable[[World, bytes], bytes], ack: str) -> None:
    world = holding_world(ack)
    entry = stage(world)
    before = world.turn(entry)
    order = world.cancel(name(world, entry))
    assert world.turn(entry).generation == before.generation
    world.finish()
    assert world.outcomes(order) == [Outcome.CANCEL_TOO_LATE]
    assert world.turn(entry).outcome is before.outcome


@all_names
@pytest.mark.parametrize("stage", IN_TIME, ids=named)
def test_a_cancel_survives_a_crash(stage: Stage, name: Callable[[World, bytes], bytes]) -> None:
    world = holding_world()
    entry = stage(world)
    order = world.cancel(name(world, entry))
    world.restart()
    world.finish()
    assert world.state(entry) is State.CANCELLED
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]


def test_a_cancel_in_the_batch_of_its_target() -> None:
    world = World()
    entry = world.add(message_id=TARGET_ID)
    order = world.add(None, kind=b"cancel", cancels=TARGET_ID)
    by_id = world.add()
    second = world.add(None, kind=b"cancel", cancels=unpack_id(by_id))
    world.read()
    world.tick()
    assert world.state(entry) is State.REPLYING
    assert not world.runner.events, "none of them was handed over"
    world.finish()
    assert world.outcomes(order) == world.outcomes(second) == [Outcome.CANCEL_APPLIED]
    assert world.state(entry) is world.state(by_id) is State.CANCELLED


def test_a_cancel_of_a_parked_target_in_the_same_batch() -> None:
    world = World(channel_backlog_max=1)
    stages.other(world)
    entry = world.add(channel=CHANNEL, message_id=TARGET_ID)
    order = world.add(None, kind=b"cancel", cancels=TARGET_ID)
    world.read()
    world.tick()
    world.finish()
    assert world.state(entry) is State.CANCELLED
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]


@pytest.mark.parametrize(
    "name",
    [None, b"", b"nothing", b"77-0", b"77-", b"-0", b"1-0-0", b"%d-0" % 2**64, b"scout.a2a.1.77-0",
     b"scout.a2a.x.1-0", "\u0661-0".encode(), b"1_0-0", b"+1-0", b"9" * 60],
    ids=repr,
)  # fmt: skip
def test_nothing_to_cancel(name: bytes | None) -> None:
    world = World()
    entry = world.deliver()
    order = world.deliver(None, kind=b"cancel", cancels=name)
    assert world.state(entry) is State.DISPATCHED
    world.finish()
    assert world.outcomes(order) == [Outcome.CANCEL_UNKNOWN]
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_a_cancel_of_itself_or_of_a_cancel() -> None:
    world = World()
    itself = world.deliver(None, kind=b"cancel", cancels=b"1-0")
    by_message = world.deliver(None, kind=b"cancel", cancels=b"me", message_id=b"me")
    of_cancel = world.deliver(None, kind=b"cancel", cancels=unpack_id(itself))
    world.finish()
    for order in (itself, by_message, of_cancel):
        assert world.outcomes(order) == [Outcome.CANCEL_UNKNOWN]


def test_a_cancel_of_a_cancel_that_waits() -> None:
    world = World()
    entry = stages.running(world)
    first = world.cancel(TARGET_ID)
    second = world.cancel(unpack_id(first))
    world.finish()
    assert world.outcomes(first) == [Outcome.CANCEL_APPLIED]
    assert world.outcomes(second) == [Outcome.CANCEL_UNKNOWN]
    assert world.state(entry) is State.CANCELLED


def test_two_cancels_of_one_run() -> None:
    world = World()
    stages.running(world)
    orders = [world.cancel(TARGET_ID) for _ in range(2)]
    world.finish()
    for order in orders:
        assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]


def test_the_agent_was_faster_than_the_kill() -> None:
    world = World()
    entry = stages.running(world)
    order = world.cancel(TARGET_ID)
    world.end_run(entry, "completed", b"done after all")
    world.finish()
    assert world.answers(entry) == [(Outcome.COMPLETED, "done after all")]
    assert world.outcomes(order) == [Outcome.CANCEL_TOO_LATE]


def test_the_runner_refuses_what_was_cancelled() -> None:
    world = World()
    world.runner.refusing = "no_such_program"
    entry = stages.dispatched(world)
    order = world.cancel(TARGET_ID)
    world.finish()
    assert world.outcomes(entry) == [Outcome.START_FAILED]
    assert world.outcomes(order) == [Outcome.CANCEL_TOO_LATE]


@pytest.mark.parametrize("stage", RUNNING, ids=named)
@pytest.mark.parametrize("dead", [True, False])
def test_the_runner_is_lost_with_the_kill(stage: Stage, *, dead: bool) -> None:
    world = World(on_interrupt="resume")
    entry = stage(world)
    world.lose_runner(dead=dead)
    order = world.cancel(TARGET_ID)
    world.connect_runner()
    world.talk()
    world.finish()
    assert world.state(entry) is State.CANCELLED
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]
    assert world.runner.went[world.turn(entry).id] == (stage is stages.running)


def test_a_cancel_waits_for_the_killed_run_and_holds_its_channel() -> None:
    world = World()
    entry = stages.running(world)
    behind = stages.other(world)
    world.cancel(TARGET_ID)
    assert world.state(behind) is State.RECEIVED
    world.end_run(entry, "killed", b"")
    assert world.state(entry) is State.REPLYING
    assert world.state(behind) is State.DISPATCHED
    world.finish()


def test_the_newest_message_of_an_id_is_meant() -> None:
    world = World()
    older = world.deliver(b"one", channel=CHANNEL, message_id=TARGET_ID)
    newer = world.deliver(b"two", channel=CHANNEL, message_id=TARGET_ID)
    world.cancel(TARGET_ID)
    world.finish()
    assert world.state(older) is State.DONE
    assert world.state(newer) is State.CANCELLED


def test_a_cancel_that_carries_the_id_it_cancels_survives_a_crash() -> None:
    world = World()
    entry = stages.running(world)
    order = world.cancel(TARGET_ID, message_id=TARGET_ID)
    world.restart()
    world.finish()
    assert world.state(entry) is State.CANCELLED
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]


def test_a_turn_id_means_its_own_incarnation() -> None:
    world = World()
    former = stages.running(world)
    turn_id = world.turn(former).id
    world.empty_redis()
    world.attach()
    world.tick()
    fresh = world.deliver(channel=b"blue")
    assert fresh == former, "the same entry id in a new stream"
    order = world.cancel(turn_id.encode())
    world.finish()
    by_incarnation = {turn.incarnation: turn.state for turn in world.turns() if turn.entry == fresh}
    assert by_incarnation == {1: State.CANCELLED, 2: State.DONE}
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]


@pytest.mark.parametrize("prefix", [b"other.a2a.1.", b"scout.b2b.1."])
def test_a_turn_id_of_another_source_names_no_turn_here(prefix: bytes) -> None:
    world = World()
    entry = stages.dispatched(world)
    order = world.cancel(prefix + unpack_id(entry))
    world.finish()
    assert world.outcomes(order) == [Outcome.CANCEL_UNKNOWN]
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_a_cancel_by_entry_id_means_the_stream_it_came_from_even_after_a_crash() -> None:
    world = World()
    former = stages.running(world)
    order = world.cancel(unpack_id(former))
    world.empty_redis()
    world.attach()
    world.tick()
    assert world.deliver(channel=b"blue") == former
    world.restart()
    world.talk()
    world.finish()
    states = {(turn.incarnation, turn.entry): turn.state for turn in world.turns()}
    assert states[1, former] is State.CANCELLED
    assert states[2, former] is State.DONE
    assert world.turn(order).outcome is Outcome.CANCEL_APPLIED


def test_a_later_message_of_the_id_is_not_what_a_waiting_cancel_meant() -> None:
    world = World()
    entry = stages.running(world)
    world.cancel(TARGET_ID)
    later = world.deliver(b"other words", channel=b"blue", message_id=TARGET_ID)
    world.restart()
    world.talk()
    world.finish()
    assert world.state(entry) is State.CANCELLED
    assert world.state(later) is State.DONE


def test_two_cancels_that_carry_the_id_they_cancel() -> None:
    world = World()
    entry = stages.running(world)
    first = world.cancel(TARGET_ID, message_id=TARGET_ID)
    second = world.cancel(TARGET_ID, message_id=TARGET_ID, sender=b"ann")
    world.finish()
    assert world.outcomes(first) == world.outcomes(second) == [Outcome.CANCEL_APPLIED]
    assert world.state(entry) is State.CANCELLED


def test_an_incarnation_that_no_ledger_can_hold() -> None:
    world = World()
    order = world.cancel(b"scout.a2a.%d.1-0" % 2**70)
    world.finish()
    assert world.outcomes(order) == [Outcome.CANCEL_UNKNOWN]


def test_a_message_id_that_looks_like_a_turn_id_of_elsewhere() -> None:
    world = World()
    entry = world.deliver(message_id=b"other.a2a.1.5-0")
    order = world.cancel(b"other.a2a.1.5-0")
    world.finish()
    assert world.outcomes(order) == [Outcome.CANCEL_APPLIED]
    assert world.state(entry) is State.CANCELLED


# ------------------------------------------------------------------------------- by an operator


def operator_cancels(world: World, entry: bytes) -> list[UsageError]:
    """The operator's command, as a tick runs it; what it refused with."""
    driver, turn, refused = world.driver, world.turn(entry), list[UsageError]()

    def event() -> None:
        try:
            found = driver.intake.open_turn(turn.incarnation, entry, driver.ledger)
            driver.machine.cancel_by_operator(found)
        except UsageError as error:
            refused.append(error)

    world.post(event)
    world.tick()
    return refused


@both_acks
@pytest.mark.parametrize("stage", IN_TIME, ids=named)
def test_an_operator_cancels_in_time(stage: Stage, ack: str) -> None:
    world = holding_world(ack)
    entry = stage(world)
    assert operator_cancels(world, entry) == []
    if stage in RUNNING:
        assert world.state(entry) is State.DISPATCHED, "not before its run is over"
    world.quiesce()
    assert world.state(entry) is State.CANCELLED
    assert world.outcomes(entry)[-1] == Outcome.CANCELLED
    world.finish()


@pytest.mark.parametrize("stage", TOO_LATE, ids=named)
def test_an_operator_cancels_too_late(stage: Stage) -> None:
    world = holding_world()
    entry = stage(world)
    before = world.turn(entry)
    state, outcome, generation = before.state, before.outcome, before.generation
    assert operator_cancels(world, entry) == []
    after = world.turn(entry)
    assert (after.generation, after.outcome) == (generation, outcome)
    assert state is State.REPLYING or after.state is state
    world.finish()


def test_an_operator_cannot_cancel_a_cancellation_or_what_is_not_there() -> None:
    world = holding_world()
    order = world.cancel(TARGET_ID)
    (refused,) = operator_cancels(world, order)
    assert "itself a request to cancel" in refused.message
    with pytest.raises(UsageError, match="no such turn"):
        world.driver.intake.open_turn(1, b"\xff" * 16, world.driver.ledger)
    world.finish()
