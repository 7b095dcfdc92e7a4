"""A proxy between a client and PostgreSQL that cuts a connection after a statement was done.

It reads the client's side of the protocol far enough to know which statement is executed: the SQL
of a prepared one is in its Parse message, its name in each Bind. The rule is for the execution, so
that the server has committed what the client never hears of.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from tests.harness.listener import Listener

CHUNK_BYTES = 1 << 16
READY = b"Z\x00\x00\x00\x05"


class PgProxy(Listener):
    """Listens in `folder` under PostgreSQL's own socket name; one rule at a time."""

    def __init__(self, server: Path, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.cuts = 0
        self._server = server
        self._needle = ""
        self._at_commit = False

    async def _listen(self) -> asyncio.Server:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / self._server.name
        return await asyncio.start_unix_server(self._accept, str(path))

    def arm(self, needle: str, *, at_commit: bool = False) -> None:
        """The next execution of a statement that contains `needle` is done, then cut.

        `at_commit`: not that one, but the COMMIT that follows on the same connection.
        """
        self._needle, self._at_commit = needle, at_commit

    def judge(self, link: "_Link", sql: str) -> bool:
        if link.cut_commit and "COMMIT" in sql:
            self.cuts += 1
            return True
        if not self._needle or self._needle not in sql:
            return False
        self._needle = ""
        link.cut_commit = self._at_commit
        self.cuts += not self._at_commit
        return not self._at_commit

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server: asyncio.StreamWriter | None = None
        try:
            from_server, to_server = await asyncio.open_unix_connection(str(self._server))
            link = _Link(self, reader, to_server)
            replies = asyncio.ensure_future(_replies(link, from_server, writer))
            requests = asyncio.ensure_future(link.requests())
            await asyncio.wait([replies, requests], return_when=asyncio.FIRST_COMPLETED)
            for one in (replies, requests):
                one.cancel()
            await asyncio.gather(replies, requests, return_exceptions=True)
        except OSError:
            pass  # the server is not there
        finally:
            for end in (writer, to_server):
                if end is not None:
                    end.transport.abort()


class _Link:
    """What one client sends, message by message."""

    def __init__(
        self, proxy: PgProxy, client: asyncio.StreamReader, server: asyncio.StreamWriter
    ) -> None:
        self.cut = False
        self.cut_commit = False
        self._proxy = proxy
        self._client = client
        self._server = server
        self._named: dict[str, str] = {}

    async def requests(self) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await self._client.readexactly(4)  # the first message has no type
            first = head + await self._client.readexactly(int.from_bytes(head, "big") - 4)
            self._server.write(first)
            while True:
                head = await self._client.readexactly(5)
                body = await self._client.readexactly(int.from_bytes(head[1:], "big") - 4)
                if self._executes(head[:1], body):
                    self.cut = True
                self._server.write(head + body)
                await self._server.drain()

    def _executes(self, kind: bytes, body: bytes) -> bool:
        match kind:
            case b"P":
                name, sql = body.split(b"\0")[:2]
                self._named[name.decode()] = sql.decode()
            case b"B":
                name = body.split(b"\0")[1]
                return self._proxy.judge(self, self._named.get(name.decode(), ""))
            case b"Q":
                return self._proxy.judge(self, body.rstrip(b"\0").decode())
        return False


async def _replies(link: _Link, server: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await server.read(CHUNK_BYTES):
            if link.cut:
                # All that was asked is done once the server is ready for more.
                while READY not in data and (more := await server.read(CHUNK_BYTES)):
                    data = data[-len(READY) :] + more
                return
            client.write(data)
            await client.drain()
