"""Kills: of runs, of what they hid, of the runner, by SIGTERM; nothing innocent is hit."""

import os
import signal
import subprocess
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
    Refused,
    RunPhase,
    RunResult,
    RunState,
)
from corral.local.wait import until
from tests.unit.runner import world as worlds
from tests.unit.runner.world import (
    WAIT_S,
    Daemon,
    World,
    prepare_request,
    shell,
    wait_gone,
    wait_lines,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        yield made


@pytest.fixture(params=["group", "cgroup"])
def contained(request: pytest.FixtureRequest, world: World) -> World:
    """Both ways of holding a run together; where there are no cgroups, the choice falls back."""
    world.launch = replace(world.launch, use_cgroups=request.param == "cgroup")
    return world


def in_cgroup(world: World) -> bool:
    """Whether runs get cgroups: as the launch says, where this machine lets them."""
    runs = Path(world.launch.runs)
    runs.mkdir(mode=0o700, exist_ok=True)
    return world.launch.use_cgroups and cgroup.choose(runs)[0] is not None


# Each script appends the pids of what it started to a file, and then stays.
STAY = "exec sleep 1000"
TREES = {
    "children": f"(SIT; :) & SIT & {STAY}",
    "session": f"setsid SIT & {STAY}",
    "double-fork": f"(setsid sh -c 'SIT & exit' &) ; {STAY}",
    "ignores-signals": f"trap '' TERM INT HUP; setsid SIT & {STAY}",
    "stopped": f"sh -c 'SIT & kill -STOP $$' & {STAY}",
}
# These hide from everything but a cgroup and a living parent.
HIDDEN = {
    "no-token": f"setsid env -i SIT & {STAY}",
    "no-token-orphaned": f"(setsid env -i SIT &) ; {STAY}",
}


class Families:
    """One source for each tree; the pids of what each has started."""

    def __init__(self, world: World, trees: dict[str, str], ending: str = STAY) -> None:
        self._directory = world.directory
        self._sit = world.directory / "sit"
        self._sit.write_text(f"#!/bin/sh\necho $$ >> $1; {STAY}\n")
        self._sit.chmod(0o755)
        world.programs({name: self._command(name, trees[name], ending) for name in trees})

    def _command(self, name: str, script: str, ending: str) -> tuple[str, ...]:
        pids = str(self.file(name))
        script = script.removesuffix(STAY) + ending
        for word, meaning in (
            ("SIT", f"{self._sit} {pids}"),
            ("PIDS", pids),
            ("COUNT", str(self.count(name))),
        ):
            script = script.replace(word, meaning)
        return shell(script)

    def file(self, name: str) -> Path:
        return self._directory / f"pids.{name}"

    def count(self, name: str) -> int:
        return 2 if name == "children" else 1

    def start(self, daemon: Daemon, name: str) -> list[int]:
        """Leader and descendants of the turn that is called like its source."""
        leader = daemon.prepare(name, source=name).run.pid
        daemon.send(Go(name, 1))
        return [leader, *self.descendants(name)]

    def descendants(self, name: str) -> list[int]:
        return [int(line) for line in wait_lines(self.file(name), self.count(name))]


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
    with subprocess.Popen(["/bin/sleep", "1000"], env=environment) as stranger:
        assert daemon.kill("t").outcome == "killed"
        assert stranger.wait(WAIT_S) == -signal.SIGKILL


def test_processes_of_others_are_never_hit(world: World) -> None:
    environment = {"CORRAL_RUN_TOKEN": "0" * 32, "NOT_CORRAL_RUN_TOKEN": "x"}
    with subprocess.Popen(["/bin/sleep", "1000"], env=environment) as bystander:
        world.program(*shell("(setsid sleep 1000 &); sleep 1000"))
        daemon = world.up()
        daemon.prepare("t")
        daemon.send(Go("t", 1))
        daemon.kill("t")
        world.kill_runner()
        world.up()
        assert bystander.poll() is None
        bystander.kill()


def test_a_recorded_pid_that_belongs_to_a_stranger_now_is_left_alone(world: World) -> None:
    """As after the kernel has given the number to another process."""
    world.program(*shell(STAY))
    daemon = world.up()
    leader = daemon.prepare("t").run.pid
    world.kill_runner()
    wait_gone(leader)
    record = Path(world.launch.runs, "t.1.json")
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as stranger:
        text = record.read_text()
        for key in ("pid", "pgid"):
            text = text.replace(f'"{key}": {leader}', f'"{key}": {stranger.pid}')
        assert str(stranger.pid) in text
        record.write_text(text)
        assert world.up().phase("t") is RunPhase.NEVER_WENT
        assert stranger.poll() is None
        stranger.kill()


def test_records_of_another_boot_kill_nothing_and_are_unknown(world: World) -> None:
    world.program(*shell(STAY))
    daemon = world.up()
    daemon.prepare("t")
    world.kill_runner()
    record = Path(world.launch.runs, "t.1.json")
    text = record.read_text()
    leader = int(text.split('"pid": ')[1].split(",")[0])
    wait_gone(leader)
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as stranger:
        process = processes.read(stranger.pid)
        assert process is not None
        ticks = text.split('"start_ticks": ')[1].split(",")[0]
        text = text.replace(f'"start_ticks": {ticks}', f'"start_ticks": {process.start_ticks}')
        text = text.replace(f'"pid": {leader}', f'"pid": {stranger.pid}')
        record.write_text(text.replace(processes.boot_id(), "another-boot"))
        assert world.up().phase("t") is RunPhase.UNKNOWN
        assert stranger.poll() is None
        stranger.kill()
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


def test_sigterm_kills_runs_and_leaves_their_outcome_unknown(world: World) -> None:
    pids = world.directory / "pids"
    world.program(*shell(f"setsid sh -c 'echo $$ >> {pids}; {STAY}' & {STAY}"))
    daemon = world.up()
    waiting = daemon.prepare("waiting").run.pid
    leader = daemon.prepare("t").run.pid
    daemon.send(Go("t", 1))
    family = [leader, int(wait_lines(pids, 1)[0])]
    world.runners[-1].terminate()
    assert world.runners[-1].wait(WAIT_S) == 0
    assert daemon.next() is None
    assert worlds.gone(waiting, *family)
    assert not world.socket.exists()
    again = world.up()
    assert again.phase("t") is RunPhase.UNKNOWN
    assert again.phase("waiting") is RunPhase.NEVER_WENT


def test_sigterm_waits_a_moment_for_results_to_be_committed(world: World) -> None:
    daemon = world.up()
    result = daemon.run("t")
    world.runners[-1].terminate()
    until(lambda: "runner_stopping" in world.log, WAIT_S, "the stop")
    assert daemon.state("t").result == result
    daemon.send(prepare_request("t2"))
    assert daemon.expect(Refused).reason == "stopping"
    assert world.runners[-1].poll() is None
    daemon.forget("t")
    assert world.runners[-1].wait(WAIT_S) == 0


def test_a_stop_without_a_daemon_waits_for_nobody(world: World) -> None:
    daemon = world.up()
    daemon.run("t")
    daemon.close()
    until(lambda: "daemon_disconnected" in world.log, WAIT_S, "the runner to notice")
    began = worlds.monotonic_ms()
    world.runners[-1].terminate()
    assert world.runners[-1].wait(WAIT_S) == 0
    assert worlds.monotonic_ms() - began < 1900


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
    with subprocess.Popen(["/bin/sleep", "1000"]) as left:
        (path / "below" / "cgroup.procs").write_text(str(left.pid))
        world.up()
        assert left.wait(WAIT_S) == -signal.SIGKILL
    assert not path.exists()
