"""The harness's own parts: arms, hits, drawn trials, the boundaries' trials."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.local.topology import base_environment
from tests.harness import boundaries, draw
from tests.harness.armed import Arm, alive, known_points, read_hits

POINTS = sorted(known_points())


@pytest.mark.parametrize(
    ("text", "arm"),
    [
        ("a.b", Arm("a.b")),
        ("a.b:3", Arm("a.b", 3)),
        ("a.b:3=redis", Arm("a.b", 3, ("redis",))),
        ("a.b=redis+self", Arm("a.b", 1, ("redis", "self"))),
    ],
)
def test_arms_are_parsed(text: str, arm: Arm) -> None:
    assert Arm.parse(text) == arm
    assert Arm.parse(str(arm)) == arm


@pytest.mark.parametrize("text", ["", ":2", "a:0", "a:x"])
def test_bad_arms_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"POINT|invalid literal"):
        Arm.parse(text)


def test_hits_are_written_before_the_kill(tmp_path: Path) -> None:
    code = (
        "import sys; from corral.core import crashpoints; from tests.harness import armed\n"
        "crashpoints.register('x.y', 'doc'); crashpoints.register('x.z', 'doc')\n"
        "def cli():\n    for _ in range(5): crashpoints.crashpoint('x.z'); "
        "crashpoints.crashpoint('x.y')\n"
        "armed.main(sys.argv[1:], cli=cli)"
    )
    hits = ["--hits", str(tmp_path / "p.hits"), "--pids", str(tmp_path)]
    argv = [sys.executable, "-c", code, *hits]
    done = subprocess.run([*argv, "x.y:3", "--", "run"], env=base_environment(), timeout=60)
    assert done.returncode == -9
    assert read_hits(tmp_path) == ({"x.y", "x.z"}, [("x.y", "self")])
    with subprocess.Popen(["sleep", "600"]) as other:
        (tmp_path / "redis").write_text(str(other.pid))
        done = subprocess.run([*argv, "x.z:2=redis"], env=base_environment(), timeout=60)
        assert (done.returncode, other.wait(10)) == (0, -9)
    assert read_hits(tmp_path)[1] == [("x.y", "self"), ("x.z", "redis")]


def test_packaged_services_cannot_be_armed(tmp_path: Path) -> None:
    """No argument and no variable of the environment arms a process that is not the launcher."""
    environment = base_environment() | {
        "CORRAL_CRASHPOINT": "core.sqlite.commit.before:1",
        "COWBOY_CRASHPOINT": "core.sqlite.commit.before:1",
    }
    code = "from corral.core import crashpoints as c; print(c.passes() if c._armed else 'unarmed')"
    done = subprocess.run(
        [sys.executable, "-c", code, "core.sqlite.commit.before:1"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == "unarmed"


def test_alive_knows_zombies() -> None:
    assert alive(os.getpid())
    with subprocess.Popen(["true"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not alive(child.pid)
    assert not alive(child.pid)


@given(st.integers(0, 2**31))
def test_drawn_trials_repeat_and_are_known(seed: int) -> None:
    trial = draw.draw(seed, POINTS, servers=["redis", "valkey"])
    assert trial == draw.draw(seed, POINTS, servers=["redis", "valkey"])
    assert trial.faults
    for process, starts in trial.arms.items():
        for (text,) in starts.values():
            arm = Arm.parse(text)
            assert arm.point in POINTS
            assert draw._belongs(arm.point, process)
    assert draw.draw(seed, POINTS, server="valkey", protocol=2).server == "valkey"


def test_boundary_trials_arm_known_points() -> None:
    trials = boundaries.trials()
    assert len({trial.name for trial in trials}) == len(trials)
    armed = {
        (Arm.parse(text).point, process)
        for trial in trials
        for process, starts in trial.arms.items()
        for (text,) in starts.values()
    }
    # Tests of the registry itself, in this very process, register points of their own.
    others = boundaries.LIVE_SESSION
    wanted = {p for p in POINTS if not p.startswith("test.") and p not in others}
    assert {point for point, _ in armed} == wanted
    assert all(boundaries.owner(point) == process for point, process in armed)
