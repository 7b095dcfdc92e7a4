"""Who a message mentions, and what it says without the mention. Pure.

`m.mentions` decides where it is present, even when it is empty: that is how a client says that it
mentions nobody. Only where it is absent (older clients) are pills, then names in the text, looked
at, and never those that stand in a quotation of another message.

All of it is looked at before anybody knows whether the sender may ask for anything, and while
everything else waits: the work grows with the length of a message, whatever stands in it.
"""

import functools
import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

# A link is no mention, whatever its path or its user part are called.
# The scheme's length is bounded: else a text of dots is read to its end from each of them.
_LINK: Final = re.compile(r"(?:\b[a-z][a-z0-9+.-]{0,31}://|\bwww\.|\bmailto:)\S+", re.IGNORECASE)
_MATRIX_TO: Final = re.compile(r"https?://matrix\.to/#/((?:@|%40)[^/?#]+)", re.IGNORECASE)
_MATRIX_URI: Final = re.compile(r"matrix:u/([^/?#]+)", re.IGNORECASE)
_BEFORE: Final = r"(?<![\w@/:.+=-])"
_AFTER: Final = r"(?![\w@/=+-]|[.:]\w)"
_FALLBACK_LINE: Final = ">"
FORMATTED_MAX: Final = 65_536  # characters; a whole event has no more bytes
LABEL_MAX: Final = 255  # characters of a link's label
LABELS_MAX: Final = 16  # different labels that are taken for an address in front


@dataclass(frozen=True)
class Ghosts:
    """The users that stand for agents: full user id to the agent's key."""

    server_name: str
    by_user: Mapping[str, str]

    @classmethod
    def of(cls, server_name: str, localparts: Mapping[str, str]) -> "Ghosts":
        """From local parts to agents' keys."""
        users = {f"@{local}:{server_name}": key for local, key in localparts.items()}
        return cls(server_name, users)

    def localparts(self) -> dict[str, str]:
        """Local part (in lower case) to user id."""
        return {user[1:].partition(":")[0].lower(): user for user in self.by_user}


class Mentioned(NamedTuple):
    """The ghosts (user ids, in the order of mention), and the text without the address in front."""

    users: tuple[str, ...]
    text: str


def find(content: Mapping[str, Any], body: str, ghosts: Ghosts) -> Mentioned:
    """`body` is the message's text without quoted fallback."""
    pills = _pills(content)
    if "m.mentions" in content:
        named = _authoritative(content["m.mentions"])
    else:
        named = [user for user, _ in pills] or _in_text(body, ghosts)
    users = tuple(dict.fromkeys([user for user in named if user in ghosts.by_user]))
    labels = tuple(dict.fromkeys([label.strip() for user, label in pills if user in users]))
    return Mentioned(users, _unaddressed(body, users, labels[:LABELS_MAX]))


def without_fallback(body: str) -> str:
    """The text of a reply without the quotation that older clients put in front of it."""
    lines = body.split("\n")
    kept = 0
    while kept < len(lines) and lines[kept].startswith(_FALLBACK_LINE):
        kept += 1
    return "\n".join(lines[kept:]).lstrip("\n") if kept else body


def _authoritative(mentions: object) -> list[str]:
    users = mentions.get("user_ids") if isinstance(mentions, dict) else None
    if not isinstance(users, list):
        return []
    return [user for user in users if isinstance(user, str)]


# ---- pills ----------------------------------------------------------------------------------


# Nothing that was read is read again: possessive, and no tag reaches over the next one's beginning.
_TAG: Final = re.compile(r"<(/?)([a-z][a-z0-9-]*+)([^<>]*+)>", re.IGNORECASE)
_HREF: Final = re.compile(
    r"""(?<![\w-])href\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++))""", re.IGNORECASE
)
_QUOTED: Final = frozenset({"mx-reply", "blockquote"})


def _pills(content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """User ids that the formatted text links to outside of quotations, with the links' labels."""
    formatted = content.get("formatted_body")
    if content.get("format") != "org.matrix.custom.html" or not isinstance(formatted, str):
        return []
    if len(formatted) > FORMATTED_MAX:
        return []
    links = _links(_uncommented(formatted))
    found = ((_user_of(href), label) for href, label in links)
    return [(user, label) for user, label in found if user is not None]


def _links(shown: str) -> Iterable[tuple[str, str]]:
    quoted, href, label, end = 0, None, "", 0
    for tag in _TAG.finditer(shown):
        closes, name = tag[1], tag[2].lower()
        if href is not None:
            label = (label + shown[end : tag.start()])[:LABEL_MAX]
        end = tag.end()
        if name in _QUOTED:
            quoted = max(0, quoted - 1) if closes else quoted + 1
        elif name != "a":
            continue
        elif closes and href is not None:
            yield href, _unescaped(label)
            href = None
        elif not closes and not quoted:
            target = _HREF.search(tag[3])
            href, label = _unescaped(target[target.lastindex or 0]) if target else "", ""


def _uncommented(formatted: str) -> str:
    """Without comments; one that is not closed reaches to the end."""
    head, *others = formatted.split("<!--")
    return head + "".join(one.partition("-->")[2] for one in others)


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # a number of thousands of digits, which Python does not read
        return text


def _user_of(href: str) -> str | None:
    if found := _MATRIX_TO.match(href):
        return unquote(found[1])
    if found := _MATRIX_URI.match(href):
        return f"@{unquote(found[1])}"
    return None


# ---- names in the text ----------------------------------------------------------------------


def _name(localparts: Iterable[str], server_name: str) -> str:
    any_of = "|".join(re.escape(local) for local in sorted(localparts, key=len, reverse=True))
    return rf"@(?P<local>{any_of})(?::{re.escape(server_name)})?"


def _in_text(body: str, ghosts: Ghosts) -> list[str]:
    """`@scout`, `@scout:server`, or `scout:` and `scout,` in front of everything else."""
    by_local = ghosts.localparts()
    if not by_local:
        return []
    shown = _LINK.sub(" ", _unescaped(body))
    pattern = rf"{_BEFORE}{_name(by_local, ghosts.server_name)}{_AFTER}"
    named = [
        (found.start(), by_local[found["local"].lower()])
        for found in re.finditer(pattern, shown, re.IGNORECASE)
    ]
    any_of = "|".join(re.escape(local) for local in sorted(by_local, key=len, reverse=True))
    if front := re.match(rf"\s*(?P<local>{any_of})[:,](?:\s|$)", shown, re.IGNORECASE):
        named.append((0, by_local[front["local"].lower()]))
    return [user for _, user in sorted(named)]


def _unaddressed(body: str, users: tuple[str, ...], labels: tuple[str, ...]) -> str:
    """The text without the names in front; the whole text when it is nothing but names."""
    rest, front = body.strip(), _front(users, labels)
    if front is None:
        return rest
    at = 0
    while found := front.match(rest, at):
        at = found.end()
    return rest[at:] or rest


@functools.lru_cache(maxsize=64)
def _front(users: tuple[str, ...], labels: tuple[str, ...]) -> "re.Pattern[str] | None":
    names = {label for label in labels if label}
    for user in users:
        local = user[1:].partition(":")[0]
        names |= {user, f"@{local}", local}
    if not names:
        return None
    any_of = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    # A bare name counts only with its colon: `scout ahead` may be what is asked for. The colon of a
    # full user id is none of these.
    return re.compile(rf"(?:@(?:{_bare(names)})\s+|(?:{any_of})(?:\s*[:,]\s*|$))", re.IGNORECASE)


def _bare(names: Iterable[str]) -> str:
    return "|".join(
        re.escape(name.removeprefix("@")) for name in sorted(names, key=len, reverse=True)
    )
