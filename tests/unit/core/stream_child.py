"""Scenario: sixteen callers who tell every answer as it comes, until somebody kills them."""

import asyncio
import os
import sys
from pathlib import Path

from tests.unit.core.databases import insert, writer

CALLERS = 16


async def main(path: Path) -> None:
    async with writer(path) as ledger:

        async def caller(name: int) -> None:
            for number in range(100_000):
                answer = await ledger.submit(insert(f"{name}.{number}", 500))
                os.write(1, f"{answer}\n".encode())

        await asyncio.gather(*(caller(name) for name in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
