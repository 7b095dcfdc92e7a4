"""`CoordinationEngineAdapter`: one wake becomes one durable message for one live session.

    adapter = CoordinationEngineAdapter(Path("/run/user/1000/tamq/tamq.sock"))
    receipt = adapter.wake(WakeRequest("lease-1", "trigger-1", "shop", "Look at issue 7."))

The lease id is the idempotency key: repeating a wake gives the same message. Nothing is kept here
between calls, and nothing of the server is imported. A receipt says how far the transport is; that
a prompt was injected, or acknowledged, is no proof that an agent did the work.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from corral.tamq import wire
from corral.tamq.client import TIMEOUT_S, AsyncClient, Client
from corral.tamq.errors import AmbiguousEndpointError, UnavailableTamqError

CLIENT_ID: Final = "coordination-engine"
PROVENANCE: Final = "coordination_engine"


@dataclass(frozen=True, slots=True)
class WakeRequest:
    """`prompt` is at most 8 KiB of UTF-8, `metadata` at most 4 KiB of JSON.

    `endpoint_id` is needed only when several live sessions serve `target_repo`.
    """

    lease_id: str
    trigger_id: str
    target_repo: str
    prompt: str
    endpoint_id: str | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)
    sender_repo: str = CLIENT_ID


@dataclass(frozen=True, slots=True)
class WakeReceipt:
    """The durable identity of the wake: endpoint and message; and how far it is."""

    message_id: str
    endpoint_id: str
    lease_id: str
    trigger_id: str
    state: str
    attempt_count: int
    deduplicated: bool
    fields: Mapping[str, Any]


def _ping() -> dict[str, object]:
    return {"op": "ping"}


def _endpoints(request: WakeRequest) -> dict[str, object]:
    return {"op": "endpoints", "repo": request.target_repo}


def _choose(request: WakeRequest, endpoints: list[Any]) -> str:
    """The one live session, or the named one. Repeats name it, too: TAMQ knows former ones."""
    if request.endpoint_id is not None:
        return request.endpoint_id
    found = [str(one["endpoint_id"]) for one in endpoints]
    ids = {"target_repo": request.target_repo}
    if not found:
        raise UnavailableTamqError(f"no live session serves {request.target_repo}", ids=ids)
    if len(found) > 1:
        raise AmbiguousEndpointError(
            f"{len(found)} live sessions serve {request.target_repo}: name one",
            hint=f"endpoint_id is one of {', '.join(found[:4])}",
            ids=ids,
        )
    return found[0]


def _send(request: WakeRequest, endpoint_id: str) -> dict[str, object]:
    own = {"lease_id": request.lease_id, "trigger_id": request.trigger_id}
    return {
        "op": "send",
        "client_id": CLIENT_ID,
        "idempotency_key": request.lease_id,
        "correlation_id": request.trigger_id,
        "sender_repo": request.sender_repo,
        "target_repo": request.target_repo,
        "endpoint_id": endpoint_id,
        "provenance": PROVENANCE,
        "metadata": {**request.metadata, **own},
        "body": request.prompt,
    }


def _receipt(request: WakeRequest, answer: Mapping[str, Any]) -> WakeReceipt:
    return WakeReceipt(
        message_id=str(answer["message_id"]),
        endpoint_id=str(answer["endpoint_id"]),
        lease_id=request.lease_id,
        trigger_id=request.trigger_id,
        state=str(answer["state"]),
        attempt_count=int(answer["attempt_count"]),
        deduplicated=bool(answer["deduplicated"]),
        fields=dict(answer),
    )


class CoordinationEngineAdapter:
    """Synchronous. Raises the `TamqError` of what went wrong; `retryable` says what to do."""

    def __init__(self, path: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._client = Client(path, timeout_s)

    def wake(self, request: WakeRequest) -> WakeReceipt:
        """Check TAMQ, find the session, admit the prompt. Stops before admission if it must."""
        wire.check_peer(self._client.request(_ping()))
        endpoint_id = _choose(request, self._live(request))
        return _receipt(request, self._client.request(_send(request, endpoint_id)))

    def receipt(self, message_id: str) -> dict[str, Any]:
        """How far a wake is: the answer to `message`."""
        return self._client.request({"op": "message", "message_id": message_id})

    def _live(self, request: WakeRequest) -> list[Any]:
        if request.endpoint_id is not None:
            return []
        page = self._client.request(_endpoints(request))
        return list(page["endpoints"])


class AsyncCoordinationEngineAdapter:
    """The same for an event loop."""

    def __init__(self, path: Path | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._client = AsyncClient(path, timeout_s)

    async def wake(self, request: WakeRequest) -> WakeReceipt:
        """As `CoordinationEngineAdapter.wake`."""
        wire.check_peer(await self._client.request(_ping()))
        endpoint_id = _choose(request, await self._live(request))
        return _receipt(request, await self._client.request(_send(request, endpoint_id)))

    async def receipt(self, message_id: str) -> dict[str, Any]:
        """As `CoordinationEngineAdapter.receipt`."""
        return await self._client.request({"op": "message", "message_id": message_id})

    async def _live(self, request: WakeRequest) -> list[Any]:
        if request.endpoint_id is not None:
            return []
        page = await self._client.request(_endpoints(request))
        return list(page["endpoints"])
