"""The Grafana dashboard shows what the daemon writes: no metric, label or kind of its own."""

import pytest

from corral.cowboy import gauges
from tests.harness.dashboards import Dashboard

_SOURCE = ("agent", "source")
LABELS = {
    **dict.fromkeys(gauges.AGENT, ("agent",)),
    **dict.fromkeys(gauges.SOURCE, _SOURCE),
    **dict.fromkeys(gauges.STATE, (*_SOURCE, "state")),
    **dict.fromkeys(gauges.KIND, (*_SOURCE, "kind")),
}
DASHBOARD = Dashboard("cowboy", {f"cowboy_{name}": labels for name, labels in LABELS.items()})


def test_every_metric_and_label_exists_and_every_metric_is_shown() -> None:
    DASHBOARD.check_metrics()


@pytest.mark.parametrize(("label", "known"), [("kind", gauges.KINDS), ("state", gauges.STATES)])
def test_every_kind_and_state_exists(label: str, known: tuple[str, ...]) -> None:
    for name, labels in DASHBOARD.selectors():
        for value in filter(None, labels.get(label, "").split("|")):
            assert value in known, f"{name} has no {label} {value}"


def test_legends_use_labels_that_the_series_has() -> None:
    DASHBOARD.check_legends()


def test_panels_are_whole_and_none_covers_another() -> None:
    DASHBOARD.check_panels()
