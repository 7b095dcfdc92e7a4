"""Full disks, file size limits and failing flushes, all of them real; and the way back."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.core import child
from tests.unit.core.databases import names, writer
from tests.unit.core.failing_flush import NUMBERS

FULL_HINT = "the disk is full: free space, work goes on by itself"


def a_small_disk(directory: Path, size: str) -> list[str]:
    """The command before a scenario that gives it a tmpfs of its own at `directory`."""
    # As root a mount namespace is enough; otherwise one that a user namespace comes with.
    unshare = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-rm"]
    script = 'mount -t tmpfs -o "size=$1,mode=0700" tmpfs "$2" && shift 2 && exec "$@"'
    before = [*unshare, "sh", "-c", script, "sh", size, str(directory)]
    probe = subprocess.run([*before, "true"], capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {probe.stderr.strip()}")
    return before


def on_a_small_disk(scenario: str, directory: Path, size: str) -> list[Any]:
    within = a_small_disk(directory, size)
    ended = child.run("full_child", scenario, directory, within=within)
    assert ended.status == 0, ended.stderr
    return ended.said


def error(sqlite: str | None, hint: str = FULL_HINT) -> dict[str, object]:
    return {"kind": "StorageError", "sqlite": sqlite, "hint": hint}


def test_a_commit_on_a_full_disk_answers_nobody_and_work_goes_on_afterwards(tmp_path: Path) -> None:
    during, after = on_a_small_disk("full", tmp_path, "1m")
    assert during["alone"] == [error("SQLITE_FULL")]
    assert during["group"] == [error("SQLITE_FULL")] * 3
    assert [found["kind"] for found in during["backup"]] == ["StorageError"]
    assert during["seen"] == 1
    assert during["left"] == ["ballast", "ledger.db", "ledger.db-shm", "ledger.db-wal"]
    rows = ["before", "after"]
    assert after == {"after": ["after"], "rows": rows, "integrity": []}


def test_a_disk_that_is_full_in_the_middle_of_a_group_undoes_all_of_it(tmp_path: Path) -> None:
    during, after = on_a_small_disk("middle", tmp_path, "16m")
    assert during["group"] == [error("SQLITE_FULL")] * 3
    assert [found["kind"] for found in during["quiet"]] == ["StorageError"] * 3
    assert during["alone"] == [error("SQLITE_FULL")]
    assert during["fits"] == "fits"
    assert during["ran"] == []
    assert after["again"] == ["small", "big", None]
    assert after["rows"] == ["before", "fits", "small", "big", "last"]
    assert after["integrity"] == []


def test_a_disk_that_is_full_at_the_start_is_tried_again(tmp_path: Path) -> None:
    refused, after = on_a_small_disk("opening", tmp_path, "1m")
    assert refused == {"refused": "storage"}
    assert after == {"value": "a", "rows": ["a"]}


def test_a_file_size_limit_is_an_error_until_it_is_lifted(tmp_path: Path) -> None:
    ended = child.run("full_child", "limited", tmp_path)
    assert ended.status == 0, ended.stderr
    during, after = ended.said
    accepted = [value for value in during["outcomes"] if isinstance(value, str)]
    refused = [value for value in during["outcomes"] if not isinstance(value, str)]
    assert accepted
    assert {value["sqlite"] for value in refused} == {"SQLITE_IOERR_WRITE"}
    assert all(value["hint"] for value in refused)
    assert [found["kind"] for found in during["group"]] == ["StorageError"] * 3
    assert during["after"] == ["after"]
    assert after == {"rows": ["before", *accepted, "after"], "integrity": []}


@pytest.mark.skipif(platform.machine() not in NUMBERS, reason="no system call numbers")
async def test_a_flush_that_fails_answers_nobody(tmp_path: Path) -> None:
    ended = child.run("full_child", "unflushed", tmp_path)
    assert ended.status == 0, ended.stderr
    before, during = ended.said
    assert before == "before"
    assert [found["sqlite"] for found in during["first"]] == ["SQLITE_IOERR_FSYNC"] * 3
    assert [found["kind"] for found in during["second"]] == ["StorageError"]
    path = tmp_path / "ledger.db"
    async with writer(path) as ledger:
        assert await ledger.integrity() == []
    # Whether the disk has the others is not known, but a group is there as a whole or not at all.
    assert names(path) in (["before"], ["before", "a", "b"], ["before", "a", "b", "c"])
