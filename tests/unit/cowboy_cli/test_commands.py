"""What each command asks, prints and exits with; the control socket is real, the daemon is not."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.core.errors import StorageError
from corral.cowboy.config import schema_text
from tests.unit.cowboy_cli.conftest import FakeDaemon, Host, Run, source_status
from tests.unit.cowboy_config import samples

REPOSITORY = Path(__file__).parents[3]
TURN = "scout.a2a.1.1732935482123-0"


class TestStatus:
    def test_healthy(self, run: Run, host: Host) -> None:
        host.add("scout")
        answer = {"agent": "scout", "healthy": True, "sources": [source_status()], "runner": None}
        with FakeDaemon(host.control("scout"), {"status": answer}) as daemon:
            result, as_json = run("status", "scout"), run("status", "scout", "--json")
        assert daemon.asked == [{"op": "status"}] * 2
        assert (result.exit_code, as_json.exit_code) == (0, 0)
        assert result.out.splitlines()[0] == "agent scout: healthy"
        assert result.out.splitlines()[1].startswith("SOURCE  STATE    HEALTHY  LAST POLL")
        assert result.out.splitlines()[2].startswith("a2a     running  yes      0.2 s")
        assert as_json.json["healthy"] is True
        report = as_json.json["agents"][0]
        assert report["sources"] == [source_status()]
        assert report["daemon"] == {"agent": "scout", "runner": None}
        assert report["error"] is None

    @pytest.mark.parametrize(
        "answer",
        [
            {"healthy": False, "sources": [source_status()]},
            {"sources": [source_status(), source_status("b", healthy=False, reason="stuck")]},
            {"sources": [source_status(healthy="yes")]},
            {"sources": []},
            {},
        ],
    )
    def test_f05_unhealthy_is_exit_status_1(
        self, answer: dict[str, Any], run: Run, host: Host
    ) -> None:
        host.add("scout")
        with FakeDaemon(host.control("scout"), {"status": answer}):
            result = run("status", "scout")
        assert result.exit_code == 1
        assert "agent scout: UNHEALTHY" in result.out

    def test_reasons_the_oldest_turn_and_anomalies_are_shown(self, run: Run, host: Host) -> None:
        host.add("scout")
        event = {"at_ms": 0, "kind": "trimmed", "entry": "1-0", "detail": None}
        source = source_status(
            state="blocked",
            healthy=False,
            reason="run cowboy adopt",
            oldest_unanswered={"turn_id": TURN, "age_s": 7200.0},
            events=[event],
        )
        with FakeDaemon(host.control("scout"), {"status": {"sources": [source]}}):
            result = run("status", "scout")
        assert f"2 h {TURN}" in result.out
        assert "a2a: run cowboy adopt" in result.out
        assert "  1970-01-01T00:00:00Z trimmed 1-0" in result.out

    def test_a_daemon_that_is_down(self, run: Run, host: Host) -> None:
        host.add("scout")
        result, as_json = run("status", "scout"), run("status", "scout", "--json")
        assert (result.exit_code, as_json.exit_code) == (1, 1)
        assert "agent scout: NO STATUS: no daemon listens" in result.out
        assert "Redis: redis_url: is missing; set COWBOY_REDIS_URL" in result.out
        report = as_json.json["agents"][0]
        assert report["error"]["code"] == "unavailable"
        assert report["redis_error"]["code"] == "config_invalid"
        assert (report["healthy"], report["sources"], report["redis"]) == (False, [], None)

    def test_all_agents_of_the_host(self, run: Run, host: Host) -> None:
        host.add("scout")
        host.add("other")
        answer = {"healthy": True, "sources": [source_status()]}
        with FakeDaemon(host.control("scout"), {"status": answer}):
            result = run("status", "--json")
        assert result.exit_code == 1
        assert [report["agent"] for report in result.json["agents"]] == ["other", "scout"]
        assert [report["healthy"] for report in result.json["agents"]] == [False, True]

    def test_no_agents_are_not_healthy(self, run: Run, host: Host) -> None:
        result = run("status")
        assert result.exit_code == 1
        assert result.out == f"no agents in {host.config}\n"


class TestAdopt:
    ANSWER = {"adopted": ["a2a"], "states": {"a2a": "running"}}  # noqa: RUF012

    def test_without_yes_and_without_a_terminal_it_explains_and_refuses(
        self, run: Run, host: Host
    ) -> None:
        host.add("scout")
        with FakeDaemon(host.control("scout"), {"adopt": self.ANSWER}) as daemon:
            result, as_json = run("adopt", "scout", stdin=b"y\n"), run("adopt", "scout", "--json")
        assert daemon.asked == []
        assert (result.exit_code, as_json.exit_code) == (64, 64)
        assert "starts the agent again" in result.err
        assert "starts the agent again" in as_json.json["error"]["hint"]

    def test_with_yes(self, run: Run, host: Host) -> None:
        host.add("scout")
        with FakeDaemon(host.control("scout"), {"adopt": self.ANSWER}) as daemon:
            result = run("adopt", "scout", "--yes")
            as_json = run("adopt", "scout", "--yes", "--json")
        assert daemon.asked == [{"op": "adopt"}] * 2
        assert (result.exit_code, result.out) == (0, "adopted a2a: now running\n")
        assert as_json.json == self.ANSWER

    def test_with_nothing_to_adopt(self, run: Run, host: Host) -> None:
        host.add("scout")
        with FakeDaemon(host.control("scout"), {"adopt": {"adopted": [], "states": {}}}):
            result = run("adopt", "scout", "--yes")
        assert (result.exit_code, result.out) == (
            0,
            "nothing to adopt: no source of scout is blocked\n",
        )

    @pytest.mark.parametrize(("typed", "code"), [(b"y\n", 0), (b"n\n", 130), (b"\n", 130)])
    def test_at_a_terminal_it_explains_and_asks(self, typed: bytes, code: int, host: Host) -> None:
        host.add("scout")
        ours, theirs = pty.openpty()
        try:
            with FakeDaemon(host.control("scout"), {"adopt": self.ANSWER}) as daemon:
                os.write(ours, typed)
                done = subprocess.run(
                    [sys.executable, "-m", "corral.cowboy.main", "adopt", "scout"],
                    stdin=theirs,
                    capture_output=True,
                    env={**os.environ, "PYTHONPATH": str(REPOSITORY / "python")},
                    check=False,
                )
        finally:
            os.close(ours)
            os.close(theirs)
        assert done.returncode == code, done.stderr
        assert b"starts the agent again" in done.stdout
        assert len(daemon.asked) == (code == 0)


class TestTurns:
    ROWS = [  # noqa: RUF012
        {
            "turn_id": f"scout.a2a.1.{n}-0",
            "state": "held",
            "ack": "acked",
            "starts": 1,
            "outcome": None,
            "channel": "ops\x1b[2J",
            "sender": None,
            "received_at_ms": 0,
        }
        for n in range(1, 4)
    ]

    def test_list(self, run: Run, host: Host) -> None:
        host.add("scout")
        with FakeDaemon(host.control("scout"), {"turns": {"turns": self.ROWS, "more": 5}}) as fake:
            result = run("turns", "list", "scout", "--state", "held", "--source", "a2a")
            as_json = run("turns", "list", "scout", "--json", "--limit", "2")
        assert fake.asked == [
            {"op": "turns", "source": "a2a", "state": "held"},
            {"op": "turns", "source": None, "state": None},
        ]
        lines = result.out.splitlines()
        headings = " ".join(lines[0].split())
        assert headings == "TURN ID STATE ACK STARTS OUTCOME CHANNEL SENDER AGE"
        assert len(lines) == 1 + 3 + 1
        assert lines[-1] == "5 more"
        assert "\x1b" not in result.out
        assert as_json.json == {"turns": self.ROWS[:2], "more": 6}

    def test_an_empty_list(self, run: Run, host: Host) -> None:
        host.add("scout")
        with FakeDaemon(host.control("scout"), {"turns": {"turns": [], "more": 0}}):
            result = run("turns", "list", "scout")
        assert (result.exit_code, result.out) == (0, "no turns\n")

    def test_show(self, run: Run, host: Host) -> None:
        host.add("scout")
        turn = {"turn_id": TURN, "state": "done"}
        with FakeDaemon(host.control("scout"), {"turn": {"turn": turn}}) as fake:
            result = run("turns", "show", "scout", TURN)
            as_json = run("turns", "show", "scout", TURN, "--json")
        assert fake.asked == [{"op": "turn", "turn_id": TURN}] * 2
        assert result.out == f"turn_id  {TURN}\nstate    done\n"
        assert as_json.json == turn

    @pytest.mark.parametrize("op", ["release", "abandon"])
    def test_decisions(self, op: str, run: Run, host: Host) -> None:
        host.add("scout")
        with FakeDaemon(host.control("scout"), {op: {f"{op}d": True}}) as fake:
            result = run("turns", op, "scout", TURN)
            as_json = run("turns", op, "scout", TURN, "--json")
        assert fake.asked == [{"op": op, "turn_id": TURN}] * 2
        assert (result.exit_code, result.out.split()[1]) == (0, TURN)
        assert as_json.json == {"turn_id": TURN, f"{op}d": True}

    def test_the_daemons_refusal_keeps_its_code(self, run: Run, host: Host) -> None:
        host.add("scout")
        full = StorageError("the disk is full", hint="make room")
        with FakeDaemon(host.control("scout"), {"release": full}):
            result = run("turns", "release", "scout", TURN)
        assert (result.exit_code, result.err) == (74, "cowboy: the disk is full\nhint: make room\n")


def test_backup(run: Run, host: Host) -> None:
    host.add("scout")
    with FakeDaemon(host.control("scout"), {"backup": {"path": "/b/ledger-1.db"}}) as fake:
        result, as_json = run("backup", "scout"), run("backup", "scout", "--json")
    assert fake.asked == [{"op": "backup"}] * 2
    assert (result.exit_code, result.out) == (0, "/b/ledger-1.db\n")
    assert as_json.json == {"path": "/b/ledger-1.db"}


class TestCheckConfig:
    def test_good(self, run: Run, host: Host) -> None:
        file = host.add("scout")
        result, as_json = run("check-config", str(file)), run("check-config", str(file), "--json")
        assert (result.exit_code, result.out) == (0, "ok: agent scout, sources a2a\n")
        assert as_json.json == {
            "ok": True,
            "file": str(file),
            "agent": "scout",
            "sources": ["a2a"],
            "errors": [],
        }

    def test_bad(self, run: Run, host: Host) -> None:
        file = host.add("scout", **{"a:b": samples.source(), "a2a": samples.source(read_count=0)})
        result, as_json = run("check-config", str(file)), run("check-config", "--json", str(file))
        assert (result.exit_code, as_json.exit_code) == (78, 78)
        assert [line.split(": ")[0] for line in result.out.splitlines()] == [
            "sources.a:b",
            "sources.a2a.read_count",
        ]
        assert [fault["path"] for fault in as_json.json["errors"]] == [
            "sources.a:b",
            "sources.a2a.read_count",
        ]
        assert as_json.json["error"]["code"] == "config_invalid"

    def test_missing(self, run: Run, tmp_path: Path) -> None:
        result = run("check-config", str(tmp_path / "none.json"))
        assert result.exit_code == 78
        assert result.out.startswith(f"{tmp_path}/none.json: cannot be read: No such file")


def test_schema_is_the_published_one(run: Run) -> None:
    result = run("schema")
    published = (REPOSITORY / "docs" / "reference" / "sources.schema.json").read_text()
    assert (result.exit_code, result.out) == (0, published)
    assert result.out == schema_text()
