"""A plain appservice that stores nothing: `python -m tests.bench.bridge_peer PORT TOKEN`.

What one gets from mautrix with a handler of one line: transactions are answered before their events
were handled, and nothing of them is kept.
"""

import asyncio
import logging
import sys
from typing import Any

from mautrix.appservice import AppService

HOMESERVER = "http://127.0.0.1:1"  # is never called


async def serve(port: int, token: str) -> None:
    """Until it is killed."""
    logging.disable()  # its access log alone would cost a third
    made: Any = AppService(
        HOMESERVER, "corral.test", "as-token", token, bot_localpart="bridge", id="bench"
    )
    seen = 0

    async def handle(_event: Any) -> None:
        nonlocal seen
        seen += 1

    made.matrix_event_handler(handle)
    await made.start("127.0.0.1", port)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2]))
