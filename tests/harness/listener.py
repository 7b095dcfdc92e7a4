"""What the proxies of the tests share: they listen, serve each connection as a task, end all."""

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Listener(ABC):
    """Use it as an async context manager: it serves until left."""

    def __init__(self) -> None:
        self._links: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @abstractmethod
    async def _listen(self) -> asyncio.Server:
        """Begins to listen, with `_accept` for each connection."""

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end."""

    async def __aenter__(self) -> Self:
        self._listener = await self._listen()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._listener is not None:
            self._listener.close()
        for task in self._links:
            task.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._links.add(task)
        task.add_done_callback(self._links.discard)
