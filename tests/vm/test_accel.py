"""The decision whether machines are emulated, with faked outcomes of the probe."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.vm.accel import PROBE_MARK, VARIABLE, Accel, boots, choose
from tests.vm.debian import VmError


class Place:
    """A computer with a device, a boot and a cache, and a probe that counts its calls."""

    def __init__(self, folder: Path) -> None:
        self.cache = folder / "cache"
        self.device = folder / "kvm"
        self.device.touch()
        self.boot_id = folder / "boot_id"
        self.reboot("1")
        self.asked = 0

    def reboot(self, name: str) -> None:
        self.boot_id.write_text(f"{name}\n")

    def probe(self, *, answer: bool) -> Callable[[], bool]:
        def ask() -> bool:
            self.asked += 1
            return answer

        return ask

    def choose(self, *, answer: bool, **environment: str) -> Accel:
        return choose(
            self.probe(answer=answer),
            self.cache,
            environment=environment,
            device=self.device,
            boot_id=self.boot_id,
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize(("answer", "accel"), [(True, Accel.KVM), (False, Accel.TCG)])
def test_the_probe_decides_once_a_boot(place: Place, answer: bool, accel: Accel) -> None:
    assert place.choose(answer=answer) is accel
    assert place.choose(answer=not answer) is accel  # not asked again
    assert place.asked == 1
    place.reboot("2")
    assert place.choose(answer=not answer) is not accel
    assert place.asked == 2


def test_without_the_device_nothing_is_started(place: Place) -> None:
    place.device.unlink()
    assert place.choose(answer=True) is Accel.TCG
    assert place.asked == 0


@pytest.mark.parametrize("accel", Accel)
def test_the_environment_overrides_the_probe(place: Place, accel: Accel) -> None:
    assert place.choose(answer=accel is Accel.TCG, **{VARIABLE: accel.value}) is accel
    assert place.asked == 0
    assert not place.cache.exists()


def test_an_unknown_word_in_the_environment_is_refused(place: Place) -> None:
    with pytest.raises(VmError, match=f"{VARIABLE}='hvf': must be kvm or tcg"):
        place.choose(answer=True, **{VARIABLE: "hvf"})


def test_a_spoilt_memory_is_asked_for_again(place: Place) -> None:
    assert place.choose(answer=True) is Accel.KVM
    for file in place.cache.iterdir():
        file.write_text("")
    assert place.choose(answer=False) is Accel.TCG
    assert place.asked == 2


# Programs stand in for QEMU: a guest that stands still under KVM cannot be ordered.


def test_a_machine_that_says_the_mark_boots() -> None:
    assert boots(["sh", "-c", f"echo noise; echo {PROBE_MARK.decode()}; exec sleep 60"], 30.0)


def test_a_machine_that_stands_still_does_not_boot() -> None:
    assert not boots(["sh", "-c", "echo noise; exec sleep 60"], 0.5)


def test_a_machine_that_ends_without_a_word_does_not_boot() -> None:
    assert not boots(["sh", "-c", "echo noise"], 30.0)
