"""One QEMU process: its command line, its control socket (QMP), its serial console."""

import json
import os
import select
import shlex
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from corral.local.tether import tethered
from tests.vm.accel import PROBE_WORD, Accel
from tests.vm.image import Image
from tests.vm.network import Port
from tests.vm.shell import MachineError

MEMORY_MIB = 768
CPUS = 2
START_TIMEOUT_S = 60.0
END_TIMEOUT_S = 180.0
SOCKET_PATH_MAX_BYTES = 107
MIGRATION_BYTES_PER_S = 8 * 1024**3
KERNEL_WORDS = (
    "console=ttyS0",
    "quiet",
    "panic=1",
    "mitigations=off",
    "nokaslr",
    "audit=0",
    "apparmor=0",
    "random.trust_cpu=on",
    "net.ifnames=0",
)


@dataclass(frozen=True)
class Hardware:
    """What a machine is started from. `port`: its place in a network of several."""

    image: Image
    initrd: Path
    accel: Accel
    port: Port | None = None


def probe_argv(kernel: Path, initrd: Path) -> list[str]:
    """A machine under KVM that says so on its standard output and ends."""
    words = f"console=ttyS0 quiet panic=-1 {PROBE_WORD}"
    return [
        *_base(Accel.KVM, 256, 1),
        *("-kernel", str(kernel), "-initrd", str(initrd), "-append", words),
        *("-serial", "stdio", "-no-reboot"),
    ]


def _base(accel: Accel, memory_mib: int, cpus: int) -> list[str]:
    # Not the smaller machine type `microvm`: it hangs now and then.
    argv = ["qemu-system-x86_64", "-M", "pc", "-nodefaults", "-no-user-config"]
    return [*argv, *accel.arguments, "-m", str(memory_mib), "-smp", str(cpus), "-display", "none"]


class Qemu:
    """A running machine. `folder` gets its sockets and logs; `memory` is that of a frozen one."""

    def __init__(
        self,
        name: str,
        hardware: Hardware,
        folder: Path,
        disks: Sequence[tuple[Path, str]],
        memory: Path | None = None,
    ) -> None:
        self.began_s = time.monotonic()
        shell_path, qmp_path = folder / "shell.sock", folder / "qmp.sock"
        for path in (shell_path, qmp_path, *([hardware.port.local] if hardware.port else [])):
            path.unlink(missing_ok=True)
            if len(os.fsencode(path)) > SOCKET_PATH_MAX_BYTES:
                raise MachineError(f"the socket path {path} is too long", hint="set TMPDIR")
        argv = _argv(name, hardware, disks, shell_path, qmp_path)
        if memory is not None:
            argv += ["-incoming", f"exec:cat {shlex.quote(str(memory))}"]
        (folder / "qemu.argv").write_text(" ".join(argv) + "\n", encoding="utf-8")
        self._errors = folder / "qemu.err"
        with socket.socket(socket.AF_UNIX) as listener, self._errors.open("ab") as errors:
            listener.bind(str(shell_path))
            listener.listen(1)
            self.process = subprocess.Popen(
                tethered(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=folder,
            )
            self._serial = threading.Thread(
                target=self._keep_serial, args=(folder / "serial.log",), daemon=True
            )
            self._serial.start()
            self.console = self._accept(listener)
        self._qmp = Qmp(self._connect(qmp_path))

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def age_s(self) -> float:
        return time.monotonic() - self.began_s

    def control(self, command: str, /, **arguments: Any) -> Any:
        """Runs a QMP command; its return value."""
        return self._qmp.command(command, **arguments)

    def pull_the_plug(self) -> None:
        """The machine is gone at once: what its kernel had not written is lost."""
        with suppress(MachineError):
            self._qmp.send("quit")
        self.wait(END_TIMEOUT_S)

    def freeze(self, memory: Path) -> None:
        """Stops the machine and writes its memory to a file."""
        self.control("stop")
        self.control("migrate-set-parameters", **{"max-bandwidth": MIGRATION_BYTES_PER_S})
        self.control("migrate", uri=f"exec:cat > {shlex.quote(str(memory))}")
        self._until("query-migrate", {"completed"})

    def go_on(self) -> None:
        """Lets a machine that was frozen run, when its memory is there."""
        self._until("query-status", {"paused", "postmigrate", "running"})
        self.control("cont")

    def _until(self, question: str, wanted: set[str]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (status := self.control(question).get("status")) not in wanted:
            self._must_run(deadline)
            if status == "failed":
                raise MachineError(f"QEMU answers {question}: {status}")
            select.select([], [], [], 0.02)

    def wait(self, timeout_s: float) -> None:
        """Waits for the machine's end. MachineError, and the machine is ended, when it is late."""
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise MachineError(f"the machine did not end within {timeout_s:g} s") from None
        finally:
            self.close()

    def close(self) -> None:
        """Ends what is left of it. Can be called again."""
        if self.running:
            self.process.kill()
        self.process.wait()
        self._serial.join()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._qmp.close()
        self.console.close()

    def _keep_serial(self, log: Path) -> None:
        if self.process.stdout is None:
            return
        with log.open("ab") as file:
            for line in self.process.stdout:
                file.write(b"%9.3f " % self.age_s() + line)
                file.flush()

    def _accept(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not select.select([listener], [], [], 0.1)[0]:
            self._must_run(deadline)
        return listener.accept()[0]

    def _connect(self, path: Path) -> socket.socket:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
                return connection
            except OSError:
                connection.close()
                self._must_run(deadline)
                select.select([], [], [], 0.02)

    def _must_run(self, deadline: float) -> None:
        if not self.running or time.monotonic() > deadline:
            said = self._errors.read_text(encoding="utf-8", errors="replace")[-500:]
            raise MachineError(f"QEMU did not come up: {said}")


def _argv(
    name: str,
    hardware: Hardware,
    disks: Sequence[tuple[Path, str]],
    shell: Path,
    qmp: Path,
) -> list[str]:
    words = " ".join([*KERNEL_WORDS, f"systemd.hostname={name}"])
    argv = _base(hardware.accel, MEMORY_MIB, CPUS)
    argv += ["-kernel", str(hardware.image.kernel), "-initrd", str(hardware.initrd)]
    argv += ["-append", words, "-no-reboot"]
    for number, (disk, form) in enumerate(disks):
        # What the guest flushed need not reach this computer's disk: only the guest is killed.
        drive = f"if=none,id=disk{number},file={disk},format={form},cache=unsafe,discard=unmap"
        argv += ["-drive", drive, "-device", f"virtio-blk-pci,drive=disk{number}"]
    argv += ["-device", "virtio-serial-pci", "-chardev", f"socket,id=shell,path={shell}"]
    argv += ["-device", "virtconsole,chardev=shell", "-device", "virtio-rng-pci"]
    argv += ["-netdev", "user,id=net0,restrict=on"]
    argv += ["-device", "virtio-net-pci,id=eth0,netdev=net0,romfile="]
    argv += hardware.port.arguments if hardware.port else []
    return [*argv, "-qmp", f"unix:{qmp},server=on,wait=off", "-serial", "stdio"]


class Qmp:
    """QEMU's control protocol: one JSON object a line."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(START_TIMEOUT_S)
        self._connection = connection
        self._file: BinaryIO = connection.makefile("rb")
        self._until("QMP")
        self.command("qmp_capabilities")

    def command(self, name: str, /, **arguments: Any) -> Any:
        self.send(name, **arguments)
        return self._until("return")

    def send(self, name: str, /, **arguments: Any) -> None:
        request: dict[str, Any] = {"execute": name}
        if arguments:
            request["arguments"] = arguments
        try:
            self._connection.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise MachineError("the machine is gone: its control socket is closed") from error

    def close(self) -> None:
        self._file.close()
        self._connection.close()

    def _until(self, key: str) -> Any:
        for line in self._file:
            answer = json.loads(line)
            if "error" in answer:
                raise MachineError(f"QEMU refused: {answer['error']['desc']}")
            if key in answer:
                return answer[key]
        raise MachineError("the machine is gone: its control socket is closed")
