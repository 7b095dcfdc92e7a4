"""A file of alert rules with the real `promtool`: each fires past its limit, and none at it."""

import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.harness import promtool

ROOT: Final = Path(__file__).parents[2]
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
# An hour, a value each 15 s; what goes past its limit does so after half of it.
INTERVAL: Final = "15s"


def series(name: str, labels: Mapping[str, str]) -> str:
    """A time series as Prometheus writes it."""
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"{name}{{{inside}}}"


@dataclass(frozen=True)
class Case:
    """An alert: what goes past its limit after half an hour, and what is then said."""

    changed: str
    values: str
    severity: str
    summary: str
    page: str
    labels: Mapping[str, str] = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)  # other series that change with it
    also: frozenset[str] = frozenset()  # alerts that fire with it


@dataclass(frozen=True)
class Rules:
    """A file of rules. `at_limit`: each series, for an hour at its limit and not past it."""

    file: Path
    at_limit: Mapping[str, str]
    cases: Mapping[str, Case]

    def load(self) -> None:
        said = run_promtool("check", "rules", self.file)
        assert f"SUCCESS: {len(self.cases)} rules found" in said

    def fire(self, folder: Path) -> None:
        """`folder`: empty, for the tests that are written."""
        tests = [self._test("at the limit", {}, _silent("59m", list(self.cases)))]
        for name, case in self.cases.items():
            change = {case.changed: case.values, **case.more}
            tests.append(self._test(name, change, self._fires(name, case)))
        file = folder / "rules.test.yml"  # JSON is YAML
        wanted = {"rule_files": [str(self.file)], "evaluation_interval": INTERVAL, "tests": tests}
        file.write_text(json.dumps(wanted), encoding="utf-8")
        assert "SUCCESS" in run_promtool("test", "rules", file)

    def names(self) -> list[str]:
        """Of the alerts in the file."""
        return re.findall(r"alert: (\w+)", self.file.read_text(encoding="utf-8"))

    def used(self, prefix: str) -> set[str]:
        """Of the metrics that the file uses, without their prefix."""
        return set(re.findall(rf"\b{prefix}_(\w+)", self.file.read_text(encoding="utf-8")))

    def have_pages(self) -> None:
        """The index leads from each alert to its page, and the page names it."""
        index = (RUNBOOKS / "README.md").read_text(encoding="utf-8")
        for name, case in self.cases.items():
            assert f"`{name}`" in index, name
            assert name in (RUNBOOKS / f"{case.page}.md").read_text(encoding="utf-8")

    def _test(
        self, name: str, change: Mapping[str, str], expected: list[dict[str, Any]]
    ) -> dict[str, Any]:
        table = {**self.at_limit, **change}
        inputs = [{"series": each, "values": values} for each, values in table.items()]
        return {
            "name": name,
            "interval": INTERVAL,
            "input_series": inputs,
            "alert_rule_test": expected,
        }

    def _fires(self, name: str, case: Case) -> list[dict[str, Any]]:
        """Not at half an hour, this one alone at three quarters."""
        alert = {
            "exp_labels": {**case.labels, "severity": case.severity},
            "exp_annotations": {
                "summary": case.summary,
                "runbook": f"docs/runbooks/{case.page}.md",
            },
        }
        others = [other for other in self.cases if other not in {name, *case.also}]
        return [
            *_silent("30m", [name]),
            {"eval_time": "45m", "alertname": name, "exp_alerts": [alert]},
            *_silent("45m", others),
        ]


def run_promtool(*arguments: str | Path) -> str:
    """What it printed; it must succeed."""
    done = subprocess.run(
        [promtool.find(), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _silent(at: str, names: list[str]) -> list[dict[str, Any]]:
    return [{"eval_time": at, "alertname": name, "exp_alerts": []} for name in names]
