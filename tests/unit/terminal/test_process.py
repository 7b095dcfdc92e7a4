"""Processes by pid and start time."""

import errno
import os
import pty
import subprocess
import sys

import pytest

from corral.local.wait import until
from corral.tamq.terminal import process


def test_a_command_may_be_called_anything() -> None:
    line = b"7 (a) R 1 (b)) S 2 3 4 34816 5 0 0 0 0 0 0 0 0 0 20 0 1 0 99 0"
    assert process.parse_stat(line) == process.Stat(7, 2, 3, 4, 34816, 5, 99, True)


def test_a_process_is_found_until_it_ends() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    named = process.identify(child.pid)
    assert named is not None
    assert process.find(named) is not None
    assert process.find(named._replace(start_ticks=named.start_ticks + 1)) is None
    assert process.find(named._replace(boot_id="another boot")) is None
    child.communicate()
    assert process.find(named) is None
    assert process.identify(child.pid) is None


def test_a_zombie_is_no_process() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.read(child.pid) is None
    child.wait()


def unread(path: str) -> int:
    found = process.terminal_at(path)
    return -1 if found is None else found.unread


def test_a_terminal_tells_its_mode() -> None:
    master, slave = pty.openpty()
    try:
        found = process.terminal_at(os.ttyname(slave))
        mode = process.LineMode(canonical=True, echo=True)
        assert found == process.Tty(os.fstat(slave).st_rdev, mode, 0)
        os.write(master, b"whole\nhalf")
        until(lambda: unread(os.ttyname(slave)) == len("whole\n"), 30, "the line")
    finally:
        os.close(master)
        os.close(slave)
    assert process.terminal_at("/dev/null") is None
    assert process.terminal_at("/dev/nothing") is None


def test_who_cannot_look_does_not_say_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's answer is put there: to use up descriptors would disturb the other tests."""
    named = process.identify(os.getpid())
    assert named is not None

    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    for look in (process.find, lambda one: process.terminal_at(f"/proc/{one.pid}/fd/0")):
        with pytest.raises(OSError, match="Too many open files"):
            look(named)
    assert process.command(named.pid) == ""
