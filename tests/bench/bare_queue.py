"""A socket server that only inserts: `python -m tests.bench.bare_queue SOCKET DATABASE`.

What a queue on a Unix socket can do in this language with its usual means: a `Protocol` of asyncio
per connection, and a thread that commits what waits as one group. One line in, one row, one line
back after the commit. It checks nothing, and its table has no index.
"""

import asyncio
import json
import sqlite3
import sys
import threading
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

GROUP_MAX = 64
SQL = Path(__file__).with_name("disk.sql")
INSERT = Path(__file__).with_name("bare_queue.sql")

Waiting = tuple[asyncio.Transport, str]


class Writer(threading.Thread):
    """Commits groups, then lets the loop answer."""

    def __init__(self, database: str, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(daemon=True)
        self.queue: SimpleQueue[Waiting] = SimpleQueue()
        self._database = database
        self._loop = loop

    def run(self) -> None:
        conn = sqlite3.connect(self._database, isolation_level=None)
        for statement in SQL.read_text().split(";\n")[:3]:
            conn.execute(statement)
        begin, insert, commit = INSERT.read_text().strip().split(";\n")
        while True:
            group = [self.queue.get()]
            while len(group) < GROUP_MAX:
                try:
                    group.append(self.queue.get_nowait())
                except Empty:
                    break
            conn.execute(begin)
            rows = [conn.execute(insert, (body,)).lastrowid for _, body in group]
            conn.execute(commit)
            self._loop.call_soon_threadsafe(_answer, group, rows)


def _answer(group: list[Waiting], rows: list[int | None]) -> None:
    for (transport, _), row in zip(group, rows, strict=True):
        transport.write(b'{"ok":true,"id":%d}\n' % (row or 0))
        transport.close()


class Connection(asyncio.Protocol):
    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._line = b""

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        self._line += data
        if self._line.endswith(b"\n"):
            self._writer.queue.put((self._transport, json.loads(self._line)["body"]))


async def serve(path: str, database: str) -> None:
    loop = asyncio.get_running_loop()
    writer = Writer(database, loop)
    writer.start()
    server = await loop.create_unix_server(lambda: Connection(writer), path, backlog=1_024)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
