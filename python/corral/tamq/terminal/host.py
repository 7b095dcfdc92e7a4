"""The session of `tamq run`: a person's terminal, the program's, and the daemon's way in.

Bytes go both ways unchanged. The screen is kept by an emulator. While a message is written, the
person's keys wait in the kernel, so that no letter can come between the look, the paste and Enter.
"""

import asyncio
import contextlib
import os
import signal
import termios
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from corral.core.clock import mono_s
from corral.tamq.errors import InvalidRequestError
from corral.tamq.store import Peer
from corral.tamq.terminal import hostwire, process
from corral.tamq.terminal.base import (
    Injection,
    Outcome,
    Readiness,
    Ready,
    Wake,
)
from corral.tamq.terminal.emulator import Emulator
from corral.tamq.terminal.heldline import HeldLine
from corral.tamq.terminal.injector import Injector, NotWrittenError, Port, Sight
from corral.tamq.terminal.profiles import Profile
from corral.tamq.terminal.spawn import Size, Spawned, set_size
from corral.tamq.terminal.streams import NOT_STARTED, Inlet, Outlet
from corral.tamq.terminal.text import Paste

KEY_SETTLE_MS: Final = 150  # from the person's last key until its echo must be on the screen
# Why nothing is read from one of the two terminals.
INJECTING: Final = "injecting"
FULL: Final = "full"
ENDED: Final = "ended"
OUTCOMES_MAX: Final = 64  # attempts whose outcome is remembered for a daemon that was killed


class HostPort(Port):
    """The pseudo-terminal as the injector writes to it."""

    def __init__(self, child: Spawned, emulator: Emulator, inlet: Inlet, outlet: Outlet) -> None:
        self._child = child
        self._emulator = emulator
        self._inlet = inlet
        self._outlet = outlet
        self._lock = asyncio.Lock()
        self._held = HeldLine()
        self.last_key_s = 0.0
        self.ended = False

    @contextlib.asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._lock:
            self._inlet.pause(INJECTING)
            try:
                await self._outlet.drained()
                await asyncio.sleep(max(0.0, KEY_SETTLE_MS / 1000 - (mono_s() - self.last_key_s)))
                yield
            finally:
                self._inlet.resume(INJECTING)

    async def sight(self) -> Sight:
        if self.ended:
            return Sight(hindrance=Readiness(Ready.GONE, "process_gone"))
        hindrance = None
        with contextlib.suppress(OSError):
            if os.tcgetpgrp(self._child.master) != self._child.pid:  # it leads its session
                hindrance = Readiness(Ready.OTHER_PROGRAM, "other_program")
        tty = process.terminal_at(self._child.path)
        return Sight(
            hindrance,
            self._emulator.screen(),
            self._emulator.bracketed,
            None if tty is None else tty.mode,
            self._outlet.pending + (0 if tty is None else tty.unread),
            self._held.text if tty is not None and tty.mode.canonical else None,
        )

    async def paste(self, paste: Paste, *, bracketed: bool) -> None:
        self._write(paste.typed(bracketed=bracketed))
        await self._outlet.drained()

    async def enter(self) -> None:
        self._write(b"\r")
        await self._outlet.drained()

    def _write(self, data: bytes) -> None:
        if self.ended or self._outlet.closed:
            raise NotWrittenError("process_gone")
        self.type(data)

    def type(self, data: bytes) -> None:
        """Every byte of the program's input goes this way, but for answers to its queries."""
        with contextlib.suppress(OSError, termios.error):
            self._held.typed(data, canonical=process.line_mode(self._child.master).canonical)
        self._outlet.write(data)


class Host:
    """Joins the two terminals and answers the daemon. All of it in one event loop."""

    def __init__(
        self, child: Spawned, profile: Profile, size: Size, person: tuple[int, int], *, alone: bool
    ) -> None:
        """`person` is where the person's keys come from, and where the program's output goes.

        `alone`: no terminal is there to answer the program's queries, so the emulator does.
        """
        self._child = child
        self._alone = alone
        self._waiting: set[asyncio.Task[None]] = set()
        self._to_program = Outlet(child.master)
        self._to_person = Outlet(person[1])
        self._from_person = Inlet(person[0], self._key)
        self._from_program = Inlet(child.master, self._output)
        answer = self._to_program.write if alone else None
        self._emulator = Emulator(*size, answer)
        self.port = HostPort(child, self._emulator, self._from_person, self._to_program)
        self._injector = Injector(self.port, profile)
        self._outcomes: OrderedDict[tuple[str, int], asyncio.Future[Injection]] = OrderedDict()

    def start(self) -> None:
        self._from_person.resume(NOT_STARTED)
        self._from_program.resume(NOT_STARTED)

    def resize(self, size: Size) -> None:
        self._emulator.resize(*size)
        set_size(self._child.master, size)

    async def end(self) -> None:
        """The program ended: show what it said last."""
        self.port.ended = True
        self._from_person.pause(ENDED)
        self._from_program.pause(ENDED)
        self._from_program.drain()
        await self._to_person.drained()
        self._to_program.close()
        self._to_person.close()

    def _key(self, data: bytes) -> None:
        self.port.last_key_s = mono_s()
        self.port.type(data)
        if self._to_program.full:
            self._wait_for(self._to_program, self._from_person)
        if not data and not self._alone:  # the window was closed
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child.pid, signal.SIGHUP)

    def _output(self, data: bytes) -> None:
        self._to_person.write(data)
        self._emulator.feed(data)
        if self._to_person.full:
            self._wait_for(self._to_person, self._from_program)

    def _wait_for(self, full: Outlet, inlet: Inlet) -> None:
        """Nothing more is read until what was read has been taken."""

        async def resume() -> None:
            await full.drained()
            inlet.resume(FULL)

        inlet.pause(FULL)
        task = asyncio.get_running_loop().create_task(resume())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    # ---- the daemon -------------------------------------------------------------------------

    async def handle(self, fields: dict[str, Any], _peer: Peer) -> Mapping[str, object]:
        """One request of `hostwire`."""
        match fields.get("op"):
            case "readiness":
                given = fields.get("wake")
                wake = None if given is None else hostwire.parse_wake(given)
                return hostwire.readiness_as_dict(await self._readiness(wake))
            case "inject":
                injection = await self._inject(hostwire.parse_wake(fields.get("wake")))
                return hostwire.injection_as_dict(injection)
            case "capture":
                return {"lines": list(self._emulator.screen().texts)}
        raise InvalidRequestError("op: must be readiness, inject or capture")

    async def _readiness(self, wake: Wake | None) -> Readiness:
        for before in self._earlier(wake):
            if not before.done():
                return Readiness(Ready.BUSY, "injecting")
            if before.result().outcome is Outcome.INJECTED:
                return Readiness(Ready.READY, "written_before", pasted=True)
        return await self._injector.readiness(wake)

    async def _inject(self, wake: Wake) -> Injection:
        """A daemon that was killed meanwhile learns from its next attempt what became of this."""
        for before in self._earlier(wake):
            injection = await asyncio.shield(before)
            if injection.outcome is Outcome.INJECTED:
                return injection
        key = (wake.message_id, wake.attempt)
        running = self._outcomes.get(key)
        if running is None or running.done():
            running = asyncio.ensure_future(self._injector.inject(wake))
            self._outcomes[key] = running
            while len(self._outcomes) > OUTCOMES_MAX:
                self._outcomes.popitem(last=False)
        return await asyncio.shield(running)

    def _earlier(self, wake: Wake | None) -> list[asyncio.Future[Injection]]:
        """The attempts of this message whose outcome the daemon does not know, and we do."""
        if wake is None:
            return []
        asked = ((wake.message_id, attempt) for attempt in wake.earlier_attempts)
        return [self._outcomes[key] for key in asked if key in self._outcomes]
