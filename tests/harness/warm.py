"""Our programs, answering at once: a process that has imported them forks for each call.

`corral trace` asks each service by its own program, a dozen times, and most of such a call is the
import of libraries. `Warm` puts small commands with the programs' names into a folder for PATH.
A command passes its arguments, environment and open files to the process, whose fork runs the
program's own command line with them, and ends with its exit status.
"""

import array
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from corral.local.tether import tethered
from corral.local.topology import base_environment
from corral.local.wait import until

PROGRAMS = {
    "corral": "corral.overview.main",
    "a2a-bridge": "corral.bridge.main",
    "corral-gateway": "corral.gateway.main",
    "cowboy": "corral.cowboy.main",
    "tamq": "corral.tamq.main",
}
# What the commands import when they are called.
MODULES = (
    "asyncpg", "aiosqlite", "redis.asyncio",
    "corral.bridge.database", "corral.bridge.operations", "corral.bridge.settings",
    "corral.cowboy.investigate", "corral.cowboy.view_case",
    "corral.gateway.looking", "corral.gateway.settings",
    "corral.overview.chain", "corral.overview.tracing",
    "corral.tamq.client",
)  # fmt: skip
FILES = 3
REQUEST_MAX_BYTES = 1 << 18
READY_TIMEOUT_S = 60.0

COMMAND = """#!{python} -SEI
import array, json, os, socket, sys
call = json.dumps({{"program": {program!r}, "argv": sys.argv[1:], "env": dict(os.environ)}})
with socket.socket(socket.AF_UNIX) as server:
    server.connect({socket!r})
    files = array.array("i", [0, 1, 2])
    server.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    server.sendall(call.encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.recv(16) or b"70"))
"""


@dataclass
class Warm:
    """Use it as a context manager: `commands` is for PATH meanwhile."""

    folder: Path

    @property
    def commands(self) -> Path:
        return self.folder / "bin"

    def __enter__(self) -> Self:
        self.commands.mkdir(parents=True)
        path = self.folder / "programs"
        for program in PROGRAMS:
            text = COMMAND.format(python=sys.executable, program=program, socket=str(path))
            command = self.commands / program
            command.write_text(text, encoding="utf-8")
            command.chmod(0o700)
        argv = [sys.executable, "-P", "-m", "tests.harness.warm", str(path)]
        self._process = subprocess.Popen(tethered(argv), env=base_environment())
        until(path.exists, READY_TIMEOUT_S, "the programs to be imported")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()


# ------------------------------------------------------------ the process that has imported them


def serve(path: str) -> NoReturn:
    for module in (*PROGRAMS.values(), *MODULES):
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.new")
        server.listen(64)
        Path(f"{path}.new").rename(path)
        while True:
            connection, _ = server.accept()
            with connection:
                if os.fork() == 0:
                    server.close()
                    _answer(connection)


def _answer(connection: socket.socket) -> NoReturn:
    """In the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    status = 70
    try:
        status = _run(*_received(connection))
    finally:
        with contextlib.suppress(OSError):
            connection.sendall(b"%d" % status)
        os._exit(0)


def _received(connection: socket.socket) -> tuple[dict[str, Any], Sequence[int]]:
    room = socket.CMSG_SPACE(FILES * array.array("i").itemsize)
    _, ancillary, _, _ = connection.recvmsg(1, room)
    files = array.array("i")
    files.frombytes(ancillary[0][2])
    text = b""
    while part := connection.recv(REQUEST_MAX_BYTES):
        text += part
    call: dict[str, Any] = json.loads(text)
    return call, files


def _run(call: dict[str, Any], files: Sequence[int]) -> int:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(call["env"])
    sys.argv = [call["program"], *call["argv"]]
    try:
        importlib.import_module(PROGRAMS[call["program"]]).cli()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
