"""Gathers the facts about one id: the daemon's word and what Redis shows. Writes nothing."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from corral.core.errors import CorralError, UnavailableError, UsageError
from corral.cowboy import evidence
from corral.cowboy.access import operator_endpoint
from corral.cowboy.config import SourceConfig
from corral.cowboy.control import RemoteError, ask
from corral.cowboy.domain import parse_turn_id, unpack_id
from corral.cowboy.explaining import Explanation, explain
from corral.cowboy.facts import Evidence, Known, Seen
from corral.cowboy.inquiry import kind_of
from corral.cowboy.redisconn import RedisFault
from corral.cowboy.redisops import connected
from corral.cowboy.settings import CowboySettings, RedisEndpoint

ASK_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True)
class Case:
    """One entry of one source with all that is known of it."""

    source: SourceConfig
    entry: str
    known: Known
    evidence: Evidence

    @property
    def explanation(self) -> Explanation:
        return explain(self.entry, self.evidence.seen, self.known, self.source.reclaim_idle_ms)

    @property
    def found(self) -> bool:
        seen = self.evidence.seen
        some = self.known.turn or self.known.notes or seen.present or seen.pending or seen.answers
        return bool(some)


def cases_of(settings: CowboySettings, agent: str, name: str, source: str | None) -> list[Case]:
    """The entries that an id stands for: of one source if it is given, else where it is found.

    When nobody knows the id, one case for each source says so. Raises UsageError, ConfigError.
    """
    sources = settings.load_sources(agent).sources
    if source is not None and source not in sources:
        raise UsageError(
            f"agent {agent} has no source {source!r}",
            hint="of a source that was taken away, streams and turns stay: put it back to see them",
        )
    if kind_of(name) == "message":
        turns = _turns_of_message(settings, agent, name, source)
        return [case for turn in turns for case in cases_of(settings, agent, turn, source)]
    wanted = _wanted(agent, name, source, list(sources))
    told = _ask_daemon(settings, agent, name, source)
    cases = []
    endpoint, refused = _endpoint(settings)
    for each in wanted:
        entry, known = _known(name, each, told)
        outbox_id = (known.turn or {}).get("outbox_id")
        seen = _evidence(endpoint, refused, sources[each], entry, outbox_id)
        cases.append(Case(sources[each], entry, known, seen))
    found = [case for case in cases if case.found]
    if not found and kind_of(name) == "entry":
        turns = _turns_of_answer(settings, agent, name, source)
        found = [case for turn in turns for case in cases_of(settings, agent, turn, source)]
    return found or cases


def _turns_of_answer(
    settings: CowboySettings, agent: str, name: str, source: str | None
) -> list[str]:
    """The turns whose answer is that entry of an outbox; none when the daemon cannot be asked."""
    request = {"op": "find", "id": name, "source": source, "answer": True}
    try:
        told = ask(settings.control_socket(agent), request, ASK_TIMEOUT_S)
    except CorralError:
        return []
    return [str(turn["turn_id"]) for part in told["sources"] for turn in part["turns"]]


def _wanted(agent: str, name: str, source: str | None, sources: list[str]) -> Iterable[str]:
    if kind_of(name) == "turn":
        owner, named, _, _ = parse_turn_id(name)
        if owner != agent or named not in sources or source not in (None, named):
            raise UsageError(
                f"{name} is not a turn of agent {agent}" + (f", {source}" if source else "")
            )
        return [named]
    return [source] if source is not None else sources


@dataclass(frozen=True)
class _Told:
    why_not: str
    found: Mapping[str, Mapping[str, Any]]  # by source
    unhealthy: Mapping[str, str]


def _ask_daemon(settings: CowboySettings, agent: str, name: str, source: str | None) -> _Told:
    socket = settings.control_socket(agent)
    try:
        found = ask(socket, {"op": "find", "id": name, "source": source}, ASK_TIMEOUT_S)
        status = ask(socket, {"op": "status"}, ASK_TIMEOUT_S)
    except RemoteError as error:
        if error.code == UsageError.code:
            raise
        return _Told(error.message, {}, {})
    except CorralError as error:
        return _Told(error.message, {}, {})
    return _Told(
        "",
        {part["source"]: part for part in found["sources"]},
        {part["source"]: part["reason"] for part in status["sources"] if part["reason"]},
    )


def _known(name: str, source: str, told: _Told) -> tuple[str, Known]:
    """The entry id that the name stands for in a source, and the daemon's knowledge of it."""
    part = told.found.get(source, {})
    turns = part.get("turns", [])
    entry = name if kind_of(name) == "entry" else unpack_id(parse_turn_id(name)[3]).decode()
    return entry, Known(
        told.why_not,
        turns[0] if turns else None,
        tuple(part.get("notes", ())),
        told.unhealthy.get(source, ""),
        bool(part.get("verified", True)),
    )


def _turns_of_message(
    settings: CowboySettings, agent: str, name: str, source: str | None
) -> list[str]:
    """The turns that carry a producer's own id, newest first."""
    told = _ask_daemon(settings, agent, name, source)
    if told.why_not:
        raise UnavailableError(
            f"only the daemon knows message ids, and it cannot be asked: {told.why_not}",
            hint="start it, or give the entry id",
        )
    turns = [str(turn["turn_id"]) for part in told.found.values() for turn in part["turns"]]
    if not turns:
        raise UsageError(
            f"no turn of {agent} has the message id {name[:100]!r}", hint="is it an entry id?"
        )
    return turns


def _endpoint(settings: CowboySettings) -> tuple[RedisEndpoint | None, str]:
    try:
        return operator_endpoint(settings), ""
    except CorralError as error:
        return None, error.message


def _evidence(
    endpoint: RedisEndpoint | None,
    refused: str,
    source: SourceConfig,
    entry: str,
    outbox_id: str | None,
) -> Evidence:
    if endpoint is None:
        return Evidence(Seen(refused=(refused,)))

    async def look() -> Evidence:
        async with connected(endpoint) as wire:
            return await evidence.gather(wire, source, entry, outbox_id)

    try:
        return asyncio.run(look())
    except RedisFault as fault:
        return Evidence(Seen(refused=(fault.message,)))
