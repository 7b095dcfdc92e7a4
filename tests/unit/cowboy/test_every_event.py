"""Every event in every stage of a turn: nothing breaks, nothing runs twice, and all ends well.

`checks` looks at each commit; the few effects that an event should have are tests elsewhere.
"""

from collections.abc import Callable

import pytest

from corral.cowboy.domain import Entry, Kind, State
from corral.cowboy.machine import Machine
from corral.cowboy.runner.domain import RunPhase, RunResult
from corral.cowboy.turn import Turn
from tests.unit.cowboy.stages import STAGES, Stage, holding_world
from tests.unit.cowboy.world import World

Event = Callable[[World, Turn], None]

KILLED = RunResult("killed", b"", "cancel", went=True)
NOT_GONE = RunResult("killed", b"", "cancel", went=False)
ANSWER = RunResult("completed", b"the answer", "", went=True)


def _of_runner(event: Callable[[Machine, str, int], None], attempt: int = 0) -> Event:
    """An event about the turn's attempt, or about an older or a later one."""

    def post(world: World, turn: Turn) -> None:
        world.post(lambda: event(world.driver.machine, turn.id, turn.attempt + attempt))

    return post


def _state(phase: RunPhase, result: RunResult | None = None) -> Event:
    return _of_runner(
        lambda machine, turn, attempt: machine.run_state(turn, attempt, phase, result)
    )


def _in_memory(world: World, turn: Turn) -> Turn:
    return world.driver.machine.book.open.get(turn.row, turn)


def _settled(world: World, turn: Turn) -> None:
    world.post(
        lambda: world.driver.machine.settled(
            _in_memory(world, turn), f"{turn.id}:notice:99", b"1-0", None, acked=True
        )
    )


def _effect_refused(world: World, turn: Turn) -> None:
    world.post(
        lambda: world.driver.machine.effect_refused(
            _in_memory(world, turn), f"{turn.id}:notice:99", None, "redis_refused"
        )
    )


def _acked(world: World, turn: Turn) -> None:
    """The answer to an acknowledgement that was sent."""
    if turn.ack_attempts:
        world.redis.pending.discard(turn.entry)
        world.post(lambda: world.driver.machine.acked([_in_memory(world, turn)], 1))


def _ack_refused(world: World, turn: Turn) -> None:
    if turn.ack_attempts:
        world.post(lambda: world.driver.machine.ack_refused([_in_memory(world, turn)]))


def _offered(fields: dict[bytes, bytes] | None) -> Event:
    def post(world: World, turn: Turn) -> None:
        driver = world.driver
        if fields is None:
            world.redis.delete(turn.entry)
        world.post(lambda: driver.intake.offer([Entry(turn.entry, fields)], driver.ledger))

    return post


def _deleted(world: World, turn: Turn) -> None:
    driver = world.driver
    world.redis.delete(turn.entry)
    world.redis.pending.discard(turn.entry)
    world.post(lambda: driver.intake.deleted([turn.entry], driver.ledger))


def _fetched(content: bytes | None) -> Event:
    def post(world: World, turn: Turn) -> None:
        driver = world.driver
        if content is None:
            world.redis.delete(turn.entry)
        # Contents come in the order of the channel: those of the turns before this one first.
        parked = [t for t in world.turns() if t.parked and t.entry < turn.entry]
        contents = {t.entry: world.redis.fetch([t.entry])[t.entry] for t in parked}
        world.post(lambda: driver.intake.fetched(contents | {turn.entry: content}, driver.ledger))

    return post


def _reconnected(world: World, _: Turn) -> None:
    world.connect_runner()


def _runner_killed(world: World, _: Turn) -> None:
    world.lose_runner(dead=True)
    world.connect_runner()


def _new_session(world: World, _: Turn) -> None:
    world.detach()
    world.attach()


EVENTS: dict[str, Event] = {
    "prepared": _of_runner(lambda machine, turn, attempt: machine.prepared(turn, attempt)),
    "refused": _of_runner(lambda machine, turn, attempt: machine.refused(turn, attempt, "no")),
    "completed": _of_runner(lambda machine, turn, at: machine.finished(turn, at, ANSWER)),
    "killed": _of_runner(lambda machine, turn, at: machine.finished(turn, at, KILLED)),
    "not gone": _of_runner(lambda machine, turn, at: machine.finished(turn, at, NOT_GONE)),
    "is prepared": _state(RunPhase.PREPARED),
    "is running": _state(RunPhase.RUNNING),
    "is finished": _state(RunPhase.FINISHED, ANSWER),
    "never went": _state(RunPhase.NEVER_WENT),
    "unknown": _state(RunPhase.UNKNOWN),
    "completed before": _of_runner(lambda m, turn, at: m.finished(turn, at, ANSWER), -1),
    "completed later": _of_runner(lambda m, turn, at: m.finished(turn, at, ANSWER), 1),
    "prepared before": _of_runner(lambda m, turn, at: m.prepared(turn, at), -1),
    "other effect settled": _settled,
    "other effect refused": _effect_refused,
    "acked": _acked,
    "ack refused": _ack_refused,
    "offered": _offered({b"content": b"do it"}),
    "offered without fields": _offered(None),
    "deleted": _deleted,
    "fetched": _fetched(b"do it"),
    "fetched nothing": _fetched(None),
    "released": lambda world, turn: world.release(turn.entry),
    "abandoned": lambda world, turn: world.abandon(turn.entry),
    "reconnected": _reconnected,
    "runner killed": _runner_killed,
    "new session": _new_session,
}
# Those to which the policy of acknowledgement may matter.
ACK_EVENTS = ("completed", "acked", "ack refused", "offered", "deleted", "abandoned", "new session")
# What the real runner says only when it is so; the model's run must agree with the event.
END_RUNS = {"completed", "killed", "not gone", "is finished", "never went", "unknown", "refused"}


def agree(world: World, turn: Turn, event: str) -> None:
    """The run of the turn is what the event says of it."""
    if event in END_RUNS and turn.state is State.DISPATCHED:
        run = world.runner.runs[turn.id]
        run.phase, run.result = RunPhase.FINISHED, ANSWER
        world.runner.events.clear()
        if event in {"never went", "unknown", "refused"}:
            del world.runner.runs[turn.id]
        if event in {"never went", "not gone"}:
            world.runner.went[turn.id] = 0


@pytest.mark.parametrize(
    ("ack", "event"), [("dispatch", e) for e in EVENTS] + [("reply", e) for e in ACK_EVENTS]
)
@pytest.mark.parametrize("stage", list(STAGES), ids=lambda stage: stage.__name__)
def test_an_event_in_a_stage(stage: Stage, event: str, ack: str) -> None:
    world = holding_world(ack)
    turn = world.turn(stage(world))
    for _ in range(2):
        agree(world, world.turn(turn.entry), event)
        EVENTS[event](world, world.turn(turn.entry))
        world.tick()
    if turn.terminal:
        after = world.turn(turn.entry)
        assert (after.state, after.outcome, after.generation) == (
            turn.state, turn.outcome, turn.generation,
        )  # fmt: skip
    world.finish()


@pytest.mark.parametrize("event", list(EVENTS))
def test_an_event_about_a_cancel_that_waits(event: str) -> None:
    world = holding_world()
    world.deliver(message_id=b"m")
    world.talk()
    order = world.turn(world.cancel(b"m"))
    assert (order.kind, order.state) == (Kind.CANCEL, State.RECEIVED)
    EVENTS[event](world, order)
    world.tick()
    assert world.turn(order.entry).generation == order.generation
    world.finish()
