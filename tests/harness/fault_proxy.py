"""A proxy between an HTTP client and its server that holds, cuts, drops, and counts.

For Unix sockets and TCP. It knows nothing of HTTP but where a request begins: a rule is for the
connections on which a needle was seen in what the client sent, and cuts are counted in bytes, so
every boundary of a request or an answer can be hit.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tests.harness.listener import Listener

CHUNK_BYTES = 1 << 16


class Fault(StrEnum):
    """What becomes of a connection once the rule's needle was seen in what the client sent."""

    CUT_REQUEST = "cut request"  # after `after_bytes` of the bytes with the needle
    DROP_ANSWER = "drop answer"  # the server gets all of it; then the connection is cut
    CUT_ANSWER = "cut answer"  # after `after_bytes` of what the server answers
    HOLD_REQUEST = "hold request"  # nothing is passed on until `release`
    HOLD_ANSWER = "hold answer"  # the server gets it; its answer waits for `release`


@dataclass
class Rule:
    needle: bytes
    fault: Fault
    after_bytes: int = 0
    times: int = 1
    hits: int = 0


@dataclass(frozen=True)
class Place:
    """A Unix socket, or a port of loopback."""

    path: Path | None = None
    port: int = 0

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.path is not None:
            return await asyncio.open_unix_connection(str(self.path))
        return await asyncio.open_connection("127.0.0.1", self.port)


class FaultProxy(Listener):
    """`async with FaultProxy(Place(path=server), Place(path=here)) as proxy`.

    With `Place()` to listen at, a free port is taken: `proxy.port`.
    """

    def __init__(self, server: Place, here: Place) -> None:
        super().__init__()
        self._server = server
        self._here = here
        self._rules: list[Rule] = []
        self._released = asyncio.Event()
        self.port = 0
        self.connections = 0
        self.client_bytes = 0  # as they came from the client, passed on or not

    async def _listen(self) -> asyncio.Server:
        if self._here.path is not None:
            return await asyncio.start_unix_server(self._accept, str(self._here.path))
        listener = await asyncio.start_server(self._accept, "127.0.0.1", self._here.port)
        self.port = listener.sockets[0].getsockname()[1]
        return listener

    def arm(self, needle: bytes, fault: Fault, *, after_bytes: int = 0, times: int = 1) -> Rule:
        """The rule for the next `times` connections with the needle; `hits` counts them."""
        rule = Rule(needle, fault, after_bytes, times)
        self._rules.append(rule)
        self._released.clear()
        return rule

    def release(self) -> None:
        """What is held goes on."""
        self._released.set()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        super()._accept(reader, writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        try:
            from_server, to_server = await self._server.connect()
            ends.append(to_server)
            await _Link(self._judge, self._released).run((reader, writer), (from_server, to_server))
        except OSError:
            pass  # one side is not there any more: the other one sees its connection end
        finally:
            for end in ends:
                end.transport.abort()

    def _judge(self, data: bytes) -> Rule | None:
        self.client_bytes += len(data)
        for rule in self._rules:
            if rule.hits < rule.times and rule.needle in data:
                rule.hits += 1
                return rule
        return None


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection through the proxy."""

    def __init__(self, judge: Callable[[bytes], Rule | None], released: asyncio.Event) -> None:
        self._judge = judge
        self._released = released
        self._rule: Rule | None = None
        self._answered = 0

    async def run(self, client: Ends, server: Ends) -> None:
        pumps = [
            asyncio.ensure_future(self._requests(client[0], server[1])),
            asyncio.ensure_future(self._answers(server[0], client[1])),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            self._rule = self._rule or self._judge(data)
            if self._rule and self._rule.fault is Fault.CUT_REQUEST:
                writer.write(data[: self._rule.after_bytes])
                await writer.drain()
                return
            if self._rule and self._rule.fault is Fault.HOLD_REQUEST:
                await self._released.wait()
            writer.write(data)
            await writer.drain()

    async def _answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            fault = self._rule.fault if self._rule else None
            if fault is Fault.DROP_ANSWER:
                return
            if fault is Fault.HOLD_ANSWER:
                await self._released.wait()
            if self._rule and fault is Fault.CUT_ANSWER:
                kept = data[: max(0, self._rule.after_bytes - self._answered)]
                self._answered += len(data)
                writer.write(kept)
                await writer.drain()
                if len(kept) < len(data):
                    return
                continue
            writer.write(data)
            await writer.drain()
