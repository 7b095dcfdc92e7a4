"""A scripted Matrix client: what a person does in a room, and what they see there.

It speaks the client API with nothing between, so that a test sees the events as a homeserver sends
them. Not encrypted rooms.
"""

import contextlib
import itertools
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import quote

import aiohttp

from corral.core.errors import UnavailableError
from corral.local import wait

ANSWER_TIMEOUT_S = 60.0
SYNC_WAIT_MS = 1000
Event = dict[str, Any]
T = TypeVar("T")
SERVER_TROUBLE = 500  # and above: of the HTTP status
TOO_MANY = 429
# A homeserver that is being started again is neither a refusal nor an answer.
TROUBLE = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class MatrixError(UnavailableError):
    """The homeserver said no: `status` and `errcode` are its own words."""

    code = "matrix_refused"

    def __init__(self, what: str, status: int, errcode: str) -> None:
        super().__init__(f"{what}: HTTP {status} {errcode}")
        self.status = status
        self.errcode = errcode


@dataclass
class Person:
    """One user of the homeserver at `url`, logged in by `register` or `login`.

    Use it as a context manager: it owns a connection pool. `timeline` has, by room, every event
    that `sync` brought, in order.
    """

    url: str
    localpart: str
    user_id: str = ""
    token: str = field(default="", repr=False)
    timeline: dict[str, list[Event]] = field(default_factory=dict)
    since: str | None = None
    _http: aiohttp.ClientSession | None = field(default=None, repr=False)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count, repr=False)

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=ANSWER_TIMEOUT_S)
        self._http = aiohttp.ClientSession(timeout=timeout)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._http is not None:
            await self._http.close()

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One request below `/_matrix/client/v3`; `MatrixError` unless it was answered 2xx."""
        if self._http is None:
            raise UnavailableError(f"{self.localpart} is not entered as a context manager")
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = None if body is None else json.dumps(body)
        url = f"{self.url}/_matrix/client/v3{path}"
        async with self._http.request(
            method, url, data=data, params=query, headers=headers
        ) as response:
            answer: dict[str, Any] = await response.json(content_type=None)
            if response.status >= 300:
                raise MatrixError(f"{method} {path}", response.status, answer.get("errcode", ""))
            return answer

    # ------------------------------------------------------------ account

    async def register(self, password: str | None = None) -> None:
        body = {
            "username": self.localpart,
            "password": password or secrets.token_hex(16),
            "auth": {"type": "m.login.dummy"},
        }
        self._logged_in(await self.call("POST", "/register", body))

    async def login(self, password: str) -> None:
        identifier = {"type": "m.id.user", "user": self.localpart}
        body = {"type": "m.login.password", "identifier": identifier, "password": password}
        self._logged_in(await self.call("POST", "/login", body))

    def _logged_in(self, answer: Mapping[str, Any]) -> None:
        self.user_id, self.token = answer["user_id"], answer["access_token"]

    # ------------------------------------------------------------ rooms

    async def create_room(self, name: str = "", invite: Sequence[str] = (), **more: Any) -> str:
        body = {"name": name, "preset": "private_chat", "invite": list(invite), **more}
        room_id: str = (await self.call("POST", "/createRoom", body))["room_id"]
        return room_id

    async def invite(self, room_id: str, user_id: str) -> None:
        await self.call("POST", f"/rooms/{quote(room_id)}/invite", {"user_id": user_id})

    async def join(self, room_id: str) -> None:
        await self.call("POST", f"/join/{quote(room_id)}", {})

    async def members(self, room_id: str) -> dict[str, str]:
        """The membership of every user that has one."""
        answer = await self.call("GET", f"/rooms/{quote(room_id)}/members")
        return {one["state_key"]: one["content"]["membership"] for one in answer["chunk"]}

    async def state(self, room_id: str, kind: str) -> dict[str, Any]:
        return await self.call("GET", f"/rooms/{quote(room_id)}/state/{quote(kind)}")

    # ------------------------------------------------------------ speaking

    async def send(
        self,
        room_id: str,
        content: Mapping[str, Any],
        kind: str = "m.room.message",
        txn: str | None = None,
    ) -> str:
        """Under the same `txn` it is the same event, however often it is sent."""
        number = txn or f"p{next(self._numbers)}"
        path = f"/rooms/{quote(room_id)}/send/{quote(kind)}/{quote(number)}"
        event_id: str = (await self.call("PUT", path, content))["event_id"]
        return event_id

    async def say(
        self,
        room_id: str,
        text: str,
        *,
        mention: Sequence[str] = (),
        reply_to: str | None = None,
        thread: str | None = None,
        txn: str | None = None,
    ) -> str:
        """A text message, as current clients send it: who is mentioned stands in `m.mentions`."""
        content: Event = {"msgtype": "m.text", "body": text, "m.mentions": {}}
        if mention:
            content["m.mentions"] = {"user_ids": list(mention)}
        relation: Event = {}
        if thread is not None:
            relation |= {"rel_type": "m.thread", "event_id": thread}
        if reply_to is not None:
            relation["m.in_reply_to"] = {"event_id": reply_to}
        if relation:
            content["m.relates_to"] = relation
        return await self.send(room_id, content, txn=txn)

    async def edit(
        self, room_id: str, event_id: str, text: str, mention: Sequence[str] = ()
    ) -> str:
        new: Event = {"msgtype": "m.text", "body": text, "m.mentions": {"user_ids": list(mention)}}
        relation = {"rel_type": "m.replace", "event_id": event_id}
        return await self.send(
            room_id, {**new, "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        )

    async def react(self, room_id: str, event_id: str, key: str) -> str:
        relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        return await self.send(room_id, {"m.relates_to": relation}, "m.reaction")

    async def redact(self, room_id: str, event_id: str) -> str:
        path = f"/rooms/{quote(room_id)}/redact/{quote(event_id)}/p{next(self._numbers)}"
        redaction_id: str = (await self.call("PUT", path, {}))["event_id"]
        return redaction_id

    # ------------------------------------------------------------ seeing

    async def sync(self, wait_ms: int = SYNC_WAIT_MS) -> None:
        """Adds what is new to `timeline`; waits up to `wait_ms` when nothing is."""
        query = {"timeout": str(wait_ms if self.since else 0)}
        query["filter"] = json.dumps({"room": {"timeline": {"limit": 500}}})
        if self.since:
            query["since"] = self.since
        answer = await self.call("GET", "/sync", query=query)
        for room_id, room in answer.get("rooms", {}).get("join", {}).items():
            self.timeline.setdefault(room_id, []).extend(room["timeline"]["events"])
        self.since = answer["next_batch"]

    async def until(
        self, room_id: str, wanted: Callable[[Event], bool], what: str, timeout_s: float = 60.0
    ) -> Event:
        """The first event of the room, seen already or yet to come, that is wanted."""

        async def look() -> Event | None:
            for event in self.timeline.get(room_id, []):
                if wanted(event):
                    return event
            # A client goes on when its homeserver was restarted.
            with contextlib.suppress(aiohttp.ClientError):
                await self.sync()
            return None

        found = await wait.until_async(look, timeout_s, what)
        if found is None:
            raise UnavailableError(f"nothing was found: {what}")
        return found

    async def history(self, room_id: str) -> list[Event]:
        """Every message-like event of the room that the homeserver has, oldest first."""
        found: list[Event] = []
        query = {"dir": "b", "limit": "500"}
        while True:
            answer = await self.call("GET", f"/rooms/{quote(room_id)}/messages", query=query)
            found += answer["chunk"]
            if not answer["chunk"] or "end" not in answer:
                return [event for event in reversed(found) if "state_key" not in event]
            query["from"] = answer["end"]


# ---- what clients read of events, and what they live with --------------------------------------


def replies_to(event: Mapping[str, Any]) -> str:
    """The event that this one replies to; empty when it is no reply."""
    relation = event.get("content", {}).get("m.relates_to", {})
    return str(relation.get("m.in_reply_to", {}).get("event_id", ""))


def shown(event: Mapping[str, Any]) -> str:
    """The text of an event; of an edit, what it is then."""
    content = event.get("content", {})
    return str(content.get("m.new_content", content).get("body", ""))


async def unless_down(call: Awaitable[T]) -> T | None:
    """None for what a client meets while its homeserver is down: it tries again.

    `MatrixError` for a refusal that is not for the moment only.
    """
    try:
        return await call
    except MatrixError as error:
        if error.status < SERVER_TROUBLE and error.status != TOO_MANY:
            raise
    except TROUBLE:
        pass
    return None
