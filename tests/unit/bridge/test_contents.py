"""What the bridge says: it fits, it is the same every time, and nothing of it wakes anybody."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.bridge.domain import ENDS, Reason
from corral.bridge.matrix.contents import (
    NOTICES,
    OUR_ID,
    PART_MAX_BYTES,
    PARTS_MAX,
    SHORTENED,
    RoomContents,
    part_id,
    split,
)
from corral.bridge.ports import Artifact, Place

PLACE = Place("!r", "$asked")
THREAD = Place("!r", "$asked", "$root")
SAY = RoomContents()
EVENT_MAX_BYTES = 65_536
ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=60)


def size(content: Any) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode())


def strings(content: Any) -> Iterator[str]:
    """All that stand in it. An agent may well say a backslash and `u0000`, as JSON escapes it."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from strings(inner)


def everything(text: str, place: Place = PLACE) -> list[Any]:
    return [
        *SAY.answer(place, text, failed=False, our_id="i"),
        *SAY.edit(place, "$p", text, failed=True, our_id="i"),
        SAY.threaded(place, text, kind="question", our_id="i"),
        SAY.threaded(place, text, kind="progress", our_id="i"),
        SAY.artifact(place, Artifact("a", text, text=text), None, our_id="i"),
        SAY.artifact(place, Artifact("a", text, data=b"x"), "mxc://x/y", our_id="i"),
        SAY.placeholder(place, our_id="i"),
        *(SAY.notice(place, reason, our_id="i") for reason in Reason),
        *(SAY.edit_notice(place, "$p", reason, our_id="i") for reason in Reason),
    ]


def test_every_reason_has_a_text_of_its_own() -> None:
    assert set(NOTICES) == set(Reason)
    assert len(set(NOTICES.values())) == len(NOTICES)


@given(ANY_TEXT, st.sampled_from([1, 500, 3_000]))
@example("\\u0000", 1)
@example("\0", 1)
def test_f46_f49_whatever_an_agent_says_fits_and_can_be_sent(text: str, times: int) -> None:
    for content in everything(text * times):
        assert size(content) < EVENT_MAX_BYTES - 8_000
        assert not any("\0" in one for one in strings(content))


@given(ANY_TEXT, st.integers(1, 400), st.integers(12, 200))
def test_parts_lose_nothing_but_space_at_their_seams(text: str, times: int, limit: int) -> None:
    whole = (text * times).encode("utf-8", "replace").decode()
    parts = split(whole, limit)
    assert all(len(json.dumps(part, ensure_ascii=False).encode()) - 2 <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(whole.split())


def test_parts_end_at_lines_where_they_can() -> None:
    assert split("aaaa\nbbbb\ncccc", 12) == ["aaaa\nbbbb", "cccc"]
    assert split("aaaa bbbb cccc", 10) == ["aaaa bbbb", "cccc"]
    assert split("a" * 25, 10) == ["a" * 10, "a" * 10, "a" * 5]


def test_an_answer_at_the_limit_is_one_event_and_one_byte_more_two() -> None:
    assert len(SAY.answer(PLACE, "x" * PART_MAX_BYTES, failed=False, our_id="i")) == 1
    parts = SAY.answer(PLACE, "x" * (PART_MAX_BYTES + 1), failed=False, our_id="i")
    assert [part[OUR_ID] for part in parts] == ["i", "i.1"] == [part_id("i", 0), part_id("i", 1)]


def test_beyond_all_parts_the_last_one_says_so() -> None:
    parts = SAY.answer(PLACE, "x" * PART_MAX_BYTES * PARTS_MAX, failed=False, our_id="i")
    assert len(parts) == PARTS_MAX
    assert parts[-1]["body"] != SHORTENED
    parts = SAY.answer(PLACE, "x" * (PART_MAX_BYTES * PARTS_MAX + 1), failed=False, our_id="i")
    assert len(parts) == PARTS_MAX
    assert parts[-1]["body"] == SHORTENED


def test_nothing_of_ours_mentions_anybody_or_is_taken_for_a_message_of_a_person() -> None:
    for content in everything("@scout look", THREAD):
        assert content["m.mentions"] == {}
        assert content[OUR_ID].startswith("i")
        assert content["msgtype"] in {"m.notice", "m.file", "m.image"}
        assert content["org.matrix.msc1767.automated"] is True


def test_the_same_is_said_the_same_way() -> None:
    assert everything("x" * 70_000, THREAD) == everything("x" * 70_000, THREAD)


def test_relations_are_those_of_the_place() -> None:
    [answer] = SAY.answer(PLACE, "x", failed=False, our_id="i")
    assert answer["m.relates_to"] == {"m.in_reply_to": {"event_id": "$asked"}}
    [answer] = SAY.answer(THREAD, "x", failed=False, our_id="i")
    assert answer["m.relates_to"] == {
        "rel_type": "m.thread",
        "event_id": "$root",
        "is_falling_back": False,
        "m.in_reply_to": {"event_id": "$asked"},
    }
    question = SAY.threaded(PLACE, "which?", kind="question", our_id="i")
    assert question["m.relates_to"]["event_id"] == "$asked"
    assert question["body"].startswith("which?\n\n(")
    [edit] = SAY.edit(PLACE, "$p", "x", failed=False, our_id="i")
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$p"}
    assert edit["m.new_content"]["body"] == "x"


def test_a_failure_is_shown_as_one_and_an_empty_answer_says_something() -> None:
    [failed] = SAY.answer(PLACE, "no disk", failed=True, our_id="i")
    assert failed["body"].endswith("\n\nno disk")
    [empty] = SAY.answer(PLACE, " \n", failed=False, our_id="i")
    assert empty["body"] == NOTICES[Reason.ANSWERED]


def test_an_unknown_reason_is_told_in_general_words() -> None:
    assert SAY.notice(PLACE, "from a later version", our_id="i")["body"]


@pytest.mark.parametrize(
    ("length", "shown"), [(10, True), (PART_MAX_BYTES - 900, True), (PART_MAX_BYTES, False)]
)
def test_the_text_of_an_artifact_is_shown_or_to_be_uploaded(length: int, shown: bool) -> None:
    assert SAY.fits(Artifact("a", "name", text="x" * length)) is shown
    content = SAY.artifact(PLACE, Artifact("a", "n" * 300, text="x" * length), None, our_id="i")
    assert (SHORTENED not in content["body"]) is shown


def test_a_picture_is_shown_as_one() -> None:
    made = Artifact("a", "p.png", data=b"1234", media_type="image/png")
    content = SAY.artifact(PLACE, made, "mxc://x/y", our_id="i")
    assert (content["msgtype"], content["url"], content["info"]["size"]) == (
        "m.image",
        "mxc://x/y",
        4,
    )
    link = Artifact("a", "page", url="https://example.org/x")
    assert "https://example.org/x" in SAY.artifact(PLACE, link, None, our_id="i")["body"]


def test_the_page_of_notices_is_complete() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/bridge-notices.md").read_text()
    for reason, text in NOTICES.items():
        assert f"| `{reason.value}` | {text} | {ENDS[reason].value} |" in page
