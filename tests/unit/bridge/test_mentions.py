"""Mentions in messages that somebody made up: the work is bounded, and nothing is raised.

Whoever is in a room can send these, and they are looked at in the event loop before any list of
senders: a text for which the work grows with the square of its length stops the bridge.
"""

import time
from typing import Any

import pytest

from corral.bridge import mentions
from tests.unit.bridge.made import GHOSTS, SCOUT

PILL = f'<a href="https://matrix.to/#/{SCOUT}">'
SIZE = 7_500  # characters; eight times that is what an event can hold
HOSTILE = {
    "dots": "a.",
    "letters": "a",
    "base64": "QUJ+DE/x-y.",
    "names": "@scout ",
    "names with colons": "scout: ",
    "spaces": "scout  ",
    "links": "a://a ",
    "quotations": "> a\n",
    "references": "&#1",
    "comments": "<!--",
    "closed comments": "<!-- -->",
    "declarations": "<![",
    "instructions": "<?",
    "open tags": "<a ",
    "attributes": "<a href='x\" href=",
    "one tag": "href ",
    "anchors": PILL,
    "labels": f"{PILL}@scout x</a>",
    "tags in a label": "<b>x",
    "quotation tags": "<mx-reply>",
}


def find(body: str, formatted: str | None = None, **content: Any) -> mentions.Mentioned:
    if formatted is not None:
        content |= {"format": "org.matrix.custom.html", "formatted_body": formatted}
    return mentions.find(content, body, GHOSTS)


def cpu_s(piece: str, size: int) -> float:
    """What it costs at best, in this thread's time, which a loaded machine does not stretch."""
    body, best = piece * (size // len(piece)), float("inf")
    for _ in range(3):
        began = time.thread_time()
        find(mentions.without_fallback(body), PILL + body)
        find(body)
        best = min(best, time.thread_time() - began)
    return best


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_the_work_grows_with_the_length_and_not_with_its_square(piece: str) -> None:
    small, large = cpu_s(piece, SIZE), cpu_s(piece, 8 * SIZE)
    # Linear is 8 times, the square 64 times; what is too short to measure is short enough.
    assert large <= 24 * max(small, 0.002)


def test_a_number_of_thousands_of_digits_is_not_read_and_raises_nothing() -> None:
    digits = f"&#{'1' * 5_000};"
    assert find(f"@scout look {digits}").users == (SCOUT,)
    assert find("look", f"{PILL}{digits}</a>").users == (SCOUT,)
    assert find("look", f'<a href="{digits}">scout</a>').users == ()


@pytest.mark.parametrize(
    ("formatted", "named"),
    [
        (f"{PILL}scout</a> look", True),
        (f"<p>look, {PILL}<b>sc</b>out</a></p>", True),
        (f"<A class='x' HREF='https://matrix.to/#/{SCOUT}'>scout</A>", True),
        (f"<a href=https://matrix.to/#/{SCOUT}>scout</a>", True),
        (f'<a href="matrix:u/{SCOUT[1:]}?action=chat">scout</a>', True),
        ('<a href="https://matrix.to/#/&#64;scout:corral.test">scout</a>', True),
        (f"<!-- x --> {PILL}scout</a>", True),
        (f"<!-- {PILL}scout</a> -->", False),
        (f"<!-- {PILL}scout</a>", False),
        (f"<!-- <!-- --> {PILL}scout</a>", True),
        (f"<blockquote>{PILL}scout</a></blockquote>", False),
        (f"<mx-reply><blockquote>{PILL}scout</a></blockquote></mx-reply>", False),
        (f"<blockquote>x</blockquote>{PILL}scout</a>", True),
        (f'<a data-href="https://matrix.to/#/{SCOUT}">scout</a>', False),
        (f"<abbr href='https://matrix.to/#/{SCOUT}'>scout</abbr>", False),
        (f"{PILL}scout", False),
        (f"{PILL}scout</a>" + " " * mentions.FORMATTED_MAX, False),
    ],
)
def test_f48_links_of_the_formatted_text(formatted: str, named: bool) -> None:
    assert find("look", formatted).users == ((SCOUT,) if named else ())


def test_the_label_of_a_link_in_front_is_no_part_of_the_text() -> None:
    found = find("The Scout: look", f"{PILL}The <b>Scout</b></a>: look")
    assert found == mentions.Mentioned((SCOUT,), "look")


@pytest.mark.parametrize(
    "address", [f"{SCOUT} ", f"{SCOUT}: ", "@scout ", "@scout: ", "scout: ", f"{SCOUT} @scout, "]
)
def test_an_address_in_front_is_no_part_of_the_text(address: str) -> None:
    """The colon of a full user id is not the one that ends an address."""
    content = {"m.mentions": {"user_ids": [SCOUT]}}
    found = mentions.find(content, f"{address}look at it", GHOSTS)
    assert found == mentions.Mentioned((SCOUT,), "look at it")
