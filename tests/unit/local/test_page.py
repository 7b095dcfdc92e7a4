"""The page of a run: what it shows of processes and messages, and that it stays one safe file."""

from html.parser import HTMLParser
from pathlib import Path

import pytest

from corral.core.errors import UnavailableError
from corral.local import run_page
from corral.local.page import Hop, Lane, Message, Page, percentile, render
from corral.local.supervisor import Event
from tests.unit.local.simulated import clean

HOSTILE = "<script>alert(1)</script>&\"'"


class Shape(HTMLParser):
    """Counts elements, and notes what opens and is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.classes: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if tag == "rect":
            kind = dict(attrs)["class"] or ""
            self.classes[kind] = self.classes.get(kind, 0) + 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def shape(text: str) -> Shape:
    found = Shape()
    found.feed(text)
    assert found.open == []
    return found


def page(**more: object) -> Page:
    fields: dict[str, object] = {
        "title": "a run",
        "ok": True,
        "command": "./corral demo",
        "rows": [("sent", "2")],
    }
    return Page(**{**fields, **more})  # type: ignore[arg-type]


def test_processes_kills_and_messages_are_drawn() -> None:
    drawn = shape(
        render(
            page(
                lanes=[Lane("daemon", [(0, 900), (1000, 4000)], [900])],
                messages=[
                    Message("m-1", "chat ops", 100, 700.0, "answered"),
                    Message("m-2", "chat ops", 200, 800.0, "notice: interrupted"),
                    Message("m-3", "chat lab", 300, None, "nothing came back"),
                    Message("m-4", "chat lab", 300, 300, "empty: no answer is due"),
                ],
                hops=[Hop("sent to answered", [600.0, 10.0])],
            )
        )
    )
    assert drawn.classes == {"up": 2, "kill": 1, "fine": 1, "notice": 1, "lost": 1, "none": 1}
    assert drawn.counts["tr"] == 3


def test_a_page_without_a_run_is_whole() -> None:
    assert "svg" not in shape(render(page())).counts


def test_names_cannot_become_markup() -> None:
    text = render(
        page(
            title=HOSTILE, command=HOSTILE, rows=[(HOSTILE, HOSTILE)], violations=[HOSTILE],
            lanes=[Lane(HOSTILE, [(0, 1)], [1])], notes=[HOSTILE],
            messages=[Message(HOSTILE, HOSTILE, 0, 1, HOSTILE)], hops=[Hop(HOSTILE, [1.0])],
        )
    )  # fmt: skip
    assert "script" not in shape(text).counts
    assert "<script" not in text


def test_the_page_asks_nobody_for_anything() -> None:
    text = render(page(lanes=[Lane("daemon", [(0, 1)], [])]))
    assert not any(word in text for word in ("http:", "https:", "src=", "@import", "url("))


def test_a_broken_guarantee_is_said_first() -> None:
    text = render(page(ok=False, violations=["lost: m-1"]))
    assert text.index("a guarantee is broken") < text.index("lost: m-1") < text.index("<table")


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 2.0), (0.99, 4.0), (0.25, 1.0), (0.0, 1.0), (1.0, 4.0)]
)
def test_percentiles_are_values_of_the_sample(share: float, expected: float) -> None:
    assert percentile([3.0, 1.0, 4.0, 2.0], share) == expected


def test_a_lane_has_the_spans_between_starts_and_ends() -> None:
    events = [
        Event(10, "daemon", "started"),
        Event(20, "daemon", "killed"),
        Event(30, "daemon", "started"),
        Event(50, "daemon", "ended", code=-9),
        Event(60, "daemon", "started"),
        Event(90, "redis", "started"),
        Event(99, "daemon", "paused"),
    ]
    assert run_page.lanes([events[:3], events[3:]]) == [
        Lane("daemon", [(10, 20), (30, 50), (60, 99)], [20, 50]),
        Lane("redis", [(90, 99)], []),
    ]
    assert run_page.lanes([]) == []


def test_a_simulated_run_is_shown_whole() -> None:
    evidence = clean(5)
    shown = run_page.messages(evidence)
    assert len(shown) == len(evidence.sent)
    assert any(one.outcome == "answered" for one in shown)
    assert all((one.end_ms is None) == (one.outcome == "nothing came back") for one in shown)
    hops = run_page.hops(evidence)
    assert len({len(one.took_ms) for one in hops}) == 1
    assert min(ms for one in hops for ms in one.took_ms) >= 0


def test_a_page_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    run_page.write(page(), tmp_path / "new" / "run.html")
    assert (tmp_path / "new" / "run.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    with pytest.raises(UnavailableError, match="cannot write the report"):
        run_page.write(page(), tmp_path / "new" / "run.html" / "below.html")
