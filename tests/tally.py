"""A pytest plugin (`-p tests.tally --tally FILE`) that writes each outcome as it is known.

One line per fact, tab-separated, so that a run that is killed still leaves what it did:
`collected COUNT`, then `passed|failed|skipped TEST` for every test that came to its end.
An expected failure counts as skipped: it proved nothing.
"""

from pathlib import Path

import pytest


class Tally:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._outcomes: dict[str, str] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._write("collected", str(len(session.items)))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if not report.passed:
            self._write(report.outcome, report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test is skipped or failed when any of its phases was, and failed outweighs skipped."""
        known = self._outcomes.get(report.nodeid, "passed")
        if report.failed or (report.skipped and known == "passed"):
            known = report.outcome
        self._outcomes[report.nodeid] = known
        if report.when == "teardown":
            self._write(self._outcomes.pop(report.nodeid), report.nodeid)

    def pytest_unconfigure(self) -> None:
        self._file.close()

    def _write(self, kind: str, what: str) -> None:
        self._file.write(f"{kind}\t{what}\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tally", metavar="FILE", type=Path, help="append each outcome to FILE")


def pytest_configure(config: pytest.Config) -> None:
    path: Path | None = config.getoption("--tally")
    if path is not None:
        config.pluginmanager.register(Tally(path), "corral-tally")
