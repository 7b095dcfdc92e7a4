"""The runner's protocol and the meaning of a run's end. Pure: no I/O.

Daemon and runner speak JSON lines over a Unix socket; bytes travel as base64. A frame, its newline
included, has at most ``FRAME_MAX_BYTES`` bytes.

Phases of a run, as a query answers them:

=============  =======================================================================
phase          meaning
=============  =======================================================================
``prepared``   its process waits at the start barrier and has executed nothing
``running``    it was told to go; it is not yet proven over
``finished``   it is over and its result is held until the daemon says ``forget``
``never_went`` it is over and certainly executed nothing (its runner died before go)
``unknown``    no such run exists any more; if it went, its outcome is lost
=============  =======================================================================
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from corral.cowboy.runner import frames
from corral.cowboy.runner.frames import Fields

PROTOCOL_VERSION = 1
FRAME_MAX_BYTES = 16 * 1024 * 1024
# A reply is sent as base64 in one frame: the largest reply_max_bytes a source may ask for.
REPLY_MAX_BYTES_LIMIT = 8 * 1024 * 1024
TURN_MAX_CHARS = 160
ATTEMPT_MAX = 1_000_000
QUERY_MAX_TURNS = 1_000

_TURN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]*\Z")


class RunPhase(StrEnum):
    PREPARED = "prepared"
    RUNNING = "running"
    FINISHED = "finished"
    NEVER_WENT = "never_went"
    UNKNOWN = "unknown"


class RunOutcome(StrEnum):
    """What a finished run came to. The first three carry a reply."""

    COMPLETED = "completed"
    INPUT_REQUIRED = "input_required"
    FAILED = "failed"
    EXIT_NONZERO = "exit_nonzero"
    TIMEOUT = "timeout"
    OUTPUT_INVALID = "output_invalid"
    REPLY_TOO_LARGE = "reply_too_large"
    START_FAILED = "start_failed"
    SESSION_ENDED = "session_ended"
    KILLED = "killed"


REPLY_OUTCOMES = frozenset({RunOutcome.COMPLETED, RunOutcome.INPUT_REQUIRED, RunOutcome.FAILED})


@dataclass(frozen=True, slots=True)
class RunResult:
    """``outcome`` is a value of `RunOutcome`; ``reply`` is empty unless the outcome carries one.

    ``detail`` is a short text without content ("exit status 3", "signal 9"). ``went`` is false only
    when the run was never told to go, so that it certainly executed nothing.
    """

    outcome: str
    reply: bytes
    detail: str
    went: bool


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Where a run lives: the leader, its start time in clock ticks since boot, and its group.

    ``group`` is ``pgid:<number>``, ``cgroup:<path>`` or ``none`` (a run without a process).
    """

    pid: int
    start_ticks: int
    group: str


# --- daemon to runner -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    protocol: int
    agent: str
    ledger: str


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """Start a run up to its barrier. Bytes are given to the run unchanged.

    ``waited_ms`` is how long ago the same attempt was started by a runner that is dead; 0 but for
    a live session, whose wake may be repeated.
    """

    turn: str
    attempt: int
    source: str
    prompt: bytes
    entry: str
    sender: bytes | None
    channel: bytes | None
    session: str
    resumed: bool
    traceparent: bytes | None
    waited_ms: int = 0


@dataclass(frozen=True, slots=True)
class Go:
    turn: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Query:
    turns: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Kill:
    turn: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class Forget:
    turn: str
    attempt: int


Request = Hello | PrepareRequest | Go | Query | Kill | Forget

# --- runner to daemon -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """Answers a hello. ``runner`` is one process of it, ``boot`` one boot of the machine."""

    protocol: int
    runner: str
    boot: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """The runner does not go on with this connection and closes it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Prepared:
    turn: str
    attempt: int
    run: RunIdentity


@dataclass(frozen=True, slots=True)
class Refused:
    """The run was not prepared; nothing of it exists. ``reason`` is a short stable text."""

    turn: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class RunState:
    """Answers a query. ``result`` is set exactly when ``state`` is `RunPhase.FINISHED`."""

    turn: str
    attempt: int
    state: RunPhase
    result: RunResult | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The run and everything it started is proven gone."""

    turn: str
    attempt: int
    result: RunResult


RunnerEvent = Prepared | Refused | RunState | Finished
Event = RunnerEvent | Welcome | Rejected

# --- frames -----------------------------------------------------------------------------------


def encode_request(request: Request) -> bytes:
    """One frame, newline included. Raises `FrameError` when it exceeds ``FRAME_MAX_BYTES``."""
    fields = {"op": _OPS[type(request)], **_request_fields(request)}
    return frames.dump(fields, FRAME_MAX_BYTES)


def decode_request(line: bytes) -> Request:
    """The request in one frame. Raises `FrameError`. Unknown keys are ignored."""
    frame = frames.load(line, FRAME_MAX_BYTES)
    match frame.text("op"):
        case "hello":
            return Hello(frame.number("protocol"), frame.text("agent"), frame.text("ledger"))
        case "prepare":
            return _prepare_from(frame)
        case "go":
            return Go(*_run(frame))
        case "query":
            return Query(_runs(frame))
        case "kill":
            return Kill(*_run(frame), frame.text("reason"))
        case "forget":
            return Forget(*_run(frame))
    raise frames.FrameError("op: not an operation of this protocol")


def encode_event(event: Event) -> bytes:
    """One frame, newline included. Raises `FrameError` when it exceeds ``FRAME_MAX_BYTES``."""
    fields = {"ev": _EVENTS[type(event)], **_event_fields(event)}
    return frames.dump(fields, FRAME_MAX_BYTES)


def decode_event(line: bytes) -> Event:
    """The event in one frame. Raises `FrameError`. Unknown keys are ignored."""
    frame = frames.load(line, FRAME_MAX_BYTES)
    match frame.text("ev"):
        case "hello":
            return Welcome(frame.number("protocol"), frame.text("runner"), frame.text("boot"))
        case "rejected":
            return Rejected(frame.text("reason"))
        case "prepared":
            run = frame.inner("run")
            identity = RunIdentity(run.number("pid"), run.number("start_ticks"), run.text("group"))
            return Prepared(*_run(frame), identity)
        case "refused":
            return Refused(*_run(frame), frame.text("reason"))
        case "state":
            return _state_from(frame)
        case "finished":
            return Finished(*_run(frame), _result_from(frame.inner("result")))
    raise frames.FrameError("ev: not an event of this protocol")


_OPS: Mapping[type[Request], str] = {
    Hello: "hello",
    PrepareRequest: "prepare",
    Go: "go",
    Query: "query",
    Kill: "kill",
    Forget: "forget",
}
_EVENTS: Mapping[type[Event], str] = {
    Welcome: "hello",
    Rejected: "rejected",
    Prepared: "prepared",
    Refused: "refused",
    RunState: "state",
    Finished: "finished",
}


def _request_fields(request: Request) -> dict[str, object]:
    match request:
        case Hello(protocol, agent, ledger):
            return {"protocol": protocol, "agent": agent, "ledger": ledger}
        case PrepareRequest():
            return _prepare_fields(request)
        case Query(turns):
            return {"turns": turns}
        case Kill(turn, attempt, reason):
            return {"turn": turn, "attempt": attempt, "reason": reason}
        case Go(turn, attempt) | Forget(turn, attempt):
            return {"turn": turn, "attempt": attempt}


def _event_fields(event: Event) -> dict[str, object]:
    match event:
        case Welcome(protocol, runner, boot):
            return {"protocol": protocol, "runner": runner, "boot": boot}
        case Rejected(reason):
            return {"reason": reason}
        case Prepared(turn, attempt, run):
            identity = {"pid": run.pid, "start_ticks": run.start_ticks, "group": run.group}
            return {"turn": turn, "attempt": attempt, "run": identity}
        case Refused(turn, attempt, reason):
            return {"turn": turn, "attempt": attempt, "reason": reason}
        case RunState(turn, attempt, state, result):
            held = {} if result is None else {"result": _result_fields(result)}
            return {"turn": turn, "attempt": attempt, "state": state.value, **held}
        case Finished(turn, attempt, result):
            return {"turn": turn, "attempt": attempt, "result": _result_fields(result)}


def _prepare_fields(request: PrepareRequest) -> dict[str, object]:
    return {
        "turn": request.turn,
        "attempt": request.attempt,
        "source": request.source,
        "prompt": frames.base64_text(request.prompt),
        "entry": request.entry,
        "sender": frames.base64_text(request.sender),
        "channel": frames.base64_text(request.channel),
        "session": request.session,
        "resumed": request.resumed,
        "traceparent": frames.base64_text(request.traceparent),
        "waited_ms": request.waited_ms,
    }


def _prepare_from(frame: Fields) -> PrepareRequest:
    turn, attempt = _run(frame)
    return PrepareRequest(
        turn=turn,
        attempt=attempt,
        source=frame.text("source"),
        prompt=frame.octets("prompt"),
        entry=frame.text("entry"),
        sender=frame.octets_or_none("sender"),
        channel=frame.octets_or_none("channel"),
        session=frame.text("session"),
        resumed=frame.flag("resumed"),
        traceparent=frame.octets_or_none("traceparent"),
        waited_ms=frame.number("waited_ms"),
    )


def _result_fields(result: RunResult) -> dict[str, object]:
    return {
        "outcome": result.outcome,
        "reply": frames.base64_text(result.reply),
        "detail": result.detail,
        "went": result.went,
    }


def _result_from(frame: Fields) -> RunResult:
    outcome = frame.member("outcome", RunOutcome)
    return RunResult(outcome, frame.octets("reply"), frame.text("detail"), frame.flag("went"))


def _state_from(frame: Fields) -> RunState:
    state = frame.member("state", RunPhase)
    finished = state is RunPhase.FINISHED
    result = _result_from(frame.inner("result")) if finished else None
    return RunState(*_run(frame), state, result)


def _runs(frame: Fields) -> tuple[tuple[str, int], ...]:
    pairs = frame.pairs("turns", QUERY_MAX_TURNS)
    return tuple(_checked_run(turn, attempt) for turn, attempt in pairs)


def _run(frame: Fields) -> tuple[str, int]:
    return _checked_run(frame.raw("turn"), frame.raw("attempt"))


def _checked_run(turn: object, attempt: object) -> tuple[str, int]:
    if not isinstance(turn, str) or len(turn) > TURN_MAX_CHARS or not _TURN.match(turn):
        raise frames.FrameError(
            f"turn: expected at most {TURN_MAX_CHARS} letters, digits and '.', '_', '-'"
        )
    if not isinstance(attempt, int) or isinstance(attempt, bool):
        raise frames.FrameError("attempt: expected a number")
    if not 1 <= attempt <= ATTEMPT_MAX:
        raise frames.FrameError(f"attempt: expected 1 to {ATTEMPT_MAX}")
    return turn, attempt
