"""Moves bytes between the person's terminal and the program's, without ever blocking the loop."""

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Final

CHUNK_BYTES: Final = 65_536
NOT_STARTED: Final = "not started"
PENDING_MAX_BYTES: Final = 262_144  # what may wait for a slow reader before the writer waits, too


def reopen(fd: int, flags: int) -> int:
    """The same file, opened anew and non-blocking.

    The flag would hold for everybody who shares our standard streams, the shell that started us
    included. What cannot be opened again (a socket, another user's terminal) is only duplicated.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)


class Outlet:
    """Writes to one file, in order. What a reader that is gone does not take is dropped."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pending = bytearray()
        self._waiting = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.closed = False

    @property
    def pending(self) -> int:
        """How many bytes were not taken yet."""
        return len(self._pending)

    @property
    def full(self) -> bool:
        return len(self._pending) >= PENDING_MAX_BYTES

    def write(self, data: bytes) -> None:
        if self.closed or not data:
            return
        self._pending += data
        self._idle.clear()
        if not self._waiting:
            self._flush()

    async def drained(self) -> None:
        """Until everything was taken, or nobody takes it any more."""
        await self._idle.wait()

    def close(self) -> None:
        self._stop_waiting()
        self._drop()

    def _flush(self) -> None:
        try:
            while self._pending:
                written = os.write(self._fd, self._pending[:CHUNK_BYTES])
                del self._pending[:written]
        except BlockingIOError:
            self._wait()
            return
        except OSError:
            self._drop()
        self._stop_waiting()
        self._idle.set()

    def _wait(self) -> None:
        if not self._waiting:
            asyncio.get_running_loop().add_writer(self._fd, self._flush)
            self._waiting = True

    def _stop_waiting(self) -> None:
        if self._waiting:
            asyncio.get_running_loop().remove_writer(self._fd)
            self._waiting = False

    def _drop(self) -> None:
        self.closed = True
        self._pending.clear()
        self._idle.set()


class Inlet:
    """Reads one file and hands on what comes; `b""` once, at its end.

    It can be paused for several reasons at once, and reads when none is left. It begins paused.
    """

    def __init__(self, fd: int, take: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._take = take
        self._pauses = {NOT_STARTED}
        self._reading = False
        self._ended = False

    def resume(self, reason: str) -> None:
        self._pauses.discard(reason)
        if self._reading or self._ended or self._pauses:
            return
        try:
            asyncio.get_running_loop().add_reader(self._fd, self._ready)
            self._reading = True
        except PermissionError:  # a plain file, or /dev/null: always ready
            self._ready(CHUNK_BYTES * 16)
            self._end()

    def pause(self, reason: str) -> None:
        self._pauses.add(reason)
        self._stop()

    def _stop(self) -> None:
        if self._reading:
            asyncio.get_running_loop().remove_reader(self._fd)
            self._reading = False

    def drain(self) -> None:
        """Take what is there now."""
        while not self._ended and self._read(CHUNK_BYTES):
            pass

    def _ready(self, most: int = CHUNK_BYTES) -> None:
        self._read(most)

    def _read(self, most: int) -> bool:
        try:
            data = os.read(self._fd, most)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in {errno.EIO, errno.EBADF}:
                raise
            data = b""  # the other side of a pseudo-terminal is closed
        if not data:
            self._end()
            return False
        self._take(data)
        return True

    def _end(self) -> None:
        self._stop()
        if not self._ended:
            self._ended = True
            self._take(b"")
