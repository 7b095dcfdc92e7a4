"""What is written into a terminal: the message in its envelope, with nothing that could act.

    [TAMQ message ID, attempt 2 (may repeat an earlier one), from SENDER; confirm: tamq ack ID]
    the body, as it was sent
    [end of TAMQ message ID]

The id is random and made after the body was admitted, so no body holds the line that ends it; if
one did, the id in it would be shown broken. So everything up to the end line with the id of the
first line is body, whatever it looks like (field case F30).
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

from wcwidth import wcwidth

from corral.tamq.terminal.base import Wake

SENDER_MAX_CHARS: Final = 200
PASTE_BEGIN: Final = b"\x1b[200~"
PASTE_END: Final = b"\x1b[201~"

# C0 except tab and newline, DEL, C1: no terminal function is left, and no end of the paste.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_JOINED = str.maketrans({"\n": " \\n ", "\t": " \\t "})


@dataclass(frozen=True)
class Paste:
    """The text for one terminal, its first line, and its last, by which a part is recognised."""

    text: str
    head: str
    end: str

    @property
    def lines(self) -> int:
        return self.text.count("\n") + 1

    def typed(self, *, bracketed: bool) -> bytes:
        """The bytes for a pseudo-terminal: as every terminal does, line ends are sent as CR."""
        data = self.text.replace("\n", "\r").encode()
        return PASTE_BEGIN + data + PASTE_END if bracketed else data


def harmless(text: str) -> str:
    """The text with each control character shown as an escape; line ends become `\\n`.

    >>> harmless("safe\\x1b[201~")
    'safe\\\\x1b[201~'
    """
    return _CONTROLS.sub(_visible, text.replace("\r\n", "\n"))


def label(text: str, *, max_chars: int = SENDER_MAX_CHARS) -> str:
    """A displayed field of the header: one line, no brackets, nothing invisible, bounded."""
    shown = "".join(
        f"\\u{ord(one):04x}" if one in "[]" or unicodedata.category(one) in _UNSEEN else one
        for one in " ".join(text.split())
    )
    return shown if len(shown) <= max_chars else shown[: max_chars - 1] + "…"


_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def render(wake: Wake, *, attempt: int | None = None, one_line: bool = False) -> Paste:
    """The paste of an attempt (of this one, if not another is named).

    `one_line` is for a program that would take a line end for Enter: `\\n` and `\\t` are shown.
    """
    number = wake.attempt if attempt is None else attempt
    message_id = label(wake.message_id)
    again = " (may repeat an earlier one)" if number > 1 else ""
    head = (
        f"[TAMQ message {message_id}, attempt {number}{again}, from {label(wake.sender)};"
        f" confirm: tamq ack {message_id}]"
    )
    end = f"[end of TAMQ message {message_id}]"
    body = _without(message_id, harmless(wake.body).rstrip("\n"))
    text = "\n".join((head, body, end))
    return Paste(text.translate(_JOINED) if one_line else text, head, end)


def squeeze(text: str) -> str:
    """What two renderings of one text have in common: no blanks, no marks that may be dropped."""
    if text.isascii():
        return text.translate(_ASCII_DROPPED)
    # First what no terminal keeps: letters and marks on both sides of it may be composed then.
    seen = (one for one in text if unicodedata.category(one) not in _DROPPED)
    return "".join(
        one
        for one in unicodedata.normalize("NFC", "".join(seen))
        if not one.isspace() and unicodedata.category(one)[0] != "M" and wcwidth(one) > 0
    )


def is_rendering(shown: str, text: str) -> bool:
    """Whether `shown`, squeezed, is what a terminal makes of the text.

    Terminals lose parts of long clusters (tmux the fourth of a family): what stands behind a
    joiner may be missing, nothing may be added.
    """
    whole = squeeze(text)
    if shown == whole:
        return True
    if _JOINER not in text or len(shown) >= len(whole):
        return False
    return _is_within(shown, whole) and _is_within(squeeze(_JOINED_TO.sub("", text)), shown)


def _is_within(part: str, whole: str) -> bool:
    """Whether the characters of `part` are in `whole` in this order."""
    rest = iter(whole)
    return all(one in rest for one in part)


_JOINER: Final = "\u200d"
_JOINED_TO: Final = re.compile(_JOINER + "+.", re.DOTALL)
_ASCII_DROPPED: Final = dict.fromkeys([*range(33), 127])
_DROPPED: Final = frozenset({"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"})


def _visible(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


def _without(message_id: str, body: str) -> str:
    """The body with its own id broken, which no body holds unless ids can be guessed."""
    if not message_id or message_id.lower() not in body.lower():
        return body
    pattern = re.compile(re.escape(message_id), re.IGNORECASE)
    return pattern.sub(lambda found: f"{found[0][:-1]}\\x{ord(found[0][-1]):02x}", body)
