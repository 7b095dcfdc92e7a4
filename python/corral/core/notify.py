"""Tells systemd how the service is (sd_notify), without a library.

Outside systemd, where NOTIFY_SOCKET is not set, every call does nothing and returns `False`.
"""

import contextlib
import os
import socket
from collections.abc import Mapping
from typing import Final, Self

STATUS_MAX_CHARS: Final = 512


class Notifier:
    """One datagram per call; never blocks and never raises: a service does not die of its status.

    A READY that could not be delivered (the receiver's queue was full) goes out with the next call,
    for a unit that never becomes ready is killed.
    """

    def __init__(
        self, address: str | None = None, *, watchdog_interval_s: float | None = None
    ) -> None:
        # A leading "@" stands for the zero byte of an abstract socket name.
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._owed = ""
        self._watchdog_interval_s = watchdog_interval_s

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> Self:
        """From NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID, which systemd sets."""
        interval_s = None
        usec = environ.get("WATCHDOG_USEC", "")
        if usec.isdecimal() and int(usec) > 0:
            pid = environ.get("WATCHDOG_PID") or str(os.getpid())
            interval_s = int(usec) / 2_000_000 if pid == str(os.getpid()) else None
        return cls(environ.get("NOTIFY_SOCKET") or None, watchdog_interval_s=interval_s)

    @property
    def watchdog_interval_s(self) -> float | None:
        """How often to call `watchdog`: half of systemd's limit; `None` if it asks not."""
        return self._watchdog_interval_s

    def ready(self, status: str = "") -> bool:
        """The service does its work from now on."""
        return self._send("READY=1\n" + _status(status), owed="READY=1\n")

    def status(self, text: str) -> bool:
        """One line for `systemctl status`."""
        return self._send(_status(text))

    def watchdog(self) -> bool:
        """The service is alive. Call it from the loop that must not hang."""
        return self._send("WATCHDOG=1\n")

    def stopping(self) -> bool:
        """The service is on its way out."""
        return self._send("STOPPING=1\n")

    def _send(self, message: str, owed: str = "") -> bool:
        if self._address is None:
            return False
        with contextlib.suppress(OSError):
            kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            with socket.socket(socket.AF_UNIX, kind) as channel:
                channel.sendto((self._owed + message).encode(), self._address)
            self._owed = ""
            return True
        self._owed = self._owed or owed
        return False


def _status(text: str) -> str:
    # A line break would start another assignment.
    line = " ".join(text.split())[:STATUS_MAX_CHARS]
    return f"STATUS={line}\n" if line else ""
