"""Scenario: a writer that is killed at a crash point of its commit."""

import asyncio
import sys
from pathlib import Path

from corral.core import crashpoints
from tests.unit.core.child import say
from tests.unit.core.databases import held, insert, writer


async def main(path: Path, point: str, nth: int) -> None:
    async with writer(path) as ledger:
        crashpoints.arm(point, nth)
        say(await ledger.submit(insert("first")))
        async with held(ledger) as group:
            group.submit(*(insert(f"{number}") for number in range(8)))
        say(await group.outcomes())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
