"""The network between the machines of a scenario, where there are several.

Names and addresses are those of the NixOS test driver: each machine has the interface eth1 with
192.168.1.N, N by the order of their names, and the names of all in /etc/hosts. Frames go over Unix
sockets, and a hub in the driver hands each on to all others: nothing of this computer's network has
a part in it.
"""

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "eth1"
UNIT = "corral-vm-network.service"
FRAME_MAX_BYTES = 65_536
# A machine that does not take its frames, because it is stopped, must not hold up the others.
HAND_OVER_S = 0.2
UNIT_TEXT = """\
[Unit]
Description=The network between the machines of the test
DefaultDependencies=no
Before=network-pre.target network.target sysinit.target
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip address add {address}/24 dev {interface}
ExecStart=/usr/sbin/ip link set {interface} up
"""


@dataclass(frozen=True)
class Port:
    """One machine's place in the network. `local` and `hub` are the sockets of its frames."""

    name: str
    number: int
    local: Path
    hub: Path
    names: tuple[str, ...]  # of all machines, in the order of their numbers

    @property
    def address(self) -> str:
        return _address(self.number)

    @property
    def arguments(self) -> list[str]:
        """For QEMU."""
        ends = f"local.type=unix,local.path={self.local},remote.type=unix,remote.path={self.hub}"
        card = f"virtio-net-pci,id={INTERFACE},netdev=net1,mac={self._mac},romfile="
        return ["-netdev", f"dgram,id=net1,{ends}", "-device", card]

    @property
    def _mac(self) -> str:
        return f"52:54:00:12:01:{self.number:02x}"

    @property
    def hosts(self) -> str:
        """The machine's /etc/hosts."""
        lines = [f"127.0.0.1 localhost {self.name}"]
        lines += [f"{_address(number)} {name}" for number, name in enumerate(self.names, start=1)]
        return "".join(f"{line}\n" for line in lines)

    @property
    def unit(self) -> str:
        return UNIT_TEXT.format(address=self.address, interface=INTERFACE)


def _address(number: int) -> str:
    return f"192.168.1.{number}"


class Hub:
    """Hands every frame on to all machines but its sender, until it is closed."""

    def __init__(self, folder: Path, names: Iterable[str]) -> None:
        ordered = tuple(sorted(names))
        self._path = folder / "hub.sock"
        self.ports = {
            name: Port(name, number, folder / f"{name}.net", self._path, ordered)
            for number, name in enumerate(ordered, start=1)
        }
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self._path))
        patience = struct.pack("ll", 0, int(HAND_OVER_S * 1_000_000))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, patience)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(self._path))
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        ends = [str(port.local) for port in self.ports.values()]
        while True:
            frame, sender = self._socket.recvfrom(FRAME_MAX_BYTES)
            if not frame:
                return
            for end in ends:
                if end != sender:
                    with suppress(OSError):  # it is off, or its queue is full: so are cables
                        self._socket.sendto(frame, end)
