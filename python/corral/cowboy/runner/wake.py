"""A run without a process: a live session is woken through TAMQ, and answers by `cowboy reply`.

The answer comes by way of the daemon, which then ends the run. So this run ends by itself only
without one. What is certain of each end:

================  ==============================================================================
``killed``        the daemon ended it: answered, or cancelled
``timeout``       no answer in time; ``detail`` says whether a session was shown the wake
``start_failed``  no session was shown the wake: TAMQ refused it, or gave it up unshown
``session_ended`` the session that was shown the wake, or may have been, is gone; nobody knows what
                  it did. To the daemon that is an interruption
================  ==============================================================================

The wake's key is made of turn and attempt. So it is repeated without harm whenever its fate is
unknown: after a lost answer, by the next runner, when its session has ended unwoken. An end
withdraws the wake, which is an acknowledgement in TAMQ: what was not shown yet never is.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from corral.core import logs
from corral.core.backoff import Backoff
from corral.core.clock import mono_s
from corral.core.crashpoints import crashpoint, register
from corral.cowboy.runner.domain import (
    PrepareRequest,
    RunIdentity,
    RunOutcome,
    RunPhase,
    RunResult,
)
from corral.cowboy.runner.outcome import Cause
from corral.cowboy.runner.plan import TamqPlan
from corral.cowboy.runner.tamq_client import AskError, ask, is_live
from corral.cowboy.runner.watched import watched

WAKE_SENDING = register("runner.wake.sending", "the record says went, TAMQ was not asked")
WAKE_SENT = register("runner.wake.sent", "TAMQ has admitted the wake, nothing of that is noted")
WAKE_WITHDRAWN = register("runner.wake.withdrawn", "the wake is withdrawn, its end is not held")

CLIENT_ID: Final = "cowboy"
WITHDRAW_MAX_S: Final = 10.0
LOOK_AGAIN_S: Final = 0.3  # after a look that did not find the session
SHOWN_MAX_BYTES: Final = 128  # of a sender and of a channel, in the line above a message
RETRY_INITIAL_S: Final = 0.1
RETRY_MAX_S: Final = 5.0

# Refusals that say nothing about the next try, beside those that TAMQ calls retryable.
_PASSING: Final = frozenset({"ambiguous_endpoint", "idempotency_conflict"})
_SHOWN: Final = frozenset({"awaiting_ack", "injected", "acknowledged"})
# Why an attempt failed that certainly wrote nothing; of others nobody knows how far they came.
_NOT_WRITTEN: Final = frozenset({"line_too_long"})

_log = logs.get("cowboy.runner")


class TamqRun:
    """One wake. ``on_over`` is called once, when it is over."""

    def __init__(
        self, plan: TamqPlan, request: PrepareRequest, on_over: Callable[[], None]
    ) -> None:
        self.identity = RunIdentity(0, 0, "none")
        self.phase = RunPhase.PREPARED
        self.result: RunResult | None = None
        self.stderr_bytes = 0
        self._plan = plan
        self._request = request
        self._on_over = on_over
        self._deadline_s = mono_s() + plan.turn_timeout_s - request.waited_ms / 1000
        self._cause: Cause | None = None
        self._note = ""
        self._told = asyncio.Event()
        self._over = False
        self._message: str | None = None  # of TAMQ
        self._doubtful = request.waited_ms > 0  # there may be a wake that nobody answered for
        self._missed = 0  # looks in a row that did not find the session
        self._life: asyncio.Task[None] | None = None
        self._retry = Backoff(RETRY_INITIAL_S, RETRY_MAX_S)

    @property
    def ending(self) -> bool:
        return self._cause is not None or self._over

    @property
    def stopped(self) -> bool:
        """Whether the runner's own stop ended it: the next runner repeats the wake."""
        own_end = self.result is not None and self.result.outcome != RunOutcome.KILLED
        return self._cause is Cause.STOP and not own_end

    def go(self) -> None:
        self.phase = RunPhase.RUNNING
        self._life = watched(asyncio.get_running_loop().create_task(self._live()))

    def end(self, cause: Cause, note: str) -> None:
        """Ends it, unless it is about to end by itself."""
        if self.ending:
            return
        self._cause, self._note = cause, note
        self._told.set()
        if self._life is None:  # never told to go
            self._finish(RunResult(RunOutcome.KILLED, b"", note, went=False))

    async def _live(self) -> None:
        result = await self._until_over()
        self._over = True
        if result is not None:
            unshown = await self._withdraw()
            crashpoint(WAKE_WITHDRAWN)
            if unshown and result.outcome == RunOutcome.TIMEOUT:
                detail = f"{result.detail}; no session was shown it"
                result = _without_reply(RunOutcome.TIMEOUT, detail)
        self._finish(result)

    def _finish(self, result: RunResult | None) -> None:
        self.result = result
        self.phase = RunPhase.FINISHED
        self._on_over()

    async def _until_over(self) -> RunResult | None:
        """None when the runner stops: what becomes of the wake is for the next one."""
        while True:
            if self._cause is Cause.STOP:
                return None
            if self._cause is not None:
                return _without_reply(RunOutcome.KILLED, self._note)
            if mono_s() >= self._deadline_s:
                after = f"after {self._plan.turn_timeout_s:g} s"
                return _without_reply(RunOutcome.TIMEOUT, after)
            result, pause_s = await self._step()
            if result is not None:
                return result
            await self._pause(pause_s)

    async def _step(self) -> tuple[RunResult | None, float]:
        """The wake is sent, or looked at: its end, if that is it, and the pause until the next."""
        try:
            if self._message is None:
                await self._send()
                result = None
            else:
                result = await self._look(self._message)
        except AskError as error:
            return self._refused(error), self._retry.next_s()
        self._retry.reset()
        return result, LOOK_AGAIN_S if self._missed else self._plan.watch_s

    async def _pause(self, pause_s: float) -> None:
        left_s = max(self._deadline_s - mono_s(), 0.0)
        try:
            async with asyncio.timeout(min(pause_s, left_s)):
                await self._told.wait()
        except TimeoutError:
            pass

    # ------------------------------------------------------------ TAMQ

    async def _send(self) -> None:
        """Admits the wake, or finds it; where its session ended unwoken, another one gets it."""
        crashpoint(WAKE_SENDING)
        answer = await ask(self._plan.socket, wake_of(self._plan, self._request))
        crashpoint(WAKE_SENT)
        self._message = str(answer["message_id"])
        _log.info(
            "wake_sent",
            turn_id=self._request.turn,
            attempt=self._request.attempt,
            message_id=self._message,
            deduplicated=answer.get("deduplicated"),
        )

    async def _look(self, message: str) -> RunResult | None:
        """What became of the wake; a result when nobody can answer any more."""
        receipt = await ask(self._plan.socket, {"op": "message", "message_id": message})
        if not perhaps_shown(receipt):
            if receipt["state"] == "failed":
                why = f"tamq gave up: {receipt.get('last_failure_reason')}"
                return _without_reply(RunOutcome.START_FAILED, why)
            if receipt.get("waiting_reason") == "endpoint_gone":
                await self._send()
            return None
        live = await is_live(self._plan.socket, str(receipt["endpoint_id"]))
        self._missed = 0 if live else self._missed + 1
        if self._missed < 2:
            return None
        return _without_reply(RunOutcome.SESSION_ENDED, "the session ended")

    def _refused(self, error: AskError) -> RunResult | None:
        """The end, when it is certain that there is no wake and that there will be none."""
        # After a conflict there is a wake of this key, with words of before a change.
        self._doubtful = self._doubtful or error.doubtful or error.code == "idempotency_conflict"
        if error.retryable or error.code in _PASSING or self._message or self._doubtful:
            _log.info("wake_waits", turn_id=self._request.turn, why=error.code)
            return None
        return _without_reply(RunOutcome.START_FAILED, f"tamq refused: {error.code}")

    async def _withdraw(self) -> bool:
        """Now what was not shown yet never is. Whether it certainly was shown to no session.

        In vain when TAMQ is not there for too long.
        """
        until_s = mono_s() + WITHDRAW_MAX_S
        pauses = Backoff(RETRY_INITIAL_S, RETRY_MAX_S)
        while self._message is not None or self._doubtful:
            try:
                return await self._acknowledge()
            except AskError as error:
                if not error.retryable or mono_s() >= until_s:
                    _log.warning("wake_not_withdrawn", turn_id=self._request.turn, why=error.code)
                    return False
            await asyncio.sleep(pauses.next_s())
        return True

    async def _acknowledge(self) -> bool:
        message = self._message or await self._found()
        if message is None:
            return False  # what was asked and not answered may yet be done
        receipt = await ask(self._plan.socket, {"op": "ack", "message_id": message})
        return receipt["state_before"] == "pending" and not receipt["attempts_total"]

    async def _found(self) -> str | None:
        """The wake of this attempt, if TAMQ has one."""
        asked = {"op": "history", "client_id": CLIENT_ID, "correlation_id": self._request.turn}
        page = await ask(self._plan.socket, {**asked, "limit": 100})
        key = key_of(self._request)
        found = (one["message_id"] for one in page["messages"] if one["idempotency_key"] == key)
        return next(found, None)


def perhaps_shown(receipt: Mapping[str, Any]) -> bool:
    """False when no session was certainly shown the message."""
    attempts = receipt.get("attempts") or []
    return receipt["state"] in _SHOWN or any(
        one.get("reason") not in _NOT_WRITTEN for one in attempts
    )


def key_of(request: PrepareRequest) -> str:
    """What makes a wake the same wake, whoever sends it again."""
    return f"{request.turn}#{request.attempt}"


def wake_of(plan: TamqPlan, request: PrepareRequest) -> dict[str, object]:
    """The send of a turn's wake: the same for the same turn and attempt, whenever it is made.

    Content that is no text becomes one with marks in the place of what is none.
    """
    return {
        "op": "send",
        "client_id": CLIENT_ID,
        "idempotency_key": key_of(request),
        "correlation_id": request.turn,
        "provenance": CLIENT_ID,
        "sender_repo": "local",
        "target_repo": plan.repo,
        "metadata": {"turn_id": request.turn, "attempt": request.attempt},
        "body": _body(request),
    }


def _body(request: PrepareRequest) -> str:
    parts = [f"Turn {request.turn}"]
    for name, value in (("from", request.sender), ("in", request.channel)):
        if value:
            parts.append(f"{name} {_line(value)}")
    lines = [", ".join(parts) + ".", f"Answer with: cowboy reply {request.turn} --file FILE"]
    if request.resumed:
        lines.append("A session that was given this before has ended: it may be partly done.")
    content = request.prompt.decode(errors="replace").replace("\0", "\ufffd")
    return "\n".join([*lines, "", content])


def _line(value: bytes) -> str:
    """A field for one line of text, cut to its limit."""
    text = "".join(one if one.isprintable() else " " for one in value.decode(errors="replace"))
    return text.encode()[:SHOWN_MAX_BYTES].decode(errors="ignore")


def _without_reply(outcome: RunOutcome, detail: str) -> RunResult:
    return RunResult(outcome, b"", detail, went=True)
