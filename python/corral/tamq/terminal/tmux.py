"""A pane of a tmux server.

Every look is one command list of tmux, so what it tells belongs together. Every write is one, too:
the text goes through a buffer from standard input, and the server itself compares pane, process
and mode in the instant before it pastes. Enter goes the same way, as a buffer that holds one CR:
keys would be translated by the modes of the pane, and copied to synchronised ones.
"""

import asyncio
import contextlib
import os
import weakref
from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

from corral.core import ids
from corral.tamq.terminal import process
from corral.tamq.terminal.base import (
    LOOK_MAX_MS,
    Injection,
    Readiness,
    Ready,
    Terminal,
    TmuxAddress,
    Wake,
)
from corral.tamq.terminal.injector import Injector, NotWrittenError, Port, Sight
from corral.tamq.terminal.profiles import Profile
from corral.tamq.terminal.screen import from_rows
from corral.tamq.terminal.text import Paste

COMMAND_MAX_MS: Final = LOOK_MAX_MS - 500
OUTPUT_MAX_BYTES: Final = 4 * 1024 * 1024  # of one look
_FIELDS: Final = (
    "pid",
    "pane_id",
    "pane_dead",
    "pane_in_mode",
    "pane_input_off",
    "pane_pid",
    "pane_tty",
    "cursor_x",
    "cursor_y",
    "pane_width",
    "bracket_paste_flag",  # tmux 3.6 and later; empty before
)
_FORMAT: Final = "|".join(f"#{{{name}}}" for name in _FIELDS)
_REFUSED: Final = "corral-refused"
_NO_SERVER: Final = ("no server running", "error connecting", "server exited", "lost server")
_NO_PANE: Final = ("can't find pane", "can't find window", "can't find session")

# One lock a pane, whoever opened it and how often.
_locks: "weakref.WeakValueDictionary[tuple[str, str], asyncio.Lock]" = weakref.WeakValueDictionary()


class TmuxTerminal(Terminal):
    """A registered pane under a profile. Opening does no I/O and holds nothing."""

    def __init__(self, address: TmuxAddress, profile: Profile) -> None:
        self._address = address
        self._port = TmuxPort(address)
        self._injector = Injector(self._port, profile)

    @property
    def address(self) -> TmuxAddress:
        return self._address

    async def readiness(self, wake: Wake | None = None) -> Readiness:
        return await self._injector.readiness(wake)

    async def inject(self, wake: Wake) -> Injection:
        return await self._injector.inject(wake)

    async def capture(self) -> tuple[str, ...]:
        sight = await self._port.sight()
        if sight.screen is None:
            reason = sight.hindrance.reason if sight.hindrance else "no_screen"
            raise OSError(f"the pane {self._address.pane} cannot be seen: {reason}")
        return sight.screen.texts

    async def close(self) -> None:
        return None


class TmuxPort(Port):
    def __init__(self, address: TmuxAddress) -> None:
        self._address = address
        key = (address.socket, address.pane)
        self._lock = _locks.setdefault(key, asyncio.Lock())

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._lock:
            yield

    async def sight(self) -> Sight:
        try:
            return await self._sight()
        except OSError:  # what we could not see, for want of a descriptor, is not gone
            return _hindered(Ready.UNREACHABLE, "cannot_look")

    async def _sight(self) -> Sight:
        if process.find(self._address.server) is None:
            return _hindered(Ready.GONE, "server_gone")
        target = process.find(self._address.process)
        if target is None:
            return _hindered(Ready.GONE, "process_gone")
        pane = self._address.pane
        answer = await run(
            self._address.socket,
            ("display-message", "-p", "-t", pane, _FORMAT),
            ("capture-pane", "-p", "-e", "-N", "-t", pane),
        )
        if answer is None:
            return _hindered(Ready.UNREACHABLE, "server_silent")
        if answer.status != 0:
            return _failed(answer, self._address)
        head, _, rows = answer.output.partition("\n")
        pane_state = dict(zip(_FIELDS, head.split("|"), strict=True))
        tty = process.terminal_at(pane_state["pane_tty"])
        hindrance = self._hindrance(pane_state, target, None if tty is None else tty.device)
        column, row, columns = (
            int(pane_state[name]) for name in ("cursor_x", "cursor_y", "pane_width")
        )
        return Sight(
            hindrance,
            from_rows(rows.removesuffix("\n").split("\n"), row, column, columns),
            {"1": True, "0": False}.get(pane_state["bracket_paste_flag"]),
            None if tty is None else tty.mode,
            0 if tty is None else tty.unread,
        )

    def _hindrance(
        self, pane: Mapping[str, str], target: process.Stat, device: int | None
    ) -> Readiness | None:
        if int(pane["pid"]) != self._address.server.pid:
            return Readiness(Ready.GONE, "server_gone")
        if pane["pane_dead"] == "1":
            return Readiness(Ready.GONE, "pane_dead")
        if device != target.tty:
            return Readiness(Ready.GONE, "pane_changed")
        if pane["pane_in_mode"] != "0":
            return Readiness(Ready.COPY_MODE, "copy_mode")
        if pane["pane_input_off"] == "1":
            return Readiness(Ready.BUSY, "input_off")
        if target.foreground != target.pgid:
            return Readiness(Ready.OTHER_PROGRAM, "other_program")
        return None

    async def paste(self, paste: Paste, *, bracketed: bool) -> None:
        """tmux knows itself whether the program asked for bracketed paste (`-p`).

        So a line in one piece is text even to a shell, where it is typed keys otherwise.
        """
        await self._write(paste.text.encode(), "-p ")

    async def enter(self) -> None:
        await self._write(b"\r", "")

    async def _write(self, data: bytes, flags: str) -> None:
        try:
            target = process.find(self._address.process)
        except OSError:
            raise NotWrittenError("cannot_look") from None
        if target is None or target.foreground != target.pgid:
            raise NotWrittenError("process_gone" if target is None else "other_program")
        pane = self._address.pane
        buffer = f"corral-{ids.new_uuid()}"
        answer = await run(
            self._address.socket,
            ("load-buffer", "-b", buffer, "-"),
            (
                *("if-shell", "-F", "-t", pane),
                "#{&&:#{==:#{pane_in_mode},0},#{==:#{pane_dead},0}}",
                f"paste-buffer {flags}-d -b {buffer} -t {pane}",
                f"delete-buffer -b {buffer} ; display-message -p {_REFUSED}",
            ),
            data=data,
        )
        if answer is None:
            raise TimeoutError
        if answer.status != 0 or _REFUSED in answer.output:
            await run(self._address.socket, ("delete-buffer", "-b", buffer))
            raise NotWrittenError("copy_mode" if answer.status == 0 else "tmux_refused")


class Answer(NamedTuple):
    status: int
    output: str
    error: str


async def run(socket: str, *commands: tuple[str, ...], data: bytes = b"") -> Answer | None:
    """One command list, in order, by a client of its own; `None` when it does not end in time.

    Never starts a server (`-N`), and ends its client when it is cancelled.
    """
    argv = ["tmux", "-N", "-u", "-S", socket]
    for number, command in enumerate(commands):
        argv += [";"] if number else []
        argv += [f"{one[:-1]}\\;" if one.endswith(";") else one for one in command]
    try:
        client = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=OUTPUT_MAX_BYTES,
            env=_environment(),
        )
    except OSError as error:
        return Answer(127, "", f"tmux cannot be run: {error.strerror}")
    try:
        async with asyncio.timeout(COMMAND_MAX_MS / 1000):
            output, problem = await client.communicate(data)
    except TimeoutError:
        return None
    finally:
        if client.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                client.kill()
            await client.wait()
    return Answer(
        client.returncode or 0,
        output.decode(errors="replace"),
        problem.decode(errors="replace"),
    )


def _environment() -> dict[str, str]:
    """Without TMUX, which names another server, and in a locale that has every character."""
    kept = {key: value for key, value in os.environ.items() if key in {"PATH", "HOME", "TERM"}}
    return {"TERM": "xterm", **kept, "LC_ALL": "C.UTF-8"}


def _failed(answer: Answer, address: TmuxAddress) -> Sight:
    if any(text in answer.error for text in _NO_SERVER):
        if process.find(address.server) is not None:  # its socket's file is gone, for example
            return _hindered(Ready.UNREACHABLE, "server_silent")
        return _hindered(Ready.GONE, "server_gone")
    if any(text in answer.error for text in _NO_PANE):
        return _hindered(Ready.GONE, "pane_gone")
    return _hindered(Ready.UNREACHABLE, "tmux_failed")


def _hindered(state: Ready, reason: str) -> Sight:
    return Sight(hindrance=Readiness(state, reason))
