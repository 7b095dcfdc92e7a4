"""The socket of TAMQ: one line asks, one line answers, then the connection closes.

The kernel says who connects; only the server's own user is served. A connection that talks
garbage, too much or too slowly is answered with an error and closed, and disturbs no other: at the
limit of connections the one that has been silent longest makes room. A request that was read is
carried out, even when its client is gone by then.
"""

import asyncio
import os
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from corral.core import logs
from corral.core.errors import ConfigError, CorralError, StorageError, UnavailableError
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
SOCKET_PATH_MAX_BYTES: Final = 107  # the kernel keeps 108, a NUL included
OVERFLOW_UID: Final = 65_534  # stands for users that this user namespace does not know

Handler = Callable[[dict[str, Any], Peer], Awaitable[Mapping[str, object]]]

_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_log = logs.get("tamq.transport")


@dataclass(frozen=True)
class Limits:
    """Of the connections of one server."""

    connections_max: int = CONNECTIONS_MAX
    read_timeout_s: float = READ_TIMEOUT_S
    frame_max_bytes: int = wire.FRAME_MAX_BYTES


class Server:
    """Serves `handle` at a Unix socket that `listen` made."""

    def __init__(self, handle: Handler, limits: Limits = Limits()) -> None:
        self.handle = handle
        self.limits = limits
        self.own_uid = os.getuid()
        self.reading: dict[Connection, None] = {}  # in order of arrival
        self.working: set[asyncio.Task[None]] = set()
        self.lingering: set[Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def count(self) -> int:
        """Connections that are read or answered."""
        return len(self.reading) + len(self.working)

    async def start(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: Connection(self), sock=listener, backlog=BACKLOG
        )

    async def stop(self) -> None:
        """Take no more requests; those that were read are answered."""
        if self._server is not None:
            self._server.close()
        for connection in [*self.reading, *self.lingering]:
            connection.abort()
        if self.working:
            _, late = await asyncio.wait(set(self.working), timeout=STOP_TIMEOUT_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def make_room(self) -> bool:
        """Whether one more may connect; the longest silent one is sent away for it."""
        if self.count < self.limits.connections_max:
            return True
        oldest = next(iter(self.reading), None)
        if oldest is None:
            return False
        oldest.refuse(BusyError("too many connections, and this one said nothing"))
        return True


class Connection(asyncio.Protocol):
    """One request and its answer."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._peer: Peer  # set before anything is read
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        server = self._server
        try:
            if not server.make_room():
                raise BusyError(f"{server.limits.connections_max} requests are being answered")
            self._peer = peer_of(self._transport.get_extra_info("socket"), server.own_uid)
        except TamqError as error:
            if isinstance(error, UnauthorizedError):
                _log.warning("peer refused", why=error.message)
            self.refuse(error)
            return
        server.reading[self] = None
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(server.limits.read_timeout_s, self._too_slow)

    def connection_lost(self, exc: Exception | None) -> None:
        self._over()

    def data_received(self, data: bytes) -> None:
        if self not in self._server.reading:
            return  # it was answered already
        self._buffer += data
        end = self._buffer.find(b"\n")
        limit = self._server.limits.frame_max_bytes
        if end < 0 and len(self._buffer) < limit:
            return
        if end < 0 or end >= limit:
            self.refuse(InvalidRequestError(f"a line is at most {limit} bytes"))
        elif end + 1 < len(self._buffer):
            self.refuse(InvalidRequestError("one line is one request: more followed it"))
        else:
            self._request(bytes(self._buffer))

    def eof_received(self) -> bool:
        if self in self._server.reading:
            self._over()
            error = InvalidRequestError("the connection ended within a line")
            self._answer(wire.refusal(error))
        return self not in self._server.lingering  # True: the answer is still to be written

    def refuse(self, error: TamqError) -> None:
        """Answer with an error; close when the client has read it, or after a moment.

        To close at once while it still writes would take the answer away from it.
        """
        self._over()
        server, transport = self._server, self._transport
        if len(server.lingering) >= LINGERING_MAX or transport.is_closing():
            self._answer(wire.refusal(error))
            return
        server.lingering.add(self)
        transport.write(wire.refusal(error))
        transport.write_eof()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        self._over()
        self._transport.abort()

    def _request(self, line: bytes) -> None:
        self._over()
        task = asyncio.get_running_loop().create_task(self._work(line, self._peer))
        self._server.working.add(task)
        task.add_done_callback(self._server.working.discard)

    async def _work(self, line: bytes, peer: Peer) -> None:
        try:
            fields = wire.decode(line)
            frame = wire.encode({"ok": True, **await self._server.handle(fields, peer)})
        except TamqError as error:
            frame = wire.refusal(error)
        except CorralError as error:
            frame = wire.refusal(_foreign(error))
        except Exception as error:
            # The text of an unforeseen exception may quote content, so it is left out.
            _log.error("request failed", error=type(error).__name__, exc_info=True)
            frame = wire.refusal(
                UnavailableTamqError(f"a fault of TAMQ: {type(error).__name__}", hint="see its log")
            )
        self._answer(frame)

    def _answer(self, frame: bytes) -> None:
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(frame)
        transport.close()
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(WRITE_TIMEOUT_S, transport.abort)

    def _too_slow(self) -> None:
        limit_s = self._server.limits.read_timeout_s
        self.refuse(InvalidRequestError(f"no whole line within {limit_s:g} s"))

    def _over(self) -> None:
        self._server.reading.pop(self, None)
        self._server.lingering.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


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
    if not hasattr(socket, "SO_PEERCRED"):
        return Peer(own_uid, 0)  # the file's mode is the guard
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
    except (OSError, struct.error):
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


# ---- the socket's file ---------------------------------------------------------------------


def check_path(path: Path) -> None:
    """`ConfigError` for a path that no socket can have."""
    length = len(os.fsencode(path))
    if length > SOCKET_PATH_MAX_BYTES:
        raise ConfigError(
            f"socket: {path} has {length} bytes, the system takes {SOCKET_PATH_MAX_BYTES}",
            hint="set TAMQ_SOCKET to a shorter path",
        )


def listen(path: Path) -> tuple[socket.socket, int]:
    """A socket at `path`, of mode 0600 from its first instant, and its file's inode.

    Whoever calls holds the lock.
    Replaces the socket of a server that is dead, and nothing else. `ConfigError` for the path,
    `UnavailableError` when somebody listens there. Blocks.
    """
    check_path(path)
    _private_folder(path.parent)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        # Linux gives the file the mode of the socket; the umask is for systems that do not.
        os.fchmod(listener.fileno(), 0o600)
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        finally:
            os.umask(before)
        listener.listen(BACKLOG)
        listener.setblocking(False)
        inode = path.lstat().st_ino
    except BaseException as error:
        listener.close()
        if isinstance(error, OSError):
            raise ConfigError(f"socket: cannot listen at {path}: {error.strerror}") from error
        raise
    return listener, inode


def unlink_own(path: Path, inode: int) -> None:
    """Remove the socket's file if it is still the one that we made."""
    with suppress(FileNotFoundError):
        if path.lstat().st_ino == inode:
            path.unlink()


def _private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ConfigError(f"socket: {folder} cannot be used: {error.strerror}") from error
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"socket: the folder {folder} must be yours and of mode 0700",
            hint=f"chmod 700 {folder}, or set TAMQ_SOCKET to a folder of its own",
        )


def _clear(path: Path) -> None:
    """Remove the socket of a server that is dead; refuse what is alive or no socket."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"socket: {path} is there and is no socket", hint="remove it")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            path.unlink(missing_ok=True)
            return
        except BlockingIOError:
            pass  # its queue is full: alive
    raise UnavailableError(f"another program listens at {path}", hint="stop it first")
