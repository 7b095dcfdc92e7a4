"""A scriptable A2A agent over HTTP, 1.0 and 0.3: `python -m corral.local.a2a_agent LOG`.

Does what a message says (`corral.local.a2a_script`) and logs each call durably
(`corral.local.a2a_tasks`). Prints `listening on URL` once it does; for agents that are reached
over a socket that URL is one of the bridge's own form, `unix:/path:/`.
"""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from corral.bridge.a2a.card import IDEMPOTENT_URI, RETENTION_PARAMETER
from corral.core.clock import wall_ms
from corral.local import a2a_script as script
from corral.local.a2a_script import AgentTask
from corral.local.a2a_tasks import Agent, HttpRefusal, RpcRefusal
from corral.local.wait import until_true

CARD_PATH: Final = "/.well-known/agent-card.json"
BODY_MAX_BYTES: Final = 16 * 1024 * 1024
BLOCK_GRACE_S: Final = 60.0
_OLD_METHODS: Final = {
    "message/send": "SendMessage", "tasks/get": "GetTask", "tasks/cancel": "CancelTask",
}  # fmt: skip


@dataclass(frozen=True)
class Options:
    """How the agent presents itself. `wires` are the protocols that it really speaks."""

    card_version: str = "1.0"
    wires: tuple[str, ...] = ("1.0", "0.3")
    token_file: Path | None = None
    idempotent_s: int | None = None
    card_path: str = CARD_PATH
    rpc_url: str = "/rpc"


class Server:
    """The HTTP side of one agent."""

    def __init__(self, agent: Agent, options: Options) -> None:
        self._agent = agent
        self._options = options

    def app(self) -> web.Application:
        app = web.Application(client_max_size=BODY_MAX_BYTES)
        app.router.add_get(self._options.card_path, self._card)
        app.router.add_post("/rpc", self._rpc)
        return app

    async def _card(self, request: web.Request) -> web.StreamResponse:
        if not self._allowed(request):
            return web.Response(status=401)
        return web.json_response(card(self._options))

    async def _rpc(self, request: web.Request) -> web.StreamResponse:
        if not self._allowed(request):
            return web.Response(status=401)
        call = await request.json()
        old = call["method"] in _OLD_METHODS
        version = request.headers.get("A2A-Version", "0.3")
        try:
            if ("0.3" if old else "1.0") not in self._options.wires:
                raise RpcRefusal(-32601)
            if not old and version != "1.0":
                raise RpcRefusal(-32009)
            method = _OLD_METHODS.get(call["method"], call["method"])
            return await self._answer(request, call, method, old=old)
        except RpcRefusal as refusal:
            error = {"code": refusal.code, "message": "refused"}
            return web.json_response({"jsonrpc": "2.0", "id": call["id"], "error": error})
        except HttpRefusal as refusal:
            return web.Response(status=refusal.status, headers={"Location": "/elsewhere"})

    async def _answer(
        self, request: web.Request, call: dict[str, Any], method: str, *, old: bool
    ) -> web.StreamResponse:
        params = call["params"]
        match method:
            case "SendMessage":
                user = request.headers.get("X-User-Id", "")
                made = self._agent.send(params["message"], user)
                return await self._sent(request, call, made, old=old)
            case "GetTask":
                task = self._agent.get(params["id"])
            case "CancelTask":
                task = self._agent.cancel(params["id"])
            case "ListTasks":
                tasks = self._agent.of_context(params["contextId"])
                history = int(params.get("historyLength", 0))
                shown = [one.shown(wall_ms(), old=False, history=history) for one in tasks]
                return _result(call, {"tasks": shown, "nextPageToken": ""})
            case _:
                raise RpcRefusal(-32601)
        return _result(call, task.shown(wall_ms(), old=old))

    async def _sent(
        self, request: web.Request, call: dict[str, Any], made: AgentTask | str, *, old: bool
    ) -> web.StreamResponse:
        if isinstance(made, str):
            context_id = call["params"]["message"].get("contextId", "")
            message = script.agent_message(made, context_id, old=old)
            return _result(call, message if old else {"message": message})
        match made.order.word:
            case "deaf":
                if request.transport is not None:
                    request.transport.abort()
            case "hang":
                await asyncio.Event().wait()
            case "block":
                ended = lambda: made.state(wall_ms())[0] in script.ENDED  # noqa: E731
                await until_true(ended, made.order.numbers[0] + BLOCK_GRACE_S, "the task's end")
            case "garbage":
                shown = made.shown(wall_ms(), old=old)
                body = script.garbage(made.order.rest, call["id"], shown, old=old)
                return web.Response(body=body, content_type="application/json")
        shown = made.shown(wall_ms(), old=old)
        return _result(call, shown if old else {"task": shown})

    def _allowed(self, request: web.Request) -> bool:
        """The file is read anew each time, as the bridge does: a token may be rotated."""
        if self._options.token_file is None:
            return True
        wanted = self._options.token_file.read_text().strip()
        return request.headers.get("Authorization") == f"Bearer {wanted}"


def card(options: Options) -> dict[str, Any]:
    """The agent card, of either version."""
    extensions = []
    if options.idempotent_s is not None:
        params = {RETENTION_PARAMETER: options.idempotent_s}
        extensions = [{"uri": IDEMPOTENT_URI, "params": params}]
    found: dict[str, Any] = {
        "name": "scripted", "description": "does what it is told", "version": "1",
        "capabilities": {"streaming": False, "extensions": extensions},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
        "skills": [],
    }  # fmt: skip
    if options.card_version.startswith("1"):
        interface = {
            "url": options.rpc_url, "protocolBinding": "JSONRPC",
            "protocolVersion": options.card_version,
        }  # fmt: skip
        return found | {"supportedInterfaces": [interface]}
    return found | {
        "url": options.rpc_url,
        "preferredTransport": "JSONRPC",
        "protocolVersion": options.card_version,
    }


def _result(call: dict[str, Any], result: object) -> web.Response:
    return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": result})


@contextlib.asynccontextmanager
async def serving(
    agent: Agent, options: Options, *, socket: Path | None, port: int
) -> AsyncIterator[str]:
    """Serves meanwhile; gives the URL for the bridge's table of agents."""
    runner = web.AppRunner(Server(agent, options).app(), access_log=None)
    await runner.setup()
    try:
        if socket is not None:
            await web.UnixSite(runner, str(socket)).start()
            yield f"unix:{socket}:/"
        else:
            site = web.TCPSite(runner, "127.0.0.1", port)
            await site.start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


async def _run(arguments: argparse.Namespace) -> None:
    options = Options(
        card_version=arguments.card,
        wires=tuple(arguments.wires.split(",")),
        token_file=arguments.token_file,
        idempotent_s=arguments.idempotent,
        card_path=arguments.card_path,
        rpc_url=arguments.rpc_url,
    )
    agent = Agent(arguments.log, idempotent=arguments.idempotent is not None)
    ended = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, ended.set)
    async with serving(agent, options, socket=arguments.socket, port=arguments.port) as url:
        print(f"listening on {url}", flush=True)
        await ended.wait()
    agent.close()


def main() -> None:
    """Serves until SIGTERM."""
    parser = argparse.ArgumentParser(description="An A2A agent that does what it is told.")
    parser.add_argument("log", type=Path, help="the effect log; tasks are rebuilt from it")
    parser.add_argument("--socket", type=Path, help="listen here; otherwise on loopback")
    parser.add_argument("--port", type=int, default=0, help="on loopback; 0: any that is free")
    parser.add_argument("--card", default="1.0", help="the version that the card declares")
    parser.add_argument("--wires", default="1.0,0.3", help="the versions that are spoken")
    parser.add_argument("--card-path", default=CARD_PATH)
    parser.add_argument("--rpc-url", default="/rpc", help="as the card has it")
    parser.add_argument("--token-file", type=Path, help="a bearer token is asked for")
    parser.add_argument("--idempotent", type=int, metavar="SECONDS", help="declare the extension")
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
