"""What offered entries become: turns, duplicates, conflicts, empties, losses, repetitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cowboy.domain import Ack, Entry, Outcome, State, unpack_id
from tests.unit.cowboy import stages
from tests.unit.cowboy.samples import CONTENT_MAX_BYTES, METADATA_MAX_BYTES, entry_id
from tests.unit.cowboy.stages import STAGES, Stage, holding_world
from tests.unit.cowboy.world import World

WORDS: dict[str, bytes | None] = {"content": b"words", "message_id": b"m", "channel": b"red"}

both_acks = pytest.mark.parametrize("ack", ["dispatch", "reply"])


def entries_with_turns(world: World) -> list[bytes]:
    return [turn.entry for turn in world.turns()]


# ---------------------------------------------------------------- the same again


@both_acks
def test_the_same_message_again_starts_nothing(ack: str) -> None:
    world = World(ack=ack)
    first = world.deliver(**WORDS)
    second = world.deliver(**WORDS)
    world.settle_all()
    assert second not in world.redis.pending
    world.finish()
    third = world.deliver(**WORDS)
    world.settle_all()
    world.finish()
    assert entries_with_turns(world) == [first]
    assert [note.entry for note in world.notes("duplicate")] == [
        unpack_id(third).decode(),
        unpack_id(second).decode(),
    ]
    assert world.redis.pending == set()
    assert world.driver.intake.watermark == third


def test_the_same_message_in_one_batch() -> None:
    world = World()
    entries = [world.add(**WORDS) for _ in range(3)]
    world.read()
    world.tick()
    world.settle_all()
    world.finish()
    assert entries_with_turns(world) == entries[:1]
    assert len(world.notes("duplicate")) == 2


def test_other_words_under_a_known_id_are_an_anomaly_and_start_a_turn() -> None:
    world = World()
    first = world.deliver(**WORDS)
    second = world.deliver(**(WORDS | {"content": b"other"}))
    world.finish()
    assert world.outcomes(first) == world.outcomes(second) == [Outcome.COMPLETED]
    assert [note.entry for note in world.notes("conflict")] == [unpack_id(second).decode()]
    assert not world.notes("duplicate")


def test_duplicates_and_conflicts_mixed_in_one_batch() -> None:
    world = World()
    other = WORDS | {"content": b"other"}
    first, _, second, _ = (world.add(**words) for words in (WORDS, WORDS, other, other))
    world.read()
    world.tick()
    world.settle_all()
    world.finish()
    assert entries_with_turns(world) == [first, second]
    assert len(world.notes("duplicate")) == 2
    assert len(world.notes("conflict")) == 1


def test_messages_without_an_id_are_never_duplicates() -> None:
    world = World()
    words = WORDS | {"message_id": None}
    entries = [world.deliver(**words), world.deliver(**words), world.deliver(**words)]
    assert entries_with_turns(world) == entries
    world.finish()


def test_a_refused_message_again_is_a_duplicate_too() -> None:
    world = World()
    large = WORDS | {"content": b"x" * (CONTENT_MAX_BYTES + 1)}
    first, second = world.deliver(**large), world.deliver(**large)
    world.finish()
    assert world.outcomes(first) == [Outcome.CONTENT_TOO_LARGE]
    assert world.outcomes(second) == []


def test_duplicates_are_known_after_a_restart_and_after_redis_was_emptied() -> None:
    world = World()
    world.deliver(**WORDS)
    world.finish()
    world.restart()
    world.deliver(**WORDS)
    world.settle_all()
    world.empty_redis()
    world.restart()
    world.deliver(**WORDS)
    world.settle_all()
    world.finish()
    assert len(world.turns()) == 1
    assert len(world.notes("duplicate")) == 2


# ---------------------------------------------------------------- what cannot be used


@pytest.mark.parametrize(
    ("fields", "outcome"),
    [
        ({"content": b"x" * (CONTENT_MAX_BYTES + 1)}, Outcome.CONTENT_TOO_LARGE),
        ({"content": b"x", "thread": b"t" * (METADATA_MAX_BYTES + 1)}, Outcome.METADATA_INVALID),
        ({"content": b"x", "channel": b"\xff"}, Outcome.METADATA_INVALID),
        ({"content": b"x", "kind": b"odd"}, Outcome.KIND_UNKNOWN),
    ],
)
@both_acks
def test_a_refused_entry_gets_a_notice_and_disturbs_no_other(
    fields: dict[str, bytes | None], outcome: Outcome, ack: str
) -> None:
    world = World(ack=ack)
    bad, good = world.add(**fields), world.add()
    world.read()
    world.tick()
    assert world.state(good) is State.DISPATCHED
    turn = world.turn(bad)
    assert (turn.state, turn.outcome, turn.content) == (State.REPLYING, outcome, None)
    world.finish()
    assert world.outcomes(bad) == [outcome]
    assert world.runner.went[turn.id] == 0


@both_acks
def test_an_empty_entry_is_acknowledged_counted_and_not_answered(ack: str) -> None:
    world = World(ack=ack)
    blank, fieldless = world.add(b" \n"), world.add(None)
    world.read()
    world.tick()
    for entry in (blank, fieldless):
        turn = world.turn(entry)
        assert (turn.state, turn.outcome, turn.ack) == (State.EMPTY, Outcome.EMPTY, Ack.UNACKED)
    world.settle_all()
    assert world.redis.pending == set()
    assert len(world.notes("empty")) == 2
    world.finish()
    assert world.outcomes(blank) == []


# ---------------------------------------------------------------- what is gone


@both_acks
def test_an_entry_that_was_trimmed_before_it_was_read_is_acknowledged_and_on_record(
    ack: str,
) -> None:
    world = World(ack=ack)
    entry = world.add()
    world.redis.read(1)
    world.detach()  # the answer was lost, so nobody has seen it
    world.redis.delete(entry)
    world.attach()
    world.tick()
    world.settle_all()
    assert world.redis.pending == set()
    assert [note.entry for note in world.notes("trimmed")] == [unpack_id(entry).decode()]
    assert world.turns() == []
    world.finish()
    assert world.driver.intake.watermark == entry


def test_an_entry_that_the_group_does_not_offer_is_on_record_unless_it_was_taken() -> None:
    world = World()
    intake, ledger = world.driver.intake, world.driver.ledger
    taken, other = world.deliver(), world.add()
    world.post(lambda: intake.passed_over(taken, ledger))
    world.post(lambda: intake.passed_over(other, ledger))
    world.tick()
    assert [note.entry for note in world.notes("passed_over")] == [unpack_id(other).decode()]


def test_an_entry_that_redis_took_off_the_list_itself() -> None:
    world = World()
    entry = world.add()
    world.redis.read(1)
    world.redis.delete(entry)
    world.reclaim()
    world.tick()
    assert [note.kind for note in world.notes("deleted")] == ["deleted"]
    assert not world.driver.out.packets, "there is nothing to acknowledge"
    world.finish()


@pytest.mark.parametrize("stage", list(STAGES), ids=lambda stage: stage.__name__)
@both_acks
def test_a_deleted_entry_ends_as_any_other(stage: Stage, ack: str) -> None:
    world = holding_world(ack)
    entry = stage(world)
    world.redis.delete(entry)
    world.reclaim()
    world.tick()
    world.finish()
    lost = stage is stages.parked
    assert (world.turn(entry).outcome is Outcome.PAYLOAD_LOST) == lost
    assert not world.notes("ack_short")


# ---------------------------------------------------------------- offered again


@pytest.mark.parametrize("stage", list(STAGES), ids=lambda stage: stage.__name__)
@both_acks
def test_an_entry_that_is_offered_again_is_not_started_again(stage: Stage, ack: str) -> None:
    world = holding_world(ack)
    entry = stage(world)
    before = world.turn(entry)
    fields = world.redis.log[entry]
    intake, ledger = world.driver.intake, world.driver.ledger
    for _ in range(2):
        world.post(lambda: intake.offer([Entry(entry, fields), Entry(entry, fields)], ledger))
        world.tick()
        assert world.turn(entry).generation == before.generation
    world.finish()
    assert world.runner.went[before.id] <= 1 + world.checks.releases[before.id]


@both_acks
def test_what_only_waits_stays_pending(ack: str) -> None:
    world = World(ack=ack)
    entry = stages.queued(world)
    world.reclaim()
    world.tick()
    world.settle_all()
    assert entry in world.redis.pending
    world.finish()


def test_an_entry_offered_twice_at_its_first_time() -> None:
    world = World()
    entry = world.add()
    (item,) = world.redis.read(1)
    intake, ledger = world.driver.intake, world.driver.ledger
    world.post(lambda: intake.offer([item, item], ledger))
    world.post(lambda: intake.offer([item], ledger))
    world.tick()
    assert entries_with_turns(world) == [entry]
    world.finish()
    assert world.outcomes(entry) == [Outcome.COMPLETED]


def test_below_the_watermark_nothing_starts_whatever_recreated_the_group() -> None:
    world = World()
    entries = [world.deliver(), world.deliver()]
    world.quiesce()
    assert world.driver.intake.watermark == entries[-1]
    world.conn.execute("DELETE FROM turns")  # their tombstones are purged
    world.checks.rows.clear()
    intake, ledger = world.driver.intake, world.driver.ledger
    again = [Entry(entry, {b"content": b"x"}) for entry in entries]
    world.post(lambda: intake.offer(again, ledger))
    world.tick()
    assert world.turns() == []
    world.driver.ledger.use(world.conn)
    assert world.driver.ledger.tallies()["below_watermark"] == 2
    (packet,) = world.driver.out.packets
    assert packet.work.acks == [b"1-0", b"2-0"]


def test_the_watermark_waits_for_the_drain() -> None:
    world = World()
    first = stages.replying(world)
    world.settle_all()
    assert world.driver.intake.watermark == first
    second = world.add()
    world.redis.read(1)
    world.detach()
    world.tick()
    assert world.driver.intake.watermark == first
    world.attach(page=1)
    world.tick()
    assert world.state(second) is State.DISPATCHED
    world.finish()
    assert world.driver.intake.watermark == second


def test_the_watermark_stops_below_the_first_open_turn() -> None:
    world = World(turns_concurrent_max=3)
    entries = [world.deliver(channel=b"c%d" % number) for number in range(3)]
    world.talk()
    world.settle_all()
    for entry in (entries[2], entries[1]):
        world.end_run(entry)
        world.settle_all()
        assert world.driver.intake.watermark < entries[0]
    world.end_run(entries[0])
    world.settle_all()
    assert world.driver.intake.watermark == entries[2]
    assert world.driver.intake.describe() == {"watermark": "3-0", "last_taken": "3-0"}
    world.finish()


# ---------------------------------------------------------------- anything

field_values = st.binary(max_size=METADATA_MAX_BYTES + 2)
field_names = st.sampled_from(
    [b"content", b"kind", b"cancels", b"message_id", b"channel", b"sender", b"thread"]
)


@given(
    st.lists(
        st.dictionaries(
            field_names,
            field_values | st.sampled_from([b"message", b"cancel", b"1-0", b"scout.a2a.1.1-0"]),
            max_size=5,
        ),
        min_size=1,
        max_size=5,
    )
)
def test_no_entry_can_disturb_the_one_after_it(entries: list[dict[bytes, bytes]]) -> None:
    world = World()
    for fields in entries:
        world.redis.add(fields)
    good = world.deliver(b"good", channel=b"a channel of its own")
    assert world.turn(good).content == b"good"
    world.finish()
    world.close()


def test_ids_may_use_all_their_bits() -> None:
    world = World()
    entry = entry_id(2**64 - 2, 2**64 - 1)
    intake, ledger = world.driver.intake, world.driver.ledger
    world.redis.log[entry] = world.redis.entries[entry] = {b"content": b"x"}
    world.redis.pending.add(entry)
    world.redis.read_up_to = entry
    world.post(lambda: intake.offer([Entry(entry, {b"content": b"x"})], ledger))
    world.tick()
    world.finish()
    assert world.turn(entry).id == f"scout.a2a.1.{2**64 - 2}-{2**64 - 1}"
    assert world.driver.intake.watermark == entry
