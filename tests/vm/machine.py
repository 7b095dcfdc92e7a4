"""A machine as scenarios see it: methods and meanings are those of the NixOS test driver.

Only methods that scenarios use are offered. Poll intervals differ from the other driver's, so a
scenario must not depend on them. All timeouts are seconds.
"""

import io
import re
import select
import shlex
import shutil
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.vm.network import INTERFACE
from tests.vm.qemu import END_TIMEOUT_S, Hardware, Qemu
from tests.vm.settled import Settled
from tests.vm.shell import MachineError, Shell

BOOT_TIMEOUT_S = 300.0
TIMEOUT_S = 900
POLL_S = 0.15
EXCHANGE_BYTES = 64 * 1024 * 1024
BLOCK_BYTES = 1024 * 1024
SHOWN_MAX_CHARS = 160
GONE_STATES = ("failed", "inactive")

Say = Callable[[str], None]


class Machine:
    """One machine and its disk. It boots at the first command, or when it is started."""

    def __init__(
        self,
        name: str,
        hardware: Hardware,
        folder: Path,
        say: Say = print,
        frozen: Settled | None = None,
    ) -> None:
        self.name = name
        self._hardware = hardware
        self._folder = folder
        self._say = say
        self._frozen = frozen
        self._card = INTERFACE if hardware.port else "eth0"
        self._qemu: Qemu | None = None
        self._shell: Shell | None = None
        folder.mkdir(parents=True)
        self._disk = folder / "disk.qcow2"
        self._serial = folder / "serial.log"
        if frozen is not None:
            shutil.copyfile(frozen.serial, self._serial)  # what it said when it booted
        base = (frozen.disk, "qcow2") if frozen else (hardware.image.disk, "raw")
        argv = ["qemu-img", "create", "-q", "-f", "qcow2", "-b", str(base[0]), "-F", base[1]]
        subprocess.run([*argv, str(self._disk)], check=True)
        self._exchange = folder / "exchange.raw"
        with self._exchange.open("wb") as file:
            file.truncate(EXCHANGE_BYTES)

    # ---- power ------------------------------------------------------------------------------

    @property
    def booted(self) -> bool:
        return self._qemu is not None and self._qemu.running

    def start(self) -> None:
        """Switches it on, from the disk as it was left; a frozen one goes on where it was."""
        if self.booted:
            return
        self.release()
        disks = [(self._disk, "qcow2"), (self._exchange, "raw")]
        frozen, self._frozen = self._frozen, None
        memory = frozen.memory if frozen else None
        self._qemu = Qemu(self.name, self._hardware, self._folder, disks, memory)
        if memory is not None:
            self._qemu.go_on()
            self._shell = Shell(self._qemu.console)
            self.succeed(f"date -s @{time.time():.3f}")

    def freeze(self, folder: Path) -> None:
        """Keeps its disk and memory in `folder`; this machine is then gone."""
        self.succeed("sync")
        self._running().freeze(folder / "memory")
        self.release()
        self._disk.rename(folder / "disk.qcow2")
        self._serial.rename(folder / self._serial.name)

    def crash(self) -> None:
        """Pulls the plug: what the kernel had not written to the disk is lost."""
        if self._qemu is not None:
            self._log("power failure")
            self._qemu.pull_the_plug()
            self._qemu = self._shell = None

    def shutdown(self) -> None:
        """Asks it to power off, and waits until it has."""
        if self._qemu is not None:
            self._connected().send("poweroff")
            self.wait_for_shutdown()

    def wait_for_shutdown(self) -> None:
        if self._qemu is not None:
            self._qemu.wait(END_TIMEOUT_S)
            self._log(f"powered off after {self._qemu.age_s():.1f} s")
            self._qemu = self._shell = None

    def release(self) -> None:
        """Ends it in whatever state it is. Nothing of it keeps running."""
        if self._qemu is not None:
            self._qemu.close()
            self._qemu = self._shell = None

    def block(self) -> None:
        """Cuts the network cable: that to the other machines, if there are any."""
        self._running().control("set_link", name=self._card, up=False)

    def unblock(self) -> None:
        self._running().control("set_link", name=self._card, up=True)

    # ---- commands ---------------------------------------------------------------------------

    def execute(
        self, command: str, check_return: bool = True, timeout: int | None = TIMEOUT_S
    ) -> tuple[int, str]:
        """Runs a command as root with `set -euo pipefail`; exit status and standard output."""
        del check_return  # the other driver's: the status is always asked for here
        return self._connected().run(command, TIMEOUT_S if timeout is None else timeout)

    def succeed(self, *commands: str, timeout: int | None = None) -> str:
        """The commands' output. MachineError when one fails."""
        output = ""
        for command in commands:
            status, out = self._timed("must succeed", command, timeout)
            if status != 0:
                raise MachineError(f"`{command}` failed with status {status}: {out}")
            output += out
        return output

    def fail(self, *commands: str, timeout: int | None = None) -> str:
        """The commands' output. MachineError when one succeeds."""
        output = ""
        for command in commands:
            status, out = self._timed("must fail", command, timeout)
            if status == 0:
                raise MachineError(f"`{command}` succeeded, which it must not: {out}")
            output += out
        return output

    def wait_until_succeeds(self, command: str, timeout: int = TIMEOUT_S) -> str:
        return self._wait_for_status(command, timeout, lambda status: status == 0, "success")

    def wait_until_fails(self, command: str, timeout: int = TIMEOUT_S) -> str:
        return self._wait_for_status(command, timeout, lambda status: status != 0, "failure")

    # ---- units, files, sockets --------------------------------------------------------------

    def systemctl(self, query: str) -> tuple[int, str]:
        return self.execute(f"systemctl {query}")

    def get_unit_property(self, unit: str, property: str) -> str:  # noqa: A002 - the other driver's
        status, out = self.systemctl(f"--no-pager show {shlex.quote(unit)} --property={property}")
        if status != 0:
            raise MachineError(f"systemctl show {unit} ended with status {status}")
        return out.strip().partition("=")[2]

    def require_unit_state(self, unit: str, require_state: str = "active") -> None:
        state = self.get_unit_property(unit, "ActiveState")
        if state != require_state:
            raise MachineError(f"{unit} is {state}, not {require_state}")

    def wait_for_unit(self, unit: str, timeout: int = TIMEOUT_S) -> None:
        """Until it is active. MachineError at once when it failed, or when nothing starts it."""
        self._wait(lambda: self._is_active(unit), timeout, f"unit {unit}")

    def start_job(self, jobname: str) -> tuple[int, str]:
        return self.systemctl(f"start {jobname}")

    def stop_job(self, jobname: str) -> tuple[int, str]:
        return self.systemctl(f"stop {jobname}")

    def wait_for_file(self, filename: str, timeout: int = TIMEOUT_S) -> None:
        self.wait_until_succeeds(f"test -e {shlex.quote(filename)}", timeout)

    def wait_for_open_port(
        self, port: int, addr: str = "localhost", timeout: int = TIMEOUT_S
    ) -> None:
        self.wait_until_succeeds(f"nc -z {addr} {port}", timeout)

    def wait_for_closed_port(
        self, port: int, addr: str = "localhost", timeout: int = TIMEOUT_S
    ) -> None:
        self.wait_until_fails(f"nc -z {addr} {port}", timeout)

    def wait_for_open_unix_socket(self, addr: str, timeout: int = TIMEOUT_S) -> None:
        self.wait_until_succeeds(f"nc -z -U {shlex.quote(addr)}", timeout)

    def wait_for_console_text(self, regex: str, timeout: int = TIMEOUT_S) -> None:
        """Until the serial console has said it, since the machine was first started."""
        log = self._serial
        self._wait(
            lambda: bool(re.search(regex, log.read_text(encoding="utf-8", errors="replace"))),
            timeout,
            f"{regex} on the console",
        )

    def copy_from_host(self, source: str, target: str) -> None:
        """Copies a file or folder into the machine. The console would be slow for that."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(source, arcname=Path(target).name, filter=_owned_by_root)
        data = packed.getvalue()
        data += b"\0" * (-len(data) % BLOCK_BYTES)
        if len(data) > EXCHANGE_BYTES:
            raise MachineError(f"{source} has {len(data)} bytes, at most {EXCHANGE_BYTES}")
        with self._exchange.open("r+b") as file:
            file.write(data)
        folder = shlex.quote(str(Path(target).parent))
        blocks = len(data) // BLOCK_BYTES
        read = f"dd if=/dev/vdb bs=1M iflag=direct count={blocks} status=none"
        self.succeed(f"mkdir -p {folder}; {read} | (tar -C {folder} -xmf - && cat >/dev/null)")

    def copy_from_vm(self, source: str, target_dir: str = "") -> None:
        """Copies a file or folder out of the machine, to a folder of this computer."""
        parent, name = Path(source).parent, Path(source).name
        write = "dd of=/dev/vdb bs=1M iflag=fullblock oflag=direct conv=sync,fsync status=none"
        self.succeed(
            f"tar -C {shlex.quote(str(parent))} -cf - {shlex.quote(name)} | head -c"
            f" {EXCHANGE_BYTES - BLOCK_BYTES} | {write}"
        )
        folder = Path(target_dir or self._folder)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder / name, ignore_errors=True)
        with tarfile.open(self._exchange, mode="r:") as archive:
            archive.extractall(folder, filter="data")

    # ---- within -----------------------------------------------------------------------------

    def _log(self, message: str) -> None:
        at_s = 0.0 if self._qemu is None else self._qemu.age_s()
        self._say(f"{self.name} {at_s:7.2f}  {message}")

    def _running(self) -> Qemu:
        self.start()
        if self._qemu is None:
            raise MachineError(f"{self.name} did not start")
        return self._qemu

    def _connected(self) -> Shell:
        qemu = self._running()
        if self._shell is None:
            shell = Shell(qemu.console)
            shell.wait_for_greeting(BOOT_TIMEOUT_S)
            self._shell = shell
            self._log("the root shell answers")
        return self._shell

    def _timed(self, what: str, command: str, timeout: int | None) -> tuple[int, str]:
        began = time.monotonic()
        status, out = self.execute(command, timeout=timeout)
        took_s = time.monotonic() - began
        self._log(f"{what}: {command:.{SHOWN_MAX_CHARS}} ({took_s:.2f} s)")
        return status, out

    def _wait_for_status(
        self, command: str, timeout: int, wanted: Callable[[int], bool], what: str
    ) -> str:
        last = [""]

        def ask() -> bool:
            status, last[0] = self.execute(command, timeout=timeout)
            return wanted(status)

        self._wait(ask, timeout, f"{what} of: {command:.{SHOWN_MAX_CHARS}}", last)
        return last[0]

    def _wait(
        self, ask: Callable[[], bool], timeout: float, what: str, last: list[str] | None = None
    ) -> None:
        began = time.monotonic()
        while not ask():
            if time.monotonic() - began > timeout:
                said = f"; it said: {last[0]}" if last else ""
                raise MachineError(f"{self.name}: waited {timeout:g} s for {what}{said}")
            select.select([], [], [], POLL_S)
        self._log(f"waited for {what} ({time.monotonic() - began:.2f} s)")

    def _is_active(self, unit: str) -> bool:
        state = self.get_unit_property(unit, "ActiveState")
        if state == "failed":
            raise MachineError(f"unit {unit} failed")
        if state == "inactive":
            _, jobs = self.systemctl("list-jobs --full 2>&1")
            if "No jobs" in jobs and self.get_unit_property(unit, "ActiveState") == state:
                raise MachineError(f"unit {unit} is inactive, and no job is going to start it")
        return state == "active"


def _owned_by_root(info: tarfile.TarInfo) -> tarfile.TarInfo:
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info
