"""Tries what each identity of an agent may do and what it must not: `doctor --probe-acl`.

Asked for explicitly, because every denial is an entry in `ACL LOG`, and because it reads the
secrets of all identities. No command changes anything, allowed or not: what is written to is an
id, a field or a length that cannot be there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from corral.core.errors import CorralError
from corral.cowboy.access import OPERATOR, operator_endpoint
from corral.cowboy.config import GROUP, SourceConfig
from corral.cowboy.examined import Finding, Result
from corral.cowboy.redisconn import RedisFault
from corral.cowboy.redisops import connected, is_absence
from corral.cowboy.settings import CowboySettings, RedisEndpoint, agent_username

SECRET_MAX_BYTES: Final = 4_096
_NO_ENTRY: Final = "0-0"  # no entry has this id: acknowledging it changes nothing
_NO_FIELD: Final = "-"

Words = tuple[str, ...]


@dataclass(frozen=True)
class Probe:
    """What an identity must be able to do, and what must be refused with NOPERM."""

    identity: str
    allowed: Sequence[Words]
    denied: Sequence[Words]


def probes(agent: str, sources: Mapping[str, SourceConfig]) -> list[Probe]:
    """The probes of every identity that has to do with an agent."""
    found = [_agent(agent, list(sources.values()))]
    found += [_source(agent, source) for source in sources.values()]
    inboxes = [source.stream for source in sources.values()]
    return [
        *found,
        Probe(
            OPERATOR,
            [("PING",), *(("XLEN", inbox) for inbox in inboxes)],
            [
                ("ACL", "WHOAMI"),
                ("CONFIG", "GET", "maxmemory"),
                ("XTRIM", inboxes[0], "MINID", "0"),
            ],
        ),
        Probe(
            "metrics",
            [("PING",), ("INFO", "server"), *(("XLEN", inbox) for inbox in inboxes)],
            [("ACL", "WHOAMI"), ("XRANGE", inboxes[0], "-", "-"), ("GET", f"{agent}:x:fence")],
        ),
    ]


def _agent(agent: str, sources: Sequence[SourceConfig]) -> Probe:
    allowed: list[Words] = [("PING",)]
    for source in sources:
        allowed += [
            ("XRANGE", source.stream, "-", "-"),
            ("XACK", source.stream, GROUP, _NO_ENTRY),
            ("HGET", source.ledger_key, _NO_FIELD),
            ("HDEL", source.replies_key, _NO_FIELD),
        ]
    denied: list[Words] = [("ACL", "WHOAMI"), ("CONFIG", "GET", "maxmemory")]
    denied += [("XPENDING", sources[0].stream, GROUP), ("GET", f"{agent}-:x:fence")]
    return Probe(agent_username(agent), allowed, denied)


def _source(agent: str, source: SourceConfig) -> Probe:
    return Probe(
        f"source.{agent}.{source.source}",
        [("PING",), ("HGET", source.sent_key, _NO_FIELD), ("XACK", source.outbox, "source", "0-0")],
        [
            ("ACL", "WHOAMI"),
            ("XLEN", source.stream),
            ("XRANGE", source.stream, "-", "-"),
            ("HGET", source.ledger_key, _NO_FIELD),
            ("XACK", source.stream, GROUP, _NO_ENTRY),
        ],
    )


def probe_all(
    settings: CowboySettings, agent: str, sources: Mapping[str, SourceConfig], folder: Path
) -> list[Finding]:
    """One finding for each identity; `folder` has a file `redis-<identity>` with each secret."""
    try:
        endpoint = operator_endpoint(settings)
    except CorralError as error:
        fix = "set COWBOY_REDIS_URL, or run this as root"
        return [Finding("acl", Result.UNKNOWN, f"could not be probed: {error.message}", fix)]
    return [_finding(probe, endpoint, folder) for probe in probes(agent, sources)]


def _finding(probe: Probe, endpoint: RedisEndpoint, folder: Path) -> Finding:
    check, path = f"acl {probe.identity}", folder / f"redis-{probe.identity}"
    try:
        with path.open("rb") as file:
            secret = file.read(SECRET_MAX_BYTES).decode().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "is not text"
        text = f"could not be probed: {path}: {why}"
        return Finding(check, Result.UNKNOWN, text, "name the folder with the secrets, as root")
    identity = replace(endpoint, username=probe.identity, password=secret)
    try:
        faults = asyncio.run(_try(identity, probe))
    except RedisFault as fault:
        fix = "compare its secret with the ACL; restart Redis after a change"
        return Finding(check, Result.FAILED, fault.message, fix)
    if faults:
        fix = "render the ACL again (docs/reference/identities.md) and restart Redis"
        return Finding(check, Result.FAILED, "; ".join(faults), fix)
    tried = f"may do {len(probe.allowed)} things, is denied {len(probe.denied)}"
    return Finding(check, Result.OK, tried)


async def _try(endpoint: RedisEndpoint, probe: Probe) -> list[str]:
    faults = []
    async with connected(endpoint) as wire:
        replies = await wire.pipeline([*probe.allowed, *probe.denied])
    for words, reply in zip([*probe.allowed, *probe.denied], replies, strict=True):
        refused = isinstance(reply, RedisFault) and "NOPERM" in reply.message.upper()
        refused = refused or (isinstance(reply, RedisFault) and "permission" in reply.message)
        shown = " ".join(words)
        if words in probe.denied and not refused:
            faults.append(f"{shown} is not denied")
        elif words in probe.allowed and isinstance(reply, RedisFault) and not is_absence(reply):
            faults.append(f"{shown} is refused: {reply.message}")
    return faults
