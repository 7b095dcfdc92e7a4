"""The root shell in the machine, as the NixOS test driver speaks to it.

A command is one line; its output comes back as one line of base64, then its exit status on another.
"""

import base64
import select
import shlex
import socket
import time

from corral.core.errors import CorralError

GREETING = b"Spawning backdoor root shell..."
ANSWER_GRACE_S = 60.0
READ_MAX_BYTES = 65_536


class MachineError(CorralError):
    """A machine did not do what a scenario expects, or is gone."""

    code = "vm_failed"
    exit_code = 1


class Shell:
    """One connection to the machine's console; it ends with the machine."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._rest = b""

    def wait_for_greeting(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while GREETING not in self._rest or not self._rest.endswith(b"\n"):
            self._receive(deadline, "the root shell did not answer")
        self._rest = b""

    def run(self, command: str, timeout_s: float) -> tuple[int, str]:
        """Exit status and output. Status 124: the machine ended it after `timeout_s`."""
        strict = shlex.quote(f"set -euo pipefail; {command}")
        line = f"timeout {timeout_s:.0f} bash -c {strict} | (base64 -w 0; echo)\n"
        deadline = time.monotonic() + timeout_s + ANSWER_GRACE_S
        self._send(line)
        output = base64.b64decode(self._line(deadline, command))
        self._send("echo ${PIPESTATUS[0]}\n")
        status = int(self._line(deadline, command))
        return status, output.decode("utf-8", "replace")

    def send(self, line: str) -> None:
        """A line whose answer is not awaited, such as `poweroff`."""
        self._send(f"{line}\n")

    def close(self) -> None:
        self._connection.close()

    def _send(self, line: str) -> None:
        try:
            self._connection.sendall(line.encode())
        except OSError as error:
            raise MachineError("the machine is gone: its console is closed") from error

    def _line(self, deadline: float, command: str) -> bytes:
        while b"\n" not in self._rest:
            self._receive(deadline, f"no answer from the root shell to: {command:.200}")
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _receive(self, deadline: float, trouble: str) -> None:
        left_s = max(0.0, deadline - time.monotonic())
        if not select.select([self._connection], [], [], left_s)[0]:
            raise MachineError(f"{trouble} in time")
        try:
            more = self._connection.recv(READ_MAX_BYTES)
        except OSError as error:
            raise MachineError("the machine is gone: its console is closed") from error
        if not more:
            raise MachineError("the machine is gone: its console is closed")
        self._rest += more
