"""The session of the demo's agent `pilot` reads its wakes, and answers each turn once."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cowboy.runner.domain import PrepareRequest
from corral.cowboy.runner.plan import TamqPlan
from corral.cowboy.runner.wake import wake_of
from corral.local import pilot_session
from corral.local.agent import answer, prompt_for
from corral.local.ledger import read_effects
from corral.local.pilot_session import TURN, Journal, content, work
from corral.local.session import MESSAGE
from corral.tamq.terminal.base import Wake
from corral.tamq.terminal.text import render

ID = "pilot.a2a.1.1732935482123-0"
PROMPT = prompt_for(b"close issue 7", work_s=0.001)


def shown(prompt: bytes, *, resumed: bool) -> str:
    """A turn's wake as a program sees it that reads lines."""
    request = PrepareRequest(
        turn=ID, attempt=1, source="a2a", prompt=prompt, entry="1732935482123-0", sender=b"ada",
        channel=b"!room:corral.test", session="s", resumed=resumed, traceparent=None,
    )  # fmt: skip
    body = str(wake_of(TamqPlan("helm", "/run/tamq.sock", 60.0), request)["body"])
    return render(Wake("7-ab", 1, "cowboy (uid 0, pid 1)", body), one_line=True).text + "\n"


@given(st.integers(0, 10_000), st.booleans())
def test_it_reads_what_was_said(number: int, resumed: bool) -> None:
    prompt = prompt_for(b"sesame-5d1f mention %d" % number, work_s=number / 1000)
    line = shown(prompt, resumed=resumed)
    found, turn = MESSAGE.search(line), TURN.search(line)
    assert found is not None
    assert turn is not None
    assert (found["id"], turn["turn"]) == ("7-ab", ID)
    assert content(found["body"]) == prompt


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the session answered; each answer is taken."""
    said: list[bytes] = []

    def reply(turn: str, words: bytes) -> bool:
        assert turn == ID
        said.append(words)
        return True

    monkeypatch.setattr(pilot_session, "reply", reply)
    return said


def test_a_turn_that_is_shown_twice_is_done_and_answered_once(
    tmp_path: Path, replies: list[bytes]
) -> None:
    for _ in range(2):  # two sessions, one after the other
        journal = Journal(tmp_path / "journal")
        for _ in range(2):
            work(journal, ID, PROMPT)
    assert replies == [answer(PROMPT, ID)]
    assert [one.ev for one in read_effects(tmp_path / "journal")] == ["start", "end", "taken"]


def test_what_a_killed_session_had_done_is_answered_and_not_done_again(
    tmp_path: Path, replies: list[bytes]
) -> None:
    before = Journal(tmp_path / "journal")
    before.note("start", ID)
    before.note("end", ID)
    work(Journal(tmp_path / "journal"), ID, PROMPT)
    assert replies == [answer(PROMPT, ID)]
    assert [one.ev for one in read_effects(tmp_path / "journal")] == ["start", "end", "taken"]


def test_what_a_killed_session_had_begun_is_begun_again(
    tmp_path: Path, replies: list[bytes]
) -> None:
    Journal(tmp_path / "journal").note("start", ID)
    work(Journal(tmp_path / "journal"), ID, PROMPT)
    assert len(replies) == 1
    events = [one.ev for one in read_effects(tmp_path / "journal")]
    assert events == ["start", "start", "end", "taken"]
