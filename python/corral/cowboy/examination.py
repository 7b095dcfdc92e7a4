"""Gathers what `doctor` judges: the host, Redis as the operator, the daemon. Writes nothing.

Redis is read before the daemon is asked: so what the daemon says is never older than what Redis
showed, and an entry that moved meanwhile is no finding.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from corral import __version__
from corral.core.clock import wall_ms
from corral.core.errors import CorralError
from corral.core.sqlite import migrations
from corral.cowboy import hostfacts, tamqfacts
from corral.cowboy.access import configured_namespace, operator_endpoint
from corral.cowboy.config import GROUP, SourceConfig
from corral.cowboy.control import ask
from corral.cowboy.diagnosis import ANOMALIES_WINDOW_MS
from corral.cowboy.domain import pack_id
from corral.cowboy.examined import Consumer, DaemonFacts, Examined, RedisFacts, StreamFacts
from corral.cowboy.redisconn import Denied, RedisFault, Refused, Wire
from corral.cowboy.redisops import connected, groups_of, is_absence, pairs_of
from corral.cowboy.settings import CowboySettings, RedisEndpoint
from corral.cowboy.store import APPLICATION_ID

ASK_TIMEOUT_S: Final = 10.0
INTEGRITY_TIMEOUT_S: Final = 120.0
PENDING_MAX: Final = 1_000  # of one stream; with more, passed over entries cannot be told
PASSED_MAX: Final = 100  # entries that are looked at, with their content: twice of each source


def examine(settings: CowboySettings, agent: str) -> Examined:
    """All facts about one agent. Raises UsageError for what is no agent's name."""
    settings = hostfacts.unit_settings(settings, agent)
    sources: Mapping[str, SourceConfig] = {}
    config_error = ""
    try:
        sources = settings.load_sources(agent).sources
    except CorralError as error:
        config_error = str(error)
    disks = hostfacts.disks(settings, agent)
    files = hostfacts.files(settings, agent)
    name = configured_namespace(settings)
    redis, marks, endpoint = _redis(settings, sources)
    daemon = ask_daemon(settings, agent)
    if endpoint is not None:
        redis = _with_skipped(redis, settings, agent, endpoint, sources, marks, daemon)
    return Examined(
        agent=agent,
        now_ms=wall_ms(),
        config_error=config_error,
        files=files,
        disks=disks,
        ledger=hostfacts.ledger_file(settings.ledger_path(agent)),
        daemon=daemon,
        redis=redis,
        namespace=hostfacts.namespace(settings, name, daemon.status.get("pid")),
        consumers={name: source.consumer for name, source in sources.items()},
        schema=len(migrations("corral.cowboy")),
        application_id=APPLICATION_ID,
        version=__version__,
        sessions=tamqfacts.sessions(sources, settings.runner_socket(agent)),
    )


# ---------------------------------------------------------------- the daemon


def ask_daemon(settings: CowboySettings, agent: str) -> DaemonFacts:
    socket = settings.control_socket(agent)
    try:
        status = ask(socket, {"op": "status"}, ASK_TIMEOUT_S)
    except CorralError as error:
        return DaemonFacts(error=error.message)
    facts = DaemonFacts(status=status)
    try:
        integrity = ask(socket, {"op": "integrity"}, INTEGRITY_TIMEOUT_S)["integrity"]
        facts = replace(facts, integrity=str(integrity))
    except CorralError as error:
        facts = replace(facts, integrity_error=error.message)
    try:
        since_ms = wall_ms() - ANOMALIES_WINDOW_MS
        found = ask(socket, {"op": "anomalies", "since_ms": since_ms}, ASK_TIMEOUT_S)["sources"]
        return replace(facts, anomalies=found)
    except CorralError as error:
        return replace(facts, anomalies_error=error.message)


# ---------------------------------------------------------------- Redis

Mark = tuple[str | None, frozenset[str] | None]  # last delivered id, ids pending (None: too many)
Looked = tuple[dict[str, Any], dict[str, Mark]]  # fields of `RedisFacts`, marks by source


def _redis(
    settings: CowboySettings, sources: Mapping[str, SourceConfig]
) -> tuple[RedisFacts, dict[str, Mark], RedisEndpoint | None]:
    try:
        endpoint = operator_endpoint(settings)
    except CorralError as error:
        return RedisFacts(error=error.message), {}, None
    (anonymous, anonymous_error), looked = asyncio.run(_both(endpoint, sources))
    facts = RedisFacts(anonymous=anonymous, anonymous_error=anonymous_error)
    if isinstance(looked, RedisFault):
        return replace(facts, error=looked.message, down=True), {}, None
    found, marks = looked
    return replace(facts, **found), marks, endpoint


async def _both(
    endpoint: RedisEndpoint, sources: Mapping[str, SourceConfig]
) -> tuple[tuple[str, str], Looked | RedisFault]:
    """At one time: a server that stands still lets each wait for its time-out."""

    async def looked() -> Looked | RedisFault:
        try:
            return await _look(endpoint, sources)
        except RedisFault as fault:
            return fault

    return await asyncio.gather(_anonymous(endpoint), looked())


async def _anonymous(endpoint: RedisEndpoint) -> tuple[str, str]:
    """Whether one who has not said who he is gets an answer (F15)."""
    nobody = replace(endpoint, username="", password=None, protocol=2)
    try:
        async with connected(nobody) as wire:
            await wire.call("PING")
    except Denied:
        return "refused", ""
    except Refused:
        return "admitted", ""  # not this command, but it was somebody to the server
    except RedisFault as fault:
        return "", fault.message
    return "admitted", ""


async def _look(endpoint: RedisEndpoint, sources: Mapping[str, SourceConfig]) -> Looked:
    async with connected(endpoint) as wire:
        hello = pairs_of(await wire.call("HELLO"))
        server = _text(hello.get("server")) or "unknown"
        found, marks = {}, {}
        for name, source in sources.items():
            found[name], marks[name] = await _stream(wire, source)
    version = _text(hello.get("version")) or ""
    return {"server": server, "version": version, "sources": found}, marks


def _text(value: object) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None


async def _stream(wire: Wire, source: SourceConfig) -> tuple[StreamFacts, Mark]:
    streams = (source.stream, source.outbox, source.dead_stream)
    groups, consumers, pending, ledger, *infos = await wire.pipeline(
        [
            ("XINFO", "GROUPS", source.stream),
            ("XINFO", "CONSUMERS", source.stream, GROUP),
            ("XPENDING", source.stream, GROUP, "-", "+", PENDING_MAX),
            ("HGETALL", source.ledger_key),
            *(("XINFO", "STREAM", stream) for stream in streams),
        ]
    )
    replies = (groups, consumers, pending, ledger, *infos)
    faults = [r for r in replies if isinstance(r, RedisFault) and not is_absence(r)]
    newest = [_text(pairs_of(info).get("last-generated-id")) for info in infos]
    mark = pairs_of(ledger)
    group = groups_of(groups).get(GROUP)
    facts = StreamFacts(
        has_group=None
        if isinstance(groups, RedisFault) and not is_absence(groups)
        else bool(group),
        has_stream=isinstance(groups, list),
        consumers=_consumers(consumers),
        newest_id=max((one for one in newest if one), key=_packed, default=None),
        ledger_uuid=_text(mark.get("uuid")),
        ledger_sequence=int(mark["sequence"]) if "sequence" in mark else None,
        skipped=None,
        refused=tuple(sorted({fault.message for fault in faults})),
    )
    waiting = [] if isinstance(pending, RedisFault) else [_text(row[0]) or "" for row in pending]
    ids = frozenset(waiting) if len(waiting) < PENDING_MAX else None
    return facts, (_text(group["last-delivered-id"]) if group else None, ids)


def _packed(entry: str) -> bytes:
    return pack_id(entry.encode())


def _consumers(reply: Any) -> tuple[Consumer, ...] | None:
    if isinstance(reply, RedisFault):
        return None
    rows = [pairs_of(row) for row in reply]
    return tuple(Consumer(_text(row["name"]) or "", int(row["pending"])) for row in rows)


def _with_skipped(
    redis: RedisFacts,
    settings: CowboySettings,
    agent: str,
    endpoint: RedisEndpoint,
    sources: Mapping[str, SourceConfig],
    marks: Mapping[str, Mark],
    daemon: DaemonFacts,
) -> RedisFacts:
    """Adds the entries that the group has gone past, that are not pending, and never were taken.

    Those between the daemon's last entry and the group's, and the oldest that are still there.
    """
    told = {of["source"]: of for of in daemon.status.get("sources", ())}
    found = dict(redis.sources)
    for name, (delivered, pending) in marks.items():
        status = told.get(name)
        # While a source is not at work its last entry may be of another ledger.
        at_work = status is not None and status["state"] in ("running", "redis_full", "stalled")
        if not at_work or status is None or delivered is None or pending is None:
            continue
        taken = str(status["last_taken"])
        try:
            passed = asyncio.run(_passed(endpoint, sources[name], taken, delivered))
            adopted_ms = _adopted_ms(daemon, name)
            entries = [one for one in passed if one not in pending and _ms(one) >= adopted_ms]
            request = {"op": "unknown", "source": name, "entries": entries}
            answer = ask(settings.control_socket(agent), request, ASK_TIMEOUT_S)
        except CorralError:
            continue  # not looked at, which the check says
        found[name] = replace(found[name], skipped=tuple(answer["unknown"]))
    return replace(redis, sources=found)


def _adopted_ms(daemon: DaemonFacts, source: str) -> int:
    """When this ledger took the stream over: what is older was another one's business."""
    rows = (daemon.anomalies or {}).get(source, [])
    return max((int(row["last_ms"]) for row in rows if row["kind"] == "adopted"), default=0)


def _ms(entry: str) -> int:
    return int(entry.partition("-")[0])


async def _passed(
    endpoint: RedisEndpoint, source: SourceConfig, taken: str, delivered: str
) -> list[str]:
    """Entries at or below the group's position: the oldest, and the first after the daemon's."""
    commands = [("XRANGE", source.stream, "-", delivered, "COUNT", PASSED_MAX)]
    if _packed(delivered) > _packed(taken):
        commands.append(("XRANGE", source.stream, f"({taken}", delivered, "COUNT", PASSED_MAX))
    async with connected(endpoint) as wire:
        pages = await wire.pipeline(commands)
    ids: dict[str, None] = {}
    for page in pages:
        if isinstance(page, RedisFault):
            raise page
        ids.update((row[0].decode(), None) for row in page)
    return list(ids)
