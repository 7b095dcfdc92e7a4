"""What is read from /proc, and that a kill hits exactly one process."""

import os
import signal
import subprocess
import sys

import pytest

from corral.cowboy.runner import processes
from corral.cowboy.runner.processes import Process
from corral.local.wait import until
from tests.unit.runner import world as worlds

WAIT_S = 30.0


def stat_line(
    command: bytes = b"sh", state: bytes = b"S", threads: int = 1, flags: int = 0x400100
) -> bytes:
    middle = b" ".join(b"%d" % number for number in range(10, 20))
    return b"42 (%s) %s 7 40 39 34816 40 %d %s %d 0 123456 1 2\n" % (
        command,
        state,
        flags,
        middle,
        threads,
    )


@pytest.mark.parametrize(
    "command", [b"sh", b"a b", b") R 1 1 1", b"((", b"x\ny", b"", b"\xff", b"sh) S 9 9 9 9"]
)
def test_a_command_may_contain_anything(command: bytes) -> None:
    assert processes.parse_stat(stat_line(command)) == Process(42, 7, 40, 39, 123456, True)


@pytest.mark.parametrize(
    ("state", "threads", "alive"),
    [
        (b"R", 1, True),
        (b"T", 1, True),
        (b"D", 1, True),
        (b"Z", 1, False),
        (b"Z", 0, False),
        (b"X", 0, False),
        (b"Z", 2, True),
    ],
)
def test_a_zombie_lives_only_by_its_other_threads(state: bytes, threads: int, alive: bool) -> None:
    assert processes.parse_stat(stat_line(state=state, threads=threads)).alive is alive


def test_this_process_is_in_the_table_as_the_system_knows_it() -> None:
    own = processes.table()[os.getpid()]
    assert own == processes.read(os.getpid())
    assert own[:4] == (os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0))
    assert own.alive


def test_what_is_not_there_is_none() -> None:
    assert processes.read(2**22 + 1) is None
    assert processes.tokens(2**22 + 1) == frozenset()


def test_children_are_listed_zombies_included() -> None:
    with subprocess.Popen(["/bin/true"]) as child:
        until(lambda: not _alive(child.pid), WAIT_S, "the child to end")
        assert child.pid in processes.children()


def test_without_the_kernels_list_children_are_found_in_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(_: str) -> bytes:
        raise FileNotFoundError

    with worlds.sleeper() as child:
        listed = set(processes.children())
        monkeypatch.setattr(processes, "_contents", missing)
        assert set(processes.children()) == listed >= {child.pid}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"CORRAL_RUN_TOKEN": "ab12"}, {"ab12"}),
        ({"A": "1", "CORRAL_RUN_TOKEN": "ab12", "Z": "2"}, {"ab12"}),
        ({"A": "x" * 100_000, "CORRAL_RUN_TOKEN": "ab12", "Z": "y" * 100_000}, {"ab12"}),
        ({"XCORRAL_RUN_TOKEN": "ab12"}, set()),
        ({"X": "CORRAL_RUN_TOKEN=ab12"}, set()),
        ({"CORRAL_RUN_TOKEN": "not hex"}, set()),
        ({"CORRAL_RUN_TOKENS": "ab12"}, set()),
        ({}, set()),
    ],
)
def test_tokens(environment: dict[str, str], expected: set[str]) -> None:
    with worlds.sleeper(environment) as child:
        until(lambda: processes.tokens(child.pid) == expected, WAIT_S, "the program to start")
        until(lambda: _in_exec(child.pid) is (not environment), WAIT_S, "its environment")


def test_what_has_ended_is_not_starting() -> None:
    with subprocess.Popen(["/bin/true"]) as child:
        until(lambda: not _alive(child.pid), WAIT_S, "the child to end")
        assert not _in_exec(child.pid)
    assert not processes.in_exec(Process(2**22 + 1, 1, 1, 1, 1, True))
    assert not processes.in_exec(Process(os.getpid(), 2, 0, 0, 1, True, of_kernel=True))


@pytest.mark.parametrize(("flags", "of_kernel"), [(0x400100, False), (0x208040, True)])
def test_a_kernel_thread_says_so_itself(flags: int, of_kernel: bool) -> None:
    assert processes.parse_stat(stat_line(flags=flags)).of_kernel is of_kernel


def test_a_session_led_from_outside_a_container_is_no_kernel_thread() -> None:
    with worlds.sleeper({}) as child:
        until(lambda: _in_exec(child.pid), WAIT_S, "its environment")
        seen = processes.read(child.pid)
        assert seen is not None
        assert processes.in_exec(seen._replace(session=0))


def test_kill_hits_the_process_that_was_seen() -> None:
    with worlds.sleeper() as child:
        seen = processes.read(child.pid)
        assert seen is not None
        assert processes.kill(seen)
        assert child.wait(WAIT_S) == -signal.SIGKILL
        assert processes.kill(seen)  # gone is as good


def test_kill_sends_nothing_to_another_process_with_the_same_pid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _, number: sent.append(number))
    now = processes.read(os.getpid())
    assert now is not None
    assert processes.kill(now._replace(start_ticks=now.start_ticks - 1))
    assert sent == []
    assert processes.kill(now)
    assert sent == [signal.SIGKILL]


def test_a_kill_that_is_not_allowed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(signal, "pidfd_send_signal", refused)
    own = processes.read(os.getpid())
    assert own is not None
    assert processes.kill(own) is False


ORPHAN_SCRIPT = """
import os, sys
from corral.cowboy.runner import processes
processes.adopt_orphans()
read, write = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.read(read, 1)
        os._exit(7)
    os._exit(0)
os.wait()
[orphan] = processes.children()
os.write(write, b"x")
print(os.waitpid(orphan, 0)[1] >> 8)
"""


def test_orphans_are_adopted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN_SCRIPT],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        timeout=WAIT_S,
    )
    assert (done.stdout, done.returncode) == (b"7\n", 0), done.stderr


def test_the_boot_has_an_id() -> None:
    assert len(processes.boot_id()) == 36
    assert processes.boot_id() == processes.boot_id()


def _alive(pid: int) -> bool:
    process = processes.read(pid)
    return process is not None and process.alive


def _in_exec(pid: int) -> bool:
    process = processes.read(pid)
    assert process is not None
    return processes.in_exec(process)
