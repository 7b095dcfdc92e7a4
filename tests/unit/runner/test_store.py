"""Records of runs: complete or not there, private, and strict when read."""

import os
import stat
from pathlib import Path

import pytest

from corral.core.errors import StorageError
from corral.cowboy.runner.store import RecordPhase, RecordStore, RunRecord

RECORD = RunRecord(
    turn="scout.a2a.1.1732935482123-0",
    attempt=1,
    pid=4242,
    start_ticks=777,
    pgid=4242,
    token="ab" * 16,
    cgroup=None,
    boot="a-boot",
    phase=RecordPhase.PREPARED,
)


@pytest.fixture
def store(tmp_path: Path) -> RecordStore:
    made = RecordStore(tmp_path / "runs")
    made.open()
    return made


def test_a_record_comes_back_as_it_was(store: RecordStore) -> None:
    went = RECORD.at(RecordPhase.WENT)._replace(attempt=2, cgroup="/sys/fs/cgroup/x y")
    store.save(RECORD)
    store.save(went)
    assert store.load() == [RECORD, went]
    assert [type(record.phase) for record in store.load()] == [RecordPhase] * 2


def test_saving_again_replaces_and_removing_twice_is_fine(
    store: RecordStore, tmp_path: Path
) -> None:
    store.save(RECORD)
    store.save(RECORD.at(RecordPhase.WENT))
    assert [record.phase for record in store.load()] == [RecordPhase.WENT]
    store.remove(RECORD)
    store.remove(RECORD)
    assert list((tmp_path / "runs").iterdir()) == []


def test_records_are_private(store: RecordStore, tmp_path: Path) -> None:
    store.save(RECORD)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "runs").iterdir()]
    assert modes == [0o600]
    assert stat.S_IMODE((tmp_path / "runs").stat().st_mode) == 0o700


def test_a_failed_save_leaves_the_former_record_and_no_litter(
    store: RecordStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(RECORD)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space left"):
            store.save(RECORD.at(RecordPhase.WENT))
    assert store.load() == [RECORD]
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_short_write_is_continued(store: RecordStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:7]))
        store.save(RECORD)
    assert store.load() == [RECORD]


def test_what_was_never_answered_for_is_dropped(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "t.1.json.new").write_text("half of a reco")
    RecordStore(runs).open()
    assert list(runs.iterdir()) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"phase": "prepared"', '"phase": "asleep"'),
        ('"pid": 4242', '"pid": "4242"'),
        ('"pid": 4242, ', ""),
        ("}", ""),
    ],
)
def test_a_record_that_cannot_be_read_is_an_error_that_names_it(
    store: RecordStore, tmp_path: Path, old: str, new: str
) -> None:
    store.save(RECORD)
    [path] = (tmp_path / "runs").iterdir()
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(StorageError, match=path.name) as caught:
        store.load()
    assert "reboot" in caught.value.hint


def test_a_place_that_is_no_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="file/runs"):
        RecordStore(tmp_path / "file" / "runs").open()
