"""What the benchmark makes of its figures; that it measures is tested in the contract stage."""

import json
import os
from typing import Any

import pytest

from tests.bench import inbound, report
from tests.bench.figures import Run, disk, percentiles
from tests.bench.stand import CONTENT_BYTES, message, milliseconds, usage

MIB = 1024 * 1024


def run(per_s: float) -> Run:
    return Run(per_s, 50.0, 20.0, 50 * MIB, 60 * MIB)


def figures(**changes: Any) -> dict[str, Any]:
    return {
        "disk": {"append_and_fsync_per_s": 5000.0, "sqlite_full_commits_per_s": 2500.0},
        "throughput": {
            "contenders": {"cowboy": dict(vars_of(run(20_000)))},
            "ratios": {"of_bare": 0.6, "of_bare_by_cpu": 0.55, "of_best_peer": 6.0},
        },
        "after_a_kill_s": {"median": 0.7, "max": 0.9},
        "growth": {
            "turns": 10,
            "file_mib": 1.0,
            "plain": {"ratio": 1.1},
            "named": {"ratio": 1.2},
        },
    } | changes


def vars_of(one: Run) -> dict[str, float]:
    return {name: getattr(one, name) for name in Run.__dataclass_fields__}


def test_ratios_are_taken_within_rounds_and_against_the_best_library() -> None:
    rounds = [
        {
            "bare loop": run(bare),
            "naive ledger": run(10),
            "cowboy": run(cowboy),
            "FastStream": run(5),
            "taskiq-redis": run(10),
        }
        for bare, cowboy in ((100, 50), (1000, 100), (200, 100))
    ]
    found = inbound.ratios(rounds)
    assert {name: found[name] for name in ("of_bare", "of_naive", "of_best_peer")} == {
        "of_bare": 0.5,
        "of_naive": 10.0,
        "of_best_peer": 10.0,
    }


def test_cpu_time_is_that_of_process_and_server_and_of_the_cheapest_library() -> None:
    def spent(cpu_us: float, server_cpu_us: float) -> Run:
        return Run(1.0, cpu_us, server_cpu_us, 1, 1)

    found = inbound.ratios(
        [
            {
                "bare loop": spent(30, 20),
                "cowboy": spent(70, 30),
                "FastStream": spent(700, 100),
                "taskiq-redis": spent(450, 50),
            }
        ]
    )
    assert (found["of_bare_by_cpu"], found["of_best_peer_by_cpu"]) == (0.5, 5.0)


def test_a_ratio_without_its_other_half_is_not_there() -> None:
    assert inbound.ratios([{"cowboy": run(1)}, {"bare loop": run(1)}]) == {}


def test_percentiles_are_of_all_values() -> None:
    found = percentiles([float(value) for value in range(101)])
    assert found == {"p50": 50.0, "p95": 95.0, "p99": 99.0, "max": 100.0}


def test_figures_inside_their_bounds_are_kept() -> None:
    judged = report.judge(figures())
    assert set(judged) == set(report.BOUNDS)
    assert all(one["kept"] and one["reached"] for one in judged.values())


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"after_a_kill_s": {"max": 2.1}}, "SIGKILL to next answer, s"),
        ({"growth": {"plain": {"ratio": 1.31}}}, "cost in a large ledger"),
    ],
)
def test_a_figure_past_its_bound_is_missed(changes: dict[str, Any], name: str) -> None:
    judged = report.judge(figures(**changes))
    assert [key for key, one in judged.items() if not one["kept"]] == [name]


def test_between_goal_and_bound_is_kept_but_not_reached() -> None:
    judged = report.judge(figures(after_a_kill_s={"max": 1.5}))["SIGKILL to next answer, s"]
    assert (judged["kept"], judged["reached"]) == (True, False)


def test_what_was_not_measured_is_not_judged() -> None:
    quick = {key: value for key, value in figures().items() if key in ("disk", "throughput")}
    assert "SIGKILL to next answer, s" not in report.judge(quick)


def test_the_tables_name_every_figure(capsys: pytest.CaptureFixture[str]) -> None:
    shown = figures(one_channel={"per_s": 1.0, "cpu_us": 1.0})
    shown["bounds"] = report.judge(shown)
    report.show(shown)
    out = capsys.readouterr().out
    assert "20,000" in out
    for name in report.BOUNDS:
        assert name in out
    assert json.dumps(shown)


def test_a_message_has_its_size_and_channel() -> None:
    fields = message(207, channels=100)
    assert (len(fields["content"]), fields["channel"]) == (CONTENT_BYTES, "c7")
    assert message(1, named=True)["message_id"] != message(1, named=True)["message_id"]


def test_an_entry_id_tells_its_millisecond() -> None:
    assert milliseconds(b"1700000000123-4") == 1_700_000_000_123


def test_usage_of_this_process() -> None:
    found = usage(os.getpid())
    assert found.cpu_s > 0
    assert 0 < found.resident_bytes <= found.peak_bytes


def test_the_disk_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.figures.DISK_PROBE_S", 0.02)
    assert all(rate > 0 for rate in disk().values())


@pytest.mark.parametrize(
    "arguments", [["--rounds", "0"], ["--messages", "99"], ["--only", "nobody"], ["--nonsense"]]
)
def test_a_wrong_command_line_is_refused(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        inbound.options(arguments)
    assert "./corral bench inbound" in capsys.readouterr().err
