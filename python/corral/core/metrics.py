"""Counters, gauges and histograms, and the file from which a node exporter reads them.

Names are `<namespace>_<name>`; labels are ids and states, never content.
"""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import Counter, Gauge, Histogram

SECONDS_BUCKETS: Final = (
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    60.0,
    600.0,
)


class Metrics:
    """The metrics of one service in a registry of their own, so that tests do not share any."""

    def __init__(self, namespace: str) -> None:
        # Imported here: it costs about as much as asyncio, and most commands count nothing.
        import prometheus_client

        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._client = prometheus_client
        self._namespace = namespace
        self._registry = prometheus_client.CollectorRegistry(auto_describe=True)

    def counter(self, name: str, doc: str, labels: Sequence[str] = ()) -> "Counter":
        """A number that only grows; exposed as `<namespace>_<name>_total`."""
        return self._client.Counter(
            name, doc, labels, namespace=self._namespace, registry=self._registry
        )

    def gauge(self, name: str, doc: str, labels: Sequence[str] = ()) -> "Gauge":
        """A number that goes up and down."""
        return self._client.Gauge(
            name, doc, labels, namespace=self._namespace, registry=self._registry
        )

    def histogram(
        self,
        name: str,
        doc: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = SECONDS_BUCKETS,
    ) -> "Histogram":
        """Observations by upper bounds; the name ends with the unit, as in `turn_seconds`."""
        return self._client.Histogram(
            name,
            doc,
            labels,
            namespace=self._namespace,
            registry=self._registry,
            buckets=tuple(buckets),
        )

    def render(self) -> str:
        """Everything in the text format of Prometheus."""
        return self._client.generate_latest(self._registry).decode()

    def write_textfile(self, path: Path) -> None:
        """Replace `path` (mode 0644) in one step: a reader never sees half of it.

        Blocks on the disk, so not for the event loop. `OSError` when it cannot be written. The
        name must end in `.prom` for the node exporter to take it.
        """
        # The node exporter reads every *.prom in the directory: the temporary name must not end so.
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            temporary.write_text(self.render())
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
