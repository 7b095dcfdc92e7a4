"""Listening at a Unix socket: what is replaced and what never is, modes, limits, the lock."""

import os
import socket
import stat
from pathlib import Path

import pytest

from corral.core import sockets
from corral.core.errors import ConfigError, UnavailableError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_the_file_has_its_mode_whatever_the_umask(path: Path, mode: int) -> None:
    before = os.umask(0)
    try:
        listener, inode = sockets.listen(path, "socket", mode=mode)
    finally:
        os.umask(before)
    with listener:
        assert stat.S_IMODE(path.lstat().st_mode) == mode
        assert path.lstat().st_ino == inode
        assert not listener.getblocking()


def test_a_dead_socket_is_replaced_and_a_live_one_is_not(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    listener, inode = sockets.listen(path, "socket")
    with listener:
        with pytest.raises(UnavailableError, match="another program listens at"):
            sockets.listen(path, "socket")
        assert path.lstat().st_ino == inode


def test_a_socket_whose_queue_is_full_is_alive(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as slow, socket.socket(socket.AF_UNIX) as waiting:
        slow.bind(str(path))
        slow.listen(0)
        waiting.connect(str(path))
        with pytest.raises(UnavailableError):
            sockets.listen(path, "socket")
    assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_never_removed(tmp_path: Path, path: Path, kind: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    match kind:
        case "file":
            path.write_text("precious")
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(precious)
    with pytest.raises(ConfigError, match=r"^socket: .* is no socket"):
        sockets.listen(path, "socket")
    assert os.path.lexists(path)
    assert precious.read_text() == "precious"


def test_a_path_at_the_limit_and_one_past_it(tmp_path: Path) -> None:
    fits = tmp_path / ("x" * (sockets.PATH_MAX_BYTES - len(os.fsencode(tmp_path)) - 1))
    sockets.listen(fits, "socket")[0].close()
    with pytest.raises(ConfigError, match=r"^here: .* has a path of 108 bytes"):
        sockets.listen(fits.with_name(fits.name + "x"), "here")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^socket: cannot listen at .*No such file"):
        sockets.listen(tmp_path / "no" / "s", "socket")


def test_only_our_own_file_is_unlinked(path: Path) -> None:
    listener, inode = sockets.listen(path, "socket")
    listener.close()
    sockets.unlink_own(path, inode + 1)
    assert path.exists()
    sockets.unlink_own(path, inode)
    sockets.unlink_own(path, inode)
    assert not path.exists()


def test_a_private_folder_is_made_or_checked(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    sockets.private_folder(folder, "socket")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o701)
    with pytest.raises(ConfigError, match="must be yours and of mode 0700"):
        sockets.private_folder(folder, "socket")


@pytest.mark.parametrize(("mode", "cure"), [(0o701, "chmod 700"), (0o1777, "below it")])
def test_nobody_is_told_to_close_a_folder_of_all(tmp_path: Path, mode: int, cure: str) -> None:
    tmp_path.chmod(mode)
    try:
        with pytest.raises(ConfigError) as caught:
            sockets.private_folder(tmp_path, "socket")
    finally:
        tmp_path.chmod(0o700)
    assert cure in caught.value.hint


def test_one_has_the_lock_until_it_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    held = sockets.lock(path)
    assert held is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sockets.lock(path, wait_s=0.02) is None
    os.close(held)
    again = sockets.lock(path)
    assert again is not None
    os.close(again)


def test_a_lock_is_not_taken_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        sockets.lock(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


def test_who_connects_is_who_the_kernel_says() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        found = sockets.credentials(ours)
        assert (found.pid, found.uid, found.gid) == (os.getpid(), os.getuid(), os.getgid())
