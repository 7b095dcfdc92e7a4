import stat
from pathlib import Path

import pytest

from corral.core.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    made = Metrics("cowboy")
    made.counter("turns", "Turns.", ["source"]).labels("a2a").inc(3)
    made.gauge("open_turns", "Open turns.").set(2)
    made.histogram("turn_seconds", "Time.", buckets=(1.0, 5.0)).observe(2)
    return made


def test_the_text_has_every_sample_and_no_creation_times(metrics: Metrics) -> None:
    lines = [line for line in metrics.render().splitlines() if not line.startswith("#")]
    assert lines == [
        'cowboy_turns_total{source="a2a"} 3.0',
        "cowboy_open_turns 2.0",
        'cowboy_turn_seconds_bucket{le="1.0"} 0.0',
        'cowboy_turn_seconds_bucket{le="5.0"} 1.0',
        'cowboy_turn_seconds_bucket{le="+Inf"} 1.0',
        "cowboy_turn_seconds_count 1.0",
        "cowboy_turn_seconds_sum 2.0",
    ]


def test_two_services_in_one_process_share_nothing(metrics: Metrics) -> None:
    other = Metrics("cowboy")
    other.gauge("open_turns", "Open turns.").set(9)
    assert "cowboy_open_turns 2.0" in metrics.render()


def test_a_name_is_given_once(metrics: Metrics) -> None:
    with pytest.raises(ValueError, match="cowboy_open_turns"):
        metrics.gauge("open_turns", "Again.")


def test_the_text_file_is_replaced_and_readable_for_all(metrics: Metrics, tmp_path: Path) -> None:
    path = tmp_path / "cowboy.prom"
    path.write_text("old")
    old = path.stat().st_ino
    metrics.write_textfile(path)
    assert path.read_text() == metrics.render()
    assert path.stat().st_ino != old
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_text_file_that_cannot_be_replaced_leaves_nothing(
    metrics: Metrics, tmp_path: Path
) -> None:
    path = tmp_path / "cowboy.prom"
    path.mkdir()
    with pytest.raises(OSError, match=r"cowboy\.prom"):
        metrics.write_textfile(path)
    assert list(tmp_path.iterdir()) == [path]
