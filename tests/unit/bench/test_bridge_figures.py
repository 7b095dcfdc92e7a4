"""What `./corral bench bridge` makes of its figures; that it measures is tested elsewhere."""

import json
from typing import Any

import pytest

from corral.bridge import events
from corral.bridge.incoming import Mention
from corral.local.matrix import shown
from tests.bench import bridge, bridge_rates, bridge_report, bridge_rooms, bridge_stand, bridge_work
from tests.bench.report import MIB


def run(per_s: float) -> dict[str, float]:
    return {
        "transactions_per_s": per_s, "events_per_s": per_s, "p50_ms": 0.5, "p99_ms": 2.0,
        "max_ms": 3.0, "cpu_us": 90.0,
    }  # fmt: skip


def rounds() -> list[dict[str, dict[str, dict[str, float]]]]:
    return [
        {
            "bare insert": {"1": run(100 * factor), "100": run(50 * factor)},
            "bare, bridge's tables": {"1": run(100), "100": run(50)},
            "plain mautrix": {"1": run(200), "100": run(10 * factor)},
            "bridge": {"1": run(41 * factor), "100": run(21 * factor)},
        }
        for factor in (1, 10, 2)
    ]


def figures(**changes: Any) -> dict[str, Any]:
    return {
        "load_before": 1.0,
        "load_after": 2.0,
        "disk": {"append_and_fsync_per_s": 5000.0, "sqlite_full_commits_per_s": 2500.0},
        "throughput": {
            "contenders": bridge_rates.middle(rounds()), "ratios": bridge_rates.ratios(rounds()),
            "peak_bytes": 90 * MIB,
        },
        "when_full": {"idle": 70 * MIB, "resident": 80 * MIB, "peak": 90 * MIB},
        "drain": {"jobs_per_s": 60.0, "worst": 50.0, "cpu_ms_per_job": 10.0},
        "after_a_kill_s": {
            "median": 0.7, "max": 0.9, "all_taken_median": 0.8, "all_taken_max": 1.0,
            "cpu_median": 0.5,
        },
        "growth": {
            "jobs": 10, "database_mib": 1.0, "claim_ms": 1.0, "claim_ratio": 1.1,
            "admission_ms": 1.0, "admission_ratio": 1.2,
        },
        "rooms": {
            "load_s": 23.0, "jobs": 100,
            "alone_ms": {"p50": 120.0, "p95": 140.0, "p99": 150.0, "max": 150.0},
        },
    } | changes  # fmt: skip


def test_ratios_are_taken_within_rounds() -> None:
    found = bridge_rates.ratios(rounds())
    assert found["1 of bare insert"] == pytest.approx(0.41)
    assert found["100 of bare insert"] == pytest.approx(0.42)
    assert found["100 of plain mautrix"] == pytest.approx(2.1)
    assert found["1 of bare, bridge's tables"] == pytest.approx(0.82)


def test_the_first_tenth_of_the_transactions_is_not_counted() -> None:
    found = bridge_rates.summed([9.0, 9.0, *[0.01] * 18], 100, cpu_s=0.2)
    assert found["transactions_per_s"] == pytest.approx(100)
    assert found["events_per_s"] == pytest.approx(10_000)
    assert found["max_ms"] == pytest.approx(10)
    assert found["cpu_us"] == pytest.approx(10_000)


def test_the_first_tenth_of_a_drain_is_not_counted() -> None:
    assert bridge_work.rate([0.0, *(5 + n / 10 for n in range(19))]) == pytest.approx(10)


def test_what_is_in_its_bounds_and_what_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    found = bridge_report.judge(figures())
    assert all(one["kept"] and one["reached"] for one in found.values())
    assert len(found) == len(bridge_report.BOUNDS)
    slow = figures(growth={"claim_ratio": 1.31, "admission_ratio": 9.0})
    slow["rooms"]["load_s"] = 26.0
    found = bridge_report.judge(slow)
    missed = {name for name, one in found.items() if not one["kept"]}
    assert missed == {"claim, in a large ledger"}
    assert not found["10 x 10 mentions, s"]["reached"]
    bridge_report.show(slow | {"bounds": found})
    assert "MISSED" in capsys.readouterr().out


def test_check_fails_past_a_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = figures()
    slow["after_a_kill_s"]["max"] = 2.5

    async def measured(*_: Any) -> dict[str, Any]:
        return slow

    monkeypatch.setattr(bridge, "measure", measured)
    assert bridge.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)["after_a_kill_s"]["max"] == 2.5
    assert bridge.main(["--check"]) == 1


@pytest.mark.parametrize(
    "wrong", [["--transactions", "99"], ["--rounds", "0"], ["--alone", "1"], ["--nonsense"]]
)
def test_wrong_options_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        bridge.options(wrong)


def test_what_is_put_are_mentions_each_with_an_event_of_its_own() -> None:
    given = [one for batch in bridge_rates.batches("name", 100, 2) for one in batch]
    classified = events.classify(given, bridge_rates.USERS)
    assert all(isinstance(one, Mention) and one.text == "hello" for one in classified)
    assert len({one["event_id"] for one in given}) == 200
    assert {len(row) for row in bridge_rates.rows_of(given)} == {11}
    assert json.loads(bridge_stand.body(given))["events"] == given


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Le", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", True),
    ],
)
def test_an_answer_is_read_to_its_end(answer: bytes, expected: bool) -> None:
    assert bridge_stand.whole(answer) is expected


def test_an_edit_says_what_it_is_then() -> None:
    edit = {"content": {"body": "* new", "m.new_content": {"body": "new"}}}
    assert shown(edit) == "new"
    assert shown({"content": {}}) == ""
    assert bridge_rooms.answer_to("slow 2 answer 7") == "answer 7"
    assert bridge_rooms.answer_to("alone 1") == "alone 1"
