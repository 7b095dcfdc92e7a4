"""`corral-gateway doctor`: what is wrong, in words, with what to do about it.

The judgements are pure functions of facts (`of_…`); the facts are gathered by `facts`. Nothing is
changed anywhere: what the identity may do is asked with commands that are let through and do
nothing. What is refused leaves a line in the server's `ACL LOG`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.core.errors import CorralError
from corral.core.findings import Finding, fault, ok, warning
from corral.gateway.domain import Limits

FULL_WARN_SHARE: Final = 0.8
WAITING_S: Final = 60.0  # a message that its agent has not got for so long


# ---- secrets --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SecretFacts:
    """A file with a secret. `trouble` is set when it cannot be used; `mode` is the file's."""

    check: str
    path: str
    mode: int = 0o600
    missing: bool = False
    trouble: str = ""


def of_secret(facts: SecretFacts) -> Finding:
    check, path = facts.check, facts.path
    if facts.missing:
        hint = "put one line of visible characters there, readable for the gateway alone"
        return fault(check, "secret_missing", f"there is no {path}", hint)
    if facts.mode & 0o006:
        hint = f"chmod o-rw {path}, then change the secret: it may have been read"
        return fault(check, "secret_readable", f"{path} is open to everybody", hint)
    if facts.trouble:
        hint = "one line of visible characters, another one for each client"
        return fault(check, "secret_invalid", facts.trouble, hint)
    return ok(check, f"{path} is there, for those alone who need it")


# ---- the tasks ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """`error` is set when the database could not be read; `there` is false before the first start.
    Of the tasks that have not ended, how many each client has; how long the agents' next messages
    wait, by agent."""

    error: CorralError | None = None
    there: bool = True
    open_tasks: Mapping[str, int] = field(default_factory=dict)
    known: int = 0
    waiting_s: Mapping[str, float] = field(default_factory=dict)


def of_tasks(facts: TaskFacts, limits: Limits) -> Iterator[Finding]:
    if facts.error is not None:
        code = "foreign_database" if facts.error.code == "foreign_database" else "database_unusable"
        yield fault("database", code, facts.error.message, facts.error.hint)
        return
    if not facts.there:
        hint = "the first start makes it; if there was one, look at state_dir"
        yield warning("database", "database_missing", "there are no tasks yet", hint)
        return
    yield ok("database", "it is the gateway's, of this release, and can be read")
    for client, count in facts.open_tasks.items():
        yield _room(f"client {client}", count, limits.open_tasks_max, "tasks that have not ended")
    yield _room("known tasks", facts.known, limits.tasks_max, "tasks that are known")
    for agent, seconds in facts.waiting_s.items():
        if seconds > WAITING_S:
            text = f"a message for {agent} waits for {seconds:.0f} s"
            hint = "it is kept; see what is found about redis and the service"
            yield warning(f"deliveries {agent}", "deliveries_wait", text, hint)


def _room(check: str, count: int, most: int, what: str) -> Finding:
    text = f"{count} of {most} {what}"
    if count >= most:
        hint = "new messages are refused; corral-gateway tasks shows which, and for how long"
        return fault(check, "tasks_full", text, hint)
    if count >= FULL_WARN_SHARE * most:
        hint = "at the limit new messages are refused; does an agent not answer?"
        return warning(check, "tasks_nearly_full", text, hint)
    return ok(check, text)


# ---- the service ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServiceFacts:
    """`trouble` when nobody answers at the socket; `legs` that are in trouble; `refused` are the
    clients whose token in the file is not the one that the service knows."""

    socket: str
    trouble: str = ""
    legs: Mapping[str, str] = field(default_factory=dict)
    refused: Sequence[str] = ()


def of_service(facts: ServiceFacts) -> Iterator[Finding]:
    if facts.trouble:
        hint = "start it: corral-gateway run; messages that were taken are kept"
        text = f"nobody answers at {facts.socket}: {facts.trouble}"
        yield fault("service", "not_serving", text, hint)
        return
    yield ok("service", f"it answers at {facts.socket}")
    for leg, word in facts.legs.items():
        hint = "it goes on by itself when that is over; see the checks of redis"
        yield fault(f"leg {leg}", "leg_in_trouble", f"it pauses: {word}", hint)
    for client in facts.refused:
        text = "the service does not know the token that is in the file"
        hint = "restart it: tokens are read at the start"
        yield fault(f"client {client}", "token_stale", text, hint)


# ---- redis ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RedisFacts:
    """What one agent's identity met. `denied` are commands that it may not use."""

    agent: str
    where: str
    unreachable: str = ""
    unauthorized: bool = False
    denied: Sequence[str] = ()
    full: bool = False
    group: bool = True


def of_redis(facts: RedisFacts) -> Iterator[Finding]:
    check = f"redis {facts.agent}"
    if facts.unreachable:
        text = f"no answer at {facts.where}: {facts.unreachable}"
        hint = "is it running, and is the gateway in its network namespace?"
        yield fault(check, "redis_unreachable", text, hint)
    elif facts.unauthorized:
        hint = "does the password_file hold the credential of this identity, of this server?"
        yield fault(check, "redis_denied", f"{facts.where} refuses the credential", hint)
    elif facts.denied:
        text = f"the identity may not use {', '.join(facts.denied)}"
        hint = "give it the ACL of docs/reference/identities.md and restart the server"
        yield fault(check, "acl_wrong", text, hint)
    elif facts.full:
        hint = "raise maxmemory, or let the outboxes' readers catch up; nothing is lost meanwhile"
        yield fault(check, "redis_full", "the server takes nothing more (maxmemory)", hint)
    elif not facts.group:
        hint = "the gateway makes it when it connects: is it running? Then see its log"
        yield fault(check, "group_missing", "the outbox has no group of ours", hint)
    else:
        yield ok(check, f"{facts.where} lets the identity do what it must, and has its group")
