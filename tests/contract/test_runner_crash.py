"""The start barrier, and the runner killed (SIGKILL) at each of its crash points."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.core import crashpoints
from corral.cowboy.runner.domain import Event, Finished, Forget, Go, Prepared, RunPhase, RunState
from corral.cowboy.runner.main import RunnerOptions
from corral.local.wait import until
from tests.harness.boundaries import LIVE_SESSION
from tests.unit.runner import world as worlds
from tests.unit.runner.world import (
    ROOT,
    WAIT_S,
    World,
    prepare_request,
    shell,
    wait_gone,
    wait_lines,
)

assert RunnerOptions.__module__  # what is imported here registers every point

RAN = "echo $$ >> RAN; "


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        made.program(*shell(RAN.replace("RAN", str(tmp_path / "ran")) + "cat"))
        yield made


def times_run(world: World) -> int:
    ran = world.directory / "ran"
    return len(ran.read_text().splitlines()) if ran.exists() else 0


# --- the barrier ------------------------------------------------------------------------------

BARRIER_SCRIPT = """
import json, os, sys
from corral.cowboy.runner import spawn
marker = sys.argv[1]
children = [
    spawn.spawn(["/bin/sh", "-c", f"touch {marker}.{n}"], {b"PATH": b"/bin"}, None, 256)
    for n in range(3)
]
first, second, third = children
first.close("barrier")  # as the death of the runner does; the others still wait
ended = spawn.reap(first)
waiting = [spawn.ended(child) for child in (second, third)]
os.write(third.barrier, b"x")  # not the byte
third_ended = spawn.reap(third)
os.write(second.barrier, spawn.GO)
second_ended = spawn.reap(second)
print(json.dumps([ended, waiting, third_ended, second_ended]))
"""


def test_end_of_file_at_the_barrier_means_exit_whoever_else_is_waiting(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    done = subprocess.run(
        [sys.executable, "-c", BARRIER_SCRIPT, str(marker)],
        env={"PYTHONPATH": str(ROOT / "python"), "PYTHONWARNINGS": "error"},
        capture_output=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[0, None], [False, False], [0, None], [0, None]]
    assert [path.name for path in tmp_path.iterdir()] == ["ran.1"]


def descriptors(pid: int) -> list[str]:
    return sorted(path.name for path in Path(f"/proc/{pid}/fd").iterdir())


def end_at(pid: int, fd: int) -> str:
    """What a descriptor of a process is, such as ``pipe:[123]``."""
    return os.readlink(f"/proc/{pid}/fd/{fd}")  # noqa: PTH115


def wait_at_barrier(*pids: int) -> None:
    """Waits until the children have closed what is not theirs."""
    only = ["0", "1", "2", "3", "4"]
    until(lambda: all(descriptors(pid) == only for pid in pids), WAIT_S, "the barrier")


def holders(pipe: str) -> dict[int, int]:
    """Which processes hold an end of the pipe, and how many ends each."""
    found: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = os.readlink(entry)  # noqa: PTH115
        except OSError:
            continue
        if target == pipe:
            pid = int(entry.parts[2])
            found[pid] = found.get(pid, 0) + 1
    return found


def test_nobody_but_the_runner_holds_the_write_end_of_a_barrier(world: World) -> None:
    daemon = world.up()
    pids = [daemon.prepare(f"t{number}").run.pid for number in range(8)]
    runner = world.runners[-1].pid
    wait_at_barrier(*pids)
    for pid in pids:
        barrier = end_at(pid, 3)
        assert barrier.startswith("pipe:")
        assert holders(barrier) == {runner: 1, pid: 1}
    # A run that goes keeps no end of anyone's barrier, its own included.
    gate = world.directory / "gate"
    world.program(*shell(f"echo $$ >> {gate}; exec sleep 1000"))
    world.kill_runner()
    daemon = world.up()
    waiting = daemon.prepare("waiting").run.pid
    daemon.prepare("goes")
    daemon.send(Go("goes", 1))
    going = int(wait_lines(gate, 1)[0])
    wait_at_barrier(waiting)
    assert holders(end_at(waiting, 3)) == {world.runners[-1].pid: 1, waiting: 1}
    assert descriptors(going) == ["0", "1", "2"]


def test_runs_that_wait_at_the_barrier_end_with_the_runner_and_never_went(world: World) -> None:
    daemon = world.up()
    turns = [f"t{number}" for number in range(8)]
    pids = [daemon.prepare(turn).run.pid for turn in turns]
    world.kill_runner()
    wait_gone(*pids)  # without any next runner
    daemon = world.up()
    assert {daemon.phase(turn) for turn in turns} == {RunPhase.NEVER_WENT}
    assert times_run(world) == 0
    # What never went may be prepared again, under the same attempt or the next.
    assert daemon.run("t0").outcome == "completed"
    assert daemon.run("t1", 2).outcome == "completed"
    daemon.send(Forget("t2", 1))
    assert [daemon.phase(turn) for turn in turns[:3]] == [
        RunPhase.FINISHED,
        RunPhase.UNKNOWN,
        RunPhase.UNKNOWN,
    ]
    assert times_run(world) == 2


# --- each crash point -------------------------------------------------------------------------

# After the runner died there: what the next runner says of the turn, and how often it may have run.
AFTER = {
    "runner.prepare.received": (RunPhase.UNKNOWN, {0}),
    "runner.prepared.recorded": (RunPhase.NEVER_WENT, {0}),
    "runner.prepared.sent": (RunPhase.NEVER_WENT, {0}),
    "runner.go.recorded": (RunPhase.UNKNOWN, {0}),
    "runner.go.written": (RunPhase.UNKNOWN, {0, 1}),
    "runner.run.over": (RunPhase.UNKNOWN, {1}),
    "runner.result.held": (RunPhase.UNKNOWN, {1}),
    "runner.result.sent": (RunPhase.UNKNOWN, {1}),
    "runner.forget.done": (RunPhase.UNKNOWN, {1}),
}
RECOVERY = ("runner.recover.before", "runner.recover.killed")


def test_every_crash_point_of_the_runner_is_exercised_here() -> None:
    registered = {name for name in crashpoints.registered() if name.startswith("runner.")}
    wakes = {point for point in LIVE_SESSION if point.startswith("runner.")}
    assert registered == {*AFTER, *RECOVERY, *wakes}


@pytest.mark.parametrize("point", AFTER)
@pytest.mark.parametrize("use_cgroups", [False, True], ids=["group", "cgroup"])
def test_the_runner_dies_at(world: World, point: str, use_cgroups: bool) -> None:
    daemon = world.up(crash_at=point, use_cgroups=use_cgroups)
    daemon.send(prepare_request("t"))
    received: list[Event] = []
    while (event := daemon.next()) is not None:
        received.append(event)
        with contextlib.suppress(ConnectionError):  # it may have died since
            if isinstance(event, Prepared):
                daemon.send(Go("t", 1))
            elif isinstance(event, Finished):
                daemon.send(Forget("t", 1))
    world.wait_killed()
    assert any(isinstance(event, Finished) for event in received) == (
        point in {"runner.result.sent", "runner.forget.done"}
    )
    phase, may_have_run = AFTER[point]
    again = world.up(use_cgroups=use_cgroups)
    assert again.state("t") == RunState("t", 1, phase, None)
    assert times_run(world) in may_have_run
    assert world.records == []
    assert worlds.gone(*(event.run.pid for event in received if isinstance(event, Prepared)))
    assert again.run("t", 2).outcome == "completed"
    assert times_run(world) - 1 in may_have_run


@pytest.mark.parametrize("point", RECOVERY)
@pytest.mark.parametrize("use_cgroups", [False, True], ids=["group", "cgroup"])
def test_a_recovering_runner_dies_at(world: World, point: str, use_cgroups: bool) -> None:
    pids = world.directory / "pids"
    world.program(*shell(f"setsid sh -c 'echo $$ >> {pids}; exec sleep 1000' & exec sleep 1000"))
    daemon = world.up(use_cgroups=use_cgroups)
    waiting = daemon.prepare("waiting").run.pid
    leader = daemon.prepare("going").run.pid
    daemon.send(Go("going", 1))
    family = [waiting, leader, int(wait_lines(pids, 1)[0])]
    world.kill_runner()
    world.start(crash_at=point, use_cgroups=use_cgroups)
    world.wait_killed()
    assert world.records == ["going.1.json", "waiting.1.json"]
    assert worlds.gone(*family) == (point == "runner.recover.killed") or worlds.gone(*family)
    world.start(use_cgroups=use_cgroups)
    daemon = world.connect()
    assert worlds.gone(*family)
    daemon.hello()
    assert daemon.phase("waiting") is RunPhase.NEVER_WENT
    assert daemon.phase("going") is RunPhase.UNKNOWN
    assert world.records == []


def test_a_runner_that_dies_with_many_runs_leaves_none(world: World) -> None:
    """Runs in every phase at once, killed from outside at no point in particular."""
    world.program(*shell("cat; exec sleep 1000"))
    daemon = world.up()
    turns = [f"t{number}" for number in range(12)]
    for turn in turns:
        daemon.send(prepare_request(turn))
    pids = [daemon.expect(Prepared).run.pid for _ in turns]
    for turn in turns[::2]:
        daemon.send(Go(turn, 1))
    assert daemon.phase(turns[-2]) is RunPhase.RUNNING
    world.kill_runner()
    daemon = world.up()
    assert worlds.gone(*pids)
    assert [daemon.phase(turn) for turn in turns] == [RunPhase.UNKNOWN, RunPhase.NEVER_WENT] * 6
