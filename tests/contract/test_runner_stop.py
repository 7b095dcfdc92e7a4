"""SIGTERM: no more runs, those there are end, results get a moment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.cowboy.runner.domain import Go, RunPhase
from corral.local.wait import until
from tests.unit.runner import world as worlds
from tests.unit.runner.trees import STAY
from tests.unit.runner.world import WAIT_S, World, prepare_request, shell, wait_lines


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with worlds.world(tmp_path) as made:
        yield made


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
    daemon = world.up(stop_linger_s=1000)
    result = daemon.run("t")
    world.runners[-1].terminate()
    until(lambda: "runner_stopping" in world.log, WAIT_S, "the stop")
    assert daemon.state("t").result == result
    daemon.send(prepare_request("t2"))  # no answer: not refused, only not now
    assert daemon.state("t2").state is RunPhase.UNKNOWN
    assert world.runners[-1].poll() is None
    daemon.forget("t")
    assert world.runners[-1].wait(WAIT_S) == 0


def test_it_does_not_wait_for_ever(world: World) -> None:
    daemon = world.up(stop_linger_s=0.01)
    daemon.run("t")
    world.runners[-1].terminate()
    assert world.runners[-1].wait(WAIT_S) == 0
    assert daemon.next() is None


def test_a_stop_without_a_daemon_waits_for_nobody(world: World) -> None:
    daemon = world.up(stop_linger_s=1000)
    daemon.run("t")
    daemon.close()
    until(lambda: "daemon_disconnected" in world.log, WAIT_S, "the runner to notice")
    world.runners[-1].terminate()
    assert world.runners[-1].wait(WAIT_S) == 0
