"""Plans are seeded and honest about what they send; the board counts what waits for an answer."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.local.agent import parse
from corral.local.demo import (
    CHANNELS,
    KILLS,
    SENDERS,
    SOURCES,
    Settings,
    planned_kills,
    planned_messages,
)
from corral.local.demo import parse as parse_demo
from corral.local.evidence import Binding, Seen, Sent
from corral.local.plan import SECRET_WORD, Mix, Planned, Planner
from corral.local.workload import Board, entries_of

MIX = Mix(sources=("a2a", "echo"), count=40, duration_s=2.0)

PAIRS = {b"content": b"hi", b"n": b"1"}
FLAT = [b"content", b"hi", b"n", b"1"]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (None, []),
        ([], []),
        ({}, []),
        ([[b"s", []]], []),
        ({b"s": []}, []),
        ({b"s": [[]]}, []),
        ([[b"s", [(b"1-0", PAIRS)]]], [("1-0", PAIRS)]),
        ([[b"s", [[b"1-0", FLAT], [b"2-0", None]]]], [("1-0", PAIRS), ("2-0", {})]),
        ({b"s": [[(b"1-0", PAIRS), (b"2-0", {})]]}, [("1-0", PAIRS), ("2-0", {})]),
        ({b"s": [[b"1-0", FLAT]]}, [("1-0", PAIRS)]),
    ],
)
def test_every_shape_of_an_answer(answer: Any, found: list[tuple[str, dict[bytes, bytes]]]) -> None:
    assert entries_of(answer) == found


@given(st.integers(0, 2**32))
def test_plans_repeat_and_add_up(seed: int) -> None:
    planned = Planner(random.Random(seed), MIX).plan()
    assert planned == Planner(random.Random(seed), MIX).plan()
    assert len(planned) == MIX.count
    assert [item.at_s for item in planned] == sorted(item.at_s for item in planned)
    by_key = {item.key: item for item in planned}
    assert len(by_key) == len(planned)
    for item in planned:
        assert item.source in MIX.sources
        if item.label == "normal":
            assert parse(item.fields[b"content"])[0] == item.action or item.action == "answer"
        if item.target is not None:
            assert by_key[item.target].at_s <= item.at_s
            assert by_key[item.target].source == item.source


@given(st.integers(0, 2**32))
def test_only_equal_sends_say_the_same(seed: int) -> None:
    planned = Planner(random.Random(seed), MIX).plan()
    groups: dict[tuple[str, str | None, str], list[Planned]] = {}
    for item in planned:
        key = (item.source, item.binding.message_id, item.said(b""))
        groups.setdefault(key, []).append(item)
    for group in groups.values():
        assert len({tuple(sorted(item.fields.items())) for item in group}) == 1
    repeated = sum(item.label == "duplicate" for item in planned)
    assert len(planned) - len(groups) == repeated


def sent(entry_id: str, *, lost: int = 0, label: Any = "normal") -> Sent:
    return Sent(1, "a2a", entry_id, label, Binding(), "said", "content", 1, lost_answers=lost)


def seen(in_reply_to: str, outbox_id: str, outcome: str = "completed") -> Seen:
    return Seen("a2a", outbox_id, in_reply_to, "t", outcome, "reply", "", "", Binding(), 1)


def test_board_counts_what_waits() -> None:
    board = Board()
    board.note_sent(sent("1-0"))
    board.note_sent(sent("2-0", lost=1))  # may be a duplicate of itself
    board.note_sent(sent("3-0", label="empty"))
    board.note_sent(sent("4-0", label="duplicate"))
    assert board.in_flight() == 1
    assert board.note_seen(seen("1-0", "9-0"))
    assert not board.note_seen(seen("1-0", "9-0"))
    assert board.in_flight() == 0
    assert board.note_seen(seen("5-0", "9-1"))
    board.note_sent(sent("5-0"))  # the answer was faster than the sender's own
    assert board.in_flight() == 0


def test_board_knows_what_is_held() -> None:
    board = Board()
    board.note_seen(seen("1-0", "9-0", "held"))
    board.note_seen(seen("2-0", "9-1", "held"))
    assert (board.held("a2a"), board.held("chat")) == (2, 0)
    board.note_seen(seen("1-0", "10-0", "completed"))
    assert board.held("a2a") == 1


def test_demo_plan_has_senders_channels_and_kills() -> None:
    planned = planned_messages(Settings(seed=1), random.Random(1))
    assert {item.fields[b"sender"].decode() for item in planned} == set(SENDERS)
    assert {item.fields[b"channel"].decode() for item in planned} == set(CHANNELS)
    assert {item.source for item in planned} == set(SOURCES)
    assert len({item.binding.message_id for item in planned}) == len(planned)
    assert all(SECRET_WORD.encode() in item.fields[b"content"] for item in planned)
    kills = planned_kills(random.Random(1), 13.0)
    assert sorted(kill.processes for kill in kills) == sorted(KILLS)
    assert [kill.at_s for kill in kills] == sorted(kill.at_s for kill in kills)


def test_demo_command_repeats_a_run() -> None:
    settings = parse_demo(["--seed", "7", "--messages", "20", "--server", "valkey"])
    assert settings.command == "./corral demo --seed 7 --messages 20 --server valkey"
    assert parse_demo([]).seed != parse_demo([]).seed
    with pytest.raises(SystemExit):
        parse_demo(["--messages", "5"])
