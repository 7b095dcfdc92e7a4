"""A `tamq run` with a person at a terminal: `hosted.py PROFILE FOLDER COMMAND…` is the program.

Its registration is only written to FOLDER/address, so that these tests need no daemon.
"""

import asyncio
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from corral.core import crashpoints
from corral.local.wait import until
from corral.tamq.terminal import open_terminal, process
from corral.tamq.terminal.address import as_dict, parse
from corral.tamq.terminal.base import Address, PtyAddress, Terminal
from corral.tamq.terminal.emulator import Emulator
from corral.tamq.terminal.profiles import BUILT_IN
from corral.tamq.terminal.run import run
from corral.tamq.terminal.spawn import NotStartedError, Size, set_size

PATIENCE_S = 30.0
ROOT = Path(__file__).resolve().parents[3]
USUAL = Size(80, 24)
LOOKS = {"TERM": "xterm-256color", "PS1": "$ ", "LC_ALL": "C.UTF-8"}


def environment() -> dict[str, str]:
    return {**os.environ, **LOOKS, "PYTHONPATH": f"{ROOT / 'python'}:{ROOT}"}


class Hosted:
    """The program on a pseudo-terminal whose other side the test holds, as a person's window."""

    def __init__(
        self, folder: Path, profile: str, command: Sequence[str], size: Size = USUAL
    ) -> None:
        argv = [sys.executable, "-P", "-m", "tests.contract.terminal.hosted"]
        self.profile = profile
        self._begin(folder, [*argv, profile, str(folder), *command], environment(), size)

    @classmethod
    def of(cls, folder: Path, argv: Sequence[str], environ: Mapping[str, str]) -> Self:
        """Another program at a person's terminal, as the real command."""
        made = cls.__new__(cls)
        made._begin(folder, argv, {**environ, **LOOKS}, USUAL)
        return made

    def _begin(
        self, folder: Path, argv: Sequence[str], environ: Mapping[str, str], size: Size
    ) -> None:
        self.folder = folder
        self._emulator = Emulator(*size)
        self.output = bytearray()
        self.master, slave = pty.openpty()
        set_size(slave, size)
        self.settings = termios.tcgetattr(slave)
        with (folder / "stderr").open("wb") as errors:
            self.program = subprocess.Popen(
                argv,
                stdin=slave,
                stdout=slave,
                stderr=errors,
                start_new_session=True,
                env=environ,
            )
        self.slave = slave  # kept open: the test asks for its settings
        self._stop = os.pipe()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while select.select([self.master, self._stop[0]], [], [])[0] == [self.master]:
                data = os.read(self.master, 65_536)
                self.output += data
                self._emulator.feed(data)

    @property
    def address(self) -> PtyAddress:
        file = self.folder / "address"
        until(file.exists, PATIENCE_S, "the registration")
        address = parse(json.loads(file.read_text()))
        assert isinstance(address, PtyAddress)
        return address

    def open(self) -> Terminal:
        return open_terminal(self.address, BUILT_IN[self.profile])

    @property
    def shown(self) -> str:
        return "\n".join(self._emulator.screen().texts)

    def see(self, text: str) -> None:
        until(lambda: text in self.shown, PATIENCE_S, f"{text!r} on the screen")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def resize(self, size: Size) -> None:
        self._emulator.resize(*size)
        set_size(self.slave, size)
        os.kill(self.program.pid, signal.SIGWINCH)

    def wait(self) -> int:
        return self.program.wait(PATIENCE_S)

    def hang_up(self) -> None:
        """Close the window: our side of the pseudo-terminal."""
        if self.master >= 0:
            os.close(self._stop[1])
            self._reader.join(PATIENCE_S)
            os.close(self._stop[0])
            os.close(self.master)
            self.master = -1

    def close(self) -> None:
        self.program.kill()
        self.program.wait()
        os.close(self.slave)
        self.hang_up()
        with suppress(OSError):
            address = parse(json.loads((self.folder / "address").read_text()))
            until(lambda: process.find(address.process) is None, PATIENCE_S, "its program's end")


def main(profile: str, folder: Path, command: Sequence[str]) -> int:
    async def register(address: Address) -> None:
        new = folder / "address.new"
        new.write_text(json.dumps(as_dict(address)))
        new.rename(folder / "address")
        if profile == "shell" and (folder / "fails").exists():
            raise RuntimeError("the queue is not there")
        await asyncio.Event().wait()

    (folder / "run").mkdir(mode=0o700, exist_ok=True)
    if (folder / "kill").exists():
        crashpoints.arm((folder / "kill").read_text())
    try:
        return run(
            command, profile=BUILT_IN[profile], runtime_dir=folder / "run", register=register
        )
    except NotStartedError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
