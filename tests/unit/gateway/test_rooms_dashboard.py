"""The Grafana dashboard of bridge and gateway shows what they count, and nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest

from corral.bridge import counts, http
from corral.core.metrics import Metrics
from corral.gateway import figures
from tests.harness.dashboards import Dashboard


def of_bridge() -> dict[str, tuple[str, ...]]:
    """The labels of each metric that is made for its intake and its ledger."""
    found: dict[str, tuple[str, ...]] = {}
    with pytest.MonkeyPatch.context() as patched:
        for kind in ("counter", "gauge", "histogram"):
            made = getattr(Metrics, kind)

            def noted(
                self: Metrics, name: str, doc: str, labels: Sequence[str] = (), made: Any = made
            ) -> Any:
                found[f"bridge_{name}"] = tuple(labels)
                return made(self, name, doc, labels)

            patched.setattr(Metrics, kind, noted)
        metrics = Metrics("bridge")
        counts.Counts(metrics)
        http.Counts(metrics)
    return found


GATEWAY = {
    f"{figures.NAMESPACE}_{name}": labels
    for name, (labels, _) in (figures.GAUGES | figures.COUNTERS).items()
}
DASHBOARD = Dashboard("rooms", of_bridge() | GATEWAY)


def test_every_metric_and_label_exists_and_every_metric_is_shown() -> None:
    DASHBOARD.check_metrics()


def test_legends_use_labels_that_the_series_has() -> None:
    DASHBOARD.check_legends()


def test_panels_are_whole_and_none_covers_another() -> None:
    DASHBOARD.check_panels()
