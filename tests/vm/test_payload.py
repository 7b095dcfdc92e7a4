"""The payload of a host: accounts beside those of the image, files, code that is compiled."""

import os
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.vm import payload
from tests.vm.cache import UNUSED_MAX_S
from tests.vm.image import Image
from tests.vm.payload import FIRST_ID, Group, Host, compiled
from tests.vm.sample import sample_host

PASSWD = "root:x:0:0:root:/root:/bin/bash\nredis:x:101:102::/:/usr/sbin/nologin\n"
GROUP = "root:x:0:\nadm:x:4:syslog\nredis:x:102:\n"
SHADOW = "root:*:1::::::\nredis:!:1::::::\n"


@pytest.fixture
def image(tmp_path: Path) -> Image:
    folder = tmp_path / "image"
    (folder / "accounts").mkdir(parents=True)
    for name, text in (("passwd", PASSWD), ("group", GROUP), ("shadow", SHADOW)):
        (folder / "accounts" / name).write_text(text)
    (folder / "initrd.cpio").write_bytes(b"")
    return Image(folder, python="3.11.2")


def laid_out(image: Image, host: Host, tmp_path: Path) -> Path:
    """The payload as the machine's first program unpacks it."""
    target = tmp_path / "initrd.cpio"
    payload.initrd(image, host, tmp_path / "cache", target)
    root = tmp_path / "root"
    root.mkdir()
    argv = ["busybox", "cpio", "-i", "-d", "-m"]
    subprocess.run(argv, input=target.read_bytes(), cwd=root, check=True, capture_output=True)
    return root / "payload"


def test_the_hosts_accounts_are_added_to_those_of_the_image(image: Image, tmp_path: Path) -> None:
    etc = laid_out(image, sample_host(), tmp_path) / "etc"
    assert (etc / "passwd").read_text().startswith(PASSWD)
    line = (etc / "passwd").read_text().splitlines()[-1]
    assert line == f"sample:x:{FIRST_ID}:{FIRST_ID}:Sample:/var/lib/sample:/bin/sh"
    groups = dict(line.split(":x:") for line in (etc / "group").read_text().splitlines())
    assert groups["adm"] == "4:sample,syslog"
    assert groups["sample"] == f"{FIRST_ID}:"
    assert stat.S_IMODE((etc / "shadow").stat().st_mode) == 0o600
    assert (etc / "shadow").read_text().endswith("sample:!:1::::::\n")


def test_a_number_is_given_once(image: Image, tmp_path: Path) -> None:
    host = sample_host()
    host.groups["chosen"] = Group(gid=FIRST_ID, members=["sample"])
    etc = laid_out(image, host, tmp_path) / "etc"
    lines = [line.split(":") for line in (etc / "group").read_text().splitlines()]
    numbers = [fields[2] for fields in lines]
    assert len(set(numbers)) == len(numbers)
    assert ["chosen", "x", str(FIRST_ID), "sample"] in lines


def test_files_links_and_commands_are_where_the_host_says(image: Image, tmp_path: Path) -> None:
    root = laid_out(image, sample_host(), tmp_path)
    assert (root / "etc/sample/file").read_text() == "of the host\n"
    hello = root / "nix/store/0-sample/bin/hello"
    assert stat.S_IMODE(hello.stat().st_mode) == 0o555
    assert (root / "usr/local/bin/hello").readlink() == Path("/nix/store/0-sample/bin/hello")
    system = root / "etc/systemd/system"
    assert (system / "multi-user.target.wants/sample.service").readlink() == Path(
        "../sample.service"
    )
    assert (root / "etc/tmpfiles.d/00-nixos.conf").read_text() == (
        "d /run/sample 0750 sample sample - -\n"
    )


def test_each_program_of_the_distribution_is_there(image: Image, tmp_path: Path) -> None:
    root = laid_out(image, sample_host(), tmp_path)
    cowboy = root / "opt/corral/bin/cowboy"
    assert cowboy.read_text().startswith("#!/opt/corral/bin/python -I\n")
    assert stat.S_IMODE(cowboy.stat().st_mode) == 0o755
    assert list((root / "opt/corral/lib/python3.11/site-packages/corral").rglob("*.sql"))


def test_code_is_compiled_once_for_each_state_of_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "one.py").write_text("A = 1\n")
    first = compiled(source, "/opt/one", tmp_path / "cache")
    assert list(first.rglob("one.*.pyc"))
    assert compiled(source, "/opt/one", tmp_path / "cache") == first
    (source / "one.py").write_text("A = 2\n")
    assert compiled(source, "/opt/one", tmp_path / "cache") != first


def test_code_that_nobody_uses_is_removed(tmp_path: Path) -> None:
    source, cache = tmp_path / "source", tmp_path / "cache"
    source.mkdir()
    (source / "one.py").write_text("A = 1\n")
    now = compiled(source, "/opt/one", cache)
    folders = [now, *(cache / name for name in ("code-young", "code-old", "image-old"))]
    for folder in folders[1:]:
        folder.mkdir()
    aged = time.time() - UNUSED_MAX_S - 60
    for folder in (now, *folders[2:]):
        os.utime(folder, (aged, aged))
    assert compiled(source, "/opt/one", cache) == now
    assert [folder.exists() for folder in folders] == [True, True, False, True]


def test_a_host_with_an_unknown_part_is_refused() -> None:
    with pytest.raises(ValueError, match="surprise"):
        Host.model_validate({**sample_host().model_dump(), "surprise": 1})
