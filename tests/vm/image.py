"""The image of the test machine: a Debian root with the pinned wheels, built once and cached.

It holds nothing of the project but its dependencies: the project's files are the payload, which
travels in the initial file system of each run. A change of any input makes another image; the
cache is outside the checkout, so that all checkouts share it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.vm import debian, servers
from tests.vm.build import environment, step
from tests.vm.cpio import Archive
from tests.vm.debian import Release, VmError
from tests.vm.kernel import unpack

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GUEST = HERE / "guest"
REQUIREMENTS = ROOT / "python" / "requirements" / "runtime.txt"
PREFIX = "opt/corral"  # where the services' Python environment is, in the machine
DISK_BYTES = 2 * 1024**3
INODES = 100_000
BUILT = "image.json"  # written last
UNUSED_MAX_S = 7 * 24 * 3600
# Where root's images are: only root can build one, and every user runs machines of it.
SHARED = Path("/var/cache/corral/vm")
# What a disk, a console and a network card of the machine need before the root is mounted.
MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "virtio_rng", "virtio_net", "autofs4")
SAY = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    """A built image. `accounts` has its passwd, group and shadow, which a payload extends."""

    folder: Path
    python: str  # the version of the machine's interpreter, such as 3.11.2

    @property
    def disk(self) -> Path:
        return self.folder / "root.ext4"

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinux"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd.cpio"

    @property
    def accounts(self) -> Path:
        return self.folder / "accounts"


def cache_folder() -> Path:
    """Of all images, and of what was found out about this machine."""
    own = SHARED.parent.parent if os.geteuid() == 0 else Path.home() / ".cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or own) / "corral" / "vm"


def inputs_hash(release: Release) -> str:
    """A digest of all that an image is made from, but the versions that Debian has today."""
    digest = hashlib.sha256()
    modules = ("build.py", "cpio.py", "image.py", "kernel.py", "servers.py")
    files = [*(HERE / name for name in modules), REQUIREMENTS, servers.REQUIREMENTS]
    for file in [*files, *sorted(GUEST.iterdir())]:
        if file.is_file():
            digest.update(f"{file.name}\0{file.stat().st_mode & 0o111}\0".encode())
            digest.update(file.read_bytes())
    digest.update(json.dumps(asdict(release)).encode())
    return digest.hexdigest()[:16]


def image(say: SAY, *, rebuild: bool = False) -> Image:
    """The image for this checkout, built when there is none. VmError says what is missing."""
    debian.require_tools()
    release = debian.release()
    name = f"image-{inputs_hash(release)}"
    folder = cache_folder() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    if os.geteuid() != 0 and not rebuild and (SHARED / name / BUILT).exists():
        return _read(SHARED / name)
    with _locked(folder.with_suffix(".lock"), say):
        if rebuild:
            shutil.rmtree(folder, ignore_errors=True)
        if not (folder / BUILT).exists():
            _build(folder, release, say)
            _forget_unused(folder)
    os.utime(folder)
    return _read(folder)


def _read(folder: Path) -> Image:
    return Image(folder, **json.loads((folder / BUILT).read_text(encoding="utf-8")))


def listed(name: str) -> list[str]:
    """The lines of a list in the guest's folder, without comments."""
    lines = (GUEST / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


# ---- building -------------------------------------------------------------------------------


def _build(folder: Path, release: Release, say: SAY) -> None:
    if os.geteuid() != 0:
        raise VmError(
            "the image of the test machine must be built as root, once for all users",
            hint="run as root, in this checkout: ./corral vm image",
        )
    began = time.monotonic()
    work = folder.with_suffix(".new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    tree = work / "tree"
    say(f"building the image of the test machine (Debian {release.name}) …")
    _install_packages(tree, release)
    say(f"  packages after {time.monotonic() - began:.0f} s")
    python = environment(tree, PREFIX, REQUIREMENTS)
    servers.install(tree)
    say(f"  servers after {time.monotonic() - began:.0f} s")
    _configure(tree)
    _keep_accounts(tree, work / "accounts")
    kernel_version = next((tree / "usr/lib/modules").iterdir()).name
    (work / "vmlinux").write_bytes(unpack((tree / "boot/vmlinuz").read_bytes()))
    (work / "initrd.cpio").write_bytes(_initrd(tree / "usr/lib/modules" / kernel_version))
    shutil.rmtree(tree / "boot")
    say(f"  configured after {time.monotonic() - began:.0f} s")
    _make_disk(tree, work / "root.ext4")
    shutil.rmtree(tree)
    (work / BUILT).write_text(json.dumps({"python": python}), encoding="utf-8")
    work.rename(folder)
    say(f"image built in {time.monotonic() - began:.0f} s: {folder}")


def _install_packages(tree: Path, release: Release) -> None:
    unwanted = ("doc", "info", "locale", "man")
    argv = ["mmdebstrap", "--mode=root", "--variant=essential", "--quiet"]
    argv += [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in unwanted]
    argv += ["--dpkgopt=force-unsafe-io", '--aptopt=Apt::Install-Recommends "false"']
    argv += [f"--include={','.join(listed('packages'))}"]
    argv += [f'--customize-hook=sh {GUEST / "fetch-kernel.sh"} "$1"']
    step([*argv, release.name, str(tree), "-"], stdin="".join(f"{s}\n" for s in release.sources))


def _configure(tree: Path) -> None:
    system = tree / "etc/systemd/system"
    for unit in listed("masked"):
        link = system / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    for wanted in ("redis-server", "redis", "remote-fs", "nftables", "systemd-networkd"):
        for link in system.glob(f"*.wants/{wanted}.*"):
            link.unlink()
    _put(tree / "etc/systemd/system.conf.d/corral-vm.conf", "system.conf")
    _put(tree / "etc/systemd/journald.conf.d/corral-vm.conf", "journald.conf")
    _put(tree / "usr/local/lib/corral-vm/backdoor", "backdoor", mode=0o755)
    _put(system / "backdoor.service", "backdoor.service")
    (system / "multi-user.target.wants").mkdir(exist_ok=True)
    (system / "multi-user.target.wants/backdoor.service").symlink_to("../backdoor.service")
    (system / "default.target").unlink(missing_ok=True)
    (system / "default.target").symlink_to("/usr/lib/systemd/system/multi-user.target")
    (tree / "etc/hostname").write_text("machine\n", encoding="ascii")
    (tree / "etc/hosts").write_text("127.0.0.1 localhost machine\n", encoding="ascii")
    (tree / "etc/machine-id").write_text("0123456789abcdef0123456789abcdef\n", encoding="ascii")
    (tree / "etc/fstab").write_text("", encoding="ascii")


def _put(target: Path, name: str, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(GUEST / name, target)
    target.chmod(mode)


def _keep_accounts(tree: Path, folder: Path) -> None:
    folder.mkdir()
    for name in ("passwd", "group", "shadow"):
        shutil.copyfile(tree / "etc" / name, folder / name)


def _initrd(modules: Path) -> bytes:
    """The part of the initial file system that is the same for every run."""
    archive = Archive()
    for folder in ("dev", "proc", "sys", "system"):
        archive.directory(folder)
    busybox = debian.program("busybox")
    if busybox is None:
        raise VmError("busybox is missing")
    archive.file("bin/busybox", Path(busybox).read_bytes(), mode=0o755)
    archive.link("bin/sh", "busybox")
    archive.file("init", (GUEST / "init").read_bytes(), mode=0o755)
    order = _load_order((modules / "modules.dep").read_text(encoding="ascii"))
    archive.file("lib/modules/order", "".join(f"{Path(m).name}\n" for m in order).encode())
    for module in order:
        archive.file(f"lib/modules/{Path(module).name}", (modules / module).read_bytes())
    return archive.pack()


def _load_order(dependencies: str) -> list[str]:
    """The files of MODULES and of all that they need, each after what it needs itself."""
    needs = {
        module: rest.split()
        for module, _, rest in (line.partition(":") for line in dependencies.splitlines())
    }
    by_name = {Path(module).name.split(".")[0].replace("-", "_"): module for module in needs}
    wanted = [by_name[name] for name in MODULES if name in by_name]  # others are built in
    order: dict[str, None] = {}
    for module in wanted:
        for one in [*reversed(needs[module]), module]:
            order.setdefault(one)
    return list(order)


def _make_disk(tree: Path, disk: Path) -> None:
    with disk.open("wb") as file:
        file.truncate(DISK_BYTES)
    features = "has_journal,sparse_super,^metadata_csum,^64bit"
    quick = "lazy_itable_init=1,nodiscard,root_owner=0:0"
    argv = [debian.program("mke2fs") or "mke2fs", "-q", "-F", "-t", "ext4", "-O", features]
    step([*argv, "-J", "size=8", "-E", quick, "-N", str(INODES), "-m", "0", "-d", tree, disk])


# ---- the cache ------------------------------------------------------------------------------


@contextlib.contextmanager
def _locked(file: Path, say: SAY) -> Iterator[None]:
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another run is building the image: waiting for it …")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _forget_unused(current: Path) -> None:
    """Removes images that no run has used for a week."""
    for folder in current.parent.glob("image-*"):
        unused = folder.is_dir() and time.time() - folder.stat().st_mtime > UNUSED_MAX_S
        if unused and folder != current:
            shutil.rmtree(folder, ignore_errors=True)
