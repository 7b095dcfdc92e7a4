"""What events mean: mentions, controls, and everything that is nothing to act on."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.bridge.events import Invite, classify, digests, invites
from corral.bridge.incoming import (
    Cancel,
    Classified,
    Continuation,
    Ignored,
    Mention,
    Redaction,
    Refusal,
)
from corral.bridge.limits import AllowList, Policy, Rate
from tests.unit.bridge.made import (
    ALICE,
    CLERK,
    ROOM,
    SCOUT,
    USERS,
    event,
    html,
    in_thread,
    reply,
    text,
)


def only(one: Any) -> Classified:
    [found] = classify([one], USERS)
    return found


def reason(one: Any) -> str:
    found = only(one)
    assert isinstance(found, Ignored)
    return found.reason


def mentioned(content: Any) -> list[tuple[str, str]]:
    """Ghost and text of every mention."""
    found = classify([event(content)], USERS)
    return [(one.ghost, one.text) for one in found if isinstance(one, Mention)]


def test_what_strangers_say_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is, but for a redaction; and in a room that is not ours, whoever says it."""
    monkeypatch.setattr("corral.bridge.mentions.find", None)
    policy = Policy(Rate(0, 1), Rate(0, 1), senders=AllowList((ALICE,)), rooms=AllowList((ROOM,)))
    said = [
        event(text("@scout: look", mention=[SCOUT])),
        event(text("!cancel", **reply("$x"))),
        event(text("yes", **in_thread("$root"))),
        event({"m.relates_to": {}}, kind="m.reaction"),
        event([], kind="m.room.member", state_key="x"),
    ]
    for field, value, reason in (
        ("sender", "@eve:far.test", "sender_not_on_list"),
        ("room_id", "!else", "room_not_on_list"),
    ):
        found = classify([{**one, field: value} for one in said], USERS, policy.unwelcome)
        assert [one.reason for one in found if isinstance(one, Ignored)] == [reason] * len(said)
    taken = event({"redacts": "$a"}, kind="m.room.redaction", sender="@mod:far.test")
    assert isinstance(classify([taken], USERS, policy.unwelcome)[0], Redaction)


# ---- mentions -------------------------------------------------------------------------------


def test_a_mention_says_who_asks_whom_for_what() -> None:
    content = text("@scout: look", mention=[SCOUT])
    assert only(event(content)) == Mention("$event1", ROOM, ALICE, "scout", "look", 0)


def test_each_mentioned_ghost_gets_one_in_the_order_of_mention() -> None:
    both = text("both of you", mention=[CLERK, SCOUT, CLERK, ALICE])
    assert mentioned(both) == [("clerk", "both of you"), ("scout", "both of you")]


@pytest.mark.parametrize(
    "mentions",
    [{}, {"user_ids": []}, {"user_ids": None}, [], None, "x", {"room": True}, {"user_ids": [1]}],
)
def test_f48_m_mentions_decides_even_when_it_is_empty_or_malformed(mentions: Any) -> None:
    content = html(f"scout: look {SCOUT}", f'<a href="https://matrix.to/#/{SCOUT}">x</a>')
    assert mentioned(content) == [("scout", f"look {SCOUT}")]
    assert mentioned(content | {"m.mentions": mentions}) == []


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ("@scout look", "look"),
        ("scout: look", "look"),
        ("Scout, look", "look"),
        (f"{SCOUT}: look", "look"),
        ("look, @scout.", "look, @scout."),
        ("(@scout) look", "(@scout) look"),
        ("@scout", "@scout"),
        ("scout:", "scout:"),
        ("@scout scout ahead", "scout ahead"),
    ],
)
def test_f48_without_m_mentions_a_name_in_the_text_counts(body: str, asked: str) -> None:
    assert mentioned(text(body)) == [("scout", asked)]


@pytest.mark.parametrize(
    "body",
    [
        "see https://example.org/@scout/42",
        "mailto:x@scout",
        "me@scout",
        "@scouting",
        "@scout.bot",
        "@scout:other.test look",
        "@@scout",
        "scout the area",
        "we scout: badly",
        "www.scout: no",
        "@scout-2",
        "@clerk",
    ],
)
def test_f48_what_only_contains_the_name_is_no_mention(body: str) -> None:
    assert mentioned(text(body)) == []


def test_f48_a_pill_counts_also_without_text_of_its_own() -> None:
    pill = f'<a href="https://matrix.to/#/{SCOUT}"></a>'
    assert mentioned(html("", pill)) == [("scout", "")]
    named = '<a href="https://matrix.to/#/%40scout%3Acorral.test">The Scout</a>: look'
    assert mentioned(html("The Scout: look", named)) == [("scout", "look")]
    uri = '<a href="matrix:u/scout:corral.test?action=chat">S</a> look'
    assert mentioned(html("S look", uri)) == [("scout", "S look")]


def test_f48_a_pill_for_another_is_no_mention_of_a_name_in_the_text() -> None:
    assert (
        mentioned(html(f"@scout look {ALICE}", f'<a href="https://matrix.to/#/{ALICE}">A</a>'))
        == []
    )


def test_f48_quoted_fallback_mentions_nobody() -> None:
    plain = text(f"> <{ALICE}> @scout look\n> more\n\nnot me", **reply("$x"))
    assert mentioned(plain) == []
    rich = html(
        "> @scout\n\nno", f'<mx-reply><a href="https://matrix.to/#/{SCOUT}">S</a></mx-reply>no'
    )
    assert mentioned(rich | reply("$x")) == []
    quoted = f'<blockquote><a href="https://matrix.to/#/{SCOUT}">S</a></blockquote>no'
    assert mentioned(html("no", quoted)) == []
    answered = text(f"> <{ALICE}> words\n\n@scout look", **reply("$x"))
    assert mentioned(answered) == [("scout", "look")]


def test_a_quotation_that_is_no_fallback_is_kept() -> None:
    assert mentioned(text("> as I said\n@scout look", mention=[SCOUT])) == [
        ("scout", "> as I said\n@scout look")
    ]


def test_the_name_of_a_file_is_no_mention_but_its_caption_may_be() -> None:
    image = text("@scout.png scout: x") | {"msgtype": "m.image"}
    assert reason(event(image)) == "not_text"
    assert mentioned(image | {"m.mentions": {"user_ids": [SCOUT]}}) != []


def test_a_mention_knows_its_thread_and_what_it_replies_to() -> None:
    found = only(event(text("look", mention=[SCOUT], **in_thread("$root", "$last"))))
    assert isinstance(found, Mention)
    assert (found.thread_root, found.reply_to) == ("$root", None)
    found = only(event(text("look", mention=[SCOUT], **reply("$x"))))
    assert isinstance(found, Mention)
    assert (found.thread_root, found.reply_to) == (None, "$x")


def test_a_traceparent_travels_along_if_it_is_one() -> None:
    good = f"00-{'a' * 32}-{'b' * 16}-01"
    for given_, kept in ((good, good), ("00-zz", None), (7, None)):
        content = text("look", mention=[SCOUT]) | {"corral.traceparent": given_}
        found = only(event(content))
        assert isinstance(found, Mention)
        assert found.traceparent == kept


# ---- what never starts work -----------------------------------------------------------------


def test_f47_notices_edits_and_redacted_messages_start_nothing() -> None:
    asks = text("@scout look", mention=[SCOUT])
    edit = {"m.relates_to": {"rel_type": "m.replace", "event_id": "$x"}}
    assert reason(event(asks | {"msgtype": "m.notice"})) == "notice"
    assert reason(event(asks | edit)) == "edit"
    assert reason(event(asks | {"m.new_content": asks})) == "edit"
    assert reason(event({})) == "redacted"
    assert reason(event(asks, unsigned={"redacted_because": {}})) == "redacted"


def test_our_own_users_start_nothing() -> None:
    asks = text("look", mention=[SCOUT])
    assert reason(event(asks, sender=CLERK)) == "own"
    assert reason(event(asks, sender="@bridge:corral.test")) == "own"


def test_what_cannot_be_read_is_ignored_with_a_reason() -> None:
    assert reason(event({"ciphertext": "x"}, kind="m.room.encrypted")) == "encrypted"
    assert reason(event({"name": "x"}, kind="m.room.name", state_key="")) == "state"
    assert reason(event({"x": 1}, kind="org.example.unknown")) == "other_type"
    assert reason(event(text("hello"))) == "no_mention"


@pytest.mark.parametrize(
    "broken",
    [
        None,
        7,
        "text",
        [],
        {},
        event(None),
        event([]),
        event(text("x"), kind=None),
        event(text(None)),
        event({"msgtype": "m.text"}),
        event({"msgtype": 7, "body": "x"}),
        event(text("x"), event_id=None),
        event(text("x"), event_id="$nul\0"),
        event(text("x"), event_id="$half\ud800"),
        event(text("x"), event_id="$" + "x" * 255),
        event(text("x"), room_id=["!r"]),
        event(text("x"), sender="alice"),
        event({}, kind="m.room.redaction"),
        event({"m.relates_to": []}, kind="m.reaction"),
    ],
)
def test_f46_a_malformed_event_is_classified_and_the_next_one_too(broken: Any) -> None:
    first, second = classify([broken, event(text("look", mention=[SCOUT]), number=2)], USERS)
    assert isinstance(first, Ignored)
    assert first.reason == "malformed"
    assert isinstance(second, Mention)
    assert (second.event_id, second.position) == ("$event2", 1)


def test_f46_text_that_no_database_takes_is_replaced() -> None:
    [(_, asked)] = mentioned(text("a\0b \ud83d c \U0001f43a", mention=[SCOUT]))
    assert asked == "a\ufffdb \ufffd c \U0001f43a"
    assert asked.encode()


def test_f46_nesting_beyond_reason_is_malformed() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    assert reason(event({"msgtype": "m.text", "body": deep})) == "malformed"
    assert digests([event({"body": deep})])[0].digest


def test_room_ids_are_opaque() -> None:
    for room_id in ("!plain", "!with:server.test", "!12-!:@"):
        found = only(event(text("look", mention=[SCOUT]), room_id=room_id))
        assert isinstance(found, Mention)
        assert found.room_id == room_id


# ---- controls -------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["\u274c", "\u274c\ufe0f"])
def test_the_cross_cancels(key: str) -> None:
    relation = {"rel_type": "m.annotation", "event_id": "$ours", "key": key}
    found = only(event({"m.relates_to": relation}, kind="m.reaction"))
    assert found == Cancel("$event1", ROOM, ALICE, "$ours", 0)


def test_another_reaction_does_nothing() -> None:
    relation = {"rel_type": "m.annotation", "event_id": "$ours", "key": "\U0001f44d"}
    assert reason(event({"m.relates_to": relation}, kind="m.reaction")) == "reaction"
    assert reason(event({}, kind="m.reaction")) == "redacted"


def test_cancel_as_a_reply_or_in_a_thread() -> None:
    assert only(event(text("!cancel", **reply("$ours")))) == Cancel(
        "$event1", ROOM, ALICE, "$ours", 0
    )
    # Clients mention whom they reply to: that is no new question.
    word = text("@scout !Cancel ", mention=[SCOUT], **reply("$ours"))
    assert only(event(word)) == Cancel("$event1", ROOM, ALICE, "$ours", 0)
    threaded = text("!cancel", mention=[], **in_thread("$root", "$last"))
    assert only(event(threaded)) == Cancel("$event1", ROOM, ALICE, "$root", 0)
    exact = text("!cancel", mention=[], **in_thread("$root", "$ours", fallback=False))
    assert only(event(exact)) == Cancel("$event1", ROOM, ALICE, "$ours", 0)
    quoted = text(f"> <{SCOUT}> working\n\n!cancel", **reply("$ours"))
    assert isinstance(only(event(quoted)), Cancel)


def test_cancel_without_a_target_is_only_a_word() -> None:
    assert reason(event(text("!cancel"))) == "no_mention"


def test_a_message_in_a_thread_without_a_mention_continues_it() -> None:
    found = only(event(text(" blue ", **in_thread("$root", "$last"))))
    assert found == Continuation("$event1", ROOM, ALICE, "$root", "blue", 0)


@pytest.mark.parametrize("place", ["content", "event"])
def test_f47_a_redaction_names_its_target_in_either_place(place: str) -> None:
    content = {"redacts": "$x"} if place == "content" else {}
    more: dict[str, Any] = {} if place == "content" else {"redacts": "$x"}
    found = only(event(content, kind="m.room.redaction", **more))
    assert found == Redaction("$event1", ROOM, ALICE, "$x", 0)


def test_an_invite_of_a_ghost_is_seen() -> None:
    def member(state_key: str, membership: str) -> Any:
        return event({"membership": membership}, kind="m.room.member", state_key=state_key)

    found = invites(
        [member(SCOUT, "invite"), member(SCOUT, "join"), member(ALICE, "invite"), 7], USERS
    )
    assert found == [Invite("$event1", ROOM, ALICE, "scout")]


# ---- digests --------------------------------------------------------------------------------


def test_f39_what_a_homeserver_writes_anew_is_not_in_the_digest() -> None:
    first = event(text("x"))
    again = {**event(text("x")), "unsigned": {"age": 999, "x": 1}, "age": 7, "origin_server_ts": 2}
    assert digests([first]) == digests([dict(reversed(again.items()))])


@pytest.mark.parametrize("field", ["event_id", "room_id", "sender", "type", "state_key", "content"])
def test_each_field_of_identity_is_in_the_digest(field: str) -> None:
    first = event(text("x"), state_key="s")
    other = first | {field: {"body": "y"} if field == "content" else "$other"}
    assert digests([first])[0].digest != digests([other])[0].digest


def test_a_redacted_form_is_known_as_one() -> None:
    assert [one.redacted for one in digests([event(text("x")), event({})])] == [False, True]
    assert digests([event(text("x"), unsigned={"redacted_because": {}})])[0].redacted


# ---- for all events -------------------------------------------------------------------------

CONTENT_KEYS = [
    *("body", "msgtype", "format", "formatted_body", "redacts", "key", "m.new_content"),
    *("m.mentions", "user_ids", "m.relates_to", "rel_type", "event_id", "m.in_reply_to"),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(exclude_categories=()), max_size=12)
    | st.sampled_from([SCOUT, "$x", "m.thread", "m.text", "\u274c", "!cancel", "<a href='"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(CONTENT_KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
KINDS = st.sampled_from(
    ["m.room.message", "m.reaction", "m.room.redaction", "m.room.member", "m.room.encrypted"]
)
EVENTS = JSON | st.builds(
    lambda content, kind, more: event(content, kind=kind) | more,
    JSON,
    KINDS | JSON,
    st.dictionaries(
        st.sampled_from(["event_id", "room_id", "sender", "state_key", "unsigned", "redacts"]),
        JSON,
        max_size=3,
    ),
)


@given(st.lists(EVENTS, max_size=4))
def test_f46_whatever_comes_is_classified_in_order_and_can_be_stored(events: list[Any]) -> None:
    found = classify(events, USERS)
    positions = [one.position for one in found if not isinstance(one, Refusal)]
    assert positions == sorted(positions)
    assert set(positions) == set(range(len(events)))
    for one in found:
        for name in one.__slots__:
            value = getattr(one, name)
            if isinstance(value, str):
                assert "\0" not in value
                assert value.encode()
    marks = digests(events)
    assert [len(mark.digest) for mark in marks] == [32] * len(events)
    assert digests(json.loads(json.dumps(events))) == marks
    invites(events, USERS)
