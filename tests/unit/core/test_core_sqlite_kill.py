"""SIGKILL around the COMMIT, and a random one."""

import random
import signal
from pathlib import Path

import pytest

from corral.core import crashpoints
from corral.core.sqlite import COMMIT_AFTER, COMMIT_BEFORE
from tests.unit.core import child
from tests.unit.core.databases import names, writer

GROUP = [f"{number}" for number in range(8)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


# The passes: the first row, the request that holds the thread, the group of eight.
@pytest.mark.parametrize(
    ("point", "nth", "said", "rows"),
    [
        (COMMIT_BEFORE, 1, [], []),
        (COMMIT_AFTER, 1, [], ["first"]),
        (COMMIT_BEFORE, 3, ["first"], ["first"]),
        (COMMIT_AFTER, 3, ["first"], ["first", *GROUP]),
    ],
)
async def test_a_kill_before_the_commit_loses_all_of_a_group_and_after_it_nothing(
    path: Path, point: str, nth: int, said: list[str], rows: list[str]
) -> None:
    ended = child.run("kill_child", path, point, nth)
    assert ended.status == -signal.SIGKILL, ended.stderr
    assert ended.said == said
    async with writer(path) as ledger:
        assert await ledger.integrity() == []
    assert names(path) == rows


def test_both_crash_points_are_registered_with_their_meaning() -> None:
    assert {COMMIT_BEFORE, COMMIT_AFTER} == {
        "core.sqlite.commit.before",
        "core.sqlite.commit.after",
    }
    assert all(crashpoints.registered()[name] for name in (COMMIT_BEFORE, COMMIT_AFTER))


@pytest.mark.parametrize("round_", range(3))
async def test_what_was_answered_survives_a_kill_at_any_moment(
    path: Path, rng: random.Random, round_: int
) -> None:
    answers = rng.randint(1, 200)
    with child.start("stream_child", path) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(answers)]
        process.kill()
        said += process.stdout.read().split()
    assert process.returncode == -signal.SIGKILL
    async with writer(path) as ledger:
        assert await ledger.integrity() == []
    rows = names(path)
    assert set(said) <= set(rows), f"{len(rows)} rows"
    # Each of the sixteen callers waits for its answer: at most one request of each is unanswered.
    assert len(rows) - len(said) <= 16
