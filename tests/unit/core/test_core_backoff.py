import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.core.backoff import Backoff

seconds = st.floats(min_value=0.001, max_value=1e4)


@given(seconds, seconds, st.floats(1, 10), st.floats(0, 0.99), st.integers(0, 2**32), st.data())
def test_every_pause_is_within_its_bounds(
    one: float, other: float, factor: float, jitter: float, seed: int, data: st.DataObject
) -> None:
    initial_s, max_s = sorted((one, other))
    backoff = Backoff(initial_s, max_s, factor, jitter, random.Random(seed))
    bound = initial_s
    for _ in range(data.draw(st.integers(1, 300))):
        pause_s = backoff.next_s()
        assert bound * (1 - jitter) <= pause_s * (1 + 1e-9)
        assert pause_s <= bound <= max_s
        bound = min(max_s, bound * factor)
    backoff.reset()
    assert backoff.next_s() <= initial_s


def test_without_jitter_the_pauses_double_up_to_the_limit() -> None:
    backoff = Backoff(1, 5, jitter=0)
    assert [backoff.next_s() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_one_seed_gives_the_same_pauses() -> None:
    one, other = (Backoff(1, 60, rng=random.Random(7)) for _ in range(2))
    assert [one.next_s() for _ in range(9)] == [other.next_s() for _ in range(9)]


@pytest.mark.parametrize(
    ("initial_s", "max_s", "factor", "jitter", "word"),
    [
        (0, 1, 2, 0.1, "initial_s"),
        (2, 1, 2, 0.1, "max_s"),
        (1, 2, 0.9, 0.1, "factor"),
        (1, 2, 2, 1.0, "jitter"),
        (1, 2, 2, -0.1, "jitter"),
    ],
)
def test_values_that_would_not_back_off_are_refused(
    initial_s: float, max_s: float, factor: float, jitter: float, word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        Backoff(initial_s, max_s, factor, jitter)
