import inspect
import os
import signal
import threading
import timeit
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.core import crashpoints
from tests.unit.core import child

POINT = crashpoints.register("test.point", "a point of these tests")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    crashpoints.disarm()
    yield
    crashpoints.disarm()


@pytest.mark.parametrize("nth", [1, 3])
def test_an_armed_process_dies_at_the_nth_pass(nth: int) -> None:
    ended = child.run("crashpoint_child", nth)
    assert ended.status == -signal.SIGKILL
    assert ended.said == list(range(1, nth))


def test_no_environment_variable_arms() -> None:
    # The control: armed by the launcher's call, the same scenario dies (the test above).
    names = ["CORRAL_CRASHPOINT", "CORRAL_CRASHPOINTS", "CORRAL_ARM", "CRASHPOINT", "CRASHPOINTS"]
    armed = dict.fromkeys(names, "test.child.point")
    assert child.run("crashpoint_child", 0, environ=armed).said == [1, 2, 3, 4, 5]


def test_the_module_reads_no_environment_file_or_argument() -> None:
    imported = {name for name, value in vars(crashpoints).items() if inspect.ismodule(value)}
    assert imported == {"os", "signal", "threading"}
    source = Path(inspect.getfile(crashpoints)).read_text()
    uses = {word for word in source.replace("(", " ").split() if word.startswith("os.")}
    assert uses == {"os.kill", "os.getpid"}


def test_an_unarmed_pass_counts_nothing_and_costs_next_to_nothing() -> None:
    crashpoints.crashpoint(POINT)
    crashpoints.crashpoint("never registered")
    assert crashpoints.passes() == {}
    best_s = min(timeit.repeat(lambda: crashpoints.crashpoint(POINT), number=10_000, repeat=5))
    assert best_s / 10_000 < 5e-6  # about 0.1 µs; the bound only catches a different order


def test_an_observer_sees_every_pass_and_passes_counts_them() -> None:
    seen: list[str] = []
    crashpoints.set_observer(seen.append)
    threads = [threading.Thread(target=crashpoints.crashpoint, args=(POINT,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [POINT] * 8
    assert crashpoints.passes() == {POINT: 8}
    crashpoints.set_observer(None)
    crashpoints.crashpoint(POINT)
    assert seen == [POINT] * 8
    assert crashpoints.passes() == {POINT: 9}


def test_another_point_than_the_armed_one_is_passed() -> None:
    crashpoints.arm("test.other")
    crashpoints.crashpoint(POINT)
    assert crashpoints.passes() == {POINT: 1}


def test_the_observer_hears_of_the_pass_that_kills(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: heard.append((pid, number)))
    crashpoints.set_observer(heard.append)
    crashpoints.arm(POINT, nth=2)
    crashpoints.crashpoint(POINT)
    crashpoints.crashpoint(POINT)
    assert heard == [POINT, POINT, (os.getpid(), signal.SIGKILL)]


def test_registering_twice_is_fine_with_one_text_only() -> None:
    assert crashpoints.register(POINT, "a point of these tests") == POINT
    with pytest.raises(ValueError, match=r"test\.point"):
        crashpoints.register(POINT, "another text")
    assert crashpoints.registered()[POINT] == "a point of these tests"


def test_an_armed_process_refuses_points_that_nobody_registered() -> None:
    crashpoints.set_observer(None)
    with pytest.raises(LookupError, match="never registered"):
        crashpoints.crashpoint("test.unheard.of")


def test_arming_the_pass_number_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="nth"):
        crashpoints.arm(POINT, nth=0)
