"""Scenario: a process that ends with an open writer and an open reader."""

import asyncio
import sys
from pathlib import Path

from corral.core.sqlite import SqliteReader
from tests.unit.core.child import say
from tests.unit.core.databases import insert, writer

LEFT_OPEN: list[object] = []


async def main(path: Path) -> None:
    ledger = writer(path)
    reader = SqliteReader(path)
    LEFT_OPEN.extend((ledger, reader))
    await ledger.open()
    await ledger.submit(insert("a"))
    await reader.__aenter__()
    say("left open")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
