"""What `cowboy explain` concludes about one entry. Pure: facts in, one sentence out.

The facts are what Redis shows (`Seen`) and what the daemon's ledger knows (`Known`). The sentence
says what is certain, what is not, and what to do. A queued answer is not a delivered one, and
nobody but the world outside knows what an interrupted run did: both are said each time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from corral.cowboy.domain import pack_id
from corral.cowboy.facts import Delivery, Known, Pending, Queued, Seen

SIDE_EFFECTS: Final = (
    "the agent's own session, which may go on with it",
    "files that it may have written",
    "results of rebuilds and deployments",
    "messages, tickets and other actions that it was asked for",
)
NOTHING: Final = "nothing"

_DELIVERY: Final[Mapping[Delivery, str]] = {
    Delivery.NO_READER: "which nobody reads yet (the outbox has no group 'source')",
    Delivery.UNREAD: "which its reader has not read yet",
    Delivery.READ: "which its reader has read and not acknowledged",
    Delivery.ACKNOWLEDGED: "which its reader has acknowledged",
    Delivery.TRIMMED: "which is trimmed since, as readers do after they acknowledged",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The conclusion. `verdict` is stable: programs may match on it."""

    verdict: str
    certain: str
    uncertain: str
    todo: str
    check: Sequence[str] = field(default=())

    @property
    def sentence(self) -> str:
        return f"Certain: {self.certain}; not certain: {self.uncertain}; do: {self.todo}."


def explain(entry: str, seen: Seen, known: Known, reclaim_idle_ms: int) -> Explanation:
    """The conclusion about one entry id."""
    if known.why_not:
        return _redis_alone(entry, seen, known, reclaim_idle_ms)
    told = _told_by_ledger(entry, seen, known, reclaim_idle_ms)
    if known.verified:
        return told
    doubt = f"{told.uncertain}, and whether this is the right ledger ({known.unhealthy})"
    return replace(told, uncertain=doubt, todo=_WHOSE)


_WHOSE: Final = "settle whose ledger serves the stream first: 'cowboy doctor'"


def _told_by_ledger(entry: str, seen: Seen, known: Known, reclaim_idle_ms: int) -> Explanation:
    if known.turn is not None:
        return _of_turn(known.turn, seen, known)
    noted = _of_note(known, seen)
    if noted is not None:
        return noted
    return _without_turn(entry, seen, known, reclaim_idle_ms)


# ---------------------------------------------------------------- a turn that the ledger has


def _of_turn(turn: Mapping[str, Any], seen: Seen, known: Known) -> Explanation:
    state = str(turn["state"])
    open_state = _OPEN.get(state)
    if open_state is not None:
        return open_state(turn, seen, known)
    return _ended(turn, seen)


def _received(turn: Mapping[str, Any], seen: Seen, known: Known) -> Explanation:
    del seen
    where = "parked, its content still in Redis" if turn.get("parked") else "waiting in its channel"
    return Explanation(
        "waiting",
        f"it is in the ledger and {where}; nothing has run",
        "when its turn comes",
        f"look at what its source waits for: {known.unhealthy}" if known.unhealthy
        else "wait, or look at the turns before it with 'cowboy turns list'",
    )  # fmt: skip


def _dispatched(turn: Mapping[str, Any], seen: Seen, known: Known) -> Explanation:
    del seen
    if turn["started_at_ms"] is None:
        return Explanation(
            "starting",
            "it is committed as handed over and has certainly not started",
            "when the runner takes it",
            f"repair the runner: {known.unhealthy}" if known.unhealthy else "wait a moment",
        )
    acked = turn["ack"] == "acked"
    again = "Redis will not offer it again, " if acked else ""
    return Explanation(
        "acknowledged_unanswered" if acked else "running",
        f"its start is committed, {again}and no answer is recorded: the ledger keeps it until "
        "there is an answer or a notice",
        "whether its run has begun, and what it has done so far",
        "wait for its end or its timeout, or end it with 'cowboy turns cancel'; never send it "
        "again meanwhile",
        SIDE_EFFECTS,
    )


def _interrupted(turn: Mapping[str, Any], seen: Seen, known: Known) -> Explanation:
    del turn, seen, known
    return Explanation(
        "interrupted",
        "its run is over without a result",
        "what that run did",
        "wait a moment: the policy of its source decides next",
        SIDE_EFFECTS,
    )


def _replying(turn: Mapping[str, Any], seen: Seen, known: Known) -> Explanation:
    queued = _newest(turn, seen)
    acked = "acknowledged and " if turn["ack"] == "acked" else ""
    certain = f"it is {acked}decided ({turn['outcome']}), and the answer is kept in the ledger"
    certain += (
        f"; the outbox has it as {queued.outbox_id}, {_DELIVERY[queued.delivery]}"
        if queued
        else " until the outbox has confirmed it"
    )
    stuck = known.unhealthy or "the last events of 'cowboy status'"
    return Explanation(
        "replying", certain, "when the outbox confirms it", f"wait; if it stays, look at {stuck}"
    )


def _held(turn: Mapping[str, Any], seen: Seen, known: Known) -> Explanation:
    del seen, known
    if turn.get("released"):
        return Explanation(
            "released",
            "an operator released it, and it waits for its channel to run again",
            "what its interrupted run did",
            "wait, or end it with 'cowboy turns cancel'",
            SIDE_EFFECTS,
        )
    return Explanation(
        "held",
        "its run was interrupted, its sender was told that an operator decides, and nothing runs",
        "what the interrupted run did",
        f"find out, then 'cowboy turns release' or 'cowboy turns abandon' {turn['turn_id']}",
        SIDE_EFFECTS,
    )


_OPEN: Final[Mapping[str, Callable[[Mapping[str, Any], Seen, Known], Explanation]]] = {
    "received": _received,
    "dispatched": _dispatched,
    "interrupted": _interrupted,
    "replying": _replying,
    "held": _held,
}

# Verdict of an ended turn by its outcome: what is certain, what is not, whether effects may be.
_ANSWERED: Final = ("completed", "input_required", "failed")
_MAY_HAVE_ACTED: Final = ("interrupted", "timeout", "exit_nonzero", "output_invalid",
                          "reply_too_large", "poisoned", "abandoned", "cancelled")  # fmt: skip
_WORDS: Final[Mapping[str, str]] = {
    "interrupted": "its run was interrupted, and its sender was told that the outcome is uncertain",
    "timeout": "its run was stopped when its time was over, and its sender was told",
    "exit_nonzero": "its program ended with an error, and its sender was told",
    "output_invalid": "its program ended with output that could not be used",
    "reply_too_large": "its answer was larger than allowed, and its sender was told",
    "start_failed": "its program could not be started, so nothing ran, and its sender was told",
    "poisoned": "every one of its runs was interrupted, it was given up, and its sender was told",
    "abandoned": "an operator ended it, and its sender was told",
    "cancelled": "it was cancelled, and its sender was told",
    "payload_lost": "its content was removed before it was read, so nothing ran",
    "outbox_refused": "the outbox refused its answer, which is in its dead letter",
    "empty": "it had no usable content, so nothing ran and nobody was told",
    "cancel_applied": "it asked to cancel a turn, which is cancelled, and its sender was told",
    "cancel_too_late": "it asked to cancel a turn that had ended before, and its sender was told",
    "cancel_unknown": "it asked to cancel what the ledger does not have, and its sender was told",
}


def _ended(turn: Mapping[str, Any], seen: Seen) -> Explanation:
    outcome = str(turn["outcome"])
    queued = _newest(turn, seen)
    told = _told(queued, turn)
    if outcome in _ANSWERED:
        return Explanation(
            "answered",
            f"the agent answered ({outcome}){told}",
            "whether the platform behind the reader showed it" if queued is None
            or queued.delivery is not Delivery.UNREAD else "when its reader takes it",
            _follow(queued),
        )  # fmt: skip
    words = _WORDS.get(outcome, f"it ended without a run ({outcome}), and its sender was told")
    dead = f"; a dead letter is kept as {turn['dead_id']}" if turn.get("dead_id") else ""
    if outcome not in _MAY_HAVE_ACTED:
        return Explanation(
            outcome,
            f"{words}{told}{dead}",
            NOTHING if outcome == "empty" else "whether its sender has seen the notice",
            _AFTERWARDS.get(outcome, "tell its sender what was wrong with the message"),
        )
    verdict = (
        outcome if outcome in ("interrupted", "poisoned", "cancelled", "abandoned") else "noticed"
    )
    return Explanation(
        verdict,
        f"{words}{told}{dead}",
        "what its run did before it ended" if turn["starts"] else "nothing: it never ran",
        "find out what was done; if nothing was, 'cowboy resubmit' sends it again",
        SIDE_EFFECTS if turn["starts"] else (),
    )


_AFTERWARDS: Final = {
    "outbox_refused": "repair the outbox, then give the dead letter's answer to its sender",
    "start_failed": "repair the program, then 'cowboy resubmit'",
    "payload_lost": "ask its sender to send it again",
    "empty": "ask its sender what it meant, if it matters",
    "cancel_applied": "explain the message that it cancelled, for what that one's run did",
    "cancel_too_late": "explain the message that it meant: that one has its answer",
    "cancel_unknown": "ask its sender which message it meant; that one may still run",
}


def _newest(turn: Mapping[str, Any], seen: Seen) -> Queued | None:
    recorded = turn.get("outbox_id")
    for queued in seen.answers:
        if queued.outbox_id == recorded:
            return queued
    if recorded is not None and not seen.refused:
        return Queued(str(recorded), str(turn["outcome"]), str(turn.get("slot")), Delivery.TRIMMED)
    return seen.answers[-1] if seen.answers and recorded is None else None


def _told(queued: Queued | None, turn: Mapping[str, Any]) -> str:
    if queued is not None:
        return f"; the outbox has it as {queued.outbox_id}, {_DELIVERY[queued.delivery]}"
    if turn.get("outbox_id"):
        return f"; the ledger has its place in the outbox, {turn['outbox_id']}"
    return ""


def _follow(queued: Queued | None) -> str:
    if queued is None or queued.delivery in (Delivery.ACKNOWLEDGED, Delivery.TRIMMED):
        return "look at the destination; here nothing is left to do"
    if queued.delivery is Delivery.NO_READER:
        return "start the reader of the outbox"
    return "look at the reader of the outbox: a queued answer is not a delivered one"


# ---------------------------------------------------------------- no turn


def _of_note(known: Known, seen: Seen) -> Explanation | None:
    kinds = [str(note["kind"]) for note in known.notes]
    if "duplicate" in kinds:
        return Explanation(
            "duplicate",
            "it said the same under the same message_id as an earlier entry, so it was "
            "acknowledged and never started",
            NOTHING,
            "explain the earlier one: 'cowboy explain' takes its message_id",
        )
    if "passed_over" in kinds and not (seen.present or seen.pending or seen.answers):
        return Explanation(
            "passed_over",
            "the group was set past it, or another consumer took it, and it is trimmed since",
            "whether another consumer started it",
            "look for its effects; if there are none, ask its sender to send it again",
            SIDE_EFFECTS,
        )
    if ("trimmed" in kinds or "deleted" in kinds) and not seen.present:
        return Explanation(
            "trimmed",
            "it was removed from the stream before it was read, nothing ran and nobody was told",
            "who removed it, and what it said",
            "ask its sender to send it again; look for who trims or deletes in that stream",
        )
    return None


def _without_turn(entry: str, seen: Seen, known: Known, reclaim_idle_ms: int) -> Explanation:
    if seen.present is None:
        return Explanation(
            "unknown",
            "the ledger has no turn of it",
            f"everything else: Redis could not be read ({'; '.join(seen.refused) or 'no answer'})",
            "repair the way to Redis ('cowboy doctor') and ask again",
        )
    if seen.pending is not None:
        return _read_not_recorded(seen.pending, known, reclaim_idle_ms)
    if seen.present and _above(entry, seen.last_delivered):
        return Explanation(
            "never_read",
            "it is in the inbox and nobody has read it, so nothing ran",
            "when it will be read",
            f"its source does not read: {known.unhealthy}" if known.unhealthy
            else "wait; if it stays, 'cowboy status' shows what fills the backlog",
        )  # fmt: skip
    if seen.present:
        return Explanation(
            "passed_over",
            "it is in the inbox, the group has gone past it, and this ledger never had it",
            "whether another consumer or a former ledger started it",
            "look for its answer and its effects; if there are none, send it again with 'cowboy "
            "send'; 'cowboy doctor' finds a group that was set to '$'",
            SIDE_EFFECTS,
        )
    return _gone(entry, seen)


def _read_not_recorded(pending: Pending, known: Known, reclaim_idle_ms: int) -> Explanation:
    waited = f"{pending.idle_ms / 1000:.0f} s ago by {pending.consumer}"
    left_s = (reclaim_idle_ms - pending.idle_ms) / 1000
    again = "it can be reclaimed now" if left_s <= 0 else f"it can be reclaimed in {left_s:.0f} s"
    return Explanation(
        "read_not_recorded",
        f"it was read {waited} (delivered {times(pending.deliveries)}), is not acknowledged, and "
        "the ledger has no turn of it, so this ledger started nothing",
        "whether another consumer or a former ledger started it",
        f"its source does not work: {known.unhealthy}" if known.unhealthy
        else f"wait: {again}; never send it again while it is pending",
    )  # fmt: skip


def _gone(entry: str, seen: Seen) -> Explanation:
    if seen.answers:
        last = seen.answers[-1]
        return Explanation(
            "answered",
            f"the outbox has {last.outbox_id} ({last.outcome}) for it, {_DELIVERY[last.delivery]}, "
            "and the ledger has forgotten the turn",
            "whether the platform behind the reader showed it",
            _follow(last),
        )
    if _above(entry, seen.last_id):
        return Explanation(
            "unknown_id",
            "this stream never had an entry of that id",
            "whether Redis was emptied since",
            "check the id, the agent and the source",
        )
    return Explanation(
        "trimmed",
        "it is not in the stream, and neither the ledger nor the outbox knows of it",
        "whether it ever was there, was handled so long ago that its row is gone, or was removed "
        "before it was read",
        "ask its sender when it was sent, and look for its effects before it is sent again",
        SIDE_EFFECTS,
    )


def times(count: int) -> str:
    """`once`, `3 times`."""
    return "once" if count == 1 else f"{count} times"


def _above(entry: str, other: str | None) -> bool:
    return other is None or pack_id(entry.encode()) > pack_id(other.encode())


# ---------------------------------------------------------------- the daemon cannot be asked


def _redis_alone(entry: str, seen: Seen, known: Known, reclaim_idle_ms: int) -> Explanation:
    start = f"start the daemon ({known.why_not}) and ask again before anything else"
    ledger = "what the ledger knows: whether it started, and what it will answer"
    if seen.present is None:
        why = "; ".join(seen.refused).rstrip(".") or "no way to Redis is set up"
        todo = "repair both ('cowboy doctor' helps), and ask again before anything else"
        return Explanation("unknown", NOTHING, f"everything: {known.why_not}, and {why}", todo)
    if seen.answers:
        last = seen.answers[-1]
        return Explanation(
            "answered" if last.slot == "reply" else "noticed",
            f"the outbox has {last.outbox_id} ({last.outcome}) for it, {_DELIVERY[last.delivery]}",
            f"whether the platform showed it, and {ledger}",
            start,
            () if last.slot == "reply" else SIDE_EFFECTS,
        )
    if seen.pending is not None:
        certain = (
            f"it was read {seen.pending.idle_ms / 1000:.0f} s ago by {seen.pending.consumer}, "
            f"delivered {times(seen.pending.deliveries)}, not acknowledged, and the outbox has no "
            "answer"
        )
        young = seen.pending.idle_ms < reclaim_idle_ms
        certain += "; it is too young to be reclaimed" if young else "; no poll reaches it"
        return Explanation("pending", certain, ledger, start, SIDE_EFFECTS)
    if not seen.present:
        unknown = _gone(entry, seen)
        return Explanation(
            unknown.verdict, unknown.certain.replace("neither the ledger nor the outbox knows",
            "the outbox does not know"), ledger, start, unknown.check,
        )  # fmt: skip
    if _above(entry, seen.last_delivered):
        return Explanation(
            "never_read",
            "it is in the inbox and nobody has read it, so nothing ran",
            NOTHING,
            start,
        )
    return Explanation(
        "acknowledged_unanswered",
        "it was read and acknowledged, Redis will not offer it again, and no answer was found in "
        "the outbox" + ("" if seen.searched_all else " as far as it was searched"),
        f"{ledger}, and what its run did",
        start,
        SIDE_EFFECTS,
    )
