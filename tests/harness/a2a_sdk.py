"""An agent built with the official A2A SDK: `PYTHON -P a2a_sdk.py SOCKET [--compat] [--log FILE]`.

Runs in the environment of one of the SDK's releases, 1.x or 0.3, and knows which; so it imports
nothing of this repository. `--compat` (1.x) lets the SDK serve the older protocol as well. FILE
gets the id of each message whose execution begins, a line each, before anything is done. The first
word of a message is what the agent does:

| word | |
| --- | --- |
| `say` | works, then completes with the rest as its status message |
| `artifact` | completes with the rest as a text artifact, a file and data |
| `message` | answers with a message, without a task |
| `ask` | asks for input, and completes with what it is given |
| `work` | works until it is canceled |
| `login`, `fail`, `reject`, `crash` | ends in that way |
"""

import argparse
import asyncio
import importlib.metadata
import os
import uuid
from typing import Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater

IS_1 = importlib.metadata.version("a2a-sdk").startswith("1.")
FILE = b"\x89PNG\r\n\x1a\n made up"


class Scripted(AgentExecutor):  # type: ignore[misc]  # not installed where types are checked
    """Does what the message says."""

    def __init__(self, log: str | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        self._log = None if log is None else os.open(log, flags, 0o600)

    async def execute(self, context: Any, event_queue: Any) -> None:
        if self._log is not None:
            os.write(self._log, f"{context.message.message_id}\n".encode())
        word, _, rest = context.get_user_input().partition(" ")
        if word == "message":
            await event_queue.enqueue_event(agent_message(rest, context.context_id))
            return
        if context.current_task is None:
            await event_queue.enqueue_event(new_task(context))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is not None:
            await updater.complete(text_message(updater, f"got {context.get_user_input()}"))
            return
        await updater.start_work()
        await self._act(word, rest, updater)

    async def _act(self, word: str, rest: str, updater: Any) -> None:
        match word:
            case "artifact":
                parts = [text_part(rest), file_part(), data_part({"rest": rest})]
                await updater.add_artifact(parts, name="result")
                await updater.complete()
            case "ask":
                await updater.requires_input(text_message(updater, rest))
            case "login":
                await updater.requires_auth(text_message(updater, rest))
            case "fail":
                await updater.failed(text_message(updater, rest))
            case "reject":
                await updater.reject(text_message(updater, rest))
            case "work":
                await asyncio.Event().wait()
            case "crash":
                raise RuntimeError(rest)
            case _:
                await updater.complete(text_message(updater, rest))

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def text_message(updater: Any, text: str) -> Any:
    return updater.new_agent_message([text_part(text)])


# ---- what differs between the releases ------------------------------------------------------


def text_part(text: str) -> Any:
    if IS_1:
        from a2a.types import Part

        return Part(text=text)
    from a2a.types import Part, TextPart

    return Part(root=TextPart(text=text))


def file_part() -> Any:
    if IS_1:
        from a2a.types import Part

        return Part(raw=FILE, media_type="image/png", filename="picture.png")
    import base64

    from a2a.types import FilePart, FileWithBytes, Part

    encoded = base64.b64encode(FILE).decode()
    file = FileWithBytes(bytes=encoded, mime_type="image/png", name="picture.png")
    return Part(root=FilePart(file=file))


def data_part(data: dict[str, Any]) -> Any:
    if IS_1:
        from a2a.helpers.proto_helpers import new_data_part

        return new_data_part(data)
    from a2a.types import DataPart, Part

    return Part(root=DataPart(data=data))


def agent_message(text: str, context_id: str) -> Any:
    from a2a.types import Message, Role

    role = Role.ROLE_AGENT if IS_1 else Role.agent
    return Message(
        role=role,
        parts=[text_part(text)],
        message_id=str(uuid.uuid4()),
        context_id=context_id,
    )


def new_task(context: Any) -> Any:
    from a2a.types import Task, TaskState, TaskStatus

    submitted = TaskState.TASK_STATE_SUBMITTED if IS_1 else TaskState.submitted
    return Task(
        id=context.task_id,
        context_id=context.context_id,
        status=TaskStatus(state=submitted),
        history=[context.message],
    )


def app_1(scripted: Scripted, *, compat: bool) -> Any:
    from a2a.server.routes.agent_card_routes import create_agent_card_routes
    from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
    from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
    from starlette.applications import Starlette

    versions = ["1.0", "0.3"] if compat else ["1.0"]
    card = AgentCard(
        name="scripted",
        description="does what it is told",
        version="1",
        supported_interfaces=[
            AgentInterface(
                url="http://localhost/rpc", protocol_binding="JSONRPC", protocol_version=one
            )
            for one in versions
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="do", description="does", tags=["test"])],
    )
    handler = DefaultRequestHandler(scripted, InMemoryTaskStore(), card)
    routes = create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=compat)
    return Starlette(routes=[*create_agent_card_routes(card), *routes])


def app_03(scripted: Scripted) -> Any:
    from a2a.server.apps import A2AStarletteApplication
    from a2a.types import AgentCapabilities, AgentCard, AgentSkill

    card = AgentCard(
        name="scripted",
        description="does what it is told",
        version="1",
        url="http://localhost/rpc",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="do", name="do", description="does", tags=["test"])],
    )
    handler = DefaultRequestHandler(scripted, InMemoryTaskStore())
    return A2AStarletteApplication(card, handler).build(rpc_url="/rpc")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("--compat", action="store_true")
    parser.add_argument("--log")
    arguments = parser.parse_args()
    scripted = Scripted(arguments.log)
    app = app_1(scripted, compat=arguments.compat) if IS_1 else app_03(scripted)
    uvicorn.run(app, uds=arguments.socket, log_level="warning")


if __name__ == "__main__":
    main()
