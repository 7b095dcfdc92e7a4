"""What the daemon asks of a `tamq run`, over that program's own socket: frames as of `tamq.wire`.

{"op": "readiness", "wake": {…} or null}    {"state", "reason", "pasted"}
{"op": "inject", "wake": {…}}               {"outcome", "reason", "typed", "enters"}
{"op": "capture"}                           {"lines": […]}
"""

from collections.abc import Mapping
from typing import Any

from corral.tamq.errors import InvalidRequestError
from corral.tamq.terminal.base import Injection, Outcome, Readiness, Ready, Wake

_WAKE_TYPES: Mapping[str, type] = {
    "message_id": str,
    "attempt": int,
    "sender": str,
    "body": str,
    "earlier_attempts": list,
}


def wake_as_dict(wake: Wake) -> dict[str, object]:
    """Without `unread`: the host outlives the daemon, and remembers by itself."""
    return {key: getattr(wake, key) for key in _WAKE_TYPES} | {
        "earlier_attempts": list(wake.earlier_attempts)
    }


def parse_wake(fields: object) -> Wake:
    """`InvalidRequestError` for anything else than `wake_as_dict` writes."""
    if not isinstance(fields, Mapping) or set(fields) != set(_WAKE_TYPES):
        raise InvalidRequestError("wake: has other keys")
    for key, kind in _WAKE_TYPES.items():
        if not isinstance(fields[key], kind):
            raise InvalidRequestError(f"wake.{key}: must be of type {kind.__name__}")
    if not all(isinstance(one, int) for one in fields["earlier_attempts"]):
        raise InvalidRequestError("wake.earlier_attempts: must be numbers")
    return Wake(**{**fields, "earlier_attempts": tuple(fields["earlier_attempts"])})


def readiness_as_dict(readiness: Readiness) -> dict[str, object]:
    return dict(vars(readiness))


def parse_readiness(fields: Mapping[str, Any]) -> Readiness:
    """`ValueError` or `KeyError` for what is none."""
    return Readiness(Ready(fields["state"]), str(fields["reason"]), bool(fields["pasted"]))


def injection_as_dict(injection: Injection) -> dict[str, object]:
    return dict(vars(injection))


def parse_injection(fields: Mapping[str, Any]) -> Injection:
    """`ValueError` or `KeyError` for what is none."""
    return Injection(
        Outcome(fields["outcome"]),
        str(fields["reason"]),
        bool(fields["typed"]),
        int(fields["enters"]),
    )
