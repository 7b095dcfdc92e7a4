"""What a source runs: a program, its environment, its limits (`configured` makes it). Pure.
A run gets of the runner's own environment only what its plan holds (see `inherited`).
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from corral.cowboy.runner.domain import PrepareRequest

DEFAULT_ENVIRONMENT: Mapping[bytes, bytes] = {
    b"PATH": b"/usr/local/bin:/usr/bin:/bin",
    b"LANG": b"C.UTF-8",
}
TOKEN_VARIABLE = b"CORRAL_RUN_TOKEN"


class MetadataError(ValueError):
    """A value that no environment variable can hold (a NUL byte). Names the variable only."""


@dataclass(frozen=True, slots=True)
class OutputRules:
    """How standard output becomes a reply. ``envelope`` means ``output = "json"``."""

    envelope: bool
    reply_max_bytes: int

    @property
    def read_max_bytes(self) -> int:
        """Most bytes of output that can still be a reply within the limit.

        JSON may write each byte of the text as a six-byte escape, and adds the envelope's own keys.
        """
        return self.reply_max_bytes * 6 + 1024 if self.envelope else self.reply_max_bytes


@dataclass(frozen=True, slots=True)
class ExecPlan:
    command: tuple[str, ...]
    environment: Mapping[str, str]
    turn_timeout_s: float
    output: OutputRules


@dataclass(frozen=True, slots=True)
class EchoPlan:
    output: OutputRules


@dataclass(frozen=True, slots=True)
class TamqPlan:
    """A live session that serves ``repo``, woken through the TAMQ that listens at ``socket``.

    ``watch_s`` is the pause between two looks at what became of the wake.
    """

    repo: str
    socket: str
    turn_timeout_s: float
    watch_s: float = 2.0


Plan = ExecPlan | TamqPlan | EchoPlan


def run_environment(
    plan: ExecPlan, agent: str, request: PrepareRequest, token: str
) -> dict[bytes, bytes]:
    """The whole environment of a run. Raises `MetadataError`."""
    configured = {os.fsencode(key): os.fsencode(value) for key, value in plan.environment.items()}
    own = {
        b"CORRAL_AGENT": agent.encode(),
        b"CORRAL_SOURCE": request.source.encode(),
        b"CORRAL_TURN_ID": request.turn.encode(),
        b"CORRAL_ENTRY_ID": _encoded("CORRAL_ENTRY_ID", request.entry),
        b"CORRAL_SENDER": request.sender,
        b"CORRAL_CHANNEL": request.channel,
        b"CORRAL_SESSION_ID": _encoded("CORRAL_SESSION_ID", request.session),
        b"CORRAL_RESUMED": b"1" if request.resumed else b"0",
        b"TRACEPARENT": request.traceparent,
        TOKEN_VARIABLE: token.encode(),
    }
    given = {key: value for key, value in own.items() if value is not None}
    environment = {**DEFAULT_ENVIRONMENT, **configured, **given}
    for key, value in environment.items():
        if b"\0" in value:
            raise MetadataError(f"{key.decode()} contains a NUL byte")
    return environment


def _encoded(name: str, value: str) -> bytes:
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise MetadataError(f"{name} is not text") from error
