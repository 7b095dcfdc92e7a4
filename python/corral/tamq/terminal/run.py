"""`tamq run -- COMMAND`: a program on a pseudo-terminal that TAMQ can write to, no tmux needed.

The person sees and types what they would without it: window size, signals and exit status go
through. The session does not depend on the daemon: it starts without one and outlives it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corral.core import logs, sockets
from corral.core.errors import CorralError, UnavailableError, UsageError
from corral.tamq import transport
from corral.tamq.terminal import process
from corral.tamq.terminal.base import Address, PtyAddress
from corral.tamq.terminal.host import Host
from corral.tamq.terminal.profiles import Profile
from corral.tamq.terminal.spawn import Size, Spawned, exit_status, size_of, spawn
from corral.tamq.terminal.streams import reopen

HANGUP_AFTER_S: Final = 2.0  # from SIGTERM, which a shell ignores, to what it does not
UNREGISTER_MAX_S: Final = 2.0
_FORWARDED: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)

Register = Callable[[Address], Awaitable[None]]

_log = logs.get("tamq.run")


@dataclass(frozen=True)
class Session:
    child: Spawned
    profile: Profile
    path: Path
    settings: list[Any] | None  # of the person's terminal; None: there is none


def run(command: Sequence[str], *, profile: Profile, runtime_dir: Path, register: Register) -> int:
    """Runs the command until it ends and returns its exit status (128 and more: a signal).

    `register(address)` runs beside it and is cancelled at its end; when it fails, the session goes
    on, and only the queue does not know of it. `runtime_dir` is the user's own, of mode 0700; the
    socket for the daemon is made in it. `NotStartedError` (with the exit code of a shell),
    `ConfigError`, `UsageError` before anything was started.
    """
    if not command:
        raise UsageError("no command to run", hint="tamq run --repo NAME -- COMMAND …")
    path = runtime_dir / f"pty-{os.getpid()}.sock"
    listener, inode = transport.listen(path)
    settings = termios.tcgetattr(0) if os.isatty(0) else None
    try:
        child = spawn(command, _size(), settings)
        session = Session(child, profile, path, settings)
        with _raw(settings):
            return asyncio.run(_run(session, listener, register))
    finally:
        listener.close()
        sockets.unlink_own(path, inode)


def _size() -> Size:
    return size_of(0 if os.isatty(0) else 1)


@contextlib.contextmanager
def _raw(settings: list[Any] | None) -> Iterator[None]:
    """Every key goes to the program; its own terminal makes signals and echoes of them."""
    if settings is None:
        yield
        return
    tty.setraw(0, termios.TCSADRAIN)  # what was typed already is kept
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the window may be closed
            termios.tcsetattr(0, termios.TCSADRAIN, settings)


async def _run(session: Session, listener: socket.socket, register: Register) -> int:
    person = (reopen(0, os.O_RDONLY), reopen(1, os.O_WRONLY))
    host = Host(session.child, session.profile, _size(), person, alone=session.settings is None)
    server = transport.Server(host.handle)
    await server.start(listener)
    _forward_signals(session, host)
    host.start()
    registering = asyncio.ensure_future(_registered(session, register))
    try:
        status = await _ended(session.child.pid)
    finally:
        registering.cancel()
        await asyncio.wait([registering], timeout=UNREGISTER_MAX_S)
        await host.end()
        await server.stop()
        for fd in (session.child.master, *person):
            os.close(fd)
    return status


async def _registered(session: Session, register: Register) -> None:
    host, target = process.identify(os.getpid()), process.identify(session.child.pid)
    if host is None or target is None:
        return  # it is over already
    try:
        await register(PtyAddress(str(session.path), host, target))
    except CorralError as error:
        _log.error("session not registered", **error.as_dict())
    except Exception as error:
        _log.error("session not registered", error=type(error).__name__)


async def _ended(pid: int) -> int:
    """The exit status, when the process has ended and was reaped."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        raise UnavailableError(f"process {pid} cannot be watched: {error.strerror}") from error
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(pidfd, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
    return exit_status(os.waitpid(pid, 0)[1])  # noqa: ASYNC222  it has ended


def _forward_signals(session: Session, host: Host) -> None:
    loop = asyncio.get_running_loop()
    pid = session.child.pid

    def send(number: int) -> None:
        if not host.port.ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def forward(number: int) -> None:
        send(number)
        if number == signal.SIGTERM:
            loop.call_later(HANGUP_AFTER_S, send, signal.SIGHUP)

    def again() -> None:  # the shell that stopped us has set its own mode
        if session.settings is not None:
            with contextlib.suppress(termios.error):
                tty.setraw(0, termios.TCSADRAIN)
        host.resize(_size())

    for number in _FORWARDED:
        loop.add_signal_handler(number, forward, number)
    loop.add_signal_handler(signal.SIGWINCH, lambda: host.resize(_size()))
    loop.add_signal_handler(signal.SIGCONT, again)
