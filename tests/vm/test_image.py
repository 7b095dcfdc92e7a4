"""What an image is made from, and what of it is made anew."""

import os
import time
from pathlib import Path

import pytest

from tests.vm import debian, image
from tests.vm.debian import Release, VmError

RELEASE = Release("bookworm", ("deb a bookworm main",))


def test_the_hash_changes_with_the_sources_and_the_release() -> None:
    one = image.inputs_hash(RELEASE)
    assert one == image.inputs_hash(RELEASE)
    assert one != image.inputs_hash(Release("trixie", RELEASE.sources))
    assert one != image.inputs_hash(Release("bookworm", ()))


def test_the_hash_changes_with_a_file_of_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "GUEST", tmp_path)
    (tmp_path / "init").write_text("one")
    one = image.inputs_hash(RELEASE)
    (tmp_path / "init").write_text("two")
    two = image.inputs_hash(RELEASE)
    (tmp_path / "init").chmod(0o755)
    assert len({one, two, image.inputs_hash(RELEASE)}) == 3


def test_this_machine_has_a_release_and_sources() -> None:
    release = debian.release()
    assert release.sources
    assert all(line.split()[0::2][0] == "deb" for line in release.sources)
    assert {line.split()[2].split("-")[0] for line in release.sources} == {release.name}


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(debian.TOOLS, "corral-no-such-program", "no-such-package")
    with pytest.raises(VmError, match="missing for test machines: no-such-package"):
        debian.require_tools()


def test_only_root_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(image, "SHARED", tmp_path / "shared")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(VmError, match="must be built as root"):
        image.image(lambda _: None)


def test_the_image_that_root_built_is_every_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(image, "SHARED", tmp_path / "cache" / "corral" / "vm")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert image.cache_folder() == image.SHARED
    built = image.SHARED / f"image-{image.inputs_hash(debian.release())}"
    built.mkdir(parents=True)
    (built / image.BUILT).write_text('{"python": "3.11.2"}')
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert image.cache_folder() == tmp_path / "home" / ".cache" / "corral" / "vm"
    assert image.image(lambda _: None) == image.Image(built, "3.11.2")
    with pytest.raises(VmError, match="must be built as root"):
        image.image(lambda _: None, rebuild=True)


def test_modules_are_loaded_after_what_they_need() -> None:
    dependencies = (
        "kernel/virtio_pci.ko: kernel/virtio.ko kernel/virtio_ring.ko\n"
        "kernel/virtio.ko: kernel/virtio_ring.ko\n"
        "kernel/virtio_ring.ko:\n"
        "kernel/other.ko:\n"
    )
    assert image._load_order(dependencies) == [
        "kernel/virtio_ring.ko",
        "kernel/virtio.ko",
        "kernel/virtio_pci.ko",
    ]


def test_an_image_that_nobody_uses_is_removed(tmp_path: Path) -> None:
    folders = [tmp_path / f"image-{name}" for name in ("now", "young", "old")]
    for folder in folders:
        folder.mkdir()
    aged = time.time() - image.UNUSED_MAX_S - 60
    for folder in (folders[0], folders[2]):
        os.utime(folder, (aged, aged))
    image._forget_unused(folders[0])
    assert [folder.exists() for folder in folders] == [True, True, False]
