"""Agent cards of both versions, read by their shape. Pure.

A card of 1.0 lists `supportedInterfaces`, each with a binding, a version and a URL. One of 0.3 has
`url`, `preferredTransport` and `additionalInterfaces`, and a `protocolVersion` of its own. Some
servers publish both in one document.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from corral.bridge.a2a import reading
from corral.bridge.a2a.reading import BadAnswerError
from corral.bridge.a2a.wire import Version

# Declares that a message which comes again under its id is not begun a second time; the
# parameter says for how long (docs/reference/bridge-a2a.md).
IDEMPOTENT_URI: Final = "urn:corral:a2a:idempotent-message:1"
RETENTION_PARAMETER: Final = "retentionSeconds"
RETENTION_MAX_S: Final = 10 * 365 * 86_400

WELL_KNOWN_PATHS: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
BINDING: Final = "JSONRPC"

_VERSION: Final = re.compile(r"v?(\d{1,3})(?:\.(\d{1,3}))?(?:\.\d{1,6})?\Z")


@dataclass(frozen=True, slots=True)
class Interface:
    """One way to speak to the agent. `version` is None for one that we do not speak."""

    url: str
    binding: str
    declared: str  # the version in the card's words
    version: Version | None
    tenant: str = ""

    @property
    def usable(self) -> bool:
        return self.binding == BINDING and self.version is not None


@dataclass(frozen=True, slots=True)
class AgentCard:
    """What of a card matters to the bridge. `required` are URIs of extensions that callers need."""

    name: str
    interfaces: tuple[Interface, ...]
    idempotent_for_s: float | None = None
    required: tuple[str, ...] = ()

    def choose(self, version: Version | None) -> Interface | None:
        """The best usable interface, 1.0 before 0.3; with `version`, only one of that version."""
        wanted = (version,) if version else (Version.V1_0, Version.V0_3)
        for one in wanted:
            for interface in self.interfaces:
                if interface.usable and interface.version is one:
                    return interface
        return None


def paths(path: str) -> tuple[str, ...]:
    """Where the card is looked for, in order, given the path of the configured URL."""
    if path.partition("?")[0].endswith(".json"):
        return (path,)
    below = path.partition("?")[0].rstrip("/")
    return tuple(f"{below}{known}" for known in WELL_KNOWN_PATHS)


def parse(body: bytes) -> AgentCard:
    """A card. `BadAnswerError` when the document is none at all; faults in parts are left out."""
    card = reading.document(body)
    if not isinstance(card, dict) or not isinstance(card.get("name"), str):
        raise BadAnswerError("a2a_card_invalid")
    interfaces = tuple(_interfaces(card))
    if not interfaces:
        raise BadAnswerError("a2a_card_invalid")
    extensions = list(_extensions(card))
    return AgentCard(
        name=reading.clean(card["name"])[: reading.NAME_MAX_CHARS],
        interfaces=interfaces,
        idempotent_for_s=_retention_s(extensions),
        required=tuple(
            one["uri"]
            for one in extensions
            if one.get("required") is True and one["uri"] != IDEMPOTENT_URI
        ),
    )


def version_of(declared: str) -> Version | None:
    """The wire of a declared version: 1.x is 1.0; 0.2 had the methods of 0.3 already."""
    found = _VERSION.match(declared)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2] or 0)
    if major == 1:
        return Version.V1_0
    return Version.V0_3 if major == 0 and minor in {2, 3} else None


def _interfaces(card: dict[str, Any]) -> Iterator[Interface]:
    for one in _dicts(card.get("supportedInterfaces")):
        url, binding = one.get("url"), one.get("protocolBinding")
        declared, tenant = one.get("protocolVersion"), one.get("tenant", "")
        if isinstance(url, str) and isinstance(binding, str):
            declared = declared if isinstance(declared, str) else "1.0"
            tenant = tenant if isinstance(tenant, str) else ""
            yield Interface(url, binding.upper(), declared, version_of(declared), tenant)
    if not isinstance(card.get("url"), str):
        return
    declared = card.get("protocolVersion")
    declared = declared if isinstance(declared, str) else "0.3"
    preferred = card.get("preferredTransport", BINDING)
    found = [(card["url"], preferred)]
    found += [
        (one.get("url"), one.get("transport")) for one in _dicts(card.get("additionalInterfaces"))
    ]
    for url, binding in found:
        if isinstance(url, str) and isinstance(binding, str):
            yield Interface(url, binding.upper(), declared, version_of(declared))


def _extensions(card: dict[str, Any]) -> Iterator[dict[str, Any]]:
    capabilities = card.get("capabilities")
    if isinstance(capabilities, dict):
        for one in _dicts(capabilities.get("extensions")):
            if isinstance(one.get("uri"), str):
                yield one


def _retention_s(extensions: list[dict[str, Any]]) -> float | None:
    """How long a message id is remembered; None unless it is declared as a sensible number."""
    for one in extensions:
        params = one.get("params")
        if one["uri"] == IDEMPOTENT_URI and isinstance(params, dict):
            kept = params.get(RETENTION_PARAMETER)
            if isinstance(kept, int | float) and not isinstance(kept, bool):
                return float(kept) if 0 < kept <= RETENTION_MAX_S else None
    return None


def _dicts(value: object) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, dict))
