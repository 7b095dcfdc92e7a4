"""What the judge of mentions finds; each fault is planted in a run that is right."""

import copy
from typing import Any

import pytest

from tests.vm.programs.room_judge import reconcile, unanswered

GHOST = "@echo:corral.test"


def event(ident: str, sender: str, content: dict[str, Any]) -> dict[str, Any]:
    fields = {"event_id": ident, "sender": sender, "content": content}
    return {**fields, "type": "m.room.message", "origin_server_ts": 1}


def reply(ident: str, to: str, text: str) -> dict[str, Any]:
    return event(ident, GHOST, {"body": text, "m.relates_to": {"m.in_reply_to": {"event_id": to}}})


def edit(ident: str, of: str, text: str) -> dict[str, Any]:
    relation = {"rel_type": "m.replace", "event_id": of}
    content = {"body": f"* {text}", "m.new_content": {"body": text}, "m.relates_to": relation}
    return event(ident, GHOST, content)


def said(ident: str, text: str) -> dict[str, Any]:
    return event(ident, "@a:corral.test", {"body": text})


def call(number: int, did: str = "started") -> dict[str, Any]:
    return {"did": did, "message_id": f"message-{number}", "text": f"echo said-{number}"}


MENTIONS = [{"event_id": f"${n}", "room_id": "!r", "words": f"said-{n}"} for n in range(3)]
EVENTS = [
    *(said(f"${n}", f"echo said-{n}") for n in range(3)),
    reply("$a", "$0", "said-0"),
    reply("$b", "$1", "working on it"),
    edit("$c", "$b", "said-1"),
    reply("$d", "$2", "said-2"),
]
CALLS = [call(0), call(1), call(1, "again"), call(2), {"did": "looked", "task_id": "x"}]


def violations(events: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[str]:
    found: list[str] = reconcile(MENTIONS, {"!r": events}, calls, GHOST)["violations"]
    return found


def test_a_run_that_is_right_has_no_violation() -> None:
    report = reconcile(MENTIONS, {"!r": EVENTS}, CALLS, GHOST)
    counts = {"mentions": 3, "answered": 3, "begun": 3, "sent_again": 1}
    assert report == {**counts, "violations": [], "out_of_order": []}


def test_a_placeholder_is_no_answer() -> None:
    events = [event for event in EVENTS if event["event_id"] != "$c"]
    assert unanswered(MENTIONS, {"!r": events}, GHOST) == ["said-1"]
    assert violations(events, CALLS) == ["said-1 has no answer"]


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        (reply("$e", "$0", "said-0"), "$0 has 2 replies"),
        (reply("$e", "$9", "said-9"), "a reply to $9, which nobody said"),
        (event("$e", GHOST, {"body": "hello"}), "$e answers nobody"),
    ],
)
def test_what_is_too_much_is_found(planted: dict[str, Any], found: str) -> None:
    assert violations([*EVENTS, planted], CALLS) == [found]


def test_an_answer_with_other_words_is_none() -> None:
    events = copy.deepcopy(EVENTS)
    events[3]["content"]["body"] = "said-01"
    assert violations(events, CALLS) == ["said-0 has no answer"]


def test_answers_in_another_order_are_found_and_no_violation() -> None:
    events = [*EVENTS[:3], EVENTS[6], *EVENTS[3:6]]
    report = reconcile(MENTIONS, {"!r": events}, CALLS, GHOST)
    assert report["out_of_order"][0].startswith("the order of a room")
    assert report["violations"] == []


def test_work_that_was_begun_twice_or_never_is_found() -> None:
    assert violations(EVENTS, [*CALLS, call(0)]) == [
        "message message-0 was begun 2 times",
        "said-0 was begun 2 times",
        "4 were begun, 3 were said",
    ]
    assert violations(EVENTS, CALLS[1:]) == ["said-0 was begun 0 times"]
