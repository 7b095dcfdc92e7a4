"""What a `doctor` found: checks with a level, a stable code and what to do; how it is shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from corral.core.cli import EXIT_UNHEALTHY, Output


class Level(StrEnum):
    """Only a fault makes a service unhealthy."""

    OK = "ok"
    WARNING = "warning"
    FAULT = "fault"


MARKS: Final = {Level.OK: "ok  ", Level.WARNING: "warn", Level.FAULT: "FAIL"}


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is stable. No text holds content or a secret."""

    check: str
    level: Level
    code: str
    text: str
    hint: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "check": self.check, "level": self.level.value, "code": self.code,
            "text": self.text, "hint": self.hint,
        }  # fmt: skip


def ok(check: str, text: str) -> Finding:
    return Finding(check, Level.OK, "ok", text)


def fault(check: str, code: str, text: str, hint: str) -> Finding:
    return Finding(check, Level.FAULT, code, text, hint)


def warning(check: str, code: str, text: str, hint: str) -> Finding:
    return Finding(check, Level.WARNING, code, text, hint)


def show(output: Output, found: Sequence[Finding]) -> int:
    """Prints all of them; the exit status of the program."""
    lines = []
    for one in found:
        lines.append(f"{MARKS[one.level]} {one.check}: {one.text}")
        if one.hint and one.level is not Level.OK:
            lines.append(f"     {one.hint} [{one.code}]")
    healthy = all(one.level is not Level.FAULT for one in found)
    output.show({"healthy": healthy, "checks": [one.as_dict() for one in found]}, "\n".join(lines))
    return 0 if healthy else EXIT_UNHEALTHY
