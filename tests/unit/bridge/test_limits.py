"""Rates and allow-lists: at the limit, one past it, and when a transaction comes again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.bridge.incoming import Cancel, Classified, Mention, Refusal
from corral.bridge.limits import AllowList, Buckets, Policy, Rate

ROOM = "!room"
FREE = Rate(0, 1)


def mention(
    number: int, sender: str = "@a:x", room_id: str = ROOM, ghost: str = "scout"
) -> Mention:
    return Mention(f"${number}", room_id, sender, ghost, "look", 0)


def one(policy: Policy, asked: Classified, now_s: float = 0.0) -> Classified:
    [judged] = policy.judge([asked], now_s)
    return judged


def test_a_sender_may_burst_and_is_then_told() -> None:
    policy = Policy(Rate(6, 3), FREE)
    passed = [one(policy, mention(number)) for number in range(4)]
    assert passed[:3] == [mention(0), mention(1), mention(2)]
    assert passed[3] == Refusal(mention(3), "sender_rate_limited")
    assert one(policy, mention(4, sender="@b:x")) == mention(4, sender="@b:x")


def test_the_rate_refills_evenly() -> None:
    policy = Policy(Rate(6, 1), FREE)  # one every ten seconds
    assert one(policy, mention(0), 0.0) == mention(0)
    assert isinstance(one(policy, mention(1), 9.9), Refusal)
    assert one(policy, mention(2), 10.0) == mention(2)


def test_a_room_has_a_rate_of_its_own() -> None:
    policy = Policy(FREE, Rate(30, 2))
    passed = [one(policy, mention(number, sender=f"@{number}:x")) for number in range(3)]
    assert passed[2] == Refusal(mention(2, sender="@2:x"), "room_rate_limited")
    assert one(policy, mention(3, room_id="!other")) == mention(3, room_id="!other")


def test_who_is_refused_for_the_room_spends_nothing_of_the_sender() -> None:
    policy = Policy(Rate(1, 1), Rate(1, 1))
    assert one(policy, mention(0, sender="@b:x")) == mention(0, sender="@b:x")
    assert isinstance(one(policy, mention(1)), Refusal)
    assert one(policy, mention(2, room_id="!other")) == mention(2, room_id="!other")


def test_the_same_event_again_has_the_same_verdict_and_spends_nothing() -> None:
    policy = Policy(Rate(6, 2), FREE)
    for _ in range(5):
        assert one(policy, mention(0)) == mention(0)
    assert one(policy, mention(1)) == mention(1)
    for _ in range(2):
        assert isinstance(one(policy, mention(2), 0.0), Refusal)
    assert isinstance(one(policy, mention(2), 999.0), Refusal)


def test_strangers_get_no_answer() -> None:
    policy = Policy(
        FREE,
        FREE,
        senders=AllowList(("@*:home.test", "@guest:far.test")),
        rooms=AllowList((ROOM,)),
        agent_senders={"clerk": AllowList(("@boss:home.test",))},
    )
    good = mention(0, sender="@a:home.test")
    assert one(policy, good) == good
    for refused, reason in (
        (replace(good, sender="@a:home.test.evil"), "sender_not_on_list"),
        (replace(good, sender="@guest2:far.test"), "sender_not_on_list"),
        (replace(good, room_id="!else"), "room_not_on_list"),
    ):
        assert policy.unwelcome(refused.sender, refused.room_id) == reason
    assert policy.unwelcome(good.sender, good.room_id) is None
    theirs = replace(good, ghost="clerk")
    assert one(policy, theirs) == Refusal(theirs, "sender_not_allowed")
    boss = replace(good, ghost="clerk", sender="@boss:home.test")
    assert one(policy, boss) == boss


def test_invitations_are_for_whom_the_list_names() -> None:
    policy = Policy(FREE, FREE, inviters=AllowList(("@a:x",)), rooms=AllowList(("!r*",)))
    assert policy.may_invite("@a:x", "!room")
    assert not policy.may_invite("@b:x", "!room")
    assert not policy.may_invite("@a:x", "!other")


def test_controls_pass_whatever_the_rate() -> None:
    cancel = Cancel("$1", ROOM, "@a:x", "$0", 0)
    policy = Policy(Rate(1, 1), Rate(1, 1))
    assert policy.judge([cancel] * 9, 0.0) == (cancel,) * 9


def test_memory_is_bounded() -> None:
    buckets = Buckets(Rate(1, 1), keys_max=3)
    for number in range(9):
        buckets.look(str(number), 0.0)
    assert len(buckets) == 3
    policy = Policy(Rate(1, 1), FREE, keys_max=2)
    for number in range(9):
        one(policy, mention(number, sender=f"@{number}:x"))
    assert len(policy._verdicts) == 2


@pytest.mark.parametrize(("per_minute", "burst"), [(-1, 1), (1, 0)])
def test_a_rate_that_is_none_is_refused(per_minute: float, burst: int) -> None:
    with pytest.raises(ValueError, match="burst >= 1"):
        Rate(per_minute, burst)


@given(
    per_minute=st.integers(1, 120),
    burst=st.integers(1, 10),
    pauses=st.lists(st.floats(-5, 120), max_size=60),
)
def test_no_more_pass_than_burst_and_rate_allow(
    per_minute: int, burst: int, pauses: list[float]
) -> None:
    policy = Policy(Rate(per_minute, burst), FREE)
    now_s, forward_s, passed = 0.0, 0.0, 0
    for number, pause_s in enumerate(pauses):
        now_s += pause_s
        forward_s += max(0.0, pause_s)
        passed += isinstance(one(policy, mention(number), now_s), Mention)
        assert passed <= burst + forward_s * per_minute / 60 + 1e-6
