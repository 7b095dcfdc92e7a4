"""Sends what a capture holds again: `tamq replay FILE.jsonl`.

Each line with a body is one message: a captured exchange of `send`, or an object with the fields
of one (`sender_repo`, `target_repo`, `body`, perhaps `message_id`, `correlation_id`, `metadata`).
The key is the original message's id, or a digest of what the line says; so a second replay finds
every message there. Nothing else of the line is carried out.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from corral.core.ids import hex_id
from corral.tamq import wire
from corral.tamq.errors import InvalidRequestError, TamqError, UnavailableTamqError

CLIENT_ID: Final = "tamq-replay"
PROVENANCE: Final = "replay"
_DIGEST_TAG: Final = "corral.tamq.replay"
_CARRIED: Final = ("sender_repo", "target_repo", "correlation_id", "metadata", "body")

Ask = Callable[[Mapping[str, object]], Mapping[str, Any]]


@dataclass
class Report:
    """Line numbers start at 1. `refused` has what each refused line was told."""

    sent: list[int] = field(default_factory=list)
    deduplicated: list[int] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    refused: dict[int, dict[str, object]] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        refused = [{"line": line, **error} for line, error in self.refused.items()]
        return {
            "sent": len(self.sent),
            "deduplicated": len(self.deduplicated),
            "skipped": len(self.skipped),
            "refused": refused,
        }


def replay(lines: Iterable[bytes], ask: Ask) -> Report:
    """Send them in order. `UnavailableTamqError` of the connection itself ends the replay."""
    report = Report()
    for number, line in enumerate(lines, 1):
        try:
            request = request_of(line)
            if request is None:
                report.skipped.append(number)
                continue
            answer = ask(request)
        except UnavailableTamqError as error:
            if not error.ids:  # TAMQ itself, not the target's session
                error.message = f"line {number}: {error.message}"
                raise
            report.refused[number] = error.wire()
        except TamqError as error:
            report.refused[number] = error.wire()
        else:
            (report.deduplicated if answer["deduplicated"] else report.sent).append(number)
    return report


def request_of(line: bytes) -> dict[str, object] | None:
    """The send that a line stands for; `None` for none, `InvalidRequestError` for garbage."""
    if not line.strip():
        return None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        raise InvalidRequestError("the line is no JSON") from None
    if not isinstance(entry, dict):
        raise InvalidRequestError("the line is no JSON object")
    found = _send_of(entry)
    if found is None:
        return None
    fields, message_id = found
    if not isinstance(fields.get("body"), str):
        raise InvalidRequestError("body: is not in the capture", hint="set TAMQ_CAPTURE_BODIES")
    carried = {name: fields[name] for name in _CARRIED if fields.get(name) is not None}
    return {
        "op": "send",
        "client_id": CLIENT_ID,
        "idempotency_key": message_id if isinstance(message_id, str) else _digest(carried),
        "provenance": PROVENANCE,
        **carried,
    }


def _send_of(entry: dict[str, Any]) -> tuple[dict[str, Any], object] | None:
    """The fields and the original id; `None` for an entry that is no admitted send."""
    if "kind" not in entry:
        return entry, entry.get("message_id")
    request, answer = entry.get("request"), entry.get("answer")
    if entry["kind"] != "exchange" or not isinstance(request, dict):
        return None
    admitted = isinstance(answer, dict) and answer.get("ok") is True
    if request.get("op") != "send" or not admitted:
        return None
    return request, answer.get("message_id") if isinstance(answer, dict) else None


def _digest(fields: Mapping[str, object]) -> str:
    try:
        return hex_id(_DIGEST_TAG, wire.compact(dict(sorted(fields.items()))))
    except (ValueError, RecursionError):
        raise InvalidRequestError("the line holds what is no text") from None


def lines_of(data: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a file; one that is longer than any capture's is refused, not read."""
    for line in data:
        yield line if len(line) <= 2 * wire.FRAME_MAX_BYTES else b"too long"
