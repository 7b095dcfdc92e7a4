"""Answers of live sessions: what `cowboy reply` asks at `reply.sock`, which does nothing else.

The answer is committed before it is acknowledged, and a repeated one is recognised: by a digest
of it that the turn keeps. So a session repeats its reply until it is told that it was taken.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from corral.core import logs
from corral.core.crashpoints import crashpoint
from corral.core.errors import UsageError
from corral.core.ids import hex_id
from corral.cowboy import points
from corral.cowboy.config import TamqRunner
from corral.cowboy.domain import REPLY_OUTCOMES, Outcome, State, parse_turn_id
from corral.cowboy.engine import Engine
from corral.cowboy.turn import Turn

if TYPE_CHECKING:
    from corral.cowboy.daemon import Daemon
    from corral.cowboy.operations import Operations

MARK_HEX: Final = 16

_log = logs.get("cowboy.replying")


class TurnOverError(UsageError):
    """The turn does not wait for an answer any more, or not yet: this one was not taken."""

    code: ClassVar[str] = "turn_not_waiting"


class Replying:
    """The handler of `reply.sock`. Runs in the daemon's event loop."""

    def __init__(self, daemon: "Daemon", operations: "Operations") -> None:
        self._daemon = daemon
        self._operations = operations

    def table(self) -> dict[str, Callable[[Mapping[str, Any]], Awaitable[Mapping[str, object]]]]:
        return {"reply": self.reply}

    async def reply(self, request: Mapping[str, Any]) -> dict[str, object]:
        """Takes the answer of a turn; `repeated` when it had been taken already."""
        engine, turn_id = self._operations.engine_of(request)
        runner = engine.config.runner
        if not isinstance(runner, TamqRunner):
            raise UsageError(
                f"turns of {engine.name} are answered by their own program",
                hint='only those of a source whose runner is "tamq" are by a session',
            )
        outcome, body = _answer(request, runner.reply_max_bytes)
        mark = f"reply {hex_id('cowboy/reply/1', turn_id, outcome, body, length=MARK_HEX)}"
        machine = engine.machine
        known = machine.book.by_id.get(turn_id) or await self._ended(engine, turn_id)
        if known.detail == mark and known.state not in (State.DISPATCHED, State.INTERRUPTED):
            return {"turn_id": turn_id, "repeated": True, "state": known.state}
        crashpoint(points.ANSWER)

        def answer() -> None:
            turn = machine.book.by_id.get(turn_id)
            if turn is None or turn.state is not State.DISPATCHED:
                raise _over(turn or known)
            machine.answered(turn, outcome, body, mark)

        await engine.command(answer)
        _log.info("answered", turn_id=turn_id, outcome=outcome, reply_bytes=len(body))
        return {"turn_id": turn_id, "repeated": False, "state": State.REPLYING}

    async def _ended(self, engine: Engine, turn_id: str) -> Turn:
        _, _, incarnation, entry = parse_turn_id(turn_id)
        turn = await engine.shared.writer.submit(
            lambda conn: engine.read_turn(conn, incarnation, entry)
        )
        if turn is None:
            raise UsageError(f"no turn {turn_id}", hint="ended turns go after their retention")
        return turn


def _answer(request: Mapping[str, Any], max_bytes: int) -> tuple[Outcome, bytes]:
    outcome = request.get("outcome", Outcome.COMPLETED)
    if outcome not in REPLY_OUTCOMES:
        raise UsageError(f"outcome is one of {', '.join(sorted(REPLY_OUTCOMES))}")
    try:
        body = base64.b64decode(request.get("body", ""), validate=True)
        body.decode()
    except (binascii.Error, TypeError, ValueError):
        raise UsageError("an answer is text in UTF-8") from None
    if len(body) > max_bytes:
        raise UsageError(
            f"the answer has {len(body)} bytes, at most {max_bytes} are taken",
            hint="shorten it, or raise reply_max_bytes of the source's runner",
        )
    return Outcome(outcome), body


def _over(turn: Turn) -> TurnOverError:
    if turn.state is State.RECEIVED:
        text, hint = "was not handed to a session yet", "wait for its wake"
    elif turn.state is State.HELD or turn.intent is State.HELD:
        text, hint = "is held: its session had ended", "an operator decides: cowboy turns release"
    else:
        text, hint = f"is over ({turn.outcome})", "its sender was told; say more in a new message"
    return TurnOverError(
        f"{turn.id} {text}; this answer was not taken", hint=hint, ids={"turn_id": turn.id}
    )
