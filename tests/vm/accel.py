"""Whether machines can use this computer's own virtualisation (KVM), or must be emulated.

That /dev/kvm exists proves nothing: there are hosts on which it opens and a guest stands still. So
a small machine is started that has nothing to do but say so; emulation needs 1.4 s for it. The
answer is kept until the computer boots again.
"""

import enum
import hashlib
import os
import select
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from corral.local.tether import tethered
from tests.vm.debian import VmError

VARIABLE = "CORRAL_VM_ACCEL"
PROBE_TIMEOUT_S = 8.0
PROBE_MARK = b"CORRAL-PROBE-OK"
PROBE_WORD = "corral.probe=1"
DEVICE = Path("/dev/kvm")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Accel(enum.Enum):
    """What runs the machine's instructions."""

    KVM = "kvm"
    TCG = "tcg"

    @property
    def arguments(self) -> list[str]:
        """For QEMU."""
        if self is Accel.KVM:
            return ["-accel", "kvm", "-cpu", "host"]
        # The newest processor whose instructions are cheap to emulate.
        return ["-accel", "tcg,thread=multi,tb-size=256", "-cpu", "Nehalem"]


Probe = Callable[[], bool]


def choose(
    probe: Probe,
    cache: Path,
    *,
    environment: Mapping[str, str] = os.environ,
    device: Path = DEVICE,
    boot_id: Path = BOOT_ID,
) -> Accel:
    """What to use here: what the environment says, else what `probe` found since the last boot.

    VmError when the environment names something else than kvm or tcg.
    """
    wanted = environment.get(VARIABLE, "")
    if wanted:
        try:
            return Accel(wanted)
        except ValueError:
            raise VmError(f"{VARIABLE}={wanted!r}: must be kvm or tcg") from None
    if not os.access(device, os.R_OK | os.W_OK):
        return Accel.TCG
    known = cache / f"kvm-{_this_boot(boot_id)}"
    try:
        return Accel(known.read_text(encoding="ascii").strip())
    except (FileNotFoundError, ValueError):
        found = Accel.KVM if probe() else Accel.TCG
    cache.mkdir(parents=True, exist_ok=True)
    known.write_text(found.value, encoding="ascii")
    return found


def _this_boot(boot_id: Path) -> str:
    """Of this boot and user: another user may have no access to the device."""
    name = f"{boot_id.read_text(encoding='ascii').strip()} {os.getuid()}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def boots(argv: list[str], timeout_s: float = PROBE_TIMEOUT_S) -> bool:
    """Whether a machine started as `argv` says the mark on its standard output in time."""
    process = subprocess.Popen(
        tethered(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            return _says_mark(process, time.monotonic() + timeout_s)
        finally:
            process.kill()


def _says_mark(process: subprocess.Popen[bytes], deadline: float) -> bool:
    if process.stdout is None:
        raise ValueError("the machine's output is not ours to read")
    heard = b""
    while (left_s := deadline - time.monotonic()) > 0:
        if not select.select([process.stdout], [], [], left_s)[0]:
            return False
        more = os.read(process.stdout.fileno(), 4096)
        if not more:
            return False
        heard += more
        if PROBE_MARK in heard:
            return True
    return False
