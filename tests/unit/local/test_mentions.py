"""The model of mentions finds nothing in a clean run, and each kind of fault in a spoilt one."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from corral.bridge.matrix.contents import PLACEHOLDER
from corral.local.bridge_stack import BRIDGE, POSTGRES, SYNAPSE, ghost_of
from corral.local.evidence import Effect, Evidence, TurnRow, sha
from corral.local.front import GATEWAY
from corral.local.mentions import (
    AGENT,
    GHOSTS,
    KILLS,
    LIVE_ROOMS,
    PILOT_KILLS,
    ROOMS,
    add_turns,
    plan,
    plan_kills,
)
from corral.local.mentions_model import (
    LIVE,
    Asked,
    MentionEvidence,
    Told,
    add_jobs,
    hops,
    judge,
    messages,
    told_in,
)
from corral.local.pilot import PILOT_DAEMON, PILOT_RUNNER

COUNT = 8


def agent_of(number: int) -> str:
    return LIVE if number >= COUNT - 2 else AGENT


def turn_id(number: int) -> str:
    return f"{agent_of(number)}.a2a.1.{number}"


def turn(number: int, **changes: object) -> TurnRow:
    fields: dict[str, object] = {
        "source": "a2a", "turn_id": turn_id(number), "entry_id": f"{1000 + number * 100}-0",
        "kind": "message", "state": "done", "outcome": "completed", "ack": "acked", "starts": 1,
        "scrubbed": True, "message_id": f"m-{number}", "channel": "c",
    }  # fmt: skip
    return TurnRow(**{**fields, **changes})  # type: ignore[arg-type]


def clean() -> MentionEvidence:
    """Two rooms; each mention is begun 10 ms after its entry and answered 50 ms later.

    The last two are the live session's.
    """
    found = MentionEvidence(planned=COUNT)
    for number in range(COUNT):
        at_ms, room_id = 1000 + number * 100, f"!{number % 2}"
        words = f"mention {number}"
        digest, agent = sha(words.encode())[:32], agent_of(number)
        found.asked.append(
            Asked(number, agent, "ada", room_id, words, f"$e{number}", at_ms, number)
        )
        answer = f"answer {digest} {turn_id(number)}"
        found.told.append(Told(agent, f"$e{number}", room_id, answer, at_ms + 60, True))
        found.turns.append(turn(number))
        for ev, after in (("start", 10), ("end", 50)):
            found.effects.append(Effect(ev, turn_id(number), number, at_ms + after))
    return found


def test_nothing_is_found_in_a_clean_run() -> None:
    report = judge(clean())
    assert report.ok
    assert (report.summary.asked, report.summary.answered, report.summary.notices) == (8, 8, 0)
    assert (report.summary.asked_live, report.summary.answered_live) == (2, 2)
    assert all(one.outcome == "answered" for one in messages(clean()))
    assert {one.name: one.took_ms[0] for one in hops(clean())} == {
        f"{way}: {name}": took_ms
        for way in ("room", "room, live session")
        for name, took_ms in (
            ("mention to the agent's inbox", 0),
            ("inbox to the agent's start", 10),
            ("the agent at work", 40),
            ("the agent's end to the room", 10),
            ("mention to answer", 60),
        )
    }


def nobody_answers(found: MentionEvidence) -> None:
    del found.told[3]


def a_placeholder_stands(found: MentionEvidence) -> None:
    found.told[3] = replace(found.told[3], text=PLACEHOLDER, final=False)


def told_twice(found: MentionEvidence) -> None:
    found.told.append(found.told[3])


def mixed_up(found: MentionEvidence) -> None:
    found.told[3] = replace(found.told[3], text=found.told[5].text)


def started_twice(found: MentionEvidence) -> None:
    found.effects.append(Effect("start", turn_id(3), 99, 5000))


def begun_again(found: MentionEvidence) -> None:
    """As after a killed session, which was not killed."""
    found.effects.append(Effect("start", turn_id(7), 99, 5000))


def begun_again_before(found: MentionEvidence) -> None:
    begun_again(found)
    found.session_ends_ms = [1, 5001]


def the_program_too(found: MentionEvidence) -> None:
    """The session's end is no excuse for it."""
    started_twice(found)
    found.session_ends_ms = [4999]


def two_live_turns(found: MentionEvidence) -> None:
    found.turns.append(turn(7, turn_id=f"{LIVE}.a2a.1.99"))
    found.effects.append(Effect("start", f"{LIVE}.a2a.1.99", 99, 5000))
    found.session_ends_ms = [4999]


def another_agent(found: MentionEvidence) -> None:
    found.told[3] = replace(found.told[3], agent=LIVE)


def an_open_turn(found: MentionEvidence) -> None:
    found.turns[3] = turn(3, state="dispatched")


def content_is_kept(found: MentionEvidence) -> None:
    found.turns[3] = turn(3, scrubbed=False)


def the_session_does_nothing(found: MentionEvidence) -> None:
    for number in (6, 7):
        found.told[number] = replace(found.told[number], text="The agent was interrupted.")


def two_turns(found: MentionEvidence) -> None:
    found.turns.append(turn(3, turn_id=f"{AGENT}.a2a.1.99"))
    found.effects.append(Effect("start", f"{AGENT}.a2a.1.99", 99, 5000))


def out_of_order(found: MentionEvidence) -> None:
    found.asked[3] = replace(found.asked[3], place=90)


def unsent(found: MentionEvidence) -> None:
    found.planned += 1


def uncertain(found: MentionEvidence) -> None:
    found.jobs["ambiguous"] = 1


def a_reply_to_nothing(found: MentionEvidence) -> None:
    found.told.append(Told(AGENT, "$unknown", "!0", "hello", 1, True))


@pytest.mark.parametrize(
    ("spoil", "rules"),
    [
        (nobody_answers, {"mention_lost"}),
        (a_placeholder_stands, {"mention_lost"}),
        (told_twice, {"mention_told_twice"}),
        (mixed_up, {"mention_mixed_up"}),
        (started_twice, {"mention_started_twice"}),
        (two_turns, {"mention_started_twice"}),
        (begun_again, {"mention_started_twice"}),
        (begun_again_before, {"mention_started_twice"}),
        (the_program_too, {"mention_started_twice"}),
        (two_live_turns, {"mention_started_twice"}),
        (another_agent, {"mention_mixed_up"}),
        (an_open_turn, {"mention_turn"}),
        (content_is_kept, {"mention_turn"}),
        (the_session_does_nothing, {"mention_not_shown"}),
        (out_of_order, {"mention_order"}),
        (unsent, {"not_sent"}),
        (uncertain, {"mention_job"}),
        (a_reply_to_nothing, {"mention_stranger"}),
    ],
)
def test_each_fault_is_found(spoil: Callable[[MentionEvidence], None], rules: set[str]) -> None:
    found = clean()
    spoil(found)
    assert {violation.rule for violation in judge(found).violations} == rules


def test_a_notice_is_an_end_and_no_answer() -> None:
    found = clean()
    found.told[3] = replace(found.told[3], text="The agent reports that it failed.")
    report = judge(found)
    assert report.ok
    assert (report.summary.answered, report.summary.notices) == (7, 1)


def test_after_a_killed_session_the_next_one_may_begin_again() -> None:
    found = clean()
    begun_again(found)
    found.session_ends_ms = [4999]
    report = judge(found)
    assert report.ok
    assert (report.summary.started_twice, report.summary.handed_on) == (0, 1)


def test_agents_are_asked_apart_and_kept_in_order_apart() -> None:
    """In a room the program may begin a later mention before the session begins an earlier one."""
    found = clean()
    found.asked[1] = replace(found.asked[1], place=90)  # behind 3 and 5, which are the program's
    found.asked[7] = replace(found.asked[7], place=0)
    assert {one.rule for one in judge(found).violations} == {"mention_order"}
    assert [one.ids for one in judge(found).violations] == [("$e1",)]


def event(number: int, body: str, relation: dict[str, Any], **more: object) -> dict[str, Any]:
    content: dict[str, Any] = {"body": body, "m.relates_to": relation}
    fields: dict[str, object] = {
        "event_id": f"$g{number}", "sender": ghost_of(AGENT), "type": "m.room.message",
        "origin_server_ts": number, "room_id": "!r", "content": content,
    }  # fmt: skip
    return {**fields, **more}


def test_what_rooms_show_is_read_with_its_edits() -> None:
    reply = {"m.in_reply_to": {"event_id": "$a"}}
    edit = {"rel_type": "m.replace", "event_id": "$g1"}
    edited = event(2, "* done", edit)
    edited["content"]["m.new_content"] = {"body": "done"}
    others = [
        event(3, "hello", reply, sender="@ada:corral.test"),
        event(4, "plain", {}),
    ]
    assert told_in([event(1, PLACEHOLDER, reply), edited, *others], GHOSTS) == [
        Told(AGENT, "$a", "!r", "done", 2, True)
    ]
    live = event(1, "done", reply, sender=ghost_of(LIVE))
    assert [one.agent for one in told_in([live], GHOSTS)] == [LIVE]
    assert [one.final for one in told_in([event(1, PLACEHOLDER, reply)], GHOSTS)] == [False]


def test_jobs_say_in_which_order_they_were_taken_and_what_is_open() -> None:
    found = MentionEvidence(asked=[replace(one, place=0) for one in clean().asked[:3]])
    states = {"$e1": "delivered", "$e0": "awaiting_task", "$stranger": "denied"}
    add_jobs(found, [{"event_id": name, "state": state} for name, state in states.items()])
    assert [one.place for one in found.asked] == [1, 2, -1]
    assert found.jobs == {"awaiting_task": 1}


def test_the_turns_of_the_gateway_are_judged_with_the_mentions() -> None:
    other = replace(turn(1), source="chat", turn_id="other")
    inbound = Evidence(
        rows=[turn(0), other],
        effects=[Effect("start", turn_id(0), 1, 1.0), Effect("start", "other", 2, 1.0)],
    )
    mentions = MentionEvidence(turns=[turn(7)])
    add_turns(mentions, inbound)
    assert mentions.turns == [turn(7), turn(0)]
    assert inbound.rows == [other]
    assert [one.turn for one in mentions.effects] == [turn_id(0)]
    assert [one.turn for one in inbound.effects] == ["other"]


def test_every_room_is_asked_in_and_every_process_killed_twice(seed: int) -> None:
    planned = plan(random.Random(seed))
    everywhere = {(room, AGENT) for room in range(ROOMS)}
    live = {(room, LIVE) for room in range(LIVE_ROOMS)}
    assert {(one.room, one.agent) for one in planned} == everywhere | live
    assert planned == plan(random.Random(seed))
    kills = Counter(name for _, name in plan_kills(random.Random(seed), KILLS))
    assert kills == {BRIDGE: 2, GATEWAY: 2, POSTGRES: 2, SYNAPSE: 2}
    kills = Counter(name for _, name in plan_kills(random.Random(seed), PILOT_KILLS))
    assert kills == {PILOT_DAEMON: 2, PILOT_RUNNER: 2}
