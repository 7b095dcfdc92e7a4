"""How a run's end and its output become a result. Pure."""

import json
from dataclasses import dataclass
from enum import StrEnum

from corral.cowboy.runner.domain import REPLY_OUTCOMES, RunOutcome, RunResult
from corral.cowboy.runner.plan import OutputRules

SIGKILL = 9


class Cause(StrEnum):
    """Why the runner ended a run itself."""

    KILL = "kill"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class End:
    """How the leader ended: by exit status or by signal, one of them set.

    ``cause`` and ``note`` say why the runner killed it, if it did. ``start_error`` is set when the
    program could not be executed. ``went`` is false when it was never told to go.
    """

    exit_status: int | None = None
    signal: int | None = None
    cause: Cause | None = None
    note: str = ""
    start_error: str | None = None
    went: bool = True


class _NotAReplyError(ValueError):
    pass


def classify(rules: OutputRules, end: End, output: bytes) -> RunResult:
    """The result of a run that is over. ``output`` is what was read of its standard output.

    A kill or timeout that came when the leader had already ended by itself changes nothing.
    """
    if not end.went:
        why = end.note or end.start_error or "ended before it was told to go"
        return _without_reply(RunOutcome.KILLED, why, end)
    if end.start_error is not None:
        return _without_reply(RunOutcome.START_FAILED, end.start_error, end)
    if end.signal == SIGKILL and end.cause in {Cause.KILL, Cause.STOP}:
        return _without_reply(RunOutcome.KILLED, end.note, end)
    if end.signal == SIGKILL and end.cause is Cause.TIMEOUT:
        return _without_reply(RunOutcome.TIMEOUT, end.note, end)
    if len(output) > rules.read_max_bytes:
        return _too_large(rules, end)
    if end.signal is not None:
        return _without_reply(RunOutcome.EXIT_NONZERO, f"signal {end.signal}", end)
    if end.exit_status != 0:
        return _without_reply(RunOutcome.EXIT_NONZERO, f"exit status {end.exit_status}", end)
    return _reply(rules, end, output)


def _reply(rules: OutputRules, end: End, output: bytes) -> RunResult:
    try:
        outcome, text = _envelope(output) if rules.envelope else _plain(output)
    except _NotAReplyError as error:
        return _without_reply(RunOutcome.OUTPUT_INVALID, str(error), end)
    if len(text) > rules.reply_max_bytes:
        return _too_large(rules, end)
    return RunResult(outcome, text, "", end.went)


def _plain(output: bytes) -> tuple[RunOutcome, bytes]:
    _decoded(output)
    return RunOutcome.COMPLETED, output


def _envelope(output: bytes) -> tuple[RunOutcome, bytes]:
    try:
        value = json.loads(_decoded(output), object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        if isinstance(error, _NotAReplyError):
            raise
        raise _NotAReplyError("not JSON") from error
    if not isinstance(value, dict) or value.keys() != {"state", "text"}:
        raise _NotAReplyError("expected an object with the keys state and text")
    state, text = value["state"], value["text"]
    if not isinstance(state, str) or state not in REPLY_OUTCOMES:
        raise _NotAReplyError("state: expected completed, input_required or failed")
    if not isinstance(text, str):
        raise _NotAReplyError("text: expected a string")
    try:
        return RunOutcome(state), text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _NotAReplyError("text: has a lone surrogate") from error


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _NotAReplyError("a key is repeated")
    return fields


def _decoded(output: bytes) -> str:
    try:
        return output.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _NotAReplyError("not UTF-8") from error


def _too_large(rules: OutputRules, end: End) -> RunResult:
    detail = f"more than {rules.reply_max_bytes} bytes"
    return _without_reply(RunOutcome.REPLY_TOO_LARGE, detail, end)


def _without_reply(outcome: RunOutcome, detail: str, end: End) -> RunResult:
    return RunResult(outcome, b"", detail, end.went)
