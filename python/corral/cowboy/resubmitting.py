"""Whether a message may be sent again, and as what. Pure: `cowboy resubmit` carries it out.

Sending again is the one act of the operator's procedure that can do harm, so everything that is
not certain to be over is refused, each with its reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from corral.core.errors import UsageError
from corral.core.ids import hex_id
from corral.cowboy.facts import Evidence, Known

RECONCILED_MAX_BYTES: Final = 1_000
_STILL: Final[Mapping[str, str]] = {
    "received": "it has not run yet and will: it waits in its channel",
    "dispatched": "its run may still be going on",
    "interrupted": "the policy of its source has not decided yet",
    "replying": "its answer is on the way to the outbox",
}
_KEPT: Final = ("sender", "channel", "thread", "traceparent")


class ResubmitRefusedError(UsageError):
    """The message may not be sent again: it could still run, or it has a reply."""

    code: ClassVar[str] = "resubmit_refused"


@dataclass(frozen=True)
class Again:
    """The new entry, less its own id: fields as they go to `XADD`."""

    message_id: str
    resubmit_of: str
    content: bytes
    kept: Mapping[str, bytes]  # sender, channel, thread, traceparent: what routes the reply
    reconciled: str

    def fields(self) -> list[str | bytes]:
        fields: list[str | bytes] = ["content", self.content, "message_id", self.message_id]
        for name, value in self.kept.items():
            fields += (name, value)
        return [*fields, "resubmit_of", self.resubmit_of, "reconciled", self.reconciled]


def decide(entry: str, known: Known, evidence: Evidence, note: str, content: bytes | None) -> Again:
    """The entry to add in place of `entry`. Raises ResubmitRefusedError with the reason.

    `content` is the operator's copy, for a message whose own is gone; it is not to be given when
    there is one. The same turn is always sent again under the same message id, which cowboy takes
    once: a repeated command is harmless, a second resubmission needs the new turn's id.
    """
    reason, hint = refusal(known, evidence)
    original = _content(evidence)
    if not reason and original is None and content is None:
        reason = "its content is gone from Redis and from the ledger"
        hint = "give what its sender wrote with --content -"
    elif not reason and None not in (original, content) and original != content:
        reason = "its own content is still there, and differs from yours"
        hint = "leave out --content, or use 'cowboy send' for another message"
    if reason:
        raise ResubmitRefusedError(
            f"{entry} is not sent again: {reason}", hint=hint, ids={"entry": entry}
        )
    turn: Mapping[str, Any] = known.turn or {}
    return Again(
        hex_id("cowboy/resubmit/1", str(turn["turn_id"])),
        entry,
        original if original is not None else content or b"",
        _binding(turn, evidence),
        check_note(note),
    )


def check_note(note: str) -> str:
    """The operator's word on what became of the first run. Raises UsageError."""
    if not note.strip() or not note.isprintable():
        raise UsageError(
            "--reconciled needs a line of text", hint="say what you found that the first run did"
        )
    if len(note.encode(errors="replace")) > RECONCILED_MAX_BYTES:
        raise UsageError(f"--reconciled has more than {RECONCILED_MAX_BYTES} bytes")
    return note


def refusal(known: Known, evidence: Evidence) -> tuple[str, str]:
    """Why not, and what to do instead; two empty texts when it may be sent again."""
    if known.why_not:
        return f"the daemon cannot be asked whether it runs ({known.why_not})", "start it first"
    if not known.verified:
        why = known.unhealthy or "its source is not at work yet"
        return f"this may not be the right ledger ({why})", "'cowboy doctor' tells more"
    turn, seen = known.turn, evidence.seen
    if seen.refused or seen.present is None:
        why = "; ".join(seen.refused) or "no answer"
        return f"Redis could not be read ({why})", "'cowboy doctor' finds what is wrong"
    if turn is None:
        return _without_turn(known, evidence)
    state, outcome = str(turn["state"]), str(turn["outcome"])
    show = f"'cowboy explain' {turn['turn_id']} tells more"
    if turn["kind"] == "cancel":
        return "it is a request to cancel", "use 'cowboy turns cancel'"
    if state == "held":
        if turn.get("released"):
            return "it was released and will run again", show
        return "it is held and could still run", "'cowboy turns release' runs it again"
    if state in _STILL:
        return _STILL[state], show
    if evidence.resubmitted_as:
        again = evidence.resubmitted_as
        return f"it was sent again already, as {again}", f"explain {again} instead"
    sent = next((n for n in known.notes if n["kind"] == "resubmitted"), None)
    if sent is not None:
        return f"it was sent again already, {str(sent['detail']).partition(':')[0]}", show
    if turn.get("slot") == "reply" or any(queued.slot == "reply" for queued in seen.answers):
        return f"it has a reply ({outcome})", show
    if outcome == "outbox_refused" and (evidence.dead or {}).get(b"reply") is not None:
        return "its reply is in its dead letter", "give that one to its sender"
    if state == "empty":
        return "it had no content", "ask its sender what it meant"
    return "", ""


def _without_turn(known: Known, evidence: Evidence) -> tuple[str, str]:
    kinds = [str(note["kind"]) for note in known.notes]
    seen = evidence.seen
    if "duplicate" in kinds:
        return "it is a duplicate of an earlier message", "explain its message_id"
    if seen.pending is not None:
        return "it is pending and could still run", "wait until it is reclaimed"
    if seen.answers:
        return "it has an answer in the outbox", "explain it to see which"
    if seen.present:
        return (
            "it is in the inbox and this ledger has no turn of it: it could still run",
            "'cowboy explain' says which; 'cowboy send' adds a message without its past",
        )
    return (
        "neither the ledger nor Redis knows of it",
        "use 'cowboy send' with --sender and --channel, when its sender has said what it was",
    )


def _content(evidence: Evidence) -> bytes | None:
    for fields in (evidence.fields, evidence.dead):
        if fields and fields.get(b"content", b"").strip():
            return fields[b"content"]
    return None


def _binding(turn: Mapping[str, Any], evidence: Evidence) -> dict[str, bytes]:
    """What routes the reply: byte for byte from Redis, else as the ledger kept it."""
    fields = evidence.fields or evidence.dead
    kept = {}
    for name in _KEPT:
        value = fields.get(name.encode()) if fields else None
        if value is None and turn.get(name) is not None:
            value = str(turn[name]).encode()
        if value is not None:
            kept[name] = value
    return kept
