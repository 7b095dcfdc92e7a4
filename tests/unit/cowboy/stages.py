"""Worlds in which one turn, the target, has got as far as a stage of its life."""

from collections.abc import Callable

from corral.cowboy.domain import Ack, State
from corral.cowboy.redisconn import NotNow, Refused
from tests.unit.cowboy.model_redis import Faults
from tests.unit.cowboy.world import World

Stage = Callable[[World], bytes]

ACK_REFUSED = Faults(ack=Refused("NOPERM"), own_ack=Refused("NOPERM"))

CHANNEL = b"red"
TARGET_ID = b"target"  # its message id


def target(world: World, content: bytes = b"do it") -> bytes:
    return world.deliver(content, channel=CHANNEL, message_id=TARGET_ID)


def other(world: World) -> bytes:
    """Another message of the same channel."""
    return world.deliver(b"other", channel=CHANNEL)


def waiting(world: World) -> bytes:
    """Received; no runner answers."""
    world.lose_runner()
    world.tick()
    return target(world)


def queued(world: World) -> bytes:
    """Received, behind another turn of its channel."""
    other(world)
    return target(world)


def parked(world: World) -> bytes:
    """Received, its content left in Redis: the channel has its share already."""
    for _ in range(world.config.channel_backlog_max):
        other(world)
    entry = target(world)
    assert world.turn(entry).parked
    return entry


def dispatched(world: World) -> bytes:
    """With the runner, which has not answered yet as far as the daemon knows."""
    return target(world)


def running(world: World) -> bytes:
    entry = target(world)
    world.talk()
    assert world.runner.running == [world.turn(entry).id]
    return entry


def replying(world: World) -> bytes:
    """The answer is committed, the outbox does not have it yet."""
    entry = running(world)
    world.end_run(entry)
    return entry


def interrupted(world: World) -> bytes:
    """The runner died under it; what follows from the source's policy is committed."""
    entry = running(world)
    world.lose_runner(dead=True)
    world.connect_runner()
    world.tick()
    world.talk()
    return entry


def telling_held(world: World) -> bytes:
    """About to be held: the notice is committed, the outbox does not have it yet."""
    entry = interrupted(world)
    assert world.turn(entry).intent is State.HELD
    return entry


def held(world: World) -> bytes:
    entry = interrupted(world)
    world.settle_all()
    return entry


def released(world: World) -> bytes:
    """Let go by the operator, behind a turn of its channel that runs."""
    entry = held(world)
    other(world)
    world.release(entry)
    world.tick()
    assert world.turn(entry).release
    return entry


def done(world: World) -> bytes:
    entry = replying(world)
    world.settle_all()
    return entry


def forgotten(world: World) -> bytes:
    """Answered, and its acknowledgement was refused until it was given up."""
    entry = replying(world)
    for _ in range(world.config.ack_attempts_max):
        world.settle_all(ACK_REFUSED)
        world.later(60_000)
        world.tick()
    assert world.turn(entry).ack is Ack.FORGOTTEN
    return entry


def unacknowledged(world: World) -> bytes:
    """Answered, and its acknowledgement waits for the next try."""
    entry = replying(world)
    world.settle_all(Faults(ack=NotNow("LOADING"), own_ack=NotNow("LOADING")))
    assert world.turn(entry).ack is Ack.UNACKED
    return entry


def dead(world: World) -> bytes:
    entry = held(world)
    world.abandon(entry)
    world.tick()
    world.settle_all()
    return entry


def cancelled(world: World) -> bytes:
    entry = queued(world)
    world.cancel(TARGET_ID)
    world.settle_all()
    return entry


def empty(world: World) -> bytes:
    return target(world, b" \n")


STAGES: dict[Stage, State] = {
    waiting: State.RECEIVED,
    queued: State.RECEIVED,
    parked: State.RECEIVED,
    dispatched: State.DISPATCHED,
    running: State.DISPATCHED,
    replying: State.REPLYING,
    telling_held: State.REPLYING,
    held: State.HELD,
    released: State.HELD,
    unacknowledged: State.DONE,
    forgotten: State.DONE,
    done: State.DONE,
    dead: State.DEAD,
    cancelled: State.CANCELLED,
    empty: State.EMPTY,
}


def holding_world(ack: str = "dispatch") -> World:
    """A world in which a turn can get to every stage."""
    return World(ack=ack, on_interrupt="hold", channel_backlog_max=2)
