"""What the programs say, as lines: each shape that they have, and what is not green."""

import pytest

from corral.overview.lines import Data, Line, lines_of
from corral.overview.programs import Answer

STATUS: Data = {
    "agents": [
        {
            "agent": "scout",
            "error": None,
            "sources": [
                {
                    "source": "a2a",
                    "state": "running",
                    "healthy": True,
                    "reason": "",
                    "open": 2,
                    "turns": {"held": 1},
                    "oldest_unanswered": {"turn_id": "t-1", "age_s": 61.4},
                },
                {
                    "source": "chat",
                    "state": "paused",
                    "healthy": False,
                    "reason": "no space",
                    "open": 0,
                    "turns": {},
                    "oldest_unanswered": None,
                },
            ],
            "redis": [
                {
                    "source": "a2a",
                    "inbox": {"lag": 3},
                    "outbox": {"readers": {"source": {"lag": 4}, "audit": {"lag": None}}},
                    "dead": 5,
                }
            ],
        },
        {"agent": "smith", "error": "nobody listens", "sources": [], "redis": None},
    ]
}


def test_cowboy_says_of_each_source_what_waits() -> None:
    scout, chat, smith = lines_of("cowboy", [Answer("agents", STATUS)])
    assert scout.level == "warn"
    assert scout.text == (
        "running: 2 open, 3 unread, 4 answers unread, 5 dead, 1 held, the oldest for 61 s (t-1)"
    )
    assert (chat.what, chat.level, chat.hint) == ("scout/chat", "bad", "no space")
    assert smith == Line("cowboy", "smith", "bad", "nobody listens")


def test_tamq_counts_what_waits_and_what_failed() -> None:
    session = {"repos": ["demo", "docs"], "ready": "busy"}
    answers = [
        Answer("sessions", {"endpoints": [session]}),
        Answer("pending", {"messages": [{}] * 3, "cursor": "more"}),
        Answer("awaiting_ack", {"messages": [], "cursor": None}),
        Answer("failed", {"messages": [{}], "cursor": None}),
    ]
    live, messages = lines_of("tamq", answers)
    assert (live.what, live.text) == ("demo,docs", "live, busy")
    assert (messages.level, messages.text) == ("warn", "3+ pending, 0 awaiting ack, 1 failed")


def test_jobs_that_ended_uncertain_are_to_be_looked_at() -> None:
    found = {"jobs": [{"state": "pending"}, {"state": "ambiguous"}, {"state": "pending"}]}
    (line,) = lines_of("a2a-bridge", [Answer("jobs", found)])
    assert (line.level, line.text) == ("warn", "1 ambiguous, 2 pending")
    assert lines_of("a2a-bridge", [Answer("jobs", {"jobs": []})])[0].level == "ok"


@pytest.mark.parametrize(
    ("check", "level"),
    [
        ({"ok": True}, "ok"),
        ({"ok": False}, "bad"),
        ({"level": "warning"}, "warn"),
        ({"level": "fault"}, "bad"),
        ({"result": "ok"}, "ok"),
        ({"result": "absent"}, "ok"),
        ({"result": "failed"}, "bad"),
        ({"result": "unknown"}, "bad"),
        ({"result": "new"}, "bad"),
        ({}, "bad"),
    ],
)
def test_only_what_is_known_to_be_well_is_green(check: dict[str, object], level: str) -> None:
    data = {"checks": [{"check": "disk", "text": "so it is", **check}]}
    assert [one.level for one in lines_of("cowboy", [Answer("doctor", data)])] == [level]


def test_doctors_of_several_agents_say_of_whom_they_speak() -> None:
    check = {"check": "disk", "result": "failed", "text": "full", "fix": "make space"}
    data = {"agents": [{"agent": "scout", "checks": [check]}]}
    assert lines_of("cowboy", [Answer("doctor", data)]) == [
        Line("cowboy", "scout: disk", "bad", "full", "make space")
    ]


def test_a_service_that_does_not_answer_is_said_once() -> None:
    answers = [Answer(key, trouble="nobody listens") for key in ("sessions", "pending")]
    assert lines_of("tamq", answers) == [Line("tamq", "service", "bad", "nobody listens")]
