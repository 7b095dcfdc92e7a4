"""Writes one message into one session and sees what became of it; the same for tmux and pty.

    look ── not ready ──▶ NOT_READY, GONE
     │ ready                        │ holds exactly our text already
     ▼                              │
    paste ── text not seen ──▶ UNKNOWN, NOT_SUBMITTED
     │ exactly our text is in the composer
     ▼                              ▼
    Enter (by itself, after a delay; again only while exactly our text is still there)
     │
     ▼
    drained ▶ INJECTED      still there ▶ NOT_SUBMITTED      cannot be seen, not read ▶ UNKNOWN

Enter is only ever written while the composer shows exactly our text (of a line that the kernel
keeps, and that the program printed behind since it was typed: while it is above the cursor; of one
that is taller than the screen: while nothing but its end is seen, and only once). So it can answer
no question and submit nobody's draft, but for the milliseconds between the look and the write (a
`Port` that can hold human input back has not even those).
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Final

from corral.core.clock import Clock, SystemClock
from corral.core.crashpoints import crashpoint
from corral.tamq.terminal import points
from corral.tamq.terminal.base import (
    INJECT_MAX_MS,
    LOOK_MAX_MS,
    Injection,
    Outcome,
    Readiness,
    Ready,
    Wake,
)
from corral.tamq.terminal.process import LineMode
from corral.tamq.terminal.profiles import Layout, Profile
from corral.tamq.terminal.screen import Screen
from corral.tamq.terminal.text import Paste, render, squeeze
from corral.tamq.terminal.view import View, look, shows_collapsed

POLL_MS: Final = 50
SEEN_MAX_MS: Final = 4_000  # from the paste until the composer shows it
DRAINED_MAX_MS: Final = 2_500  # from an Enter until the composer is empty
READ_MAX_MS: Final = 5_000  # from an Enter until the program has read a line that was echoed
UNREAD_MAX: Final = 64  # attempts that are remembered for a daemon that did not record them
ENTERS_MAX: Final = 3
LINE_MAX_BYTES: Final = 4_095  # what the kernel keeps of a line that a program reads whole


@dataclass(frozen=True)
class Sight:
    """A session at one moment. With a `hindrance`, nothing can be written, whatever it shows.

    `bracketed`: the program asked for bracketed paste; `None` where that cannot be known.
    `unread`: bytes that were typed and that the program has not read yet. `held`: what was typed of
    a line that the kernel keeps until it is ended; `None` where nobody knows.
    """

    hindrance: Readiness | None = None
    screen: Screen | None = None
    bracketed: bool | None = None
    mode: LineMode | None = None
    unread: int = 0
    held: str | None = None


class NotWrittenError(Exception):
    """Nothing reached the session. `reason` is a stable code."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Port(ABC):
    """The way into one session.

    The writers raise `NotWrittenError` when nothing was written, and `TimeoutError` when that is
    not known.
    """

    @abstractmethod
    async def sight(self) -> Sight: ...

    @abstractmethod
    async def paste(self, paste: Paste, *, bracketed: bool) -> None: ...

    @abstractmethod
    async def enter(self) -> None: ...

    @abstractmethod
    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Keeps other writers of this session out, as far as that can be done."""


class Injector:
    """One profile's way of writing through a port."""

    def __init__(self, port: Port, profile: Profile, clock: Clock | None = None) -> None:
        self._port = port
        self._profile = profile
        self._clock = clock or SystemClock()
        self._unread: deque[tuple[str, int]] = deque(maxlen=UNREAD_MAX)

    async def readiness(self, wake: Wake | None) -> Readiness:
        try:
            async with asyncio.timeout(LOOK_MAX_MS / 1000):
                return self._judge(await self._port.sight(), wake)[0]
        except TimeoutError:
            return Readiness(Ready.UNREACHABLE, "look_timeout")

    async def inject(self, wake: Wake) -> Injection:
        attempt = _Attempt(self._port, self._profile, self._clock, self._judge)
        injection = await self._bounded(attempt, wake)
        if injection.reason == "not_read":
            self._unread += (
                (wake.message_id, one) for one in (*wake.earlier_attempts, wake.attempt)
            )
        return injection

    async def _bounded(self, attempt: "_Attempt", wake: Wake) -> Injection:
        try:
            async with asyncio.timeout(INJECT_MAX_MS / 1000):
                async with self._port.exclusive():
                    return await attempt.run(wake)
        except TimeoutError:
            if attempt.typed:
                return Injection(Outcome.UNKNOWN, "inject_timeout", True, attempt.enters)
            return Injection(Outcome.NOT_READY, "inject_timeout")

    def _judge(self, sight: Sight, wake: Wake | None) -> tuple[Readiness, Paste | None]:
        """The readiness, and which of the message's texts is in the composer already."""
        if sight.hindrance is not None or sight.screen is None:
            return sight.hindrance or Readiness(Ready.UNREACHABLE, "no_screen"), None
        if sight.unread:  # the screen does not show them yet, be they a person's or ours
            return Readiness(Ready.BUSY, "unread_input"), None
        view = see(sight, sight.screen, self._profile)
        before = None if wake is None else self._left(wake, sight, view)
        if before is not None:
            return before
        if view.reason == "no_composer" and any(view.texts) and not _is_canonical(sight):
            return Readiness(Ready.DRAFT, "draft"), None  # of several lines, in a line editor
        if view.state is not Ready.READY:
            return Readiness(view.state, view.reason), None
        return self._fits(sight, wake), None

    def _left(self, wake: Wake, sight: Sight, view: View) -> tuple[Readiness, Paste | None] | None:
        """What there is to see of the message's earlier attempts."""
        remembered = ((wake.message_id, number) for number in wake.earlier_attempts)
        if wake.unread or any(one in self._unread for one in remembered):
            return Readiness(Ready.READY, "read_late", pasted=True), None
        pastes = [self.paste(wake, sight, number) for number in wake.earlier_attempts]
        for paste in pastes:
            shown = view.shows(paste) or view.overflows(paste)
            if shown or shows_collapsed(view, paste, self._profile):
                if view.working:
                    return Readiness(Ready.BUSY, "working", pasted=True), None
                return Readiness(Ready.READY, "pasted", pasted=True), paste
        known = view.typed is not None or self._profile.layout is not Layout.LINE
        if view.state is Ready.DRAFT and known and any(map(view.holds_part_of, pastes)):
            # Which is a failed attempt.
            return Readiness(Ready.READY, "draft_mixed", pasted=True), None
        return None

    def _fits(self, sight: Sight, wake: Wake | None) -> Readiness:
        """Whether what the kernel does with a line lets the text through."""
        if sight.mode is not None and sight.mode.canonical:
            if not sight.mode.echo:  # somebody is asked for a password
                return Readiness(Ready.DIALOG, "no_echo")
            if wake is not None:
                paste = self.paste(wake, sight)
                if len(paste.typed(bracketed=False)) > LINE_MAX_BYTES:
                    return Readiness(Ready.READY, "line_too_long")  # which is a failed attempt
        return Readiness(Ready.READY, "ready")

    def paste(self, wake: Wake, sight: Sight, attempt: int | None = None) -> Paste:
        """The text, in one line when the program would take a line end for Enter."""
        return render(wake, attempt=attempt, one_line=not is_bracketed(sight, self._profile))


def see(sight: Sight, screen: Screen, profile: Profile) -> View:
    """What the screen shows; what the kernel holds of a line is in it, though it may be hidden."""
    view = look(screen, profile, echoed=_is_canonical(sight))
    if sight.unread and sight.mode is not None and (sight.mode.canonical or sight.mode.echo):
        view = replace(view, unread=True)
    if _is_canonical(sight) and sight.held is None:
        view = replace(view, covers=True)
    held = squeeze(sight.held or "") if profile.layout is Layout.LINE else ""
    if not held or view.state is Ready.DIALOG:
        return view
    return replace(view, state=Ready.DRAFT, reason="draft", texts=(held,), tall=False, typed=held)


def is_bracketed(sight: Sight, profile: Profile) -> bool:
    """Whether line ends in a paste are text to the program. Where nobody knows: the profile."""
    if _is_canonical(sight):
        return False
    return profile.bracketed if sight.bracketed is None else sight.bracketed


def _is_canonical(sight: Sight) -> bool:
    return sight.mode is not None and sight.mode.canonical


def _known(readiness: Readiness) -> Injection | None:
    """What became of an attempt that has nothing to write."""
    match readiness.reason:
        case "line_too_long":
            return Injection(Outcome.NOT_READY, "line_too_long")
        case "draft_mixed":
            return Injection(Outcome.NOT_SUBMITTED, "draft_mixed", typed=True)
        case "read_late":
            return Injection(Outcome.INJECTED, "read_late", typed=True)
    return None


_Judge = Callable[[Sight, Wake | None], tuple[Readiness, Paste | None]]


class _Attempt:
    def __init__(self, port: Port, profile: Profile, clock: Clock, judge: _Judge) -> None:
        self._port = port
        self._profile = profile
        self._clock = clock
        self._judge = judge
        self.typed = False
        self.pasted = False
        self.enters = 0

    async def run(self, wake: Wake) -> Injection:
        sight = await self._port.sight()
        readiness, paste = self._judge(sight, wake)
        if readiness.state is Ready.GONE:
            return Injection(Outcome.GONE, readiness.reason)
        if readiness.state is not Ready.READY:
            return Injection(Outcome.NOT_READY, readiness.reason)
        known = _known(readiness)
        if known is not None:
            return known
        if paste is None:
            bracketed = is_bracketed(sight, self._profile)
            paste = render(wake, one_line=not bracketed)
            crashpoint(points.TYPING)
            self.typed = True  # until it is known that it did not
            try:
                await self._port.paste(paste, bracketed=bracketed)
            except NotWrittenError as error:
                self.typed = False
                return Injection(Outcome.NOT_READY, error.reason)
            crashpoint(points.PASTED)
            self.pasted = True
            return await self._after_paste(paste)
        self.typed = True
        return await self._submit(paste)

    async def _after_paste(self, paste: Paste) -> Injection:
        began = self._clock.mono_s()
        seen = Ready.BUSY
        async for view in self._views(SEEN_MAX_MS):
            if view is None:
                return self._end(Outcome.UNKNOWN, "gone_after_paste")
            seen = view.state
            if self._ours(view, paste):
                wait_s = self._profile.submit_delay_ms / 1000 - (self._clock.mono_s() - began)
                await self._clock.sleep(max(0.0, wait_s))
                return await self._submit(paste)
            if view.holds_part_of(paste) and view.state is Ready.DRAFT:
                seen = Ready.DRAFT
        if seen is Ready.DRAFT:
            return self._end(Outcome.NOT_SUBMITTED, "draft_mixed")
        return self._end(Outcome.UNKNOWN, "paste_not_seen")

    async def _submit(self, paste: Paste) -> Injection:
        if not self._profile.submits:
            return self._end(Outcome.INJECTED, "shown")
        for _ in range(ENTERS_MAX):
            view = await self._view()
            if view is None:
                return self._end(Outcome.UNKNOWN, "gone_after_paste")
            if not self._ours(view, paste):
                # Somebody else typed or pressed Enter; or a question came up.
                return self._not_ours(view, paste)
            try:
                await self._port.enter()
            except NotWrittenError as error:
                return self._end(Outcome.NOT_SUBMITTED, error.reason)
            self.enters += 1
            crashpoint(points.SUBMITTED)
            ended = await self._drained(paste)
            if ended is not None:
                return ended
        return self._end(Outcome.NOT_SUBMITTED, "enter_ignored")

    async def _drained(self, paste: Paste) -> Injection | None:
        """What was seen after an Enter; `None` when exactly our text is still in the composer."""
        ours = unread = False
        seen_by_s = self._clock.mono_s() + DRAINED_MAX_MS / 1000
        await self._clock.sleep(POLL_MS / 1000)  # until the kernel has echoed it and counts it
        async for view in self._views(READ_MAX_MS):
            if view is None:
                return self._end(Outcome.UNKNOWN, "gone_after_enter")
            ours = self._ours(view, paste)
            drained = not ours and bool(view.texts) and not view.holds_part_of(paste)
            # Without a composer a question covers it.
            if not drained and (view.texts or squeeze(paste.head) not in view.all):
                if self._clock.mono_s() >= seen_by_s:
                    break
            elif view.unread:
                unread = True
            else:
                return self._end(Outcome.INJECTED, "drained" if drained else "in_transcript")
        if unread:
            return self._end(Outcome.UNKNOWN, "not_read")
        return None if ours else self._end(Outcome.UNKNOWN, "not_seen_to_drain")

    def _not_ours(self, view: View, paste: Paste) -> Injection:
        if view.holds_part_of(paste):
            return self._end(Outcome.NOT_SUBMITTED, "draft_mixed")
        if self.enters and view.texts:
            if view.unread:
                return self._end(Outcome.UNKNOWN, "not_read")
            return self._end(Outcome.INJECTED, "drained")
        return self._end(Outcome.UNKNOWN, "text_vanished")

    def _ours(self, view: View, paste: Paste) -> bool:
        # Neither shows an empty input afterwards, so neither gets a second Enter.
        if not self.enters and (view.overflows(paste) or (self.pasted and view.covered(paste))):
            return True
        return view.shows(paste) or shows_collapsed(view, paste, self._profile)

    async def _view(self) -> View | None:
        """What the session shows; `None` when it is gone."""
        sight = await self._port.sight()
        if sight.hindrance is not None and sight.hindrance.state is Ready.GONE:
            return None
        if sight.hindrance is not None or sight.screen is None:
            return View(Ready.UNREACHABLE, "hindered")
        return see(sight, sight.screen, self._profile)

    async def _views(self, max_ms: int) -> AsyncIterator[View | None]:
        """What is shown from now on, every `POLL_MS`, for at most `max_ms`."""
        end = self._clock.mono_s() + max_ms / 1000
        while True:
            yield await self._view()
            if self._clock.mono_s() >= end:
                return
            await self._clock.sleep(POLL_MS / 1000)

    def _end(self, outcome: Outcome, reason: str) -> Injection:
        return Injection(outcome, reason, self.typed, self.enters)
