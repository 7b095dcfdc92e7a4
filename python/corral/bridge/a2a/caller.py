"""Finds an agent's endpoint by its card, and asks it: a result that could be read, or a fault.

One call is one request, but for one case: a refusal which proves that the agent speaks the other
version of the protocol is followed by the same request in that version, where the operator left
the version to the card. That version is then remembered.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from corral.bridge.a2a import card as cards
from corral.bridge.a2a import reading, verdict, wire
from corral.bridge.a2a.card import AgentCard
from corral.bridge.a2a.reading import BadAnswerError, RpcError
from corral.bridge.a2a.target import Address, Target, read_token
from corral.bridge.a2a.transport import Answer, Limits, NoAnswer, Transport
from corral.bridge.a2a.verdict import Fault, Kind
from corral.bridge.a2a.wire import Request, Version
from corral.core import logs
from corral.core.clock import Clock
from corral.core.errors import ConfigError
from corral.core.ids import new_uuid

CARD_FRESH_S: Final = 300.0
CARD_MAX_BYTES: Final = 1024 * 1024

Result = TypeVar("Result")
_UNDERSTOOD: Final = frozenset({Kind.GONE, Kind.NOT_CANCELABLE})  # faults that prove the version
_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json"}
_log = logs.get(__name__)


@dataclass(slots=True)
class Endpoint:
    """Where and how an agent is spoken to, by its card and by what its answers have shown since."""

    card: AgentCard
    address: Address
    version: Version
    tenant: str
    fetched_s: float


@dataclass(slots=True)
class Peer:
    """One target and what is known of it."""

    target: Target
    address: Address
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    endpoint: Endpoint | None = None


class Caller:
    """Belongs to one event loop. `ConfigError` when the URL of a target makes no sense."""

    def __init__(self, targets: Mapping[str, Target], clock: Clock) -> None:
        self._clock = clock
        self._transport = Transport()
        self._peers = {
            name: Peer(target, Address.parse(target.url)) for name, target in targets.items()
        }

    async def close(self) -> None:
        await self._transport.close()

    def target(self, agent: str) -> Target:
        """`KeyError` for an agent that is not in the table."""
        return self._peers[agent].target

    # ---- the card ------------------------------------------------------------------------

    async def endpoint(self, agent: str) -> Endpoint | Fault:
        """Where the agent is spoken to. The fault is never ambiguous: nothing was asked of it."""
        peer = self._peers.get(agent)
        if peer is None:
            return Fault(Kind.REFUSED, "a2a_agent_unknown")
        async with peer.lock:
            known = peer.endpoint
            if known and self._clock.mono_s() - known.fetched_s < CARD_FRESH_S:
                return known
            found = await self._locate(peer)
            if isinstance(found, Fault):
                # An old card is better than none: its endpoint may answer all the same.
                return known if known and found.kind is Kind.NEVER_LEFT else found
            if known and known.card == found.card:
                found.version = known.version
            peer.endpoint = found
            return found

    async def _locate(self, peer: Peer) -> Endpoint | Fault:
        body = await self.fetch_card(peer.target)
        if isinstance(body, Fault):
            return body
        try:
            card = cards.parse(body)
        except BadAnswerError:
            return Fault(Kind.NEVER_LEFT, "a2a_card_invalid")
        return locate(peer.target, card, self._clock.mono_s())

    async def fetch_card(self, target: Target) -> bytes | Fault:
        """The bytes of the card. Only 404 and 410 lead on to the next well-known path."""
        headers = await _authorization(target)
        if isinstance(headers, Fault):
            return headers
        limits = Limits(target.connect_timeout_s, target.request_timeout_s, CARD_MAX_BYTES)
        address = Address.parse(target.url)
        for path in cards.paths(address.path):
            answer = await self._transport.call(
                "GET", address.at(path), headers=headers, limits=limits
            )
            if isinstance(answer, NoAnswer):
                return Fault(Kind.NEVER_LEFT, answer.code)
            if answer.status == 200:
                return answer.body
            if answer.status not in {404, 410}:
                fault = verdict.of_status(answer.status)
                return fault if fault.kind is Kind.AUTH else replace(fault, kind=Kind.NEVER_LEFT)
        return Fault(Kind.NEVER_LEFT, "a2a_card_missing")

    # ---- calls ---------------------------------------------------------------------------

    async def call(
        self,
        agent: str,
        request: Callable[[Endpoint], Request],
        read: Callable[[dict[str, Any]], Result],
        *,
        effect: bool,
    ) -> Result | Fault:
        """Ask once. `read` makes of the result what the caller wants, or raises `BadAnswerError`.

        An `effect` gets a connection of its own.
        """
        endpoint = await self.endpoint(agent)
        if isinstance(endpoint, Fault):
            return endpoint
        target = self._peers[agent].target
        version = endpoint.version
        answer = await self._ask(target, endpoint, request(endpoint), read, effect=effect)
        if not isinstance(answer, Fault) or answer.code not in verdict.OTHER_VERSION:
            return answer
        if target.version is not None or endpoint.version is not version:
            return answer
        other = replace(endpoint, version=version.other)
        again = await self._ask(target, other, request(other), read, effect=effect)
        if isinstance(again, Fault) and again.code in verdict.OTHER_VERSION:
            return answer
        if not isinstance(again, Fault) or again.kind in _UNDERSTOOD:
            _log.warning("agent speaks another version than its card says", agent=agent)
            endpoint.version = other.version
        return again  # it came last, and may have left

    async def probe(self, agent: str, version: Version) -> Fault | None:
        """What the agent says to a question about no task, in one version; None: nothing is wrong.

        For `doctor`: it changes nothing at the agent.
        """
        endpoint = await self.endpoint(agent)
        if isinstance(endpoint, Fault):
            return endpoint
        asked = replace(endpoint, version=version)
        answer = await self._ask(
            self._peers[agent].target,
            asked,
            wire.get(version, f"corral-probe-{new_uuid()}"),
            reading.view,
            effect=False,
        )
        if isinstance(answer, Fault) and answer.kind is not Kind.GONE:
            return answer
        return None

    async def _ask(
        self,
        target: Target,
        endpoint: Endpoint,
        request: Request,
        read: Callable[[dict[str, Any]], Result],
        *,
        effect: bool,
    ) -> Result | Fault:
        headers = await _authorization(target)
        if isinstance(headers, Fault):
            return headers
        headers |= _JSON | request.headers
        if endpoint.version is Version.V1_0:
            headers["A2A-Version"] = Version.V1_0.value
        request_id = new_uuid()
        answer = await self._transport.call(
            "POST",
            endpoint.address,
            headers=headers,
            limits=Limits(
                target.connect_timeout_s, target.request_timeout_s, target.answer_max_bytes
            ),
            body=_body(request, request_id, endpoint.tenant),
            fresh=effect,
        )
        if isinstance(answer, NoAnswer):
            return Fault(Kind.AMBIGUOUS if answer.left else Kind.NEVER_LEFT, answer.code)
        return _judged(answer, request_id, read)


def locate(target: Target, card: AgentCard, now_s: float) -> Endpoint | Fault:
    """Where a target's card leads. Pure.

    The version that the operator set wins over the card's. An endpoint that the operator set
    needs nothing of the card but the version.
    """
    interface = card.choose(target.version) or (card.choose(None) if target.version else None)
    if interface is None or interface.version is None:
        return Fault(Kind.REFUSED, "a2a_card_no_interface")
    version = target.version or interface.version
    if target.endpoint is not None:
        address: Address | None = Address.parse(target.endpoint)
    else:
        address = Address.parse(target.url).joined(interface.url)
    if address is None:
        return Fault(Kind.REFUSED, "a2a_card_other_server")
    return Endpoint(card, address, version, interface.tenant, now_s)


def _judged(
    answer: Answer, request_id: str, read: Callable[[dict[str, Any]], Result]
) -> Result | Fault:
    if not verdict.body_decides(answer.status):
        return verdict.of_status(answer.status)
    try:
        found = reading.envelope(answer.body, request_id)
        if isinstance(found, RpcError):
            return verdict.of_rpc(found.code, found.reason)
        if answer.status == 200:
            return read(found)
    except BadAnswerError as error:
        if answer.status == 200:
            return Fault(Kind.AMBIGUOUS, error.code)
    return verdict.of_status(answer.status)


def _body(request: Request, request_id: str, tenant: str) -> bytes:
    params = request.params | ({"tenant": tenant} if tenant else {})
    call = {"jsonrpc": "2.0", "id": request_id, "method": request.method, "params": params}
    return json.dumps(call).encode()


async def _authorization(target: Target) -> dict[str, str] | Fault:
    """Read anew each time: a rotated token needs no restart."""
    if target.token_file is None:
        return {}
    try:
        token = await asyncio.to_thread(read_token, target.token_file)
    except ConfigError:
        return Fault(Kind.AUTH, "a2a_token_unreadable")
    return {"Authorization": f"Bearer {token.decode()}"}
