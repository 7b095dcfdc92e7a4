"""A homeserver and an agent that answer at once: `python -m tests.bench.bridge_sides PORT PORT`.

The homeserver takes whatever a bridge sends and keeps nothing; the agent is the one to try things
with, which also knows `hold`: a call that it never answers. So what is measured is the bridge and
its database.
"""

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable

from aiohttp import web

from corral.local.echo_agent import EchoAgent
from corral.local.synapse import LOOPBACK

HOLD = b'"hold '


class Homeserver:
    """Accounts and devices are there; every send has an event."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{rest:.*}", self._answer)
        return app

    async def _answer(self, request: web.Request) -> web.Response:
        await request.read()
        if "/send/" in request.path:
            return web.json_response({"event_id": f"$sent{next(self._numbers)}"})
        return web.json_response({})


@web.middleware
async def hold(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Whoever asks for it keeps a worker busy, and nobody else."""
    if request.method == "POST" and HOLD in await request.read():
        await asyncio.Event().wait()
    return await handler(request)


async def serve(homeserver_port: int, agent_port: int) -> None:
    """Until it is killed."""
    agent = EchoAgent(f"http://{LOOPBACK}:{agent_port}/")
    agents = agent.application()
    agents.middlewares.append(hold)
    sides = ((Homeserver().application(), homeserver_port), (agents, agent_port))
    for app, port in sides:
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, LOOPBACK, port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
