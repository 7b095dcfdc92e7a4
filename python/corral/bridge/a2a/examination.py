"""What is wrong with an agent's card, for `a2a-bridge card AGENT` and `doctor`.

The judgements are pure functions of what was fetched; `examine` fetches it. Nothing here has an
effect at the agent, and no finding holds content or a token.
"""

import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.bridge.a2a import card as cards
from corral.bridge.a2a import verdict
from corral.bridge.a2a.caller import Caller
from corral.bridge.a2a.card import AgentCard, Interface
from corral.bridge.a2a.reading import BadAnswerError
from corral.bridge.a2a.target import LOOPBACK, Address, Target
from corral.bridge.a2a.verdict import Fault, Kind
from corral.bridge.a2a.wire import Version
from corral.core.clock import SystemClock
from corral.core.errors import ConfigError


class Severity(StrEnum):
    """An error: messages to this agent fail. A warning: they may, or something is unsafe."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """`code` is stable. The hint says what to do next."""

    code: str
    severity: Severity
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found out about one agent; `card` is None when there is none to read."""

    agent: str
    findings: tuple[Finding, ...]
    card: AgentCard | None = None
    endpoint: str = ""
    protocol: str = ""  # what the agent was seen to speak, else what its card says

    @property
    def healthy(self) -> bool:
        """Whether messages can be expected to arrive."""
        return not any(one.severity is Severity.ERROR for one in self.findings)


_FETCH_HINTS: Final = {
    "a2a_connect": "is the agent running, and may the bridge reach its address or socket?",
    "a2a_connect_timeout": "is there a firewall between the bridge and the agent?",
    "a2a_dns": "is the name in the agent's URL right, and can this host resolve it?",
    "a2a_tls": "does the certificate fit the name, and is its issuer trusted on this host?",
    "a2a_token_unreadable": "does the token file exist, hold one line, and belong to the bridge?",
    "a2a_card_missing": "set the full URL of the card, ending in .json",
    "a2a_answer_too_large": "is that the URL of an agent card?",
}


def of_fetch(fault: Fault) -> Finding:
    """Why there is no card."""
    if fault.kind is Kind.AUTH and fault.code.startswith("a2a_http_"):
        hint = "the agent refuses the bridge's bearer token, or asks for one: see its token file"
        return Finding(fault.code, Severity.ERROR, "the agent does not accept the bridge", hint)
    hint = _FETCH_HINTS.get(fault.code, "ask for the card's URL with another program")
    if fault.code.startswith("a2a_http_3"):
        hint = "redirects are not followed: set the URL that it leads to"
    return Finding(fault.code, Severity.ERROR, "the agent's card cannot be fetched", hint)


def of_card(target: Target, card: AgentCard) -> Iterator[Finding]:
    """What the card says that does not go with the configuration."""
    interface = card.choose(target.version)
    if interface is None:
        offered = ", ".join(f"{one.binding} {one.declared}" for one in card.interfaces)
        yield from _no_interface(target, card, offered)
    else:
        yield from _elsewhere(target, interface)
    for uri in card.required:
        yield Finding(
            "card_extension_required",
            Severity.ERROR,
            f"the agent accepts only callers that know the extension {uri}",
            "the bridge does not know it: ask the agent's operator",
        )
    yield from _idempotency(target, card)


def of_target(target: Target) -> Iterator[Finding]:
    """What is unsafe about the configuration itself."""
    address = Address.parse(target.url)
    host = urllib.parse.urlsplit(address.origin).hostname
    clear = address.origin.startswith("http:") and address.socket is None
    if clear and target.token_file is not None and host not in LOOPBACK:
        yield Finding(
            "token_in_the_clear",
            Severity.WARNING,
            f"the bearer token travels unencrypted to {host}",
            "use an https: URL",
        )


def of_probe(said: Version, tried: dict[Version, Fault | None]) -> Iterator[Finding]:
    """What answers to a harmless question in each version show of the wire."""
    fault = tried[said]
    if fault is None:
        return
    if fault.code not in verdict.OTHER_VERSION:
        auth = fault.kind is Kind.AUTH
        hint = "see its token file" if auth else "see the agent's own log"
        text = f"the agent gives no proper answer to a question ({fault.code})"
        yield Finding("agent_unhealthy", Severity.ERROR, text, hint)
        return
    if tried.get(said.other, fault) is None:
        yield Finding(
            "card_version_mismatch",
            Severity.WARNING,
            f"the card says {said} and the agent speaks {said.other}",
            "the bridge copes unless the version is set; have the card corrected",
        )
    else:
        text = f"the agent does not understand {said}, which its card says it speaks"
        yield Finding("card_version_mismatch", Severity.ERROR, text, "is the endpoint's URL right?")


async def examine(target: Target) -> Examination:
    """Fetch the card and ask one harmless question. Raises nothing but cancellation."""
    try:
        caller = Caller({target.agent: target}, SystemClock())
    except ConfigError as error:
        finding = Finding("url_invalid", Severity.ERROR, error.message, error.hint)
        return Examination(target.agent, (finding,))
    try:
        return await _examined(caller, target)
    finally:
        await caller.close()


async def _examined(caller: Caller, target: Target) -> Examination:
    body = await caller.fetch_card(target)
    if isinstance(body, Fault):
        return Examination(target.agent, (*of_target(target), of_fetch(body)))
    try:
        card = cards.parse(body)
    except BadAnswerError:
        text = "what is served as the agent's card is none"
        finding = Finding("card_invalid", Severity.ERROR, text, "set the full URL of the card")
        return Examination(target.agent, (*of_target(target), finding))
    findings = [*of_target(target), *of_card(target, card)]
    endpoint = await caller.endpoint(target.agent)
    if isinstance(endpoint, Fault):
        return Examination(target.agent, tuple(findings), card)
    said = endpoint.version
    tried = {said: await caller.probe(target.agent, said)}
    fault = tried[said]
    if fault is not None and fault.code in verdict.OTHER_VERSION:
        tried[said.other] = await caller.probe(target.agent, said.other)
    findings += of_probe(said, tried)
    speaks = next((version for version, wrong in tried.items() if wrong is None), said)
    return Examination(target.agent, tuple(findings), card, endpoint.address.url, speaks.value)


def _no_interface(target: Target, card: AgentCard, offered: str) -> Iterator[Finding]:
    if target.version is not None and card.choose(None) is not None:
        yield Finding(
            "card_version_unlike_setting",
            Severity.WARNING,
            f"the setting says {target.version}, the card offers {offered}",
            "leave the version to the card, unless the card is known to be wrong",
        )
        return
    yield Finding(
        "card_no_interface",
        Severity.ERROR,
        f"the card offers {offered}, and the bridge speaks JSONRPC 1.0 and 0.3",
        "ask the agent's operator for a JSON-RPC interface",
    )


def _elsewhere(target: Target, interface: Interface) -> Iterator[Finding]:
    if target.endpoint is None and Address.parse(target.url).joined(interface.url) is None:
        yield Finding(
            "card_other_server",
            Severity.ERROR,
            "the card sends callers to another server than the one it came from",
            "set the agent's endpoint to that URL if it is trusted with the bearer token",
        )


def _idempotency(target: Target, card: AgentCard) -> Iterator[Finding]:
    if target.idempotent and card.idempotent_for_s is None:
        yield Finding(
            "card_not_idempotent",
            Severity.WARNING,
            "idempotent is set, and the card declares no retention: messages are sent at most once",
            "unset it, or have the agent declare the extension with its retention",
        )
    elif not target.idempotent and card.idempotent_for_s is not None:
        yield Finding(
            "card_idempotent",
            Severity.NOTE,
            "the agent knows messages that come again, and idempotent is not set",
            "with it, a lost answer is asked for again instead of being reported as uncertain",
        )
