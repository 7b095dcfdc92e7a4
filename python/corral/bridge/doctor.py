"""`a2a-bridge doctor`: what is wrong, in words, with what to do about it.

The judgements are pure functions of facts (`of_…`); the facts are gathered by `doctor_facts`.
Nothing is changed anywhere, but that a ghost without an account gets one, as at every start.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.bridge.a2a import examination
from corral.bridge.a2a.examination import Examination
from corral.core.errors import CorralError
from corral.core.findings import Finding, Level, fault, ok, warning

CLOCK_OFF_MAX_S: Final = 60.0
QUEUE_WARN_SHARE: Final = 0.8
WAITING_S: Final = 60.0  # a due job that nobody took for so long


# ---- the ledger -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """`error` is set when the database could not be asked. Clock: ours less the database's."""

    error: CorralError | None = None
    writable: bool = True
    clock_off_s: float = 0.0
    workers_alive: int = 0
    pooled: bool = False
    open_jobs: int = 0
    fullest_room: int = 0
    oldest_s: float = 0.0
    waiting: int = 0
    ambiguous: int = 0
    dead: int = 0
    wedged_txn: str | None = None
    rooms: Sequence[tuple[str, str]] = ()  # room and agent


def of_ledger(facts: LedgerFacts, *, room_capacity: int, capacity: int) -> Iterator[Finding]:
    if facts.error is not None:
        code = {
            "ledger_unavailable": "database_unreachable",
            "foreign_database": "schema_wrong",
        }.get(facts.error.code, facts.error.code)
        yield fault("database", code, facts.error.message, facts.error.hint)
        return
    if facts.writable:
        yield ok("database", "it answers, takes writes, and has this release's schema")
    else:
        hint = "is it a standby, or set to read only? Nothing can be accepted until it takes writes"
        yield fault("database", "database_read_only", "it takes no writes", hint)
    yield from _clock("clock", facts.clock_off_s, "the database's")
    yield from _workers(facts)
    yield from _queue(facts, room_capacity, capacity)
    yield from _wedge(facts)
    if facts.ambiguous or facts.dead:
        text = f"{facts.ambiguous} jobs ended ambiguous and {facts.dead} dead, and are not resolved"
        hint = "compare the agents' logs with their message ids, then: a2a-bridge resolve JOB"
        yield warning("outcomes", "jobs_unresolved", text, hint)


def _clock(check: str, off_s: float, whose: str) -> Iterator[Finding]:
    if abs(off_s) > CLOCK_OFF_MAX_S:
        side = "ahead of" if off_s > 0 else "behind"
        text = f"this machine's clock is {abs(off_s):.0f} s {side} {whose}"
        hint = "the ledger goes by the database's clock, so no job is harmed; set the clocks right"
        yield fault(check, "clock_off", text, hint)
    else:
        yield ok(check, f"within {CLOCK_OFF_MAX_S:.0f} s of {whose}")


def _workers(facts: LedgerFacts) -> Iterator[Finding]:
    if not facts.workers_alive and not facts.pooled:
        text = "no worker has a session with the database"
        hint = "start it: a2a-bridge run; if it runs, see its log and GET /readyz"
        yield fault("worker", "worker_dead", text, hint)
    elif facts.waiting:
        text = (
            f"{facts.waiting} jobs have been due for over {WAITING_S:.0f} s, and nobody took them"
        )
        hint = "does an agent or the homeserver refuse the worker, or are all its hands full?"
        yield fault("worker", "jobs_waiting", text, hint)
    else:
        yield ok("worker", f"{facts.workers_alive} alive, no job waits for one")


def _queue(facts: LedgerFacts, room_capacity: int, capacity: int) -> Iterator[Finding]:
    said = f"{facts.open_jobs} of {capacity} open jobs, {facts.fullest_room} of {room_capacity} in "
    said += f"the fullest room, the oldest {facts.oldest_s:.0f} s old"
    hint = "is an agent slow or down? New mentions are told to come back later"
    if facts.open_jobs >= capacity:
        yield fault("queue", "queue_full", said, hint)
    elif facts.fullest_room >= room_capacity:
        yield fault("queue", "room_queue_full", said, hint)
    elif facts.open_jobs >= QUEUE_WARN_SHARE * capacity:
        yield warning("queue", "queue_nearly_full", said, hint)
    else:
        yield ok("queue", said)


def _wedge(facts: LedgerFacts) -> Iterator[Finding]:
    if facts.wedged_txn is None:
        yield ok("transactions", "none is refused for its id")
        return
    text = (
        "the homeserver uses transaction ids again for other events, and is refused (409): it "
        "delivers nothing until this one is taken"
    )
    hint = (
        "a Synapse on SQLite does so after a restart: set BRIDGE_TXN_CONFLICT=epoch and restart "
        "the bridge; nothing is lost. On PostgreSQL: was the ledger of another homeserver restored?"
    )
    yield fault("transactions", "txn_id_wedge", text, hint)


# ---- the homeserver -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HomeserverFacts:
    """Codes are empty where all is well. `sender` is who our token says that we are."""

    reachable: str = ""
    token: str = ""
    sender: str = ""
    ping: str = ""
    ghosts: Mapping[str, str] = field(default_factory=dict)  # agent to code
    rooms: Sequence[tuple[str, str, str]] = ()  # room, agent, code


def of_homeserver(facts: HomeserverFacts, *, url: str, sender: str) -> Iterator[Finding]:
    """`sender` is whom the settings name."""
    if facts.reachable:
        hint = "does it run, is homeserver_url right, and may this host reach it?"
        text = f"no answer from {url} ({facts.reachable})"
        yield fault("homeserver", "homeserver_unreachable", text, hint)
        return
    if facts.token:
        text = f"it does not accept our as_token ({facts.token})"
        hint = "give it this bridge's registration (a2a-bridge registration) and restart it"
        yield fault("homeserver", "as_token_wrong", text, hint)
        return
    if facts.sender != sender:
        text = f"it knows us as {facts.sender}, the settings say {sender}"
        hint = "server_name or sender_localpart differ from the registration that it has"
        yield fault("homeserver", "registration_differs", text, hint)
    else:
        yield ok("homeserver", f"{url} knows us as {facts.sender}")
    yield from _ping(facts.ping)
    for agent, code in facts.ghosts.items():
        if code:
            text = f"the user of {agent} cannot be used ({code})"
            hint = "is it in the registration that the homeserver has? Another account's name?"
            yield fault("ghosts", "ghost_not_ours", text, hint)
    if facts.ghosts and not any(facts.ghosts.values()):
        yield ok("ghosts", f"{len(facts.ghosts)} have their accounts and devices")
    yield from _rooms(facts.rooms)


_PINGS: Final = {
    "m_bad_status": (
        "hs_token_wrong",
        "it reaches us, and we refuse it or fail",
        "give it this bridge's registration (its hs_token differs), and restart it",
    ),
    "m_connection_failed": (
        "bridge_unreachable",
        "it cannot reach us at the address of the registration",
        "does the bridge run? Is `url` in its settings the address that the homeserver can reach?",
    ),
    "m_connection_timeout": (
        "bridge_unreachable",
        "it gets no answer from the address of the registration",
        "is there a firewall between them? Does the bridge hang?",
    ),
    "m_url_not_set": (
        "registration_differs",
        "the registration that it has names no address",
        "give it this bridge's registration (a2a-bridge registration) and restart it",
    ),
    "m_forbidden": (
        "registration_differs",
        "it knows our token under another appservice id",
        "appservice_id must be the id in the registration that it has",
    ),
}


def _ping(code: str) -> Iterator[Finding]:
    if not code:
        yield ok("delivery", "the homeserver reaches us, and we accept its token")
        return
    known = (f"ping_{code}", f"the homeserver did not ping us ({code})", "see its log")
    name, text, hint = _PINGS.get(code, known)
    yield fault("delivery", name, text, hint)


_ROOMS: Final = {
    "not_in_room": ("is not in the room", "invite it; if it was banned, the room decides"),
    "may_not_speak": (
        "may not speak there",
        "raise its power level, or lower what a message needs",
    ),
}


def _rooms(rooms: Sequence[tuple[str, str, str]]) -> Iterator[Finding]:
    for room_id, agent, code in rooms:
        if code:
            said, hint = _ROOMS.get(code, (f"cannot be asked about it ({code})", "see its log"))
            name = f"ghost_{code}" if code in _ROOMS else "room_unknown"
            yield fault("rooms", name, f"the user of {agent} {said}: {room_id}", hint)
    if rooms and not any(code for _, _, code in rooms):
        yield ok("rooms", f"in {len(rooms)} rooms with open jobs the agents may speak")


# ---- the agents -----------------------------------------------------------------------------


def of_agent(found: Examination) -> Iterator[Finding]:
    check = f"agent {found.agent}"
    levels = {
        examination.Severity.ERROR: Level.FAULT,
        examination.Severity.WARNING: Level.WARNING,
        examination.Severity.NOTE: Level.OK,
    }
    for one in found.findings:
        yield Finding(check, levels[one.severity], one.code, one.text, one.hint)
    if found.healthy and not found.findings:
        yield ok(check, f"speaks {found.protocol} at {found.endpoint}")
