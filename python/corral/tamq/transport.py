"""The socket of TAMQ: one line asks, one line answers, then the connection closes.

The kernel says who connects; only the server's own user is served. A connection that talks
garbage, too much or too slowly is answered with an error and closed, and disturbs no other: at the
limit of connections the one that has been silent longest makes room. A request that was read is
carried out, even when its client is gone by then.

A connection lives for one request, so what it costs to begin and to end one is most of the cost.
Therefore sockets are accepted, read and answered here, without asyncio's transports: a request that
has arrived with its connection is read at once, and the loop never watches it.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corral.core import logs, sockets
from corral.core.errors import CorralError, StorageError
from corral.tamq import wire
from corral.tamq.errors import (
    BusyError,
    InvalidRequestError,
    TamqError,
    UnauthorizedError,
    UnavailableTamqError,
)
from corral.tamq.store import Peer

CONNECTIONS_MAX: Final = 1_024
READ_TIMEOUT_S: Final = 10.0
WRITE_TIMEOUT_S: Final = 10.0
STOP_TIMEOUT_S: Final = 10.0
LINGER_S: Final = 1.0  # for a refused client that is still writing, so that it gets its answer
LINGERING_MAX: Final = 128
BACKLOG: Final = 1_024
ACCEPTED_MAX: Final = 64  # in one go, before the loop looks after others
ACCEPT_PAUSE_S: Final = 1.0  # when the system has no descriptor left
COMPLAINT_PAUSE_S: Final = 60.0  # between lines of the log about that
READ_BYTES: Final = 16_384  # at once
OVERFLOW_UID: Final = 65_534  # stands for users that this user namespace does not know


Handler = Callable[[dict[str, Any], Peer], Awaitable[Mapping[str, object]]]
# The fields of an answer, or its frame; or the error that refuses.
Answered = Callable[[Mapping[str, object] | bytes | None, BaseException | None], None]
# Whether it takes a request that needs no task; then it calls back, once. May refuse by raising.
Quick = Callable[[dict[str, Any], Peer, Answered], bool]

_TELLS_PEERS: Final = hasattr(socket, "SO_PEERCRED")
_log = logs.get("tamq.transport")


@dataclass(frozen=True)
class Limits:
    """Of the connections of one server."""

    connections_max: int = CONNECTIONS_MAX
    read_timeout_s: float = READ_TIMEOUT_S
    frame_max_bytes: int = wire.FRAME_MAX_BYTES


class Server:
    """Serves `handle` at a Unix socket that `listen` made; `quick` is asked first."""

    def __init__(
        self, handle: Handler, limits: Limits = Limits(), quick: Quick | None = None
    ) -> None:
        self.handle = handle
        self.quick = quick
        self.limits = limits
        self.own_uid = os.getuid()
        self.reading: dict[Connection, None] = {}  # in order of arrival
        self.working: set[Connection] = set()
        self.lingering: set[Connection] = set()
        self.loop: asyncio.AbstractEventLoop
        self._listener: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._crowd = 1  # how many are likely to connect at once
        self._complain_at_s = 0.0

    @property
    def count(self) -> int:
        """Connections that are read or answered."""
        return len(self.reading) + len(self.working)

    async def start(self, listener: socket.socket) -> None:
        self.loop = asyncio.get_running_loop()
        self._close_listener()
        self._listener = listener
        self.loop.add_reader(listener.fileno(), self._accept)

    async def stop(self) -> None:
        """Take no more requests; those that were read are answered."""
        self._close_listener()
        if self._timer is not None:
            self._timer.cancel()
        for connection in [*self.reading, *self.lingering]:
            connection.abort()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_TIMEOUT_S):
                while self.working:
                    self._idle.clear()
                    await self._idle.wait()
        late = [task for one in self.working if (task := one.give_up()) is not None]
        await asyncio.gather(*late, return_exceptions=True)

    def done(self, connection: "Connection") -> None:
        """A request is answered, or its client is gone."""
        self.working.discard(connection)
        if not self.working:
            self._idle.set()

    def make_room(self) -> None:
        """For one more; the longest silent one is sent away for it. `BusyError` if none is."""
        if self.count < self.limits.connections_max:
            return
        oldest = next(iter(self.reading), None)
        if oldest is None:
            raise BusyError(f"{self.limits.connections_max} requests are being answered")
        oldest.refuse(BusyError("too many connections, and this one said nothing"))

    def read_later(self, connection: "Connection") -> None:
        """Its line is not complete: it has until the end of its time."""
        self.reading[connection] = None
        if self._timer is None:
            self._timer = self.loop.call_at(connection.until_s, self._send_late_away)

    def _send_late_away(self) -> None:
        """All have the same time, so the first in the order of arrival is the first to be late."""
        self._timer = None
        now_s, limit_s = self.loop.time(), self.limits.read_timeout_s
        for connection in list(self.reading):
            if connection.until_s > now_s:
                self._timer = self.loop.call_at(connection.until_s, self._send_late_away)
                return
            connection.refuse(InvalidRequestError(f"no whole line within {limit_s:g} s"))

    def _accept(self) -> None:
        listener = self._listener
        if listener is None:
            return
        for number in range(self._crowd):
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._crowd = max(number, 1)
                return
            except OSError as error:  # no descriptor is left, or no memory
                self._complain(error)
                self.loop.remove_reader(listener.fileno())
                self.loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
                return
            accepted.setblocking(False)
            Connection(self, accepted).begin()
        self._crowd = min(2 * self._crowd, ACCEPTED_MAX)

    def _complain(self, error: OSError) -> None:
        now_s = self.loop.time()
        if now_s >= self._complain_at_s:
            self._complain_at_s = now_s + COMPLAINT_PAUSE_S
            _log.error("cannot accept, clients wait", why=error.strerror, count=self.count)

    def _accept_again(self) -> None:
        if self._listener is not None:
            self.loop.add_reader(self._listener.fileno(), self._accept)

    def _close_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self.loop.remove_reader(listener.fileno())
            listener.close()


class Connection:
    """One request and its answer."""

    __slots__ = (
        "_buffer", "_peer", "_server", "_socket", "_timer", "_unsent", "_watched", "task",
        "until_s",
    )  # fmt: skip

    def __init__(self, server: Server, accepted: socket.socket) -> None:
        self.task: asyncio.Task[None] | None = None  # if its request needs one
        self.until_s = 0.0  # of the loop's time: then its line must be complete
        self._server = server
        self._socket = accepted
        self._buffer = bytearray()
        self._unsent = b""
        self._watched = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        server = self._server
        try:
            server.make_room()
            self._peer = peer_of(self._socket, server.own_uid)
        except TamqError as error:
            if isinstance(error, UnauthorizedError):
                _log.warning("peer refused", why=error.message)
            self.refuse(error)
            return
        self.until_s = server.loop.time() + server.limits.read_timeout_s
        self._readable()

    def refuse(self, error: TamqError) -> None:
        """Answer with an error; close when the client has read it, or after a moment.

        To close at once while it still writes would take the answer away from it.
        """
        server = self._server
        server.reading.pop(self, None)
        most = min(LINGERING_MAX, 8 + server.limits.connections_max // 8)
        if len(server.lingering) >= most:
            self._answer(wire.refusal(error))
            return
        try:
            self._socket.send(wire.refusal(error))
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.abort()
            return
        server.lingering.add(self)
        self._watch(self._drain)
        self._timer = server.loop.call_later(LINGER_S, self.abort)

    def abort(self) -> None:
        """Close without a word, while no request is being carried out."""
        self._server.reading.pop(self, None)
        self._server.lingering.discard(self)
        self._close()

    def give_up(self) -> "asyncio.Task[None] | None":
        """The request takes too long to wait for: nobody hears its answer."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self.task is not None:
            self.task.cancel()
        return self.task

    def _readable(self) -> None:
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            data = None
        except OSError:
            self.abort()
            return
        if data == b"":
            self._ended()
        elif (data is None or not self._complete(data)) and not self._watched:
            self._server.read_later(self)
            self._watch(self._readable)

    def _complete(self, data: bytes) -> bool:
        """Whether nothing more is to be read: there is a whole line, or too much of one."""
        buffer, seen, limit = self._buffer, len(self._buffer), self._server.limits.frame_max_bytes
        buffer += data
        end = buffer.find(b"\n", seen)
        if end < 0 and len(buffer) < limit:
            return False
        if end < 0 or end >= limit:
            self.refuse(InvalidRequestError(f"a line is at most {limit} bytes"))
        elif end + 1 < len(buffer):
            self.refuse(InvalidRequestError("one line is one request: more followed it"))
        else:
            self._request(bytes(buffer))
        return True

    def _ended(self) -> None:
        self._server.reading.pop(self, None)
        self._answer(wire.refusal(InvalidRequestError("the connection ended within a line")))

    def _drain(self) -> None:
        """Of a refused client: what it still writes is of no interest."""
        try:
            data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.abort()

    def _request(self, line: bytes) -> None:
        server = self._server
        if self._watched:
            server.reading.pop(self, None)
            self._unwatch()
        server.working.add(self)
        try:
            fields = wire.decode(line)
            if server.quick is None or not server.quick(fields, self._peer, self._answered):
                self.task = server.loop.create_task(self._work(fields))
        except Exception as error:
            self._answer(_frame_of(error))

    async def _work(self, fields: dict[str, Any]) -> None:
        try:
            answer = await self._server.handle(fields, self._peer)
        except Exception as error:
            self._answered(None, error)
        except BaseException:
            self._close()
            raise
        else:
            self._answered(answer, None)

    def _answered(
        self, answer: Mapping[str, object] | bytes | None, error: BaseException | None
    ) -> None:
        try:
            if isinstance(answer, bytes):
                frame = answer
            elif answer is not None:
                frame = wire.encode({"ok": True, **answer})
            else:
                frame = _frame_of(error)
        except Exception as unforeseen:
            frame = _frame_of(unforeseen)
        self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        """Write it and close; what the client does not take at once, it has a while to take."""
        try:
            sent = self._socket.send(frame)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            sent = len(frame)  # the client is gone: nobody is left to tell
        if sent == len(frame):
            self._close()
            return
        self._unsent = frame[sent:]
        loop = self._server.loop
        if self._timer is None:
            self._server.working.add(self)
            self._unwatch()
            loop.add_writer(self._socket.fileno(), self._writable)
            self._timer = loop.call_later(WRITE_TIMEOUT_S, self._close)

    def _writable(self) -> None:
        self._answer(self._unsent)

    def _watch(self, callback: Callable[[], None]) -> None:
        self._watched = True
        self._server.loop.add_reader(self._socket.fileno(), callback)

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._server.loop.remove_reader(self._socket.fileno())

    def _close(self) -> None:
        self._unwatch()
        if self._unsent:
            self._unsent = b""
            self._server.loop.remove_writer(self._socket.fileno())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._socket.close()
        self._server.done(self)


def _frame_of(error: BaseException | None) -> bytes:
    """The refusal for whatever a request ended with."""
    if isinstance(error, TamqError):
        return wire.refusal(error)
    if isinstance(error, CorralError):
        return wire.refusal(_foreign(error))
    # The text of an unforeseen exception may quote content, so it is left out.
    name = type(error).__name__
    _log.error("request failed", error=name, exc_info=error)
    return wire.refusal(UnavailableTamqError(f"a fault of TAMQ: {name}", hint="see its log"))


def _foreign(error: CorralError) -> TamqError:
    """An error of another layer as one of the protocol."""
    if isinstance(error, StorageError):
        return UnavailableTamqError(
            f"nothing was stored: {error.message}", hint=error.hint, ids=error.ids
        )
    if error.exit_code == 64:
        return InvalidRequestError(error.message, hint=error.hint, ids=error.ids)
    return UnavailableTamqError(error.message, hint=error.hint, ids=error.ids)


def peer_of(connection: socket.socket, own_uid: int) -> Peer:
    """Who is at the other end. `UnauthorizedError` unless it is the same, known user."""
    if not _TELLS_PEERS:
        return Peer(own_uid, 0)  # the file's mode is the guard
    try:
        pid, uid, _ = sockets.credentials(connection)
    except OSError:
        raise UnauthorizedError("the kernel does not say who connects") from None
    return admitted(uid, pid, own_uid)


def admitted(uid: int, pid: int, own_uid: int) -> Peer:
    """`UnauthorizedError` for another user, and for one that has no name in this namespace."""
    if uid == OVERFLOW_UID:
        raise UnauthorizedError(f"user {uid} stands for any user unknown here")
    if uid != own_uid:
        raise UnauthorizedError(
            f"user {uid} is not user {own_uid}, whose TAMQ this is", hint="ask as that user"
        )
    return Peer(uid, pid)


def listen(path: Path) -> tuple[socket.socket, int]:
    """As `sockets.listen`, in a folder that is this user's alone. Blocks."""
    sockets.check_path(path, "socket")
    sockets.private_folder(path.parent, "socket")
    return sockets.listen(path, "socket", backlog=BACKLOG)
