"""A Grafana dashboard against the metrics that there are: names, labels, legends, layout."""

import json
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "monitoring"
_DERIVED = ("_bucket", "_total")  # what Prometheus adds to the name of a histogram or counter


class Dashboard:
    """`labels`: the labels of each metric that may be asked for, by its whole name."""

    def __init__(self, name: str, labels: Mapping[str, tuple[str, ...]]) -> None:
        self.labels = labels
        self.whole: Mapping[str, Any] = json.loads((FOLDER / f"{name}.dashboard.json").read_text())
        self.panels = [panel for panel in self.whole["panels"] if panel["type"] != "row"]
        services = {metric.partition("_")[0] for metric in labels}
        self._metric = re.compile(rf"\b((?:{'|'.join(sorted(services))})_\w+)(?:\{{([^}}]*)\}})?")

    def queries(self) -> list[str]:
        return [target["expr"] for panel in self.panels for target in panel["targets"]]

    def selectors(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Each metric that is asked for, with the labels that it is narrowed by."""
        variables = self.whole["templating"]["list"]
        expressions = [*self.queries(), *(v["definition"] for v in variables if "definition" in v)]
        for expression in expressions:
            for name, inside in self._metric.findall(expression):
                yield self._known(name), dict(re.findall(r'(\w+)=~?"([^"]*)"', inside))

    def _known(self, name: str) -> str:
        for suffix in _DERIVED:
            if name not in self.labels and name.removesuffix(suffix) in self.labels:
                return name.removesuffix(suffix)
        return name

    def check_metrics(self) -> None:
        """Every metric and label exists, every metric is shown."""
        found = list(self.selectors())
        for name, labels in found:
            assert name in self.labels, f"there is no metric {name}"
            assert set(labels) <= {*self.labels[name]}, f"{name} has no such label: {labels}"
        assert {name for name, _ in found} == set(self.labels)

    def check_legends(self) -> None:
        """They use labels that the series has."""
        for panel in self.panels:
            for target in panel["targets"]:
                [(name, _), *_] = self._metric.findall(target["expr"])
                used = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert used <= {*self.labels[self._known(name)]}, target

    def check_panels(self) -> None:
        """They are whole, and none covers another."""
        panels = self.whole["panels"]
        for panel in self.panels:
            assert panel["title"]
            assert panel["description"]
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["datasource"]["uid"] == "${datasource}", "of no one's installation"
        assert len({panel["id"] for panel in panels}) == len(panels)
        for one, other in combinations((panel["gridPos"] for panel in panels), 2):
            beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
            above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
            assert beside or above
            assert max(one["x"] + one["w"], other["x"] + other["w"]) <= 24
