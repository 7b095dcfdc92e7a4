"""How `cowboy doctor` shows its findings."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from corral.cowboy import view
from corral.cowboy.examined import Finding, Result

GREEN: Final = frozenset({Result.OK, Result.ABSENT})


def is_green(findings: Sequence[Finding]) -> bool:
    """Whether nothing failed and everything that applies was checked."""
    return all(finding.result in GREEN for finding in findings)


def fields(agent: str, findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "agent": agent,
        "healthy": is_green(findings),
        "checks": [
            {"check": one.check, "result": one.result, "text": one.text, "fix": one.fix or None}
            for one in findings
        ],
    }


def text(agent: str, findings: Sequence[Finding], *, show_all: bool) -> str:
    """A headline, then what is not green (or all), each with its fix."""
    counts = Counter(finding.result for finding in findings)
    parts = [f"{counts[Result.OK]} checks ok"]
    if counts[Result.FAILED]:
        parts.append(f"{counts[Result.FAILED]} FAILED")
    if counts[Result.UNKNOWN]:
        parts.append(f"{counts[Result.UNKNOWN]} could not run")
    lines = [f"agent {agent}: {', '.join(parts)}"]
    for one in findings:
        if one.result in GREEN and not show_all:
            continue
        mark = _MARKS[one.result]
        lines.append(f"{mark} {one.check}: {view.printable(one.text)}")
        if one.fix and one.result not in GREEN:
            lines.append(f"        fix: {view.printable(one.fix)}")
    return "\n".join(lines)


_MARKS: Final = {
    Result.OK: "ok     ",
    Result.FAILED: "FAILED ",
    Result.UNKNOWN: "UNKNOWN",
    Result.ABSENT: "absent ",
}
