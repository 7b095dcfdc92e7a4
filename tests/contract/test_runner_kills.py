"""Kills of runs: all of a run is hit, nothing else is, and there is one result."""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from corral.cowboy.runner import cgroup, processes
from corral.cowboy.runner.domain import (
    Finished,
    Go,
    Kill,
    Query,
    RunPhase,
    RunResult,
    RunState,
)
from corral.local.wait import until
from tests.unit.runner import world as worlds
from tests.unit.runner.trees import HIDDEN, STAY, TREES, Families, in_cgroup
from tests.unit.runner.world import WAIT_S, World, shell, wait_lines


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        yield made


@pytest.fixture(params=["group", "cgroup"])
def contained(request: pytest.FixtureRequest, world: World) -> World:
    """Both ways of holding a run together; where there are no cgroups, the choice falls back."""
    world.launch = replace(world.launch, use_cgroups=request.param == "cgroup")
    return world


def test_a_kill_ends_the_run_and_everything_it_started(contained: World) -> None:
    families = Families(contained, TREES | HIDDEN)
    daemon = contained.up()
    for name in TREES | HIDDEN:
        family = families.start(daemon, name)
        assert all(worlds.alive(pid) for pid in family), name
        assert daemon.kill(name) == RunResult("killed", b"", "cancel", True), name
        assert worlds.gone(*family), name


def test_nothing_outlives_a_leader_that_ends_by_itself(contained: World) -> None:
    ready = "until [ $(cat PIDS 2>/dev/null | wc -l) -ge COUNT ]; do sleep 0.01; done; echo ok"
    families = Families(contained, TREES | HIDDEN, ready)
    daemon = contained.up()
    for name in TREES | HIDDEN:
        assert daemon.run(name, source=name) == RunResult("completed", b"ok\n", "", True), name
        assert worlds.gone(*families.descendants(name)), name


def test_a_helper_below_a_living_run_survives_the_end_of_another(world: World) -> None:
    pids = world.directory / "pids"
    gate = world.directory / "gate"
    helper_script = f"setsid env -i sh -c 'echo $$ >> {pids}; {STAY}' &"
    script = f"{helper_script} until [ -e {gate} ]; do sleep 0.02; done"
    world.program(*shell(f'if [ "$CORRAL_TURN_ID" = long ]; then {script}; fi; echo done'))
    daemon = world.up()
    daemon.prepare("long")
    daemon.send(Go("long", 1))
    helper = int(wait_lines(pids, 1)[0])
    for number in range(5):
        assert daemon.run(f"short-{number}").reply == b"done\n"
    assert worlds.alive(helper)
    gate.touch()
    assert daemon.expect(Finished).result.reply == b"done\n"
    assert worlds.gone(helper)


def test_a_stranger_with_the_token_ends_with_the_run(world: World) -> None:
    """As when a run asks a server that is not its child to start something for it."""
    token = world.directory / "token"
    world.program(*shell(f"printenv CORRAL_RUN_TOKEN > {token}; echo >> {token}; {STAY}"))
    daemon = world.up()
    daemon.prepare("t")
    daemon.send(Go("t", 1))
    wait_lines(token, 2)
    environment = {"CORRAL_RUN_TOKEN": token.read_text().split()[0]}
    with worlds.sleeper(environment) as stranger:
        assert daemon.kill("t").outcome == "killed"
        assert stranger.wait(WAIT_S) == -signal.SIGKILL


def test_processes_of_others_are_never_hit(world: World) -> None:
    environment = {"CORRAL_RUN_TOKEN": "0" * 32, "NOT_CORRAL_RUN_TOKEN": "x"}
    with worlds.sleeper(environment) as bystander:
        world.program(*shell("(setsid sleep 1000 &); sleep 1000"))
        daemon = world.up()
        daemon.prepare("t")
        daemon.send(Go("t", 1))
        daemon.kill("t")
        world.kill_runner()
        world.up()
        assert bystander.poll() is None


def test_a_kill_before_go_proves_that_it_never_went(world: World) -> None:
    ran = world.directory / "ran"
    world.program(*shell(f"touch {ran}"))
    daemon = world.up()
    leader = daemon.prepare("t").run.pid
    expected = RunResult("killed", b"", "cancel", False)
    assert daemon.kill("t") == expected
    daemon.send(Go("t", 1))
    assert daemon.expect(Finished).result == expected
    assert worlds.gone(leader)
    assert not ran.exists()


def test_a_go_right_behind_a_kill_starts_nothing(world: World) -> None:
    ran = world.directory / "ran"
    world.program(*shell(f"touch {ran}"))
    daemon = world.up()
    for number in range(20):
        turn = f"t{number}"
        daemon.prepare(turn)
        daemon.send(Kill(turn, 1, "cancel"), Go(turn, 1))
        event = daemon.expect(Finished)
        assert (event.turn, event.result.went) == (turn, False)
    assert not ran.exists()


def test_a_child_that_somebody_else_killed_at_the_barrier_never_went(world: World) -> None:
    daemon = world.up()
    os.kill(daemon.prepare("t").run.pid, signal.SIGKILL)
    result = daemon.expect(Finished).result
    assert result == RunResult("killed", b"", "ended before it was told to go", False)
    assert daemon.phase("t") is RunPhase.FINISHED


def test_a_kill_of_a_run_that_has_ended_gives_its_own_result(world: World) -> None:
    daemon = world.up()
    result = daemon.run("t")
    assert daemon.kill("t") == result
    assert result.outcome == "completed"


def test_a_race_of_end_and_kill_has_one_result(world: World) -> None:
    world.program(*shell("echo done"))
    daemon = world.up()
    seen = set()
    end = RunState("end", 1, RunPhase.UNKNOWN, None)
    for number in range(60):
        turn = f"t{number}"
        daemon.prepare(turn)
        daemon.send(Go(turn, 1))
        nothing = [Query((("nothing", 1),))] * number  # a little later each time
        daemon.send(*nothing, Kill(turn, 1, "cancel"))
        results = [daemon.expect_amid(Finished).result]
        daemon.send(Query((("end", 1),)))
        while isinstance(event := daemon.next(), Finished) or event != end:
            results += [event.result] if isinstance(event, Finished) else []
        assert len(set(results)) == 1
        seen |= {(result.outcome, result.reply) for result in results}
    assert seen <= {("killed", b""), ("completed", b"done\n")}


def test_orphans_are_reaped_while_their_run_goes_on(world: World) -> None:
    gate = world.directory / "gate"
    orphans = "for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'exit 0' & ) ; done;"
    world.program(*shell(f"{orphans} until [ -e {gate} ]; do sleep 0.02; done"))
    daemon = world.up()
    leader = daemon.prepare("t").run.pid
    daemon.send(Go("t", 1))
    runner = world.runners[-1].pid
    children = Path(f"/proc/{runner}/task/{runner}/children")
    until(lambda: children.read_text().split() == [str(leader)], WAIT_S, "only the leader")
    gate.touch()
    assert daemon.expect(Finished).result.outcome == "completed"


def test_a_thread_that_outlives_its_leader_thread_is_found(world: World) -> None:
    """Such a process looks like a zombie in /proc, and its environment like an empty one."""
    pids = world.directory / "pids"
    exit_of_thread = 60 if os.uname().machine == "x86_64" else 93
    script = f"""
import ctypes, os, threading, time
def stay():
    time.sleep(0.2)
    with open({str(pids)!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    time.sleep(1000)
if os.fork():
    time.sleep(1000)
os.setsid()
threading.Thread(target=stay).start()
ctypes.CDLL(None).syscall({exit_of_thread}, 0)
"""
    world.program(sys.executable, "-I", "-S", "-c", script)
    daemon = world.up()
    leader = daemon.prepare("t").run.pid
    daemon.send(Go("t", 1))
    family = [leader, int(wait_lines(pids, 1)[0])]
    process = processes.read(family[1])
    assert process is not None
    assert process.alive
    world.kill_runner()
    world.up()
    assert worlds.gone(*family)


def test_a_process_that_leaves_its_cgroup_is_found(world: World) -> None:
    """Its uid may move it: to the runner's own cgroup, or to that of another run."""
    world.launch = replace(world.launch, use_cgroups=True)
    root = cgroup.choose(Path(world.launch.runs))[0] if in_cgroup(world) else None
    if root is None:
        return  # the fallback has nothing to leave
    pids = world.directory / "pids"
    target = world.directory / "target"
    move = f"setsid env -i sh -c 'echo $$ > {target}/cgroup.procs; echo $$ >> {pids}; {STAY}'"
    world.programs({"stays": shell(STAY), "moves": shell(f"({move} &) ; {STAY}")})
    daemon = world.up()
    stays = daemon.prepare("stays", source="stays").run
    daemon.send(Go("stays", 1))

    def move_to(directory: str, turn: str) -> int:
        target.unlink(missing_ok=True)
        target.symlink_to(directory)
        pids.unlink(missing_ok=True)
        daemon.prepare(turn, source="moves")
        daemon.send(Go(turn, 1))
        moved = int(wait_lines(pids, 1)[0])
        assert daemon.kill(turn).outcome == "killed"
        return moved

    assert worlds.gone(move_to(str(root.directory), "out"))
    over = move_to(stays.group.removeprefix("cgroup:"), "over")
    assert worlds.alive(over)  # it is the other run's now
    assert worlds.alive(stays.pid)
    daemon.kill("stays")
    assert worlds.gone(over, stays.pid)
