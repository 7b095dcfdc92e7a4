"""Where a run's cgroup may be made: the choice, on texts of /proc; and a real one."""

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from corral.cowboy.runner import cgroup
from corral.cowboy.runner.cgroup import CgroupRoot, own_directory
from corral.local.wait import until
from tests.unit.runner import world as worlds

UNIFIED = "25 24 0:22 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "30 24 0:26 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,mode=755\n"
    "31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw\n"
    "32 30 0:28 / /sys/fs/cgroup/systemd rw,nosuid shared:11 - cgroup cgroup rw,name=systemd\n"
)
LEGACY = "32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
CONTAINER = "40 24 0:22 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
SPACES = "25 24 0:22 / /mnt/c\\040group rw - cgroup2 none rw\n"
UNIT = "0::/system.slice/corral-runner@scout.service\n"


@pytest.mark.parametrize(
    ("self_cgroup", "mountinfo", "expected"),
    [
        (UNIT, UNIFIED, "/sys/fs/cgroup/system.slice/corral-runner@scout.service"),
        ("0::/\n", UNIFIED, "/sys/fs/cgroup"),
        ("1:name=systemd:/user\n0::/user\n", HYBRID, "/sys/fs/cgroup/unified/user"),
        ("0::/\n", SPACES, "/mnt/c group"),
        ("0::/docker/abc\n", CONTAINER, "/sys/fs/cgroup"),
        ("0::/docker/abc/inner\n", CONTAINER, "/sys/fs/cgroup/inner"),
        ("0::/docker/abcd\n", CONTAINER, None),
        ("0::/../other\n", UNIFIED, None),
        ("1:name=systemd:/user\n", LEGACY, None),
        (UNIT, LEGACY, None),
        ("", UNIFIED, None),
    ],
)
def test_the_runners_own_directory(self_cgroup: str, mountinfo: str, expected: str | None) -> None:
    found = own_directory(self_cgroup, mountinfo)
    assert found == (None if expected is None else Path(expected))


def refusal(directory: Path) -> str:
    why = CgroupRoot(directory, "corral-test-").probe()
    assert why is not None
    assert list(directory.glob("corral-test-*")) == []
    return why


def test_a_directory_that_is_not_writable_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", denied)
    assert refusal(tmp_path) == f"{tmp_path}: Permission denied"


def test_a_directory_that_is_no_cgroup_is_refused(tmp_path: Path) -> None:
    assert "cgroup.kill" in refusal(tmp_path)


def test_a_cgroup_that_cannot_be_joined_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CgroupRoot.create

    def create(root: CgroupRoot, token: str) -> Path:
        path = made(root, token)
        (path / "cgroup.kill").touch()
        return path

    monkeypatch.setattr(CgroupRoot, "create", create)
    why = CgroupRoot(tmp_path, "corral-test-").probe()
    assert why is not None
    assert "cannot be moved into it" in why


def test_the_choice_gives_a_reason_either_way(tmp_path: Path) -> None:
    root, why = cgroup.choose(tmp_path)
    assert why
    if root is not None:
        assert root.existing() == []
        assert why == str(root.directory)


def test_two_deployments_never_share_names(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    roots = [cgroup.choose(place)[0] for place in places]
    if None in roots:
        assert roots == [None, None]
        return
    made = [root.create("t") for root in roots if root is not None]
    try:
        assert [root.existing() for root in roots if root is not None] == [[made[0]], [made[1]]]
    finally:
        assert all(map(cgroup.removed, made))


def test_what_is_gone_is_not_populated_and_counts_as_removed(tmp_path: Path) -> None:
    assert cgroup.populated(tmp_path / "gone") is False
    assert cgroup.removed(tmp_path / "gone") is True
    cgroup.kill(tmp_path / "gone")


def test_a_real_cgroup_from_join_to_removal(tmp_path: Path) -> None:
    """Needs a cgroup v2 hierarchy that this user may write to; else the choice is what counts."""
    root, why = cgroup.choose(tmp_path)
    if root is None:
        assert why
        return
    path = root.create("t")
    with subprocess.Popen(
        ["/bin/sh", "-c", "read go; sleep 1000 & sleep 1000"], stdin=subprocess.PIPE
    ) as run:
        (path / "cgroup.procs").write_text(str(run.pid))
        (path / "below").mkdir()
        assert run.stdin is not None
        run.stdin.write(b"go\n")
        run.stdin.flush()
        assert cgroup.populated(path)
        assert not cgroup.removed(path)
        cgroup.kill(path)
        assert run.wait(30) == -signal.SIGKILL
    until(lambda: not cgroup.populated(path), 30, "the cgroup to be empty")
    assert cgroup.removed(path)
    assert not path.exists()


def test_only_old_empty_cgroups_of_others_are_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, why = cgroup.choose(tmp_path)
    if root is None:
        assert why
        return
    empty, used = root.create("0"), root.create("1")
    with worlds.sleeper() as run:
        (used / "cgroup.procs").write_text(str(run.pid))
        root.sweep()
        assert empty.exists()  # it is new
        monkeypatch.setattr(cgroup, "NAME_PREFIX", empty.name.removesuffix("0"))
        monkeypatch.setattr(cgroup, "SWEEP_AGE_S", -1000.0)
        root.sweep()
        assert not empty.exists()
        assert used.exists()
        cgroup.kill(used)
    until(lambda: cgroup.removed(used), 30, "the cgroup to be removed")
