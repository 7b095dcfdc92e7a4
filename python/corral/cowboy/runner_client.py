"""The daemon's side of the runner protocol: one connection, made again whenever it is lost.

Requests are handed to the kernel at once and never kept for a later connection: what was sent on
a lost connection may or may not have arrived, so after ``on_connected`` the daemon queries all its
open turns and goes on from the answers.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from corral.core import logs
from corral.core.backoff import Backoff
from corral.cowboy.runner import domain
from corral.cowboy.runner.domain import (
    Hello,
    PrepareRequest,
    Rejected,
    Request,
    RunnerEvent,
    Welcome,
)
from corral.cowboy.runner.frames import FrameError, FrameSplitter

HELLO_TIMEOUT_S = 5.0
RETRY_INITIAL_S = 0.05
RETRY_MAX_S = 0.5
# The peer has stopped reading: give the connection up, a new one starts with a query.
SEND_BUFFER_MAX_BYTES = 64 * 1024 * 1024

_log = logs.get("cowboy.runner_client")


class RunnerClient:
    """Talks to the runner of one agent.

    All callbacks run in the event loop and must not block. ``on_connected`` is called after the
    runner answered the hello, ``on_lost`` once for each ``on_connected`` when that connection
    ends, `run` being cancelled included. No event is delivered outside of the two.
    """

    def __init__(
        self,
        path: Path,
        agent: str,
        ledger: str,
        on_event: Callable[[RunnerEvent], None],
        on_connected: Callable[[], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._path = path
        self._hello = Hello(domain.PROTOCOL_VERSION, agent, ledger)
        self._on_event = on_event
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._connection: _Connection | None = None

    @property
    def connected(self) -> bool:
        """Whether a runner has answered the hello on a connection that is still open."""
        return self._connection is not None

    @property
    def runner_id(self) -> str | None:
        """The id of the connected runner process; another id means that the former one died."""
        return None if self._connection is None else self._connection.runner_id

    async def run(self) -> None:
        """Connects, and connects again with back-off, until cancelled."""
        backoff = Backoff(
            initial_s=RETRY_INITIAL_S,
            max_s=RETRY_MAX_S,
            factor=2.0,
            jitter=0.1,
            rng=random.Random(),
        )
        while True:
            if await self._serve_once():
                backoff.reset()
            await asyncio.sleep(backoff.next_s())

    def prepare(self, request: PrepareRequest) -> bool:
        """False when not connected. Raises `FrameError` when the request fits no frame."""
        return self._send(request)

    def go(self, turn: str, attempt: int) -> bool:
        return self._send(domain.Go(turn, attempt))

    def query(self, turns: Iterable[tuple[str, int]]) -> bool:
        """Each turn is answered by one `RunState`, in order."""
        asked = list(turns)
        step = domain.QUERY_MAX_TURNS
        chunks = [tuple(asked[at : at + step]) for at in range(0, len(asked), step)]
        return all(self._send(domain.Query(chunk)) for chunk in chunks) and self.connected

    def kill(self, turn: str, attempt: int, reason: str) -> bool:
        return self._send(domain.Kill(turn, attempt, reason))

    def forget(self, turn: str, attempt: int) -> bool:
        return self._send(domain.Forget(turn, attempt))

    def _send(self, request: Request) -> bool:
        frame = domain.encode_request(request)
        return self._connection is not None and self._connection.send(frame)

    async def _serve_once(self) -> bool:
        """One connection from connect to loss; true when the hello was answered."""
        loop = asyncio.get_running_loop()
        connection = _Connection(self._welcomed, self._on_event)
        try:
            await loop.create_unix_connection(lambda: connection, str(self._path))
        except OSError as error:
            _log.debug("runner_unreachable", path=str(self._path), errno=error.errno)
            return False
        try:
            connection.send(domain.encode_request(self._hello))
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                await connection.answered.wait()
            await connection.lost.wait()
        except TimeoutError:
            _log.warning("runner_hello_timeout", path=str(self._path), timeout_s=HELLO_TIMEOUT_S)
        finally:
            connection.abort()
            self._disconnected(connection)
            await connection.lost.wait()
        return connection.runner_id is not None

    def _welcomed(self, connection: "_Connection") -> None:
        self._connection = connection
        _log.info("runner_connected", runner=connection.runner_id)
        self._on_connected()

    def _disconnected(self, connection: "_Connection") -> None:
        if self._connection is not connection:
            return
        self._connection = None
        _log.warning("runner_lost", runner=connection.runner_id)
        self._on_lost()


class _Connection(asyncio.Protocol):
    def __init__(
        self,
        on_welcome: Callable[["_Connection"], None],
        on_event: Callable[[RunnerEvent], None],
    ) -> None:
        self._on_welcome = on_welcome
        self._on_event = on_event
        self._frames = FrameSplitter(domain.FRAME_MAX_BYTES)
        self._transport: asyncio.Transport | None = None
        self._open = False
        self.runner_id: str | None = None
        self.answered = asyncio.Event()
        self.lost = asyncio.Event()

    def send(self, frame: bytes) -> bool:
        if not self._open or self._transport is None:
            return False
        self._transport.write(frame)
        if self._transport.get_write_buffer_size() > SEND_BUFFER_MAX_BYTES:
            _log.error("runner_not_reading", buffered_bytes=SEND_BUFFER_MAX_BYTES)
            self.abort()
        return self._open

    def abort(self) -> None:
        self._open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open = True

    def data_received(self, data: bytes) -> None:
        try:
            for line in self._frames.feed(data):
                if not self._open:
                    return
                self._event(domain.decode_event(line))
        except FrameError as error:
            _log.error("runner_frame_invalid", error=str(error))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._open = False
        self.answered.set()
        self.lost.set()

    def _event(self, event: domain.Event) -> None:
        match event:
            case Welcome(protocol, runner, _):
                if protocol != domain.PROTOCOL_VERSION:
                    raise FrameError(f"the runner speaks protocol {protocol}")
                if self.runner_id is not None:
                    raise FrameError("a second answer to the hello")
                self.runner_id = runner
                self.answered.set()
                self._on_welcome(self)
            case Rejected(reason):
                _log.error("runner_rejected", reason=reason)
                self.abort()
            case _ if self.runner_id is not None:
                self._on_event(event)
            case _:
                raise FrameError("an event before the answer to the hello")
