"""The homeserver as the ledger's side sees it: `corral.bridge.ports.Rooms` over mautrix.

Each ghost is registered once and has one device. The device matters: a homeserver remembers a
transaction id across its own restart only for a device that exists, and without it a repeated
send makes a second event. Nothing is retried here but what cannot do harm: a ghost that is not in
the room joins and tries once more.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aiohttp
from mautrix.api import Method
from mautrix.errors import MatrixConnectionError

from corral.bridge.matrix import news
from corral.bridge.matrix.api import Api, HomeserverError
from corral.bridge.matrix.contents import OUR_ID
from corral.bridge.ports import (
    AuthFailed,
    Content,
    FindEventAnswer,
    Forbidden,
    Found,
    JoinAnswer,
    Joined,
    Limited,
    Pins,
    PinsAnswer,
    PostAnswer,
    Sent,
    TooLarge,
    Unreachable,
    UploadAnswer,
    Uploaded,
)
from corral.core import logs

DEVICE_ID: Final = "CORRALBRIDGE"
CONNECT_TIMEOUT_S: Final = 10.0
FIND_PAGES_MAX: Final = 100  # of the ghost's own messages
SYNC_NONCES: Final = 1_000_000_000  # in place of a timeout, which a first sync does not have
_CLIENT: Final = "_matrix/client/v3"
_AUTH_ERRCODES: Final = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})

_log = logs.get(__name__)
Problem = Limited | TooLarge | Forbidden | Unreachable | AuthFailed
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class Options:
    """`ghosts`: agent's key to local part. `homeserver` is the base URL of its client API."""

    homeserver: str
    server_name: str
    appservice_id: str
    as_token: str = field(repr=False)
    ghosts: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # agent's key to display name
    timeout_s: float = 60.0
    find_page_events: int = 100


@dataclass(frozen=True)
class Pinged:
    """The homeserver reached us and we it, in milliseconds."""

    duration_ms: int


class MatrixRooms:
    """Use it as a context manager: it owns a connection pool."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._session: aiohttp.ClientSession | None = None
        self._api: Api | None = None
        self._made: set[str] = set()
        self._making = {ghost: asyncio.Lock() for ghost in options.ghosts}

    async def __aenter__(self) -> "MatrixRooms":
        timeout = aiohttp.ClientTimeout(total=self.options.timeout_s, connect=CONNECT_TIMEOUT_S)
        self._session = aiohttp.ClientSession(timeout=timeout)
        self._api = Api(self.options.homeserver, self.options.as_token, self._session)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def user_id(self, ghost: str) -> str:
        return f"@{self.options.ghosts[ghost]}:{self.options.server_name}"

    # ------------------------------------------------------------ the port

    async def send(
        self, ghost: str, room_id: str, txn_id: str, event_type: str, content: Content
    ) -> PostAnswer:
        """`txn_id` also stands in the content: by it `find` knows the event when homeservers have
        long forgotten their transaction ids."""
        path = f"{_CLIENT}/rooms/{_part(room_id)}/send/{_part(event_type)}/{_part(txn_id)}"
        marked = {**content, OUR_ID: txn_id}
        return await self._in_room(ghost, room_id, lambda: self._post(ghost, path, marked))

    async def join(self, ghost: str, room_id: str) -> JoinAnswer:
        async def ask() -> Joined:
            await self._request(ghost, Method.POST, f"{_CLIENT}/join/{_part(room_id)}")
            return Joined()

        return await self._asked(ghost, ask)

    async def find(self, ghost: str, room_id: str, our_id: str) -> FindEventAnswer:
        async def ask() -> Found:
            return Found(await self._search(ghost, room_id, our_id))

        return await self._asked(ghost, ask)

    async def pins(self, ghost: str, room_id: str) -> PinsAnswer:
        async def ask() -> Pins:
            pinned = (await self._state(ghost, room_id, "m.room.pinned_events")).get("pinned")
            ids = pinned if isinstance(pinned, list) else []
            return Pins(tuple(one for one in ids if isinstance(one, str)))

        return await self._asked(ghost, ask)

    async def set_pins(self, ghost: str, room_id: str, event_ids: Sequence[str]) -> PostAnswer:
        path = f"{_CLIENT}/rooms/{_part(room_id)}/state/m.room.pinned_events/"
        content = {"pinned": list(event_ids)}
        return await self._asked(ghost, lambda: self._post(ghost, path, content))

    async def upload(self, ghost: str, data: bytes, media_type: str, name: str) -> UploadAnswer:
        async def ask() -> Uploaded:
            answer = await self._api_of().request(
                Method.POST,
                "_matrix/media/v3/upload",
                content=data or b"\n",  # mautrix takes an empty body for none
                headers={"Content-Type": media_type},
                query_params=self._as(ghost) | {"filename": name},
            )
            return Uploaded(_string(answer, "content_uri"))

        return await self._asked(ghost, ask)

    async def power_level(self, room_id: str, user: str) -> int | None:
        for ghost in self.options.ghosts:
            levels = await self._asked(ghost, lambda at=ghost: self._levels(at, room_id))  # type: ignore[misc]
            if isinstance(levels, dict):
                return _level(levels, user)
        return None

    # ------------------------------------------------------------ beside the port

    async def prepare(self, ghost: str) -> Problem | None:
        """Registers the ghost and makes its device, unless both are there; None when they are."""
        if ghost in self._made:
            return None
        if ghost not in self._making:  # a job of an agent that the settings no longer name
            return Forbidden("ghost_unknown")
        async with self._making[ghost]:
            if ghost in self._made:
                return None
            try:
                await self._make(ghost)
            except (HomeserverError, MatrixConnectionError, TimeoutError) as error:
                return _problem(error)
            self._made.add(ghost)
        return None

    async def invitations(self, ghost: str) -> Sequence[tuple[str, str]] | Problem:
        """Rooms that the ghost is invited to, and by whom: for what came while nobody listened."""

        async def ask() -> Sequence[tuple[str, str]]:
            # Synapse gives a first sync again for two minutes: no two of ours are the same.
            query = {"timeout": str(time.time_ns() % SYNC_NONCES), "filter": news.ONLY_INVITES}
            answer = await self._request(ghost, Method.GET, f"{_CLIENT}/sync", query=query)
            return news.of("", answer, self.user_id(ghost)).invitations

        return await self._asked(ghost, ask)

    async def look(self, ghost: str, since: str | None) -> news.News | Problem:
        """What a client of the ghost would be told; from the beginning, the newest of each room."""

        async def ask() -> news.News:
            place = {"timeout": str(time.time_ns() % SYNC_NONCES)}
            if since is not None:
                place = {"timeout": "0", "since": since}
            query = {**place, "filter": news.ONLY_MESSAGES}
            answer = await self._request(ghost, Method.GET, f"{_CLIENT}/sync", query=query)
            return news.of(_string(answer, "next_batch"), answer, self.user_id(ghost))

        return await self._asked(ghost, ask)

    async def ping(self, txn_id: str) -> Pinged | Problem:
        """Asks the homeserver to call us: a queue that it holds back is flushed at once."""
        path = f"_matrix/client/v1/appservice/{_part(self.options.appservice_id)}/ping"
        try:
            answer = await self._api_of().request(
                Method.POST, path, content={"transaction_id": txn_id}
            )
        except (HomeserverError, MatrixConnectionError, TimeoutError) as error:
            return _problem(error)
        duration = answer.get("duration_ms") if isinstance(answer, dict) else None
        return Pinged(duration if isinstance(duration, int) else 0)

    async def whoami(self) -> str | Problem:
        """The user id that our token stands for."""
        try:
            answer = await self._api_of().request(Method.GET, f"{_CLIENT}/account/whoami")
            return _string(answer, "user_id")
        except (HomeserverError, MatrixConnectionError, TimeoutError) as error:
            return _problem(error)

    async def may_speak(self, ghost: str, room_id: str) -> bool | Problem:
        """Whether the ghost's power level is enough for a message; `Forbidden`: not in the room."""
        levels = await self._asked(ghost, lambda: self._levels(ghost, room_id))
        if not isinstance(levels, dict):
            return levels
        needed = _object(levels.get("events")).get("m.room.message", levels.get("events_default"))
        return _level(levels, self.user_id(ghost)) >= (needed if isinstance(needed, int) else 0)

    # ------------------------------------------------------------ requests

    async def _in_room(
        self, ghost: str, room_id: str, ask: Callable[[], Awaitable[Sent]]
    ) -> PostAnswer:
        """A ghost that may not speak is perhaps only not in the room (yet)."""
        answer = await self._asked(ghost, ask)
        if isinstance(answer, Forbidden) and answer.code == "m_forbidden":
            joined = await self.join(ghost, room_id)
            if isinstance(joined, Joined):
                return await self._asked(ghost, ask)
            # What keeps it out is what the operator wants to know, unless it is a no again.
            return answer if isinstance(joined, Forbidden) else joined
        return answer

    async def _asked(self, ghost: str, ask: Callable[[], Awaitable[AnswerT]]) -> AnswerT | Problem:
        if problem := await self.prepare(ghost):
            return problem
        try:
            return await ask()
        except (HomeserverError, MatrixConnectionError, TimeoutError) as error:
            if isinstance(error, HomeserverError) and error.errcode == "M_UNKNOWN_DEVICE":
                self._made.discard(ghost)  # it is made anew before the next try
            return _problem(error)

    async def _request(
        self,
        ghost: str,
        method: Method,
        path: str,
        content: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        answer: dict[str, Any] = await self._api_of().request(
            method,
            path,
            content=dict(content) if content is not None else None,
            query_params={**self._as(ghost), **(query or {})},
        )
        return answer

    async def _post(self, ghost: str, path: str, content: Content) -> Sent:
        return Sent(_string(await self._request(ghost, Method.PUT, path, content), "event_id"))

    async def _state(self, ghost: str, room_id: str, kind: str) -> dict[str, Any]:
        """The content of a state event with an empty key; empty where there is none."""
        path = f"{_CLIENT}/rooms/{_part(room_id)}/state/{_part(kind)}/"
        try:
            return await self._request(ghost, Method.GET, path)
        except HomeserverError as error:
            if error.http_status == 404:
                return {}
            raise

    async def _levels(self, ghost: str, room_id: str) -> dict[str, Any]:
        return await self._state(ghost, room_id, "m.room.power_levels")

    async def _search(self, ghost: str, room_id: str, our_id: str) -> str | None:
        path = f"{_CLIENT}/rooms/{_part(room_id)}/messages"
        ours = {"senders": [self.user_id(ghost)], "types": ["m.room.message"]}
        query = {
            "dir": "b",
            "limit": str(self.options.find_page_events),
            "filter": json.dumps(ours),
        }
        for _ in range(FIND_PAGES_MAX):
            answer = await self._request(ghost, Method.GET, path, query=query)
            events = answer.get("chunk")
            for event in events if isinstance(events, list) else []:
                if (
                    _object(event).get("sender") == self.user_id(ghost)
                    and _object(event.get("content")).get(OUR_ID) == our_id
                ):
                    return _string(event, "event_id")
            end = answer.get("end")
            # A page may be empty: what the filter leaves out was counted.
            if not isinstance(end, str) or end == query.get("from"):
                break
            query["from"] = end
        return None

    # ------------------------------------------------------------ ghosts

    async def _make(self, ghost: str) -> None:
        localpart = self.options.ghosts[ghost]
        kind = "m.login.application_service"
        api = self._api_of()
        account = {"type": kind, "username": localpart, "inhibit_login": True}
        try:
            await api.request(Method.POST, f"{_CLIENT}/register", content=account)
            _log.info("ghost registered", ghost=ghost)
        except HomeserverError as error:
            if error.errcode != "M_USER_IN_USE":
                raise
        me = {"user_id": self.user_id(ghost)}
        try:
            await api.request(Method.GET, f"{_CLIENT}/devices/{DEVICE_ID}", query_params=dict(me))
        except HomeserverError as error:
            if error.http_status != 404:
                raise
            login = {
                "type": kind,
                "identifier": {"type": "m.id.user", "user": localpart},
                "device_id": DEVICE_ID,
                "initial_device_display_name": "bridge",
            }
            # Its token is not kept: the appservice's own serves all ghosts.
            await api.request(Method.POST, f"{_CLIENT}/login", content=login)
        if name := self.options.names.get(ghost):
            path = f"{_CLIENT}/profile/{_part(self.user_id(ghost))}/displayname"
            await api.request(
                Method.PUT, path, content={"displayname": name}, query_params=dict(me)
            )

    def _as(self, ghost: str) -> dict[str, str]:
        return {"user_id": self.user_id(ghost), "device_id": DEVICE_ID}

    def _api_of(self) -> Api:
        if self._api is None:
            raise RuntimeError("MatrixRooms is not entered as a context manager")
        return self._api


def _problem(error: Exception) -> Problem:
    """Which of the port's answers an error is."""
    if not isinstance(error, HomeserverError):
        return Unreachable("timeout" if isinstance(error, TimeoutError) else "no_answer")
    status, code = error.http_status, error.errcode.lower() or f"http_{error.http_status}"
    if status == 429:
        return Limited(error.retry_after_ms)
    if status == 413 or code == "m_too_large":
        return TooLarge()
    if status == 401 or error.errcode in _AUTH_ERRCODES:
        return AuthFailed(code)
    if status in {408, 425} or status >= 500 or status < 400 or code == "m_unknown_device":
        return Unreachable(code)
    # Without a code of the specification it is a proxy that speaks, not the homeserver.
    return Forbidden(code) if error.errcode else Unreachable(code)


def _part(text: str) -> str:
    return quote(text, safe="")


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _string(answer: object, key: str) -> str:
    value = _object(answer).get(key)
    if not isinstance(value, str):
        raise MatrixConnectionError(f"no {key} in the answer")
    return value


def _level(levels: Mapping[str, Any], user: str) -> int:
    value = _object(levels.get("users")).get(user, levels.get("users_default", 0))
    return value if isinstance(value, int) else 0
