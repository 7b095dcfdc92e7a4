"""A session of `tamq run`, as the daemon sees it: asked over that program's own socket."""

import os
import stat
from pathlib import Path
from typing import Any, Final

from corral.tamq.client import AsyncClient
from corral.tamq.errors import TamqError
from corral.tamq.terminal import hostwire, process
from corral.tamq.terminal.base import (
    INJECT_MAX_MS,
    LOOK_MAX_MS,
    Injection,
    Outcome,
    PtyAddress,
    Readiness,
    Ready,
    Terminal,
    Wake,
)

ANSWER_SLACK_MS: Final = 500  # the host's own bounds end first


class PtyTerminal(Terminal):
    """Opening does no I/O and holds nothing: each question is a connection of its own."""

    def __init__(self, address: PtyAddress) -> None:
        self._address = address
        path = Path(address.socket)
        self._looking = AsyncClient(path, (LOOK_MAX_MS - ANSWER_SLACK_MS) / 1000)
        self._writing = AsyncClient(path, (INJECT_MAX_MS + ANSWER_SLACK_MS) / 1000)

    @property
    def address(self) -> PtyAddress:
        return self._address

    async def readiness(self, wake: Wake | None = None) -> Readiness:
        try:
            gone = self._gone()
        except OSError:
            return Readiness(Ready.UNREACHABLE, "cannot_look")
        if gone is not None:
            return Readiness(Ready.GONE, gone)
        asked = None if wake is None else hostwire.wake_as_dict(wake)
        try:
            answer = await self._looking.request({"op": "readiness", "wake": asked})
            return hostwire.parse_readiness(answer)
        except (TamqError, ValueError, KeyError):
            return self._silent()

    async def inject(self, wake: Wake) -> Injection:
        try:
            gone = self._gone()
        except OSError:
            return Injection(Outcome.NOT_READY, "cannot_look")
        if gone is not None:
            return Injection(Outcome.GONE, gone)
        request: dict[str, Any] = {"op": "inject", "wake": hostwire.wake_as_dict(wake)}
        if not self._is_private():
            return Injection(Outcome.NOT_READY, "socket_not_private")
        try:
            return hostwire.parse_injection(await self._writing.request(request))
        except (TamqError, ValueError, KeyError) as error:
            if isinstance(error.__cause__, FileNotFoundError | ConnectionRefusedError):
                return Injection(Outcome.NOT_READY, "host_silent")
            # It may have been written, or not: the host knows, if it lives when it is asked again.
            return Injection(Outcome.UNKNOWN, "host_silent", typed=True)

    async def capture(self) -> tuple[str, ...]:
        try:
            answer = await self._looking.request({"op": "capture"})
            return tuple(str(one) for one in answer["lines"])
        except (TamqError, KeyError) as error:
            raise OSError(f"the session at {self._address.socket} cannot be seen") from error

    async def close(self) -> None:
        return None

    def _gone(self) -> str | None:
        if process.find(self._address.process) is None:
            return "process_gone"
        return "host_gone" if process.find(self._address.host) is None else None

    def _silent(self) -> Readiness:
        try:
            gone = self._gone()
        except OSError:
            return Readiness(Ready.UNREACHABLE, "cannot_look")
        if gone is not None:  # in the meantime
            return Readiness(Ready.GONE, gone)
        return Readiness(Ready.UNREACHABLE, "host_silent")

    def _is_private(self) -> bool:
        """Whether the socket is our user's: the client does not ask the kernel who listens."""
        try:
            fd = os.open(self._address.socket, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return True  # connecting says what is wrong
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid()
