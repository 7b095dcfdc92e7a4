"""Scenarios about files: their modes under an open umask; a kill without close."""

import asyncio
import os
import signal
import stat
import sys
from pathlib import Path

from tests.unit.core.child import say
from tests.unit.core.databases import insert, writer


async def modes(path: Path) -> None:
    os.umask(0)
    async with writer(path):
        say({item.name: oct(stat.S_IMODE(item.stat().st_mode)) for item in path.parent.iterdir()})


async def killed_after_writing(path: Path, name: str) -> None:
    async with writer(path) as ledger:
        await ledger.submit(insert(name, 100_000))
        os.kill(os.getpid(), signal.SIGKILL)


async def main(scenario: str, path: Path, *arguments: str) -> None:
    if scenario == "modes":
        await modes(path)
    else:
        await killed_after_writing(path, *arguments)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:]))
