"""Answers on their way to the outbox: once, refused, given up, undelivered, overtaken."""

import pytest

from corral.cowboy.domain import METADATA_FIELDS, NOTICES, Outcome, Slot, State, unpack_id
from corral.cowboy.outgoing import NOT_NOW_RETRY_MS
from corral.cowboy.redisconn import Full, NotNow, Refused
from tests.unit.cowboy import stages
from tests.unit.cowboy.model_redis import NO_FAULTS, Faults
from tests.unit.cowboy.world import World

REFUSED = Refused("NOPERM")
OUTBOX = Faults(outbox=REFUSED)
DEAD = Faults(dead=REFUSED)
BOTH = Faults(outbox=REFUSED, dead=REFUSED)
RETRIES_MS = 30_000
BINDING = {name: b"the %s" % name.encode() for name in METADATA_FIELDS}

both_acks = pytest.mark.parametrize("ack", ["dispatch", "reply"])


def again(world: World, faults: Faults, times: int = 1) -> None:
    """So many attempts, each when it is due."""
    for _ in range(times):
        world.later(RETRIES_MS)
        world.tick()
        world.settle_round(faults)


def answered_and_refused(world: World, times: int) -> bytes:
    """A turn whose outbox entry was refused so many times."""
    entry = world.deliver(b"question", message_id=b"m", sender=b"ann")
    world.talk()
    world.end_run(entry, reply=b"the answer")
    world.settle_round(OUTBOX)
    again(world, OUTBOX, times - 1)
    return entry


@both_acks
def test_an_answer_carries_its_binding_and_is_added_once(ack: str) -> None:
    world = World(ack=ack)
    entry = world.deliver(b"question", **BINDING, resubmit_of=b"1-0")
    world.talk()
    world.end_run(entry, reply=b"the answer")
    world.settle_all()
    (added,) = world.redis.outbox
    assert added.fields == BINDING | {
        "content": b"the answer",
        "in_reply_to": unpack_id(entry),
        "turn_id": world.turn(entry).id.encode(),
        "outcome": b"completed",
        "slot": b"reply",
    }
    assert not world.redis.markers, "forgotten once its id is committed"
    turn = world.turn(entry)
    assert (turn.outbox_id, turn.terminal_at_ms) == (added.id, world.clock.wall_ms())
    world.finish()


def test_a_notice_says_so_and_gives_back_only_what_was_given() -> None:
    world = World()
    entry = world.deliver(b"x", kind=b"odd", sender=b"ann")
    world.settle_all()
    (added,) = world.redis.outbox
    assert set(added.fields) == {
        "content", "in_reply_to", "turn_id", "outcome", "slot", "sender"
    }  # fmt: skip
    assert (added["slot"], added["outcome"]) == (Slot.NOTICE, Outcome.KIND_UNKNOWN)
    assert added["content"] == NOTICES[Outcome.KIND_UNKNOWN]
    assert world.turn(entry).closed


@both_acks
def test_a_lost_answer_is_settled_again_and_added_once(ack: str) -> None:
    world = World(ack=ack)
    entry = stages.replying(world)
    world.lose_answer()
    assert world.outcomes(entry) == [Outcome.COMPLETED]
    assert world.state(entry) is State.REPLYING
    world.restart()
    world.settle_all()
    assert world.turn(entry).closed
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_a_crash_after_the_answer_was_recorded_leaves_a_marker_that_is_swept() -> None:
    world = World()
    entry = stages.replying(world)
    while world.driver.out.packets:
        world.settle()
    world.tick(die=True)
    assert world.state(entry) is State.DONE
    assert world.redis.markers
    world.restart()
    world.settle_all()
    assert not world.redis.markers
    world.finish()


def test_a_marker_of_an_answer_that_is_not_recorded_is_not_swept() -> None:
    world = World()
    entry = stages.replying(world)
    world.lose_answer()
    world.attach()
    world.driver.commit()
    world.driver.follow_up(lambda _: None)
    packet = world.driver.out.packets[0]
    assert not packet.work.markers
    world.settle_all()
    assert world.outcomes(entry) == [Outcome.COMPLETED]
    world.finish()


@pytest.mark.parametrize("fault", [Full("OOM"), NotNow("LOADING")])
def test_a_full_or_busy_redis_spends_no_attempt(fault: NotNow) -> None:
    world = World(outbox_attempts_max=1)
    entry = stages.replying(world)
    world.refuse(fault)
    assert world.driver.out.packets, "the packet is kept"
    for _ in range(3):
        world.settle_all(Faults(outbox=fault))
        assert world.turn(entry).effect_attempts == 0
        world.later(NOT_NOW_RETRY_MS - 1)
        world.tick()
        assert not world.driver.out.packets
        world.later(1)
        world.tick()
    world.settle_all()
    assert world.outcomes(entry) == [Outcome.COMPLETED]
    world.finish()


def test_a_script_that_is_refused_as_a_whole_spends_an_attempt() -> None:
    world = World(outbox_attempts_max=2)
    entry = stages.running(world)
    world.settle_all()
    world.end_run(entry)
    world.refuse(REFUSED)
    world.tick()
    assert world.turn(entry).effect_attempts == 1
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_refusals_below_their_limit_lose_nothing() -> None:
    world = World(outbox_attempts_max=3)
    entry = answered_and_refused(world, 2)
    turn = world.turn(entry)
    assert (turn.state, turn.intent, turn.effect_attempts) == (State.REPLYING, State.DONE, 2)
    again(world, NO_FAULTS)
    assert world.answers(entry) == [(Outcome.COMPLETED, "the answer")]
    assert not world.redis.dead
    world.finish()


@both_acks
@pytest.mark.parametrize("most", [1, 3])
def test_at_the_limit_the_answer_goes_to_the_dead_letters_and_a_notice_is_tried(
    most: int, ack: str
) -> None:
    world = World(outbox_attempts_max=most, ack=ack)
    entry = answered_and_refused(world, most)
    turn = world.turn(entry)
    assert (turn.state, turn.intent, turn.outcome) == (
        State.REPLYING, State.DEAD, Outcome.OUTBOX_REFUSED,
    )  # fmt: skip
    assert turn.body == b"the answer", "until it is in the dead letters"
    assert len(world.notes("outbox_refused")) == 1
    world.tick()
    again(world, NO_FAULTS)
    assert world.state(entry) is State.DEAD
    assert world.turn(entry).body is None
    assert world.answers(entry) == [(Outcome.OUTBOX_REFUSED, NOTICES[Outcome.OUTBOX_REFUSED])]
    (letter,) = world.redis.dead
    assert (letter["content"], letter["reply"]) == ("question", "the answer")
    assert (letter["turn_id"], letter["entry"]) == (turn.id, "1-0")
    assert (letter["message_id"], letter["sender"]) == ("m", "ann")
    world.finish()


@both_acks
def test_when_even_the_notice_is_refused_the_turn_is_dead_and_that_is_on_record(ack: str) -> None:
    world = World(outbox_attempts_max=2, ack=ack)
    entry = answered_and_refused(world, 2)
    again(world, OUTBOX)
    assert world.turn(entry).dead_id is not None
    assert world.state(entry) is State.REPLYING
    again(world, OUTBOX)
    turn = world.turn(entry)
    assert (turn.state, turn.outbox_id, turn.effect_attempts) == (State.DEAD, None, 2)
    assert [note.entry for note in world.notes("notice_undelivered")] == ["1-0"]
    assert len(world.redis.dead) == 1
    assert world.outcomes(entry) == []
    world.finish()
    assert entry not in world.redis.pending


def test_the_last_copy_of_an_answer_is_never_given_up() -> None:
    world = World(outbox_attempts_max=2)
    entry = answered_and_refused(world, 2)
    again(world, BOTH, 20)
    turn = world.turn(entry)
    assert (turn.state, turn.body) == (State.REPLYING, b"the answer")
    again(world, NO_FAULTS)
    assert world.state(entry) is State.DEAD
    assert [letter["reply"] for letter in world.redis.dead] == ["the answer"]
    world.finish()


def test_a_dead_letter_is_written_once_while_its_notice_is_refused() -> None:
    world = World(outbox_attempts_max=5)
    answered_and_refused(world, 5)
    again(world, OUTBOX, 3)
    again(world, NO_FAULTS)
    assert len(world.redis.dead) == 1
    world.finish()


def test_a_notice_is_told_once_while_its_dead_letter_is_refused() -> None:
    world = World(outbox_attempts_max=2)
    entry = answered_and_refused(world, 2)
    again(world, DEAD, 3)
    assert world.outcomes(entry) == [Outcome.OUTBOX_REFUSED]
    assert world.state(entry) is State.REPLYING
    again(world, NO_FAULTS)
    assert world.outcomes(entry) == [Outcome.OUTBOX_REFUSED]
    assert world.state(entry) is State.DEAD
    world.finish()


def test_attempts_survive_a_crash() -> None:
    world = World(outbox_attempts_max=3)
    entry = answered_and_refused(world, 2)
    world.restart()
    world.settle_all()
    assert world.state(entry) is State.REPLYING, "a reconnection does not hurry it"
    again(world, OUTBOX)
    assert world.turn(entry).outcome is Outcome.OUTBOX_REFUSED
    world.finish()


@pytest.mark.parametrize("crash", [False, True])
def test_answers_that_are_lost_again_and_again_add_nothing_twice(*, crash: bool) -> None:
    world = stages.holding_world()
    abandoned = stages.held(world)
    answered = world.deliver(channel=b"blue")
    world.talk()
    world.abandon(abandoned)
    world.tick()
    world.end_run(answered)
    for _ in range(4):
        world.lose_answer()
        if crash:
            world.crash()
        world.attach()
        world.tick()
    world.finish()
    assert world.outcomes(answered) == [Outcome.COMPLETED]
    assert world.outcomes(abandoned) == [Outcome.HELD, Outcome.ABANDONED]
    assert len(world.redis.dead) == 1


def test_the_marker_of_an_answer_that_was_refused_since_is_not_swept() -> None:
    world = World(outbox_attempts_max=3)
    entry = stages.running(world)
    world.settle_all()
    world.end_run(entry)
    world.lose_answer()  # it is in the outbox, and nobody here knows
    world.attach()
    world.tick()
    world.refuse(REFUSED)
    world.tick()
    assert world.turn(entry).effect_attempts == 1
    world.restart()
    world.settle_all()
    again(world, NO_FAULTS)
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_a_refusal_of_an_older_effect_changes_nothing() -> None:
    world = World(on_interrupt="hold", outbox_attempts_max=1)
    entry = stages.telling_held(world)
    packet = world.driver.out.packets.popleft()
    world.cancel(stages.TARGET_ID)
    before = world.turn(entry)
    world.driver.out.refused(packet, REFUSED)
    world.tick()
    turn = world.turn(entry)
    assert (turn.intent, turn.effect_attempts) == (State.CANCELLED, 0)
    assert turn.generation == before.generation
    world.finish()


def test_an_answer_to_an_older_effect_does_not_end_the_newer_one() -> None:
    world = World(on_interrupt="hold")
    entry = stages.telling_held(world)
    packet = world.driver.out.packets[0]
    answer = world.redis.settle(packet.work)
    world.driver.out.sent(packet)
    world.cancel(stages.TARGET_ID)
    world.driver.out.answered(packet, answer)
    world.tick()
    assert (world.state(entry), world.turn(entry).intent) == (State.REPLYING, State.CANCELLED)
    world.finish()
    assert world.outcomes(entry) == [Outcome.HELD, Outcome.CANCELLED]


def test_a_held_notice_that_is_refused_ends_in_the_dead_letters() -> None:
    world = World(on_interrupt="hold", outbox_attempts_max=1)
    entry = stages.telling_held(world)
    world.settle_all(OUTBOX)
    again(world, NO_FAULTS)
    assert world.state(entry) is State.DEAD
    assert world.redis.dead[0]["content"] == "do it"
    world.finish()


def test_content_is_gone_from_what_has_ended() -> None:
    world = World()
    secret = b"only between us"
    entry = world.deliver(secret)
    world.talk()
    assert world.turn(entry).content == secret
    world.end_run(entry, reply=secret)
    assert world.turn(entry).body == secret
    world.settle_all()
    turn = world.turn(entry)
    assert (turn.content, turn.body) == (None, None)
    world.finish()
