"""A proxy between a client and a server on Unix sockets that cuts, tears or holds what passes."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from tests.harness.listener import Listener

CHUNK_BYTES = 1 << 16


class Cut(StrEnum):
    """What becomes of the bytes of a command in which the needle was seen."""

    BEFORE = "before"  # the connection is cut, the server sees nothing of it
    TORN = "torn"  # the server sees half of it, then the connection is cut
    AFTER = "after"  # the server does it, its answer is cut off
    TORN_REPLY = "torn reply"  # the server does it, half of its answer arrives
    HOLD = "hold"  # nothing is passed on until `release`, even when the client has gone


class Proxy(Listener):
    """Listens at `path`, connects to `server`. One rule at a time, for the next `times` matches."""

    def __init__(self, server: Path, path: Path) -> None:
        super().__init__()
        self.path = path
        self.cuts = 0
        self._server = server
        self._needle: bytes | None = None
        self._cut = Cut.BEFORE
        self._times = 0
        self._held: list[Link] = []

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_unix_server(self._accept, str(self.path))

    def arm(self, needle: bytes, cut: Cut, times: int = 1) -> None:
        """The next `times` commands that contain `needle` are cut."""
        self._needle, self._cut, self._times = needle, cut, times

    @property
    def holds(self) -> int:
        """Commands that are held back."""
        return len(self._held)

    async def release(self) -> bytes:
        """Gives the held bytes to the server now; what it answered to all of them."""
        answers = b""
        for link in self._held:
            answers += await link.release()
        self._held.clear()
        return answers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server: asyncio.StreamWriter | None = None
        try:
            from_server, to_server = await asyncio.open_unix_connection(str(self._server))
            await Link(self._judge, (reader, writer), (from_server, to_server)).run()
        except OSError:
            pass  # the server is not there: the client sees its connection end
        finally:
            for end in (writer, to_server):
                if end is not None:
                    end.transport.abort()

    def _judge(self, link: "Link", data: bytes) -> Cut | None:
        if self._times <= 0 or self._needle is None or self._needle not in data:
            return None
        self._times -= 1
        self.cuts += 1
        if self._cut is Cut.HOLD:
            self._held.append(link)
        return self._cut


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Judge = Callable[["Link", bytes], Cut | None]


class Link:
    """One connection through the proxy."""

    def __init__(self, judge: Judge, client: Ends, server: Ends) -> None:
        self._judge = judge
        self._client, self._server = client, server
        self._reply: Cut | None = None  # what becomes of the next bytes that the server sends
        self._kept = b""
        self._over = asyncio.Event()
        self._answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Passes bytes on until one side ends or a cut ends it."""
        pumps = [asyncio.ensure_future(self._requests()), asyncio.ensure_future(self._replies())]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(self) -> None:
        with suppress(OSError):
            while data := await self._client[0].read(CHUNK_BYTES):
                cut = self._reply = self._judge(self, data)
                if cut is Cut.BEFORE:
                    return
                if cut is Cut.HOLD:
                    self._kept = data
                    await self._over.wait()
                    return
                self._server[1].write(data[: len(data) // 2] if cut is Cut.TORN else data)
                await self._server[1].drain()
                if cut is Cut.TORN:
                    return

    async def _replies(self) -> None:
        with suppress(OSError):
            while data := await self._server[0].read(CHUNK_BYTES):
                if self._reply is Cut.HOLD:
                    self._answer.set_result(data)
                    self._over.set()
                if self._reply in {Cut.HOLD, Cut.AFTER}:
                    return
                torn = self._reply is Cut.TORN_REPLY
                self._client[1].write(data[: len(data) // 2] if torn else data)
                await self._client[1].drain()
                if torn:
                    return

    async def release(self) -> bytes:
        """The held bytes go to the server; its answer, which the client never sees."""
        self._server[1].write(self._kept)
        await self._server[1].drain()
        return await self._answer
