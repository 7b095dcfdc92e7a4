"""The official A2A SDK's client against a server: `PYTHON -P a2a_sdk_client.py SOCKET URL TOKEN`.

Runs in the environment of one of the SDK's releases, 1.x or 0.3, uses the client as its
documentation does, and prints what it saw as one JSON object. The server's agent answers `say X`
with X, asks at `ask X`, fails at `fail X`, and works for ever at `work`.
"""

import asyncio
import importlib.metadata
import json
import sys
import uuid
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory

IS_1 = importlib.metadata.version("a2a-sdk").startswith("1.")


def message(text: str, **ids: Any) -> Any:
    """A message of the user; `ids`: message_id, context_id, task_id."""
    from a2a.types import Message, Part, Role

    ids.setdefault("message_id", uuid.uuid4().hex)
    if IS_1:
        return Message(role=Role.ROLE_USER, parts=[Part(text=text)], **ids)
    from a2a.types import TextPart

    return Message(role=Role.user, parts=[Part(root=TextPart(text=text))], **ids)


class Talk:
    """One client, and what came of each call: state, text and ids in the same words for both."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def events(self, sent: Any) -> list[dict[str, str]]:
        """What `send_message` gave, one after the other."""
        if IS_1:
            from a2a.types import SendMessageRequest

            return [
                seen_1(one)
                async for one in self.client.send_message(SendMessageRequest(message=sent))
            ]
        return [seen_task(task) async for task, _ in self.client.send_message(sent)]

    async def send(self, text: str, **ids: Any) -> dict[str, str]:
        """The last event."""
        return (await self.events(message(text, **ids)))[-1]

    async def get(self, task_id: str) -> dict[str, str]:
        if IS_1:
            from a2a.types import GetTaskRequest

            return seen_task(await self.client.get_task(GetTaskRequest(id=task_id)))
        from a2a.types import TaskQueryParams

        return seen_task(await self.client.get_task(TaskQueryParams(id=task_id)))

    async def cancel(self, task_id: str) -> dict[str, str]:
        if IS_1:
            from a2a.types import CancelTaskRequest

            return seen_task(await self.client.cancel_task(CancelTaskRequest(id=task_id)))
        from a2a.types import TaskIdParams

        return seen_task(await self.client.cancel_task(TaskIdParams(id=task_id)))

    async def follow(self, task_id: str) -> list[dict[str, str]]:
        if IS_1:
            from a2a.types import SubscribeToTaskRequest

            stream = self.client.subscribe(SubscribeToTaskRequest(id=task_id))
            return [seen_1(one) async for one in stream]
        from a2a.types import TaskIdParams

        stream = self.client.resubscribe(TaskIdParams(id=task_id))
        return [seen_task(task) async for task, _ in stream]

    async def history(self, task_id: str, length: int) -> list[str]:
        """The texts of the newest messages of a task."""
        if IS_1:
            from a2a.types import GetTaskRequest

            asked = GetTaskRequest(id=task_id, history_length=length)
            found = (await self.client.get_task(asked)).history
            return [part.text for one in found for part in one.parts]
        from a2a.types import TaskQueryParams

        params = TaskQueryParams(id=task_id, history_length=length)
        history = (await self.client.get_task(params)).history or []
        return [part.root.text for one in history for part in one.parts]

    async def call_me(self, task_id: str) -> None:
        """Asks to be called when the task changes."""
        if IS_1:
            from a2a.types import TaskPushNotificationConfig

            wanted = TaskPushNotificationConfig(task_id=task_id, url="http://localhost/me")
            await self.client.create_task_push_notification_config(wanted)
            return
        from a2a.types import PushNotificationConfig, TaskPushNotificationConfig

        config = PushNotificationConfig(url="http://localhost/me")
        wanted = TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
        await self.client.set_task_callback(wanted)

    async def listed(self, context_id: str, *, page_size: int = 50, **more: Any) -> list[list[str]]:
        """The ids on each page."""
        if not IS_1:
            return []
        from a2a.types import ListTasksRequest

        pages: list[list[str]] = []
        token = ""
        while token or not pages:
            asked = ListTasksRequest(
                context_id=context_id, page_size=page_size, page_token=token, **more
            )
            found = await self.client.list_tasks(asked)
            pages.append([task.id for task in found.tasks])
            token = found.next_page_token
        return pages


def seen_1(event: Any) -> dict[str, str]:
    kind = event.WhichOneof("payload")
    if kind == "task":
        return seen_task(event.task)
    update = event.status_update
    return seen_task(update) | {"task": update.task_id}


def seen_task(task: Any) -> dict[str, str]:
    from a2a.types import TaskState

    state, parts = task.status.state, []
    if task.status.message is not None:
        parts = list(task.status.message.parts)
    name = TaskState.Name(state) if IS_1 else state.value
    return {
        "task": getattr(task, "id", ""),
        "context": task.context_id,
        "state": name.lower().removeprefix("task_state_").replace("_", "-"),
        "text": "".join(part.text if IS_1 else part.root.text for part in parts),
    }


async def refusal(call: Any) -> str:
    """The class of the error that a call ends with."""
    try:
        await call
    except Exception as error:  # whatever the SDK makes of it
        return f"{type(error).__name__}: {error}"
    return ""


async def tell(http: httpx.AsyncClient, url: str) -> dict[str, Any]:
    """Everything, in one go."""
    card = await A2ACardResolver(http, url).get_agent_card()
    factories = {
        name: ClientFactory(ClientConfig(httpx_client=http, **config))
        for name, config in {
            "blocking": {"streaming": False, "polling": False},
            "polling": {"streaming": False, "polling": True},
            "streaming": {"streaming": True},
        }.items()
    }
    talks = {name: Talk(factory.create(card)) for name, factory in factories.items()}
    blocking, polling, streaming = talks["blocking"], talks["polling"], talks["streaming"]
    found: dict[str, Any] = {"name": card.name}
    found["blocking"] = await blocking.send("say grüße", context_id="c-1")
    found["again"] = [await blocking.send("say hi", message_id="m-1") for _ in range(2)]
    found["conflict"] = await refusal(blocking.send("say ho", message_id="m-1"))
    found["asked"] = await blocking.send("ask how many?")
    ids = {"task_id": found["asked"]["task"], "context_id": found["asked"]["context"]}
    found["answered"] = await blocking.send("say seven", **ids)
    found["failed"] = await blocking.send("fail because")
    found["polling"] = await polling.send("work")
    found["working"] = await polling.get(found["polling"]["task"])
    found["canceled"] = await polling.cancel(found["polling"]["task"])
    found["canceled again"] = await refusal(polling.cancel(found["polling"]["task"]))
    found["unknown"] = await refusal(polling.get("nobody's"))
    found["streaming"] = await streaming.events(message("say bit by bit"))
    open_task = await polling.send("work")
    following = asyncio.create_task(streaming.follow(open_task["task"]))
    await asyncio.sleep(0)
    await polling.cancel(open_task["task"])
    found["followed"] = (await following)[-1]
    found["listed"] = await blocking.listed("c-1")
    return found | await tell_more(http, card, talks)


async def tell_more(http: httpx.AsyncClient, card: Any, talks: dict[str, "Talk"]) -> dict[str, Any]:
    """Streams that end with a question or an error, histories, pages, and refusals."""
    blocking, polling, streaming = talks["blocking"], talks["polling"], talks["streaming"]
    found: dict[str, Any] = {}
    found["stream asks"] = await streaming.events(message("ask which?", context_id="c-2"))
    ids = {"task_id": found["stream asks"][0]["task"], "context_id": "c-2"}
    found["stream answered"] = await streaming.events(message("say blue", **ids))
    found["history"] = await blocking.history(ids["task_id"], 3)
    found["stream of nothing"] = await refusal(streaming.follow("nobody's"))
    found["stream conflict"] = await refusal(streaming.send("say other", message_id="m-1"))
    try:
        found["stream over"] = await streaming.follow(ids["task_id"])
    except Exception as error:  # as 1.0 has it
        found["stream over"] = f"{type(error).__name__}: {error}"
    for number in range(2):
        await blocking.send(f"fail {number}", context_id="c-2")
    found["pages"] = await blocking.listed("c-2", page_size=2)
    if IS_1:
        from a2a.types import TaskState

        failed = TaskState.TASK_STATE_FAILED
        found["failed pages"] = await blocking.listed("c-2", status=failed)
    found["called"] = await refusal(polling.call_me(ids["task_id"]))
    for _ in range(5):
        found["full"] = await refusal(polling.send("work"))
    http.headers["Authorization"] = "Bearer wrong"
    found["stranger"] = await refusal(blocking.send("say hi"))
    found["stranger's stream"] = await refusal(streaming.send("say hi"))
    return found


async def main(socket: str, url: str, token: str) -> None:
    transport = httpx.AsyncHTTPTransport(uds=socket)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(transport=transport, headers=headers, timeout=60) as http:
        print(json.dumps(await tell(http, url)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
