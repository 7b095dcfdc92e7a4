"""The loops that cowboy is compared with: `python -m tests.bench.loops bare|naive`.

`bare` is what a client can do at all: read, add the answers, acknowledge, each a pipeline, with
nothing remembered. `naive` does the same with a ledger as one would write it first: a row before
the answer and an update after it, each message in a commit of its own.
"""

import asyncio
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import redis.asyncio

GROUP = "cowboy"
CONSUMER = "loop"
SQL = Path(__file__).with_name("naive.sql")


def client() -> "redis.asyncio.Redis":
    """One connection to the server of the stand, with the client library's own defaults."""
    return redis.asyncio.Redis(
        unix_socket_path=os.environ["BENCH_SOCKET"],
        username=os.environ["BENCH_USERNAME"],
        password=os.environ["BENCH_PASSWORD"],
        single_connection_client=True,
        socket_timeout=None,
    )


class Ledger:
    """A row per message, a commit per change."""

    def __init__(self, path: str) -> None:
        self._conn = sqlite3.connect(path, isolation_level=None)
        for statement in SQL.read_text().split(";")[:3]:
            self._conn.execute(statement)
        self._insert, self._finish = SQL.read_text().split(";")[3:5]

    def received(self, entry: bytes, content: bytes) -> None:
        self._conn.execute(self._insert, (entry, content))

    def done(self, entry: bytes, answer: bytes) -> None:
        self._conn.execute(self._finish, (answer, entry))


async def serve(ledger: Ledger | None) -> None:
    """Answer each message with itself, until killed."""
    inbox, outbox = os.environ["BENCH_INBOX"], os.environ["BENCH_OUTBOX"]
    count = int(os.environ["BENCH_READ_COUNT"])
    connection: Any = client()
    await connection.xgroup_create(inbox, GROUP, "0", mkstream=True)
    while True:
        read = await connection.xreadgroup(GROUP, CONSUMER, {inbox: ">"}, count=count, block=2000)
        entries = _entries(read)
        if not entries:
            continue
        for entry, fields in entries if ledger else ():
            _received(ledger, entry, fields[b"content"])
        async with connection.pipeline(transaction=False) as pipe:
            for entry, fields in entries:
                pipe.xadd(outbox, {"content": fields[b"content"], "in_reply_to": entry})
                pipe.xack(inbox, GROUP, entry)
            answers = await pipe.execute()
        for (entry, _), answer in zip(entries, answers[::2], strict=True) if ledger else ():
            _done(ledger, entry, answer)


def _received(ledger: Ledger | None, entry: bytes, content: bytes) -> None:
    if ledger is not None:
        ledger.received(entry, content)


def _done(ledger: Ledger | None, entry: bytes, answer: bytes) -> None:
    if ledger is not None:
        ledger.done(entry, answer)


def _entries(read: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """Of a reply over RESP2 or RESP3."""
    if not read:
        return []
    found: Any = next(iter(read.values()))[0] if isinstance(read, dict) else read[0][1]
    return list(found)


def main() -> None:
    ledger = Ledger(os.environ["BENCH_LEDGER"]) if sys.argv[1] == "naive" else None
    asyncio.run(serve(ledger))


if __name__ == "__main__":
    main()
