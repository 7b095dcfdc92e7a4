"""What a real Synapse delivers, retries and forgets, against our intake (F39-F44)."""

from corral.bridge.events import Invite
from corral.bridge.incoming import Committed, Replay
from corral.core.errors import StorageError
from corral.local import wait
from corral.local.matrix import Person
from corral.local.synapse import Synapse
from tests.harness.homeserver import SERVER_NAME, Endpoint, restart_delivered

SCOUT = f"@scout:{SERVER_NAME}"
TIMEOUT_S = 60.0


async def until_mentioned(endpoint: Endpoint, room_id: str, count: int) -> list[str]:
    """The events of the room's mentions, when there are so many."""

    def ours() -> list[str]:
        return [one.event_id for one in endpoint.admission.mentions if one.room_id == room_id]

    await wait.until_true(lambda: len(ours()) >= count, TIMEOUT_S, f"{count} mentions")
    return ours()


async def test_f39_the_answer_is_lost_and_the_retry_has_other_bytes(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str
) -> None:
    endpoint.lose = 2
    async with endpoint.serving():
        said = await alice.say(room_id, "look", mention=[SCOUT])
        assert await until_mentioned(endpoint, room_id, 1) == [said]
        # The next one is delivered only after this one was answered.
        second = await alice.say(room_id, "again", mention=[SCOUT])
        assert await until_mentioned(endpoint, room_id, 2) == [said, second]
    admission = endpoint.admission
    rewritten = [one for one in admission.answers if one == Replay(exact=False)]
    assert rewritten, "the homeserver sent the same bytes again"
    for txn_id in {one.txn_id for one in admission.came}:
        tries = [one for one in admission.came if one.txn_id == txn_id]
        assert len({one.events for one in tries}) == 1
        assert len({one.body_digest for one in tries}) == len(tries)


async def test_f40_on_sqlite_transaction_numbers_begin_again_and_events_decide(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str
) -> None:
    async with endpoint.serving():
        first = await alice.say(room_id, "one", mention=[SCOUT])
        await until_mentioned(endpoint, room_id, 1)
        enough = said_max(endpoint)
        await restart_delivered(homeserver)
        said = [first]
        while not used_twice(endpoint):
            assert len(said) < enough, "the numbers did not begin again"
            said.append(await alice.say(room_id, "again", mention=[SCOUT]))
            assert await until_mentioned(endpoint, room_id, len(said)) == said
    assert any(isinstance(one, Committed) and one.epoch for one in endpoint.admission.answers)


def said_max(endpoint: Endpoint) -> int:
    """More messages than bring numbers that began at 1 to the highest that came here."""
    return max(int(one.txn_id) for one in endpoint.admission.came) + 5


def used_twice(endpoint: Endpoint) -> bool:
    """Whether one transaction id came with two sets of events."""
    events = {(one.txn_id, one.events) for one in endpoint.admission.came}
    return len({txn_id for txn_id, _ in events}) < len(events)


async def test_f43_what_could_not_be_stored_comes_again(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str
) -> None:
    endpoint.admission.fail = [StorageError("no disk"), ValueError("of ours")]
    async with endpoint.serving():
        said = await alice.say(room_id, "look", mention=[SCOUT])
        assert await until_mentioned(endpoint, room_id, 1) == [said]
    assert endpoint.admission.fail == []


async def test_f42_the_order_of_delivery_is_the_order_of_events(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str
) -> None:
    said = [await alice.say(room_id, f"{number}", mention=[SCOUT]) for number in range(20)]
    async with endpoint.serving():  # from here on: all of it is a backlog
        assert await until_mentioned(endpoint, room_id, 20) == said


async def test_the_token_comes_in_the_header_only(
    homeserver: Synapse, endpoint: Endpoint, alice: Person, room_id: str
) -> None:
    def ours() -> list[Invite]:
        return [one for one in endpoint.invites if one.room_id == room_id]

    async with endpoint.serving():
        await wait.until_true(lambda: bool(ours()), TIMEOUT_S, "the invitation")
    assert all(path.startswith("/_matrix/app/v1/transactions/") for path in endpoint.paths)
    invite = ours()[0]
    assert (invite.sender, invite.ghost) == (alice.user_id, "scout")
