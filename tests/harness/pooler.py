"""A pooler of transactions between clients and PostgreSQL, as PgBouncer is one.

A client has a connection of the server for a transaction, or for one statement outside of any. What
a session leaves behind in it is found by whoever has it next. A client that goes away within a
transaction takes its server connection with it.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.harness.listener import Listener

CANCEL_REQUEST = 80877102
SETTING = b"jit\0"
ROUND_ENDS = frozenset({b"Q", b"S"})  # then the client waits for ReadyForQuery
READY, LEAVES, IDLE = b"Z", b"X", b"I"


class Pooler(Listener):
    """Listens in `folder` under PostgreSQL's own socket name. `strict`: refuses settings that it
    does not know, as PgBouncer does unless it is told to ignore them."""

    def __init__(self, server: Path, folder: Path, *, strict: bool = False) -> None:
        super().__init__()
        self.folder = folder
        self._server = server
        self._strict = strict
        self.idle: list[_Backend] = []  # the one that was used last is used next

    async def _listen(self) -> asyncio.Server:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = str(self.folder / self._server.name)
        return await asyncio.start_unix_server(self._accept, path)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, trace)
        for one in self.idle:
            one.close()
        await asyncio.sleep(0)  # the loop closes what was aborted

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readexactly(4)
                startup = head + await reader.readexactly(int.from_bytes(head, "big") - 4)
                if int.from_bytes(startup[4:8], "big") == CANCEL_REQUEST:
                    pass
                elif self._strict and SETTING in startup:
                    writer.write(_refusal(b"unsupported startup parameter: jit"))
                    await writer.drain()
                else:
                    await self._client(startup, reader, writer)
        finally:
            writer.transport.abort()

    async def _client(
        self, startup: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first = await self.lend(startup)
        writer.write(first.greeting)
        self.idle.append(first)
        lending = _Lending(self, writer)
        try:
            while True:
                kind, message = await _message(reader)
                if kind == LEAVES:
                    return
                if lending.backend is None:
                    lending.begin(await self.lend(startup))
                lending.ask(kind, message)
        finally:
            await lending.end()

    async def lend(self, startup: bytes) -> "_Backend":
        return self.idle.pop() if self.idle else await _Backend.connect(self._server, startup)


class _Lending:
    """What one client has of the server's connections: none, or one until it is ready again."""

    def __init__(self, pooler: Pooler, client: asyncio.StreamWriter) -> None:
        self.backend: _Backend | None = None
        self._pooler = pooler
        self._client = client
        self._replies: asyncio.Task[None] | None = None
        self._rounds = 0  # that are not answered yet
        self._amid = False  # of a round

    def begin(self, backend: "_Backend") -> None:
        self.backend = backend
        self._replies = asyncio.get_running_loop().create_task(self._pass_on(backend))

    def ask(self, kind: bytes, message: bytes) -> None:
        assert self.backend is not None
        self._amid = kind not in ROUND_ENDS
        self._rounds += not self._amid
        self.backend.writer.write(message)

    async def _pass_on(self, backend: "_Backend") -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                kind, message = await _message(backend.reader)
                self._client.write(message)
                self._rounds -= kind == READY
                if kind == READY and message[-1:] == IDLE and not self._rounds and not self._amid:
                    self.backend = None
                    self._pooler.idle.append(backend)
                    return
        self._client.transport.abort()

    async def end(self) -> None:
        """A client that leaves amid a transaction takes the connection with it."""
        if self._replies is not None:
            self._replies.cancel()
            await asyncio.gather(self._replies, return_exceptions=True)
        if self.backend is not None:
            self.backend.close()


class _Backend:
    """One connection of the server. `greeting`: what it said at its beginning."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.greeting = b""
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, server: Path, startup: bytes) -> "_Backend":
        made = cls(*await asyncio.open_unix_connection(str(server)))
        made.writer.write(startup)
        kind = b""
        while kind != READY:
            kind, message = await _message(made.reader)
            made.greeting += message
        return made

    def close(self) -> None:
        self.writer.transport.abort()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:], "big") - 4)


def _refusal(text: bytes) -> bytes:
    fields = b"SFATAL\0VFATAL\0C08P01\0M" + text + b"\0\0"
    return b"E" + (len(fields) + 4).to_bytes(4, "big") + fields
