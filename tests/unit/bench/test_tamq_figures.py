"""What `./corral bench tamq` makes of its figures; that it measures is tested elsewhere."""

import json
from typing import Any

import pytest

from tests.bench import queue_report, tamq
from tests.bench.load import Load

MIB = 1024 * 1024


def run(per_s: float, **changes: float) -> dict[str, float]:
    return {
        "per_s": per_s, "p50_ms": 0.5, "p99_ms": 2.0, "max_ms": 3.0, "cpu_us": 90.0,
        "resident_bytes": 50 * MIB,
    } | changes  # fmt: skip


def rounds() -> list[dict[str, Any]]:
    return [
        {
            "litequeue": {"1": run(100 * factor)},
            "persist-queue": {"1": run(50 * factor)},
            "bare server": {"1": run(50 * factor), "8": run(100), "64": run(200)},
            "TAMQ": {"1": run(60 * factor), "8": run(150 * factor), "64": run(320 * factor)},
        }
        for factor in (1, 10, 2)
    ]


def figures(**changes: Any) -> dict[str, Any]:
    return {
        "load_before": 1.0,
        "load_after": 2.0,
        "disk": {"append_and_fsync_per_s": 5000.0, "sqlite_full_commits_per_s": 2500.0},
        "throughput": {"contenders": tamq.middle(rounds()), "ratios": tamq.ratios(rounds())},
        "after_a_kill_s": {"median": 0.7, "max": 0.9, "cpu_median": 0.5},
        "growth": {
            "messages": 10, "file_mib": 1.0, "send_ratio": 1.1, "send_ratio_of_time": 1.0,
            "claim_ratio": 1.2,
        },
    } | changes  # fmt: skip


def test_ratios_are_taken_within_rounds() -> None:
    found = tamq.ratios(rounds())
    assert found["1 of litequeue"] == pytest.approx(0.6)
    assert found["64 of litequeue"] == pytest.approx(3.2)
    assert found["8 of persist-queue"] == pytest.approx(3.0)
    assert found["64 of bare server"] == pytest.approx(3.2)


def test_what_is_in_its_bounds_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    found = queue_report.judge(figures())
    assert all(one["kept"] and one["reached"] for one in found.values())
    assert len(found) == len(queue_report.BOUNDS)
    slow = figures(growth={"send_ratio": 1.31, "claim_ratio": 1.3}, after_a_kill_s={"max": 1.5})
    found = queue_report.judge(slow)
    missed = {name for name, one in found.items() if not one["kept"]}
    assert missed == {"send, in a large queue"}
    assert not found["SIGKILL to next message, s"]["reached"]
    queue_report.show(slow | {"bounds": found})
    assert "MISSED" in capsys.readouterr().out


def test_a_figure_that_only_has_a_goal_is_never_missed() -> None:
    given = figures()
    given["throughput"]["contenders"]["TAMQ"]["1"]["p50_ms"] = 9.0
    one = queue_report.judge(given)["… p50, ms"]
    assert (one["kept"], one["reached"]) == (True, False)


def test_check_fails_past_a_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = figures(after_a_kill_s={"max": 2.5})
    monkeypatch.setattr(tamq, "measure", lambda *_: slow)
    assert tamq.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["after_a_kill_s"]["max"] == 2.5
    assert tamq.main(["--check"]) == 1


@pytest.mark.parametrize("wrong", [["--operations", "99"], ["--rounds", "0"], ["--nonsense"]])
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        tamq.options(wrong)


def test_the_first_tenth_of_a_load_is_not_counted() -> None:
    load = Load("/none", 1, 20, "x")
    load.times = [(n / 10, 9.0 if n < 2 else 0.001 * n) for n in range(20)]
    found = load.result()
    assert found["per_s"] == pytest.approx(10)
    assert found["max_ms"] == pytest.approx(19)
