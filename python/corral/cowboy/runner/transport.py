"""The runner's socket: who may connect, and which connection is the live one.

One daemon is served at a time. A valid ``hello`` makes its connection the live one and closes all
earlier ones; what they had sent and was not read yet is dropped.
"""

import asyncio
import socket
from collections.abc import Callable, Collection
from pathlib import Path
from typing import cast

from corral.core import logs, sockets
from corral.core.errors import UnavailableError
from corral.cowboy.runner import domain
from corral.cowboy.runner.book import BookRequest
from corral.cowboy.runner.domain import Event, Hello, Rejected, Welcome
from corral.cowboy.runner.frames import FrameError, FrameSplitter

# A daemon that does not read: its connection is given up, a new one begins with a query.
SEND_BUFFER_MAX_BYTES = 64 * 1024 * 1024
CONNECTIONS_MAX = 16
LOCK_WAIT_S = 2.0

_log = logs.get("cowboy.runner")


def lock(path: Path) -> int:
    """Takes the lock that makes this the only runner of its agent; gives its descriptor.

    A killed runner's last child has it until it sees that its runner is gone. So it is waited for,
    at most `LOCK_WAIT_S`. Blocks. Raises `UnavailableError` when another runner has it.
    """
    fd = sockets.lock(path, wait_s=LOCK_WAIT_S)
    if fd is None:
        raise UnavailableError(
            f"another runner holds {path}", hint="stop it first; one runner serves an agent"
        )
    return fd


class RunnerServer:
    """Serves one agent's daemon. ``on_lost`` is called when the live connection is gone."""

    def __init__(
        self,
        listener: socket.socket,
        agent: str,
        welcome: Welcome,
        allowed_uids: Collection[int],
        on_lost: Callable[[], None],
    ) -> None:
        self.agent = agent
        self.welcome = welcome
        self.allowed_uids = frozenset(allowed_uids)
        self.handle: Callable[[BookRequest], None] | None = None
        self._on_lost = on_lost
        self._connections = 0
        self._listener = listener
        self._server: asyncio.AbstractServer | None = None
        self._live: _Connection | None = None

    @property
    def connected(self) -> bool:
        return self._live is not None

    async def start(self, handle: Callable[[BookRequest], None]) -> None:
        """Accepts connections; ``handle`` gets every request of the live one, in order."""
        self.handle = handle
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: _Connection(self), sock=self._listener)

    def refuse_more(self) -> None:
        """No connection is accepted any more; the live one goes on."""
        if self._server is not None:
            self._server.close()

    def close(self) -> None:
        self.refuse_more()
        if self._live is not None:
            self._live.abort()

    def send(self, event: Event) -> None:
        """To the live connection; dropped when there is none: a daemon asks after its hello."""
        if self._live is not None:
            self._live.send(event)

    def greeted(self, connection: "_Connection", ledger: str) -> None:
        former, self._live = self._live, connection
        if former is not None and former is not connection:
            _log.warning("connection_fenced", why="a daemon said hello on a new one")
            former.abort()
        _log.info("daemon_connected", ledger=ledger)
        connection.send(self.welcome)

    def admits_one_more(self) -> bool:
        self._connections += 1
        return self._connections <= CONNECTIONS_MAX

    def lost(self, connection: "_Connection") -> None:
        self._connections -= 1
        if self._live is connection:
            self._live = None
            _log.info("daemon_disconnected")
            self._on_lost()


class _Connection(asyncio.Protocol):
    def __init__(self, server: RunnerServer) -> None:
        self._server = server
        self._frames = FrameSplitter(domain.FRAME_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self._open = False
        self._greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open = True
        uid = _peer_uid(transport.get_extra_info("socket"))
        if not self._server.admits_one_more():
            _log.warning("connections_max", connections_max=CONNECTIONS_MAX)
            self.abort()
        elif uid not in self._server.allowed_uids:
            _log.warning("peer_refused", uid=uid)
            self._reject(f"uid {uid} is not served here")

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._frames.feed(data):
                if not self._open:  # fenced, or rejected
                    return
                self._received(domain.decode_request(line))
        except FrameError as error:
            if self._open:
                _log.error("frame_invalid", error=str(error))
                self._reject(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = False
        self._server.lost(self)

    def send(self, event: Event) -> None:
        if not self._open or self._transport is None:
            return
        self._transport.write(domain.encode_event(event))
        if self._transport.get_write_buffer_size() > SEND_BUFFER_MAX_BYTES:
            _log.error("daemon_not_reading", buffered_bytes=SEND_BUFFER_MAX_BYTES)
            self.abort()

    def abort(self) -> None:
        self._open = False
        if self._transport is not None:
            self._transport.abort()

    def _received(self, request: domain.Request) -> None:
        match request:
            case Hello(protocol, agent, ledger):
                self._hello(protocol, agent, ledger)
            case _ if self._greeted and self._server.handle is not None:
                self._server.handle(request)
            case _:
                raise FrameError("op: a connection begins with a hello")

    def _hello(self, protocol: int, agent: str, ledger: str) -> None:
        if protocol != domain.PROTOCOL_VERSION:
            self._reject(f"protocol {protocol} is not spoken, {domain.PROTOCOL_VERSION} is")
        elif agent != self._server.agent:
            self._reject(f"this runner serves {self._server.agent!r}, not {agent!r}")
        else:
            self._greeted = True
            self._server.greeted(self, ledger)

    def _reject(self, reason: str) -> None:
        self.send(Rejected(reason))
        self._open = False
        if self._transport is not None:
            self._transport.close()


def _peer_uid(peer: socket.socket) -> int:
    return sockets.credentials(peer).uid
