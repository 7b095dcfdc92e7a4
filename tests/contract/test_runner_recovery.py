"""What a new runner makes of the records of an old one; whom it must not hit."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from corral.cowboy.runner import cgroup, processes
from corral.cowboy.runner.domain import Finished, Go, RunPhase
from corral.local.wait import until
from tests.unit.runner import world as worlds
from tests.unit.runner.trees import HIDDEN, STAY, TREES, Families, in_cgroup
from tests.unit.runner.world import WAIT_S, World, shell, wait_gone


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        yield made


@pytest.fixture(params=["group", "cgroup"])
def contained(request: pytest.FixtureRequest, world: World) -> World:
    """Both ways of holding a run together; where there are no cgroups, the choice falls back."""
    world.launch = replace(world.launch, use_cgroups=request.param == "cgroup")
    return world


def _ticks() -> int:
    """Now, as a process would be said to have started."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def test_a_new_runner_ends_all_old_runs_before_it_listens(contained: World) -> None:
    trees = TREES | HIDDEN if in_cgroup(contained) else TREES
    families = Families(contained, trees)
    daemon = contained.up()
    pids = [pid for name in trees for pid in families.start(daemon, name)]
    contained.kill_runner()
    contained.start()
    daemon = contained.connect()  # it listens
    assert worlds.gone(*pids)
    daemon.hello()
    assert {daemon.phase(name) for name in trees} == {RunPhase.UNKNOWN}
    assert contained.records == []


def test_a_recorded_pid_that_belongs_to_a_stranger_now_is_left_alone(world: World) -> None:
    """As after the kernel has given the number to another process."""
    world.program(*shell(STAY))
    daemon = world.up()
    leader = daemon.prepare("t").run.pid
    world.kill_runner()
    wait_gone(leader)
    record = Path(world.launch.runs, "t.1.json")
    started = int(record.read_text().split('"start_ticks": ')[1].split(",")[0])
    # The kernel counts starts in hundredths of a second: in one of them no number comes twice.
    until(lambda: _ticks() > started, WAIT_S, "the next tick")
    with worlds.sleeper(session=True) as stranger:
        text = record.read_text()
        for key in ("pid", "pgid"):
            text = text.replace(f'"{key}": {leader}', f'"{key}": {stranger.pid}')
        assert str(stranger.pid) in text
        record.write_text(text)
        assert world.up().phase("t") is RunPhase.NEVER_WENT
        assert stranger.poll() is None


def test_records_of_another_boot_kill_nothing_and_are_unknown(world: World) -> None:
    world.program(*shell(STAY))
    daemon = world.up()
    daemon.prepare("t")
    world.kill_runner()
    record = Path(world.launch.runs, "t.1.json")
    text = record.read_text()
    leader = int(text.split('"pid": ')[1].split(",")[0])
    wait_gone(leader)
    with worlds.sleeper(session=True) as stranger:
        process = processes.read(stranger.pid)
        assert process is not None
        ticks = text.split('"start_ticks": ')[1].split(",")[0]
        text = text.replace(f'"start_ticks": {ticks}', f'"start_ticks": {process.start_ticks}')
        text = text.replace(f'"pid": {leader}', f'"pid": {stranger.pid}')
        record.write_text(text.replace(processes.boot_id(), "another-boot"))
        assert world.up().phase("t") is RunPhase.UNKNOWN
        assert stranger.poll() is None
    assert world.records == []


def test_an_empty_record_of_a_power_failure_is_dropped(world: World) -> None:
    runs = Path(world.launch.runs)
    runs.mkdir()
    (runs / "t.1.json").touch()
    (runs / "t.2.json.new").write_text("half")
    assert world.up().phase("t") is RunPhase.UNKNOWN
    assert world.records == []


@pytest.mark.parametrize("text", ["{}", "[]", "no json", '{"turn": "t", "attempt": "1"}'])
def test_a_record_that_cannot_be_read_stops_the_start(world: World, text: str) -> None:
    runs = Path(world.launch.runs)
    runs.mkdir()
    record = runs / "t.1.json"
    record.write_text(text)
    assert world.start().wait(WAIT_S) == 74
    assert "storage: " in world.log
    assert f"{record} is not a record of a run" in world.log
    assert record.read_text() == text
    assert not world.socket.exists()
    record.unlink()


def test_runs_have_a_cgroup_of_their_own_where_the_machine_lets_them(world: World) -> None:
    world.launch = replace(world.launch, use_cgroups=True)
    root, why = (None, "") if not in_cgroup(world) else cgroup.choose(Path(world.launch.runs))
    world.program(*shell("cat /proc/self/cgroup"))
    daemon = world.up()
    group = daemon.prepare("t").run.group
    daemon.send(Go("t", 1))
    reply = daemon.expect(Finished).result.reply.decode()
    if root is None:
        assert group.startswith("pgid:")
        assert '"by": "group"' in world.log
        return
    assert str(root.directory) == why
    path = Path(group.removeprefix("cgroup:"))
    assert path.parent == root.directory
    assert f"0::/{path.name}\n" in reply or f"/{path.name}\n" in reply
    assert not path.exists()  # removed with the end of the run
    daemon.prepare("left")
    world.kill_runner()
    world.up()
    assert root.existing() == []


def test_a_cgroup_without_a_record_is_ended_too(world: World) -> None:
    """As after a kill between the creation of the cgroup and the record of its run."""
    world.launch = replace(world.launch, use_cgroups=True)
    if not in_cgroup(world):
        return  # the fallback has nothing of the kind
    root, _ = cgroup.choose(Path(world.launch.runs))
    assert root is not None
    path = root.create("0" * 32)
    (path / "below").mkdir()
    with worlds.sleeper() as left:
        (path / "below" / "cgroup.procs").write_text(str(left.pid))
        world.up()
        assert left.wait(WAIT_S) == -signal.SIGKILL
    assert not path.exists()
