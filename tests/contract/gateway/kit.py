"""A gateway in this process, and who stands in for the agent.

`answer` makes the calls of the stream's two legs, so that tests of the wire need no Redis; with one
they are in `test_stream.py`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from corral.core import sockets
from corral.gateway.domain import Delivery, Limits, State
from corral.gateway.http import Server, listening
from corral.gateway.service import Gateway

CLIENTS = {"ann": "anns-token", "bob": "bobs-token"}
AGENTS = {"scout": "looks around", "other": "another"}
ENDS = {"say": State.COMPLETED, "ask": State.INPUT_REQUIRED, "fail": State.FAILED}


@contextlib.asynccontextmanager
async def gateway(folder: Path, *, limits: Limits | None = None) -> AsyncIterator[Gateway]:
    """Serves at `folder/socket`, with an agent that answers."""
    async with Gateway(folder / "gateway.db", limits=limits) as found:
        listener, _ = await asyncio.to_thread(sockets.listen, folder / "socket", "socket")
        server = Server(found, agents=AGENTS, clients=CLIENTS)
        agent = asyncio.create_task(answer(found))
        try:
            async with listening(server, listener):
                yield found
        finally:
            agent.cancel()
            await asyncio.gather(agent, return_exceptions=True)


async def answer(found: Gateway) -> None:
    """Passes each message on, and settles its task by the first word."""
    while True:
        await found.work("scout")
        while taken := await found.take("scout", 10):
            for one in taken:
                await found.published(one)
                await settle(found, one)


async def settle(found: Gateway, one: Delivery) -> None:
    word, _, rest = one.text.partition(" ")
    if one.kind == "message" and word in ENDS:
        await found.settle(one.task.task_id, ENDS[word], rest)
